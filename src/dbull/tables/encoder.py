"""Rows of numbers from the columns of a table: fixed by the first data, tolerant of what comes later.

A row is encoded by itself, so that it means the same in every arrival. docs/tables.md has the rules.
"""

import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dbull.categories import categories_in
from dbull.documents import check_fields, fail, list_of, mapping, number, object_of, one_of, text, whole
from dbull.errors import DataError, TableNotice
from dbull.scaling import category_spread
from dbull.tables.cells import Floats, tidy
from dbull.tables.frames import Columns, columns_of
from dbull.tables.parts import PARTS, Arrays, Part
from dbull.tables.roles import ColumnRole, propose_roles
from dbull.tables.scales import LARGEST, Feature, missing_spread

VERSION = 1


@dataclass(frozen=True, eq=False)
class _Column:
    """One column: its part, the mean and spread of each raw feature, and what was missing at first."""

    name: str
    role: str
    part: Part
    means: Floats
    spreads: Floats
    missing_share: float

    @property
    def flagged(self) -> bool:
        """Whether there is a feature for what is missing."""
        return self.missing_share > 0

    @property
    def features(self) -> Iterable[Feature]:
        of = self.name, self.role
        for (name, measure), mean, spread in zip(self.part.features, self.means, self.spreads, strict=True):
            yield Feature(*of, name, measure, float(mean), float(spread), self.part.curve)
        if self.flagged:
            yield Feature(*of, "missing", "share", self.missing_share, missing_spread(self.missing_share))

    def encode(self, cells: NDArray[Any], notices: list[str]) -> Floats:
        """Return the features of cells, (n, width)."""
        reading = self.part.raw(cells)
        raw = reading.values.reshape(len(cells), len(self.means))
        if reading.n_unreadable:
            notices.append(
                f"column {self.name!r}: {reading.n_unreadable} of {len(cells)} values cannot be read as "
                f"{self.role}, such as {reading.example!r:.50}; they count as missing"
            )
        scaled = (raw - self.means) / self.spreads
        missing = np.isnan(scaled)
        scaled[missing] = 0.0
        if not self.flagged:
            return scaled
        nothing = missing.all(1).astype(np.float64)
        flag = (nothing - self.missing_share) / missing_spread(self.missing_share)
        return np.column_stack([scaled, flag])


def _fit_column(role: ColumnRole, column: NDArray[Any]) -> _Column:
    cells = tidy(column)
    part = PARTS[role.role].fit(cells)
    raw = part.raw(cells).values.reshape(len(cells), len(part.features))
    there = ~np.isnan(raw).all(1)
    if not there.any():
        example = next((cell for cell in cells.tolist() if cell is not None), None)
        raise DataError(
            f"column {role.name!r}: none of its {len(cells)} values can be read as {role.role}, the first "
            f"being {example!r:.50}; give it another role, or leave it out with the role 'ignore'"
        )
    known = raw[there]
    means = np.ma.masked_invalid(known).mean(0).filled(0.0)  # vectors may lack single numbers
    known = np.where(np.isnan(known), means, known)
    spreads = np.broadcast_to(np.asarray(part.spread(known), dtype=np.float64), means.shape).copy()
    return _Column(role.name, role.role, part, means, spreads, float(1 - there.mean()))


def _with_one_vote(fitted: list[_Column], columns: Columns) -> list[_Column]:
    """Return the columns, with flags side by side that are the values of one category scaled together."""
    n_rows = len(columns[fitted[0].name])
    flags = np.full((n_rows, len(fitted)), np.nan)
    for i, column in enumerate(fitted):
        if column.role == "flag" and not column.flagged:
            flags[:, i] = column.part.raw(tidy(columns[column.name])).values.reshape(n_rows)
    for values in categories_in(flags):
        spread = np.array([category_spread(flags[:, values])])
        fitted[values] = [replace(column, spreads=spread) for column in fitted[values]]
    return fitted


@dataclass(frozen=True, eq=False)
class ColumnEncoder:
    """Turns tables into rows of numbers; made by `fit`, never changed afterwards."""

    _columns: tuple[_Column, ...]
    left_out: tuple[str, ...]  # columns of the first data that say nothing about groups

    @classmethod
    def fit(cls, frame: Any, roles: Iterable[ColumnRole] | None = None) -> "ColumnEncoder":
        """Return the encoder that the first data call for; roles are proposed unless they are given."""
        columns = columns_of(frame)
        given = tuple(propose_roles(columns) if roles is None else roles)
        _refuse_absent([role.name for role in given if role.name not in columns], columns)
        used = [role for role in given if role.role in PARTS]
        if not used or not len(next(iter(columns.values()))):
            raise DataError(
                "no column is left that tells rows apart: all are keys, constant or empty; "
                "give at least one a role, such as roles={'name': 'category'}"
            )
        left_out = tuple(role.name for role in given if role.role not in PARTS)
        fitted = [_fit_column(role, columns[role.name]) for role in used]
        return cls(tuple(_with_one_vote(fitted, columns)), left_out)

    @property
    def names(self) -> tuple[str, ...]:
        """The columns that are used."""
        return tuple(column.name for column in self._columns)

    @property
    def text_names(self) -> tuple[str, ...]:
        """Those of them that are texts."""
        return tuple(column.name for column in self._columns if column.role == "text")

    @cached_property
    def features(self) -> tuple[Feature, ...]:
        """What each number of an encoded row means."""
        return tuple(feature for column in self._columns for feature in column.features)

    def encode(self, frame: Any, tell: Callable[[str], object] | None = None) -> NDArray[np.float32]:
        """Return the rows of a table, (N, len(features)) float32.

        `tell` is called with each notice about what is not as it was in the first data: columns that are new
        or missing, values that cannot be read. Without it, notices are warnings.
        """
        columns, notices = columns_of(frame), list[str]()
        absent = [column for column in self._columns if column.name not in columns]
        _refuse_absent([column.name for column in absent if not column.missing_share], columns)
        if len(absent) == len(self._columns):
            raise DataError("none of the columns of the first data is there; is this another table?")
        notices += [f"column {c.name!r} is not there: all of its values count as missing" for c in absent]
        known = {*self.left_out, *(column.name for column in self._columns)}
        new = [name for name in columns if name not in known]
        if new:
            notices.append(f"new columns are ignored: {', '.join(map(repr, new[:20]))}")
        n_rows = len(next(iter(columns.values())))
        rows = np.empty((n_rows, len(self.features)), dtype=np.float32)
        start = 0
        for column in self._columns:
            cells = tidy(columns.get(column.name, np.full(n_rows, None)))
            part = column.encode(cells, notices)
            rows[:, start : start + part.shape[1]] = np.clip(part, -LARGEST, LARGEST)
            start += part.shape[1]
        for notice in notices:
            if tell is None:
                warnings.warn(notice, TableNotice, stacklevel=2)
            else:
                tell(notice)
        return rows

    def to_document(self) -> tuple[dict[str, Any], Arrays]:
        """Return plain values and named float arrays, for `from_document`; no row is among them."""
        documents, arrays = [], {}
        for i, column in enumerate(self._columns):
            values, parts = column.part.stored()
            parts = {"means": column.means, "spreads": column.spreads, **parts}
            arrays.update({f"{i}.{name}": array for name, array in parts.items()})
            documents.append({**{name: getattr(column, name) for name in _COLUMN}, "part": values})
        return {"version": VERSION, "columns": documents, "left_out": list(self.left_out)}, arrays

    @classmethod
    def from_document(
        cls, document: object, arrays: Mapping[str, NDArray[Any]], where: str = "tables"
    ) -> "ColumnEncoder":
        """Return the encoder that was stored, to the bit; anything else is a ModelFileError."""
        values = check_fields(document, where, _DOCUMENT)
        if values["version"] != VERSION:
            fail(where, f"version {values['version']} of encoded tables; this dbull knows {VERSION}")
        names = [*(part["name"] for part in values["columns"]), *values["left_out"]]
        if len(set(names)) < len(names) or not values["columns"]:
            fail(where, "columns that occur twice, or none")
        groups: dict[str, Arrays] = {str(i): {} for i in range(len(values["columns"]))}
        for name, array in arrays.items():
            position, _, rest = name.partition(".")
            if position not in groups:
                fail(where, f"an array {name!r:.50} of no column")
            groups[position][rest] = array
        columns = (
            _read_column(part, groups[str(i)], f"{where}.columns[{i}]")
            for i, part in enumerate(values["columns"])
        )
        return cls(tuple(columns), tuple(values["left_out"]))


def _read_column(values: dict[str, Any], arrays: Arrays, where: str) -> _Column:
    kind = PARTS[values["role"]]
    fields = check_fields(values["part"], f"{where}.part", kind.fields)
    part = kind.restored(fields, arrays, f"{where}.part")
    if set(arrays) != {"means", "spreads", *part.stored()[1]}:
        fail(where, f"arrays {', '.join(sorted(arrays)):.100}")
    means, spreads = (np.asarray(arrays[name]) for name in ("means", "spreads"))
    for found in (means, spreads):
        if found.dtype != np.float64 or found.shape != (len(part.features),) or not np.isfinite(found).all():
            fail(where, f"means and spreads are not {len(part.features)} numbers each")
    if (spreads <= 0).any() or not 0 <= values["missing_share"] < 1:
        fail(where, "a spread or a missing share that no data have")
    return _Column(values["name"], values["role"], part, means, spreads, values["missing_share"])


def _refuse_absent(names: list[str], columns: Columns) -> None:
    if names:
        has = ", ".join(list(columns)[:20]) + (", ..." if len(columns) > 20 else "")
        raise DataError(
            f"no column {', '.join(map(repr, names[:20]))}, which was never missing in the first data; the "
            f"table has {has}. If its values are not known, give the column with None in every row"
        )


_COLUMN = {"name": text, "role": one_of((*PARTS,)), "missing_share": number}
_DOCUMENT = {
    "version": whole,
    "columns": list_of(object_of({**_COLUMN, "part": mapping})),
    "left_out": list_of(text),
}
