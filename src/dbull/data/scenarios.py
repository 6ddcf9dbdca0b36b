"""Scenarios: a data set as an ordered list of arrivals, made from a name and a seed alone, to the byte.

Labels travel beside the values for scoring; no learner is given them.
"""

import hashlib
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TypeVar, overload

import numpy as np

from dbull.data import rules, synthetic
from dbull.data.dataset import Dataset, Samples, dense_rows
from dbull.data.registry import load
from dbull.errors import SettingsError, check_known

Record = TypeVar("Record", covariant=True)


@dataclass(frozen=True, eq=False)  # arrays have no single answer to ==
class Arrival:
    """One data set of the stream."""

    index: int  # position in the stream, from 0
    x: np.ndarray  # (n, d) float32
    y_true: np.ndarray  # (n,) int64, for scoring only
    task: int  # of the scenario; never shown to a learner
    classes: tuple[int, ...]  # of the task


@dataclass(frozen=True, eq=False)  # arrays have no single answer to ==
class HeldOut:
    """Rows of a task that never arrive; x (n, d) float32, y_true (n,) int64."""

    task: int
    x: np.ndarray
    y_true: np.ndarray
    classes: tuple[int, ...]


@dataclass(frozen=True, eq=False)  # arrays have no single answer to ==
class Scenario:
    """An ordered list of arrivals and, per task, what was held out.

    `arrivals` and `held_out` cut their rows out of the data set when they are asked for, so that a
    long stream is never in memory twice. `fingerprint` is the SHA-256 over all bytes of both.
    """

    name: str
    seed: int
    dataset: str
    sample_shape: tuple[int, ...]
    kind: str
    arrivals: Sequence[Arrival]
    held_out: Sequence[HeldOut]
    fingerprint: str
    domain: Callable[[], np.ndarray]  # all rows of the data set that are not held out, without labels


class _Lazy(Sequence[Record]):
    """A sequence whose items are made when they are asked for."""

    def __init__(self, n_items: int, make: Callable[[int], Record]) -> None:
        self._n_items = n_items
        self._make = make

    def __len__(self) -> int:
        return self._n_items

    @overload
    def __getitem__(self, index: int) -> Record: ...
    @overload
    def __getitem__(self, index: slice) -> list[Record]: ...
    def __getitem__(self, index: int | slice) -> Record | list[Record]:
        chosen = range(self._n_items)[index]
        return self._make(chosen) if isinstance(chosen, int) else [self._make(i) for i in chosen]


Source = str | Callable[[int, Path | str | None], Dataset]  # a name, or a function of a seed and a folder
Planner = Callable[[np.ndarray, int | None, np.random.Generator], rules.Plan]

_PAIRS = ((0, 1), (2, 3), (4, 5), (6, 7), (8, 9))
_SINGLES = tuple((label,) for label in range(10))
_FOURS = tuple(tuple(range(first, first + 4)) for first in range(0, 20, 4))


def _drawn(name: str, draw: Callable[[int], Samples]) -> Source:
    """Return the synthetic set of that name, drawn from the scenario's seed instead of seed 0."""

    def data(seed: int, _folder: Path | str | None) -> Dataset:
        samples = draw(seed)
        return replace(load(name), x=samples.x, y_true=samples.y_true)

    return data


def _digits_table(_seed: int, folder: Path | str | None) -> Dataset:
    """Return the digits as a plain table: no learner is told that a row is an image."""
    digits = load("digits", folder)
    return replace(digits, name="digits-table", sample_shape=(digits.x.shape[1],))


def _kdd_both(_seed: int, folder: Path | str | None) -> Dataset:
    first, second = load("kddcup99", folder), load("kddcup99-corrected", folder)
    return replace(
        first,
        name=f"{first.name}+{second.name}",
        x=np.concatenate([first.x, second.x]),
        y_true=np.concatenate([first.y_true, second.y_true]),
        checksums={**first.checksums, **second.checksums},
    )


_split, _recurring = partial(rules.tasks, groups=_PAIRS), partial(rules.recurring, groups=_PAIRS)
# The paper's: 10,000 rows per pair, in arrivals of 1,000; mini-batches are up to the learner.
_paper = partial(_split, arrival_size=1_000, rows_per_task=10_000)
_RULES: dict[str, tuple[Source, Planner]] = {
    "split-digits": ("digits", partial(_split, arrival_size=100)),
    "split-digits-table": (_digits_table, partial(_split, arrival_size=180)),
    "recurring-digits": ("digits", partial(_recurring, rounds=2)),
    "batch-digits": ("digits", rules.batch),
    "split-mnist": ("mnist", _paper),
    "split-mnist-tasks": ("mnist", partial(_paper, arrival_size=10_000)),
    "split-mnist-classes": ("mnist", partial(_paper, groups=_SINGLES, rows_per_task=5_000)),
    "split-fashion-mnist": ("fashion-mnist", _paper),
    "recurring-mnist": ("mnist", partial(_recurring, rounds=4, rows_per_visit=1_000)),
    "imbalanced-mnist": ("mnist", partial(rules.imbalanced, arrival_size=1_000, ratio=0.01)),
    "same-classes-mnist": ("mnist", partial(rules.mixed, arrival_size=1_000, n_arrivals=20)),
    "batch-mnist": ("mnist", rules.batch),
    "batch-fashion-mnist": ("fashion-mnist", rules.batch),
    "batch-usps": ("usps", rules.batch),
    "batch-reuters10k": ("reuters10k", rules.batch),
    "batch-20newsgroups": ("20newsgroups", rules.batch),
    "batch-cifar10-features": ("cifar10-features", rules.batch),
    "batch-stl10-features": ("stl10-features", rules.batch),
    "split-cifar10-features": ("cifar10-features", partial(_split, arrival_size=500)),
    "split-20newsgroups": ("20newsgroups", partial(_split, groups=_FOURS, arrival_size=1_000)),
    "batch-gaussian": (_drawn("gaussian-mixture", synthetic.gaussian_mixture), rules.batch),
    "batch-skewed": (_drawn("skewed-mixture", synthetic.skewed_mixture), rules.batch),
    "drift-gaussian": (
        _drawn("drifting-mixture", synthetic.drifting_mixture),
        partial(rules.in_order, arrival_size=450, n_tasks=5),
    ),
    "kdd": ("kddcup99", partial(rules.in_order, arrival_size=10_000, n_tasks=10)),
    "kdd-new-attacks": (_kdd_both, partial(rules.in_order, arrival_size=10_000, n_tasks=16)),
}


def scenario_names() -> tuple[str, ...]:
    """Return the names that :func:`scenario` knows."""
    return tuple(_RULES)


def scenario(name: str, seed: int, folder: Path | str | None = None) -> Scenario:
    """Make one of :func:`scenario_names`; the same name and seed, from 0 on, give the same bytes.

    `folder` is where the files of the data set are, as for :func:`dbull.data.load`.
    """
    check_known("scenario", name, _RULES)
    if seed < 0:
        raise SettingsError(f"seed must not be negative, got {seed}")
    source, planner = _RULES[name]
    dataset = load(source, folder) if isinstance(source, str) else source(seed, folder)
    x, y_true = dataset.x, dataset.y_true
    assert y_true is not None
    # A stream of its own per name: two scenarios of one data set share no draw.
    random = np.random.Generator(np.random.PCG64(np.random.SeedSequence([seed, zlib.crc32(name.encode())])))
    plan = planner(y_true, dataset.n_train, random)

    def arrival(index: int) -> Arrival:
        task, rows = plan.arrivals[index]
        return Arrival(index, dense_rows(x, rows), y_true[rows], task, plan.classes[task])

    def held_out(task: int) -> HeldOut:
        rows = plan.held_out[task]
        return HeldOut(task, dense_rows(x, rows), y_true[rows], plan.classes[task])

    def domain() -> np.ndarray:
        outside = np.ones(x.shape[0], dtype=bool)
        for rows in plan.held_out:
            outside[rows] = False
        return dense_rows(x, np.flatnonzero(outside))

    arrivals, kept_back = _Lazy(len(plan.arrivals), arrival), _Lazy(len(plan.held_out), held_out)
    return Scenario(
        name=name,
        seed=seed,
        dataset=dataset.name,
        sample_shape=dataset.sample_shape,
        kind=dataset.kind,
        arrivals=arrivals,
        held_out=kept_back,
        fingerprint=_fingerprint(arrivals, kept_back),
        domain=domain,
    )


def _fingerprint(arrivals: Sequence[Arrival], held_out: Sequence[HeldOut]) -> str:
    digest = hashlib.sha256()
    for kind, records in (("arrival", arrivals), ("held out", held_out)):
        for record in records:
            header = f"{kind} task={record.task} classes={record.classes} shape={record.x.shape}\n"
            digest.update(header.encode())
            digest.update(record.x.astype("<f4", copy=False).data)
            digest.update(record.y_true.astype("<i8", copy=False).data)
    return digest.hexdigest()
