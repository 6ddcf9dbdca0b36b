"""What a column of each role becomes, before it is scaled: one class per role, fixed by the first data.

None of them keeps a row. What is stored of a part are its `fields`, and arrays beside them.
"""

import math
from abc import ABC, abstractmethod
from collections import Counter
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dbull.documents import Reader, fail, list_of, mapping, number, one_of, text, value_that
from dbull.scaling import ALL_OR_NOTHING, CURVES, Curve, block_spread, column_spread
from dbull.tables.cells import (
    EPOCHS,
    Floats,
    Reading,
    count_values,
    epoch_of,
    read_dates,
    read_flags,
    read_labels,
    read_numbers,
    read_vectors,
    width_of,
)
from dbull.tables.topics import fit_topics
from dbull.tables.words import WordHasher

Arrays = dict[str, NDArray[Any]]
LEVEL_SHARE, MOST_LEVELS = 0.005, 30  # share of rows that have a value, and number of values, with features
MOST_WIDTH = 100_000  # of a vector, as of a table
# Days of each cycle, and by what a date is shifted to begin one: 1970-01-01 was a Thursday.
CYCLES = {"hour of day": (1.0, 0.0), "day of week": (7.0, 3.0), "day of year": (365.2425, 0.0)}


class Part(ABC):
    """What all roles have in common."""

    fields: ClassVar[dict[str, Reader]]
    reach: ClassVar[float] = 0.0  # greatest distance of raw features, where a rare value could be too far
    votes: ClassVar[float] = 1.0  # variance of all its features
    curve: Curve = Curve()

    @classmethod
    @abstractmethod
    def fit(cls, cells: NDArray[Any]) -> "Part":
        """Return the part for a column of which these are the first cells."""

    @property
    @abstractmethod
    def features(self) -> tuple[tuple[str, str], ...]:
        """The name of each feature, and what it measures (`Feature.measure`)."""

    @abstractmethod
    def raw(self, cells: NDArray[Any]) -> Reading:
        """Return the features of tidy cells before they are scaled, NaN where a cell is missing."""

    def spread(self, raw: Floats) -> Any:
        """Return by what features are divided, from those of the first rows, missing ones left out."""
        return block_spread(raw, self.reach, self.votes)

    def stored(self) -> tuple[dict[str, Any], Arrays]:
        """Return plain values and arrays, for `restored`."""
        values = {name: getattr(self, name) for name in self.fields}
        return {name: list(part) if isinstance(part, tuple) else part for name, part in values.items()}, {}

    @classmethod
    def restored(cls, values: dict[str, Any], arrays: Arrays, where: str) -> "Part":
        """Return what was stored; `values` as `fields` read them."""
        return cls(**{name: tuple(part) if isinstance(part, list) else part for name, part in values.items()})


@dataclass(frozen=True)
class _Number(Part):
    rule: str
    centre: float
    unit: float
    features = (("value", "value"),)
    fields: ClassVar = {
        "rule": one_of(CURVES),
        "centre": number,
        "unit": value_that(lambda value: isinstance(value, float) and 1e-100 <= value <= 1e100, "a unit"),
    }

    @classmethod
    def fit(cls, cells: NDArray[Any]) -> Part:
        numbers = read_numbers(cells).values
        curve = Curve.of(numbers[~np.isnan(numbers)])
        return cls(curve.rule, curve.centre, curve.unit)

    @property
    def curve(self) -> Curve:  # type: ignore[override]
        return Curve(self.rule, self.centre, self.unit)

    def raw(self, cells: NDArray[Any]) -> Reading:
        reading = read_numbers(cells)
        return replace(reading, values=self.curve.bend(reading.values))

    def spread(self, raw: Floats) -> Any:
        return column_spread(raw)


@dataclass(frozen=True)
class _Flag(Part):
    features = (("true", "share"),)
    fields: ClassVar = {}
    reach = 1.0
    votes = ALL_OR_NOTHING

    @classmethod
    def fit(cls, cells: NDArray[Any]) -> Part:
        return cls()

    def raw(self, cells: NDArray[Any]) -> Reading:
        return read_flags(cells)


def frequent_levels(counts: Counter[str], n_rows: int) -> tuple[str, ...]:
    """Return the values that enough rows have, the most frequent first; the rest are "other"."""
    most = sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))[:MOST_LEVELS]
    return tuple(level for level, count in most if count >= max(2, LEVEL_SHARE * n_rows))


def _few_different(allowed: Reader, most: int) -> Reader:
    """Return the reader of a list without repetitions."""

    def read(value: object, where: str) -> Any:
        found = list_of(allowed)(value, where)
        if len(set(found)) < len(found) or len(found) > most:
            fail(where, f"repeats itself, or has more than {most} parts")
        return found

    return read


@dataclass(frozen=True)
class _Category(Part):
    """Which of the frequent values it is, or another one, now or later."""

    levels: tuple[str, ...]
    fields: ClassVar = {"levels": _few_different(text, MOST_LEVELS)}
    reach = math.sqrt(2)
    votes = ALL_OR_NOTHING

    @classmethod
    def fit(cls, cells: NDArray[Any]) -> Part:
        labels = [label for label in read_labels(cells) if label is not None]
        return cls(frequent_levels(count_values(labels)[0], len(labels)))

    @property
    def features(self) -> tuple[tuple[str, str], ...]:
        return tuple((name, "share") for name in (*self.levels, "other"))

    def raw(self, cells: NDArray[Any]) -> Reading:
        n_levels = len(self.levels)
        position: dict[str | None, int] = {None: n_levels + 1} | {
            name: i for i, name in enumerate(self.levels)
        }
        which = [position.get(label, n_levels) for label in read_labels(cells)]
        kinds = np.vstack([np.eye(n_levels + 1), np.full(n_levels + 1, np.nan)])
        return Reading(kinds[np.array(which, dtype=np.int64)])


def cycles_of(days: Floats) -> tuple[str, ...]:
    """Return the cycles that dates run through: at least twice, and not by the calendar alone.

    A cycle that is covered only once says what the days themselves say. Dates that are all the first of a
    month stand for months, whose days of the week mean nothing.
    """
    if not len(days):
        return ()
    found = []
    dates = np.floor(days).astype(np.int64).astype("M8[D]")
    months = bool((dates == dates.astype("M8[M]")).all())
    for name, (period, _) in CYCLES.items():
        phases = _phases(days, name)
        varies = math.hypot(np.cos(phases).mean(), np.sin(phases).mean()) < 0.999  # leap days shift a year
        if varies and np.ptp(days) >= 2 * period and not (months and name == "day of week"):
            found.append(name)
    return tuple(found)


def _phases(days: Floats, cycle: str) -> Floats:
    period, shift = CYCLES[cycle]
    since = days if period == 1 else np.floor(days)  # the time of day has a cycle of its own
    phases: Floats = 2 * math.pi * ((since + shift) % period) / period
    return phases


@dataclass(frozen=True)
class _Date(Part):
    """Where in the day, the week and the year a date is; which day it is grows with the stream."""

    cycles: tuple[str, ...]
    epoch: str  # the unit of dates that are numbers, or ""
    fields: ClassVar = {
        "cycles": _few_different(one_of((*CYCLES,)), len(CYCLES)),
        "epoch": one_of(("", *EPOCHS)),
    }

    @classmethod
    def fit(cls, cells: NDArray[Any]) -> Part:
        epoch = epoch_of(cells)
        days = read_dates(cells, epoch).values
        return cls(cycles_of(days[~np.isnan(days)]), epoch)

    @property
    def features(self) -> tuple[tuple[str, str], ...]:
        return tuple((f"{way} of {cycle}", "position") for cycle in self.cycles for way in ("sin", "cos"))

    def raw(self, cells: NDArray[Any]) -> Reading:
        reading = read_dates(cells, self.epoch)
        circles = (_phases(reading.values, cycle) for cycle in self.cycles)
        parts = [way(phases) for phases in circles for way in (np.sin, np.cos)]
        return replace(reading, values=np.array(parts).T)

    def spread(self, raw: Floats) -> Any:
        return np.repeat([block_spread(raw[:, i : i + 2], reach=2.0) for i in range(0, raw.shape[1], 2)], 2)


@dataclass(frozen=True, eq=False)
class _Text(Part):
    """Where the words of a text lie among the topics of the first texts, and how much lies outside."""

    hasher: WordHasher
    topics: NDArray[np.float32]  # (n_buckets, n_topics)
    labels: tuple[str, ...]  # the words that weigh most in each
    fields: ClassVar = {"words": mapping, "labels": list_of(text)}
    reach = math.sqrt(2)

    @classmethod
    def fit(cls, cells: NDArray[Any]) -> Part:
        return cls(*fit_topics([label for label in read_labels(cells) if label is not None]))

    @property
    def features(self) -> tuple[tuple[str, str], ...]:
        return tuple((name, "position") for name in (*self.labels, "unfamiliar"))

    def raw(self, cells: NDArray[Any]) -> Reading:
        labels = read_labels(cells)
        places = self.hasher.rows(label or "" for label in labels) @ self.topics.astype(np.float64)
        outside = np.sqrt(np.maximum(0.0, 1 - (places**2).sum(1)))
        raw = np.column_stack([places, outside])
        raw[[label is None for label in labels]] = np.nan
        return Reading(raw)

    def stored(self) -> tuple[dict[str, Any], Arrays]:
        words, arrays = self.hasher.to_document()
        return {"words": words, "labels": list(self.labels)}, {**arrays, "topics": self.topics}

    @classmethod
    def restored(cls, values: dict[str, Any], arrays: Arrays, where: str) -> Part:
        hasher = WordHasher.from_document(values["words"], arrays, f"{where}.words")
        topics, labels = np.asarray(arrays.get("topics", ())), tuple(values["labels"])
        fits = topics.dtype == np.float32 and topics.shape == (hasher.n_buckets, len(labels))
        if not fits or not np.isfinite(topics).all():
            fail(where, f"topics of shape {topics.shape} for {len(labels)} labels")
        return cls(hasher, topics, labels)


@dataclass(frozen=True)
class _Vector(Part):
    """A vector of numbers, moved to its mean and scaled as a whole, so that angles stay what they are.

    Its variance is the root of its width: 1 would silence an embedding beside a few numbers, the width itself
    would silence them.
    """

    width: int
    fields: ClassVar = {"width": value_that(lambda n: type(n) is int and 0 < n <= MOST_WIDTH, "a width")}

    @classmethod
    def fit(cls, cells: NDArray[Any]) -> Part:
        return cls(width_of(cells))

    @property
    def features(self) -> tuple[tuple[str, str], ...]:
        return tuple((f"[{i}]", "value") for i in range(self.width))

    def raw(self, cells: NDArray[Any]) -> Reading:
        return read_vectors(cells, self.width)

    def spread(self, raw: Floats) -> Any:
        return block_spread(raw, self.reach, variance=math.sqrt(self.width))


PARTS: dict[str, type[Part]] = {
    "number": _Number,
    "flag": _Flag,
    "category": _Category,
    "date": _Date,
    "text": _Text,
    "vector": _Vector,
}
