"""Rules that cut a labelled data set into a stream: from labels and a random generator to row numbers.

All take the labels of the rows, the size of the official training part if there is one, and a generator.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.random import Generator

from dbull.errors import DataError

_HELD_OUT_SHARE = 0.2


@dataclass(frozen=True, eq=False)  # arrays have no single answer to ==
class Plan:
    """Which rows of a data set arrive when, and which are kept for scoring."""

    arrivals: tuple[tuple[int, np.ndarray], ...]  # task and rows, in the order in which a learner gets them
    held_out: tuple[np.ndarray, ...]  # one per task; none of these rows arrives
    classes: tuple[tuple[int, ...], ...]  # of each task


def split_rows(n_rows: int, n_train: int | None, random: Generator) -> tuple[np.ndarray, np.ndarray]:
    """Return rows to learn from and rows to score on: the official parts, else a random 80 % and 20 %."""
    if n_train is not None:
        return np.arange(n_train), np.arange(n_train, n_rows)
    rows = random.permutation(n_rows)
    n_held_out = round(_HELD_OUT_SHARE * n_rows)
    return np.sort(rows[n_held_out:]), np.sort(rows[:n_held_out])


def batch(y_true: np.ndarray, _n_train: int | None, random: Generator) -> Plan:
    """One arrival of a random 80 % of all rows; the other 20 % are held out. The paper's batch setting."""
    learn, held_out = split_rows(len(y_true), None, random)
    return Plan(((0, random.permutation(learn)),), (held_out,), (_classes(y_true),))


def tasks(
    y_true: np.ndarray,
    n_train: int | None,
    random: Generator,
    groups: Sequence[tuple[int, ...]],
    arrival_size: int,
    rows_per_task: int | None = None,
) -> Plan:
    """One task after the other, each a shuffled mix of the classes of its group.

    Held-out rows are those of the task's classes beyond the first `n_train`, the official training part. If
    the rows do not divide by `arrival_size`, arrivals differ by at most one row.
    """
    learn, held_out = split_rows(len(y_true), n_train, random)
    arrivals: list[tuple[int, np.ndarray]] = []
    for task, group in enumerate(groups):
        rows = random.permutation(learn[np.isin(y_true[learn], group)])
        arrivals += [(task, part) for part in _cut(_take(rows, rows_per_task, f"task {task}"), arrival_size)]
    return Plan(tuple(arrivals), _held_out(y_true, held_out, groups), tuple(groups))


def recurring(
    y_true: np.ndarray,
    n_train: int | None,
    random: Generator,
    groups: Sequence[tuple[int, ...]],
    rounds: int,
    rows_per_visit: int | None = None,
) -> Plan:
    """Every group comes once per round, with new rows: what was learnt must not be learnt as new."""
    learn, held_out = split_rows(len(y_true), n_train, random)
    visits = []
    for task, group in enumerate(groups):
        rows = random.permutation(learn[np.isin(y_true[learn], group)])
        wanted = None if rows_per_visit is None else rounds * rows_per_visit
        visits.append(np.array_split(_take(rows, wanted, f"task {task}"), rounds))
    arrivals = tuple((task, visits[task][visit]) for visit in range(rounds) for task in range(len(groups)))
    return Plan(arrivals, _held_out(y_true, held_out, groups), tuple(groups))


def mixed(
    y_true: np.ndarray, n_train: int | None, random: Generator, arrival_size: int, n_arrivals: int
) -> Plan:
    """Return arrivals that all hold all classes: nothing new ever comes, so nothing new should be found."""
    learn, held_out = split_rows(len(y_true), n_train, random)
    rows = _take(random.permutation(learn), arrival_size * n_arrivals, "the stream")
    return Plan(tuple((0, part) for part in np.split(rows, n_arrivals)), (held_out,), (_classes(y_true),))


def imbalanced(
    y_true: np.ndarray, n_train: int | None, random: Generator, arrival_size: int, ratio: float
) -> Plan:
    """Return a mixed stream in which class sizes fall geometrically from the commonest to `ratio` times it.

    Which class is common and which is rare is drawn anew for each seed. The held-out rows keep
    their balance.
    """
    learn, held_out = split_rows(len(y_true), n_train, random)
    classes = random.permutation(_classes(y_true))
    rows_of = [random.permutation(learn[y_true[learn] == label]) for label in classes]
    largest = min(map(len, rows_of))
    shares = ratio ** np.linspace(0, 1, len(classes))
    kept = [rows[: max(1, round(largest * share))] for rows, share in zip(rows_of, shares, strict=True)]
    rows = random.permutation(np.concatenate(kept))
    arrivals = tuple((0, part) for part in _cut(rows, arrival_size))
    return Plan(arrivals, (held_out,), (_classes(y_true),))


def in_order(
    y_true: np.ndarray, _n_train: int | None, random: Generator, arrival_size: int, n_tasks: int
) -> Plan:
    """Rows in their own order. A task is a stretch of the stream; a random tenth of it is held out."""
    arrivals: list[tuple[int, np.ndarray]] = []
    held_out, classes = [], []
    for task, stretch in enumerate(np.array_split(np.arange(len(y_true)), n_tasks)):
        kept_back = random.permutation(len(stretch))[: max(1, len(stretch) // 10)]
        scoring = np.zeros(len(stretch), dtype=bool)
        scoring[kept_back] = True
        held_out.append(stretch[scoring])
        arrivals += [(task, part) for part in _cut(stretch[~scoring], arrival_size)]
        classes.append(_classes(y_true[stretch]))
    return Plan(tuple(arrivals), tuple(held_out), tuple(classes))


def _classes(y_true: np.ndarray) -> tuple[int, ...]:
    return tuple(int(label) for label in np.unique(y_true))


def _take(rows: np.ndarray, wanted: int | None, what: str) -> np.ndarray:
    if wanted is not None and wanted > len(rows):
        raise DataError(f"{what} needs {wanted:,} rows, its classes have {len(rows):,}")
    return rows[:wanted]


def _cut(rows: np.ndarray, size: int) -> list[np.ndarray]:
    return np.array_split(rows, max(1, round(len(rows) / size)))


def _held_out(
    y_true: np.ndarray, rows: np.ndarray, groups: Sequence[tuple[int, ...]]
) -> tuple[np.ndarray, ...]:
    return tuple(rows[np.isin(y_true[rows], group)] for group in groups)
