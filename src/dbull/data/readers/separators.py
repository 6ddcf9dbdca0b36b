"""How cells of separated text are written: what lies between them, and whether numbers have a comma."""

import csv
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain

MAX_LINE = 1 << 24  # characters; so many columns as a table may have need fewer
SEPARATORS = (",", "\t", ";", "|")
LOOKED_AT, MOST_CHARACTERS = 20, 1 << 20  # lines, and characters of them, by which the separator is found
_COMMA, _POINT = (re.compile(rf"\s*[+-]?[0-9]+{sign}[0-9]+\s*") for sign in (",", r"\."))


@contextmanager
def long_cells() -> Iterator[None]:
    """Let cells be as long as lines here: Python's limit, which is one for all, is short for a text."""
    before = csv.field_size_limit(MAX_LINE)
    try:
        yield
    finally:
        csv.field_size_limit(before)


@dataclass(frozen=True)
class Writing:
    """How cells are written."""

    separator: str = ","
    decimal_comma: bool = False

    def plain(self, cells: list[str]) -> list[str]:
        """Return cells with points in their numbers."""
        if not self.decimal_comma:
            return cells
        return [cell.replace(",", ".") if _COMMA.fullmatch(cell) else cell for cell in cells]


def look_at(lines: Iterator[str]) -> tuple[Iterator[str], Writing]:
    """Return all lines, and how their cells are written.

    The separator is that which gives the most columns, the same number in each of the first lines. Where it
    is no comma, numbers may have one for a point.
    """
    first: list[str] = []
    for line in lines:
        first.append(line)
        if len(first) == LOOKED_AT or sum(map(len, first)) > MOST_CHARACTERS:
            break
    best, found = 1, Writing()
    for separator in SEPARATORS:
        try:
            with long_cells():
                rows = [row for row in csv.reader(first, delimiter=separator) if row]
        except csv.Error:
            continue
        rows = rows[:-1] if len(rows) > 2 else rows  # a quote may reach beyond the last line
        if rows and {len(row) for row in rows} == {len(rows[0])} and len(rows[0]) > best:
            cells = [cell for row in rows[1:] for cell in row]
            commas, points = (any(map(sign.fullmatch, cells)) for sign in (_COMMA, _POINT))
            best, found = len(rows[0]), Writing(separator, separator != "," and commas and not points)
    return chain(first, lines), found
