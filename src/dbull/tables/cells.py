"""What the cells of a column say as numbers, flags, dates, labels or texts, whatever they are stored as.

Every reader looks at each cell on its own, so that a row means the same in every table and in every order.
A cell that cannot be read as what its column is counts as missing; the reading tells how many, and one.
"""

import datetime
import decimal
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from itertools import islice
from numbers import Real
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Value = TypeVar("Value", float, str)

# What pandas takes as missing in a file, in the same spelling: "none" and "na" are words.
MISSING = frozenset(
    ["", "NA", "N/A", "n/a", "#N/A", "#NA", "<NA>", "NaN", "nan", "-nan", "NULL", "null", "None", "NaT"]
)
FLAGS = {"true": 1.0, "false": 0.0, "yes": 1.0, "no": 0.0, "t": 1.0, "f": 0.0, "y": 1.0, "n": 0.0}
LARGEST = 1e100  # no measurement is larger; squares, and sums of many, stay in the range of float64
EPOCHS = {"s": 1.0, "ms": 1e3, "us": 1e6, "ns": 1e9}  # units of a time since 1970, per second
MOST_COUNTED = 100_000  # different values that are counted at once
DAY = 86_400.0

_KNOWN = (Real, decimal.Decimal, datetime.date, datetime.timedelta)  # anything else is what it prints
_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
_GROUPED = re.compile(r"[+-]?[0-9]{1,3}(,[0-9]{3})+(\.[0-9]*)?")  # 1,234,567.8
_WHOLE = re.compile(r"([+-]?[0-9]+)\.0+")
_DATE = re.compile(
    r"([0-9]{4})[-/]([0-9]{1,2})(?:[-/]([0-9]{1,2}))?"
    r"(?:[T ]([0-9]{1,2}):([0-9]{2})(?::([0-9]{2})(\.[0-9]+)?)?\s*(?:Z|UTC|[+-][0-9]{2}:?[0-9]{2})?)?"
)


@dataclass(frozen=True, eq=False)
class Reading:
    """The cells of a column as numbers, NaN where there is none, and how many could not be read."""

    values: Floats  # (n,) or (n, width)
    n_unreadable: int = 0
    example: object = None  # one that could not be read


def tidy(column: NDArray[Any]) -> NDArray[Any]:
    """Return numbers, bools and dates as they are, anything else as Python's own values, None for missing."""
    kind = column.dtype.kind
    if kind in "biufM":
        return column
    if kind == "m":
        seconds: NDArray[Any] = np.where(np.isnat(column), np.nan, column / np.timedelta64(1, "s"))
        return seconds
    if column.ndim == 2:
        column = np.fromiter(column, dtype=object)
    return np.fromiter(map(_tidy_cell, column), dtype=object, count=len(column))


def _tidy_cell(cell: Any) -> Any:
    if isinstance(cell, bytes):
        cell = cell.decode("utf-8", "replace")
    if isinstance(cell, str):
        cell = cell.strip()
        return None if cell in MISSING else cell
    if cell is None or isinstance(cell, (list, tuple, np.ndarray, dict)):
        return cell
    if isinstance(cell, np.generic):
        unit = {"M": "M8[us]", "m": "m8[us]"}.get(cell.dtype.kind)
        cell = (cell.astype(unit) if unit else cell).item()
    try:
        missing = cell is None or bool(cell != cell)
    except (TypeError, ValueError):  # pandas.NA does not say
        missing = True
    return None if missing else cell if isinstance(cell, _KNOWN) else str(cell)


def present(cells: NDArray[Any]) -> NDArray[np.bool_]:
    """Return which cells of a tidy column hold something."""
    if cells.dtype.kind == "O":
        return np.fromiter((cell is not None for cell in cells), dtype=bool, count=len(cells))
    there = cells == cells  # NaN and NaT are not even themselves
    return np.asarray(there.any(1) if there.ndim == 2 else there)


def read_numbers(cells: NDArray[Any]) -> Reading:
    """Read numbers, also where they are written as text; infinite ones cannot be read."""
    return (
        _kept(cells, cells.astype(np.float64)) if cells.dtype.kind in "biuf" else _each_number(cells, _number)
    )


def read_flags(cells: NDArray[Any]) -> Reading:
    """Read true as 1 and false as 0; a number is true unless it is 0."""
    if cells.dtype.kind in "biuf":
        numbers = cells.astype(np.float64)
        return Reading(np.where(np.isnan(numbers), np.nan, (numbers != 0).astype(np.float64)))
    return _each_number(cells, _flag)


def read_dates(cells: NDArray[Any], epoch: str = "") -> Reading:
    """Read dates as days since 1970-01-01, as written; numbers are times since then in the unit `epoch`."""
    if cells.dtype.kind == "M":
        days = cells.astype("M8[us]").astype(np.int64) / (DAY * 1e6)
        return Reading(np.where(np.isnat(cells), np.nan, days))
    if not epoch:
        return _each_number(cells, _days)
    numbers = read_numbers(cells)
    return replace(numbers, values=numbers.values / (EPOCHS[epoch] * DAY))


def read_vectors(cells: NDArray[Any], width: int) -> Reading:
    """Read lists of `width` numbers, (n, width)."""
    if cells.ndim == 2 and cells.shape[1] == width:
        return _kept(cells, cells.astype(np.float64))
    found = np.full((len(cells), width), np.nan)
    unreadable = []
    for i, cell in enumerate(cells):
        numbers = None if cell is None else _numbers(cell, width)
        if numbers is not None:
            found[i] = numbers
        elif cell is not None:
            unreadable.append(cell)
    return Reading(found, len(unreadable), next(iter(unreadable), None))


def read_labels(cells: NDArray[Any]) -> list[str | None]:
    """Return the name of each value, the same for 4, 4.0, "4" and "4.0"; None for missing."""
    return _each(cells, _label)


def count_values(values: Iterable[Any]) -> tuple[Counter[Any], bool]:
    """Count values; return also whether rare ones were dropped on the way, there being too many."""
    counts: Counter[Any] = Counter()
    dropped, rest = False, iter(values)
    while chunk := list(islice(rest, MOST_COUNTED)):
        counts.update(chunk)
        if len(counts) > MOST_COUNTED:
            counts, dropped = Counter(dict(counts.most_common(MOST_COUNTED // 2))), True
    return counts, dropped


def epoch_of(cells: NDArray[Any]) -> str:
    """Return the unit in which all numbers here are times between 1973 and 2103, "" if there is none."""
    if cells.dtype.kind == "M":
        return ""
    numbers = read_numbers(cells).values
    numbers = numbers[~np.isnan(numbers)]
    for unit, per_second in EPOCHS.items():
        if len(numbers) and numbers.min() >= 1e8 * per_second and numbers.max() <= 4.2e9 * per_second:
            return unit
    return ""


def width_of(cells: NDArray[Any]) -> int:
    """Return the length that most of the lists in a column have, 0 if there are no lists."""
    if cells.ndim == 2:
        return int(cells.shape[1])
    listed = cells if cells.dtype == object else ()
    widths = Counter(len(cell) for cell in listed if isinstance(cell, (list, tuple, np.ndarray)))
    return max(widths.most_common(1), default=(0, 0))[0]


def _kept(cells: NDArray[Any], numbers: Floats) -> Reading:
    """Take out what is infinite or beyond every measurement."""
    bad = np.abs(numbers) > LARGEST
    if not bad.any():
        return Reading(numbers)
    return Reading(np.where(bad, np.nan, numbers), int(bad.sum()), cells[bad][0].item())


def _each(cells: NDArray[Any], read: Callable[[Any], Value | None]) -> list[Value | None]:
    """Read cells one by one, equal ones once; None for what is missing or cannot be read."""
    known: dict[Any, Value | None] = {}
    found: list[Value | None] = []
    there = present(cells).tolist()
    if cells.dtype.kind == "M":  # finer ones would be listed as numbers
        cells = cells.astype("M8[us]")
    for cell, is_there in zip(cells.tolist(), there, strict=True):
        if not is_there:
            found.append(None)
            continue
        try:
            key = (type(cell), cell)  # True is 1 to a dict
            if key not in known:
                known[key] = read(cell)
            found.append(known[key])
        except TypeError:  # lists have no hash
            found.append(read(cell))
    return found


def _each_number(cells: NDArray[Any], read: Callable[[Any], float | None]) -> Reading:
    values = np.array(_each(cells, read), dtype=np.float64)  # None becomes NaN
    unreadable = np.isnan(values) & present(cells)
    return Reading(values, int(unreadable.sum()), next(iter(cells[unreadable].tolist()), None))


def _number(cell: Any) -> float | None:
    try:
        if isinstance(cell, str):
            text = cell.strip("$€£¥% ")
            text = text.replace(",", "") if _GROUPED.fullmatch(text) else text
            value = float(text) if _NUMBER.fullmatch(text) else math.nan
        elif isinstance(cell, datetime.timedelta):
            value = cell.total_seconds()
        else:
            value = float(cell) if isinstance(cell, (Real, decimal.Decimal)) else math.nan
    except (ValueError, OverflowError):
        return None
    return value if abs(value) <= LARGEST else None


def _numbers(cell: Any, width: int) -> Floats | None:
    try:
        numbers = np.array(cell, dtype=np.float64)
    except (TypeError, ValueError):
        return None
    return np.where(np.abs(numbers) <= LARGEST, numbers, np.nan) if numbers.shape == (width,) else None


def _flag(cell: Any) -> float | None:
    if isinstance(cell, str) and cell.casefold() in FLAGS:
        return FLAGS[cell.casefold()]
    number = _number(cell)
    return None if number is None else float(number != 0)


def _days(cell: Any) -> float | None:
    try:
        if isinstance(cell, str):
            match = _DATE.fullmatch(cell)
            if match is None:
                return None
            year, month, day, hour, minute, second = (int(part or 0) for part in match.groups()[:6])
            moment = datetime.datetime(year, month, day or 1, hour, minute, second)
            return _since_1970(moment) + float(match[7] or 0) / DAY
        if isinstance(cell, datetime.datetime):
            return _since_1970(cell.replace(tzinfo=None))
        if isinstance(cell, datetime.date):
            return _since_1970(datetime.datetime(cell.year, cell.month, cell.day))
    except ValueError:  # the 30th of February
        pass
    return None


def _since_1970(moment: datetime.datetime) -> float:
    return (moment - datetime.datetime(1970, 1, 1)) / datetime.timedelta(days=1)


def _label(cell: Any) -> str:
    if isinstance(cell, bool):
        return str(cell).lower()
    if isinstance(cell, datetime.timedelta):
        return str(cell.total_seconds())
    text = cell.isoformat() if isinstance(cell, datetime.date) else str(cell)
    whole = _WHOLE.fullmatch(text)
    return whole[1] if whole else text
