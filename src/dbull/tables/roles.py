"""What each column of a table is, proposed from the first data by rules that a user can overrule.

A rule decides only where it is plain; the rest are numbers if they can be read as such. Names count where
values alone cannot tell: 4711 is a quantity, but as `customer_id` an id, and as `zip` a code.
"""

import re
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dbull.errors import check_known
from dbull.tables.cells import (
    FLAGS,
    MOST_COUNTED,
    Floats,
    Reading,
    count_values,
    epoch_of,
    present,
    read_dates,
    read_labels,
    read_numbers,
    read_vectors,
    tidy,
    width_of,
)
from dbull.tables.frames import columns_of
from dbull.tables.parts import cycles_of, frequent_levels
from dbull.tables.words import words_of

ROLES = ("number", "flag", "category", "date", "text", "vector", "key", "ignore")
MARKED = 0.01  # share of rows with and without a value from which it tells rows apart whether there is one
UNREADABLE = 0.05  # share of the values up to which a column is what the rest can be read as
COVER, LEAST_COVER = 0.5, 0.2  # share of rows with frequent values: a category, and if it is nothing else
UNIQUE_SHARE = 0.9  # of different values, from which they name their rows
PROSE_WORDS = 8.0  # words per value from which it is prose
ROW_NUMBERS = 20  # rows from which 0, 1, 2, ... is no coincidence
ID_WORDS = {"id", "ids", "uid", "uuid", "guid", "key", "index", "idx", "pk"}
CODE_WORDS = {"code", "codes", "type", "kind", "category", "status", "zip", "zipcode", "postcode", "postal"}
CALENDAR_WORDS = {"year", "quarter", "month", "week", "day", "date"}
EPOCH_WORDS = {"epoch", "unix", "unixtime", "timestamp"}
_NAME_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[^\W\d_A-Z]+")
_DAY_OR_MONTH_FIRST = re.compile(r"[0-9]{1,2}([/.-])[0-9]{1,2}\1[0-9]{2,4}(\s.*)?")
_UUID = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_LEADING_ZERO = re.compile(r"0[0-9]+")


@dataclass(frozen=True)
class ColumnRole:
    """What a column is taken for, and why."""

    name: str
    role: str
    seen: str  # type of its values
    missing_share: float
    n_distinct: int
    more_distinct: bool  # whether there are more than were counted
    becomes: str  # what of it reaches the model, in words; "" if it is left out
    reason: str  # why it is left out, or anything else that a user should know

    def __str__(self) -> str:
        """Return one line for the user."""
        return f"{self.name}: {self.role}; {self.becomes or self.reason}"


def propose_roles(frame: Any, roles: Mapping[str, str] | None = None) -> tuple[ColumnRole, ...]:
    """Propose a role for each column of the first data; `roles` are the user's own, by name."""
    columns, given = columns_of(frame), dict(roles or {})
    for name, role in given.items():
        check_known("column", name, columns)
        check_known(f"role of column {name!r}:", role, ROLES)
    return tuple(_propose(name, column, given.get(name)) for name, column in columns.items())


def proposed_keys(frame: Any) -> tuple[str, ...]:
    """Return the columns of a table of numbers that only name its rows; looked for where ids are found."""
    columns = columns_of(frame)
    looked_at = {
        name: column
        for i, (name, column) in enumerate(columns.items())
        if i == 0 or not ID_WORDS.isdisjoint(_name_words(name))
    }
    return tuple(role.name for role in propose_roles(looked_at) if role.role == "key")


def _name_words(name: str) -> list[str]:
    return [word.casefold() for word in _NAME_WORD.findall(name)]


@dataclass(frozen=True, eq=False)
class _Column:
    """What the rules look at."""

    name: str
    cells: NDArray[Any]  # tidy, without the missing ones
    n_missing: int
    counts: Counter[str]
    more_distinct: bool

    @cached_property
    def kinds(self) -> set[type]:
        """The types of the values."""
        return set(map(type, self.cells)) if self.cells.dtype.kind == "O" else {self.cells.dtype.type}

    @property
    def kind(self) -> str:
        """Their type in words."""
        first = next(iter(self.kinds))
        if len(self.kinds) > 1:
            return "values of several types"
        words = {str: "text", bool: "true or false", int: "whole numbers", float: "numbers"}
        array_words = {
            "b": "true or false",
            "f": "numbers",
            "M": "dates",
            "O": words.get(first, first.__name__),
        }
        return array_words.get(self.cells.dtype.kind, "whole numbers")

    @cached_property
    def cover(self) -> float:
        """The share of the rows that have one of the frequent values."""
        levels = frequent_levels(self.counts, len(self.cells))
        return sum(self.counts[level] for level in levels) / len(self.cells)

    def called(self, what: str) -> str:
        """Return a type, and whether it is written as text."""
        return f"{what} as text" if self.kinds == {str} else what

    def named(self, words: set[str]) -> bool:
        """Tell whether one of these words is in the name."""
        return not words.isdisjoint(_name_words(self.name))

    def mean(self, measure: Callable[[str], float]) -> float:
        """Return the mean of a measure of the values, each different value looked at once."""
        return sum(n * measure(label) for label, n in self.counts.items()) / sum(self.counts.values())

    def share(self, pattern: re.Pattern[str]) -> float:
        """Return the share of the values that a pattern matches."""
        return self.mean(lambda label: pattern.fullmatch(label) is not None)

    def unreadable(self, read: Callable[[NDArray[Any]], Reading]) -> float:
        """Return the share of the values that cannot be read so, each different value looked at once."""
        found = read(np.fromiter(self.counts, dtype=object, count=len(self.counts))).values
        return float(np.average(np.isnan(found), weights=list(self.counts.values())))


# The role, the type seen, the share of the present values that cannot be read so, and a reason.
_Verdict = tuple[str, str, float, str]


def _propose(name: str, column: NDArray[Any], given: str | None) -> ColumnRole:
    cells = tidy(column)
    there = present(cells)
    n_rows, n_present = len(cells), int(there.sum())
    counts, more = _count_labels(cells[there])
    found = _Column(name, cells[there], n_rows - n_present, counts, more)
    role, seen, unreadable, reason = _judge(found)
    if given not in (None, role):
        role, unreadable, reason = str(given), 0.0, "as asked for"
    missing_share = 1 - (1 - unreadable) * n_present / n_rows if n_rows else 0.0
    days = _days(found) if role == "date" else np.zeros(0)
    if len(days) and not cycles_of(days):
        # Which day it is says only when a row came.
        role, reason = "ignore", "dates that run through no day, week or year twice, so that they only go on"
        if MARKED <= missing_share <= 1 - MARKED:
            role, reason = "category", "whether there is a date; the dates themselves only go on"
    becomes = _becomes(role, found) if n_present else ""
    if becomes and missing_share > 0:
        becomes += ", and whether it is missing"
    return ColumnRole(name, role, seen, missing_share, len(counts), more, becomes, reason)


def _count_labels(cells: NDArray[Any]) -> tuple[Counter[str], bool]:
    """Count values under their names; those of arrays by numpy, which is faster."""
    if cells.ndim == 2:
        return Counter(), False
    if cells.dtype.kind == "O":
        return count_values(read_labels(cells))
    values, counts = np.unique(cells, return_counts=True)
    most = np.argsort(-counts, kind="stable")[:MOST_COUNTED]
    named = zip(read_labels(values[most]), counts[most].tolist(), strict=True)
    return Counter({str(label): count for label, count in named}), len(most) < len(values)


def _judge(column: _Column) -> _Verdict:
    """Go through the rules; the first that holds decides."""
    cells, n = column.cells, len(column.cells)
    if n == 0:
        return "ignore", "nothing", 0, "all values are missing"
    width = width_of(cells)
    if width:
        unreadable = read_vectors(cells, width).n_unreadable / n
        if unreadable <= UNREADABLE:
            return "vector", f"lists of {width} numbers", unreadable, ""
        return "ignore", "lists", 0, "lists of different lengths, or not of numbers"
    if not column.kinds.isdisjoint((dict, list, tuple, np.ndarray)):
        return "ignore", "nested values", 0, "nested values; give their parts as columns"
    if len(column.counts) == 1:
        if MARKED <= column.n_missing / (n + column.n_missing) <= 1 - MARKED:
            return "category", column.kind, 0, "one value or missing: a mark that some rows have"
        return "ignore", column.kind, 0, f"always {next(iter(column.counts))!r:.40}"
    if {"0", "1"} == column.counts.keys() or FLAGS.keys() >= {label.casefold() for label in column.counts}:
        return "flag", column.kind, 0, ""
    unreadable = column.unreadable(read_dates) if cells.dtype.kind in "MO" else 1.0
    if unreadable <= UNREADABLE:
        return "date", column.called("dates"), unreadable, ""
    codes = column.kinds == {str} and column.share(_LEADING_ZERO) > 0  # 00501 is a zip code
    unreadable = column.unreadable(read_numbers)
    return _judge_texts(column) if codes or unreadable > UNREADABLE else _judge_numbers(column, unreadable)


def _judge_numbers(column: _Column, unreadable: float) -> _Verdict:
    numbers = read_numbers(column.cells).values
    numbers = numbers[~np.isnan(numbers)]
    is_whole = bool((numbers == np.floor(numbers)).all())
    seen = column.called("whole numbers" if is_whole else "numbers")
    unique = max(column.counts.values()) == 1
    if is_whole and unique and column.named(ID_WORDS):
        return "key", seen, 0, "a different number in each row, named as an id"
    if is_whole and len(numbers) >= ROW_NUMBERS and numbers[0] in (0, 1) and (np.diff(numbers) == 1).all():
        return "key", seen, 0, "the numbers of the rows"
    if column.named(CALENDAR_WORDS) and len(numbers) >= ROW_NUMBERS and (np.diff(numbers) >= 0).all():
        # Like which day a date is, it says only when a row came.
        return "ignore", seen, 0, "a part of a date that only goes on with the rows"
    if column.named(EPOCH_WORDS) and epoch_of(column.cells):
        return "date", f"{seen} since 1970", unreadable, ""
    if is_whole and column.named(ID_WORDS | CODE_WORDS):
        if column.cover >= LEAST_COVER:
            return "category", seen, 0, "numbers that are codes, by the name"
        if column.named(ID_WORDS):
            return "ignore", seen, 0, f"an id that repeats, {_n_values(column)}, few of them frequent"
    return "number", seen, unreadable, ""


def _judge_texts(column: _Column) -> _Verdict:
    seen = column.kind
    unique = column.more_distinct or len(column.counts) >= UNIQUE_SHARE * len(column.cells)
    if column.share(_DAY_OR_MONTH_FIRST) >= 1 - UNREADABLE:
        return "ignore", seen, 0, "dates whose day and month cannot be told apart; write them as 2013-01-31"
    if column.share(_UUID) >= 1 - UNREADABLE:
        return ("key" if unique else "ignore"), seen, 0, "ids without a meaning"
    if column.cover >= COVER:
        return "category", seen, 0, ""
    # Texts are told from names and codes by their words: those of texts recur.
    n_words = column.mean(lambda label: len(label.split()))
    if n_words >= PROSE_WORDS or (n_words >= 1.5 and _recurring(column) >= 0.5):
        return "text", seen, 0, ""
    if column.cover >= LEAST_COVER:
        return "category", seen, 0, ""
    if unique:
        return "key", seen, 0, "a different text in almost every row"
    return "ignore", seen, 0, f"{_n_values(column)}, few of them frequent"


def _recurring(column: _Column) -> float:
    """Return the share of the texts that have a word which others have too: at least 3, and 0.5 % of all."""
    counts, _ = count_values(word for label in column.counts for word in set(words_of(label)))
    common = {word for word, count in counts.items() if count >= max(3, 0.005 * len(column.counts))}
    return column.mean(lambda label: not common.isdisjoint(words_of(label)))


def _becomes(role: str, column: _Column) -> str:
    """Say what of a column reaches the model."""
    if role == "category":
        levels = frequent_levels(column.counts, len(column.cells))
        shown = ", ".join(level[:20] for level in levels[:3]) + (", ..." if len(levels) > 3 else "")
        return f"which of {len(levels)} values ({shown}) or another" if levels[1:] else f"is it {shown}"
    if role == "date":
        return ", ".join(cycles_of(_days(column)))
    if role == "vector":
        return f"{width_of(column.cells)} numbers"
    return {"number": "a number", "flag": "true or false", "text": "topics of its words"}.get(role, "")


def _days(column: _Column) -> Floats:
    days = read_dates(column.cells, epoch_of(column.cells)).values
    return days[~np.isnan(days)]


def _n_values(column: _Column) -> str:
    return f"{'more than ' * column.more_distinct}{len(column.counts):,} different values"
