"""What is known of a cluster, what happened to it, and how both are written down and read back."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from numbers import Integral, Real
from typing import Any, NoReturn

from dbull.errors import ModelFileError, SettingsError, did_you_mean

__all__ = [
    "KINDS",
    "STATUSES",
    "ClusterRecord",
    "Event",
    "Reader",
    "check_fields",
    "fail",
    "list_of",
    "number",
    "object_of",
    "or_none",
    "plain",
    "text",
    "truth",
    "whole",
]

Reader = Callable[[object, str], Any]  # a JSON value and its place -> what it means, or ModelFileError

KINDS = ("arrival", "birth", "growth", "merge", "dissolution", "rename", "retirement", "scale")
STATUSES = ("active", "merged", "retired", "dissolved")


@dataclass(frozen=True)
class ClusterRecord:
    """One cluster that has ever been, under an id that no other cluster gets.

    A merged cluster lives on in the older one `merged_into`; a dissolved one gave its rows to several and has
    no successor; a retired one is only marked, and may still receive rows. `rows` are those that count for
    this cluster now, so they are 0 once it is merged or dissolved.
    """

    id: int
    first_seen: int  # arrival of its birth
    last_seen: int  # last arrival that brought rows
    rows: int = 0
    name: str | None = None
    weight: float | None = None
    parents: tuple[int, ...] = ()
    status: str = "active"
    merged_into: int | None = None

    @property
    def living(self) -> bool:
        """Whether rows can belong to it."""
        return self.status in ("active", "retired")

    @property
    def relatives(self) -> tuple[int, ...]:
        """Every other cluster that this record names; all are older."""
        return self.parents if self.merged_into is None else (*self.parents, self.merged_into)

    def to_json(self) -> dict[str, Any]:
        """Return plain values, in the order in which a table shows them."""
        return {
            "id": self.id,
            "name": self.name,
            "rows": self.rows,
            "weight": self.weight,
            "first_seen": self.first_seen,
            "last_seen": self.last_seen,
            "parents": list(self.parents),
            "status": self.status,
            "merged_into": self.merged_into,
        }

    @classmethod
    def from_json(cls, value: object, where: str) -> ClusterRecord:
        """Read what `to_json` gave; `where` names the place in error messages."""
        fields = check_fields(
            value,
            where,
            {
                "id": whole,
                "name": or_none(text),
                "rows": whole,
                "weight": or_none(_share),
                "first_seen": whole,
                "last_seen": whole,
                "parents": _ids,
                "status": _one_of(STATUSES),
                "merged_into": or_none(whole),
            },
        )
        record = cls(**fields)
        if (record.merged_into is not None) != (record.status == "merged"):
            fail(where, f"status {record.status!r} with merged_into {record.merged_into}")
        if not record.living and record.rows:
            fail(where, f"{record.rows} rows in a cluster that is {record.status}")
        if any(other >= record.id for other in record.relatives):
            fail(where, "parents and merged_into must be older than the cluster itself")
        if record.last_seen < record.first_seen:
            fail(where, "last_seen is before first_seen")
        return record


@dataclass(frozen=True)
class Event:
    """Something that happened to clusters: what, when, to which, how many rows it concerned, and why.

    A merge names the older id first. `time` is what the caller said, or None: nothing here reads a clock, so
    that the same data give the same bytes.
    """

    kind: str
    arrival: int
    time: str | None
    clusters: tuple[int, ...]
    rows: int = 0
    evidence: dict[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return {
            "kind": self.kind,
            "arrival": self.arrival,
            "time": self.time,
            "clusters": list(self.clusters),
            "rows": self.rows,
            "evidence": self.evidence,
        }

    @classmethod
    def from_json(cls, value: object, where: str) -> Event:
        """Read what `to_json` gave; `where` names the place in error messages."""
        fields = check_fields(
            value,
            where,
            {
                "kind": _one_of(KINDS),
                "arrival": whole,
                "time": or_none(text),
                "clusters": _ids,
                "rows": whole,
                "evidence": _evidence,
            },
        )
        return cls(**fields)


def plain(value: object, where: str) -> Any:
    """Return a value as JSON would give it back; refuse what JSON cannot hold exactly."""
    if value is None or isinstance(value, (bool, str)):
        return value
    if isinstance(value, Integral):
        return int(value)
    if isinstance(value, Real):
        if not math.isfinite(value):
            raise SettingsError(f"{where}: {value} cannot be written down; leave it out or say it in words")
        return float(value)
    if isinstance(value, Mapping):
        if not all(isinstance(key, str) for key in value):
            raise SettingsError(f"{where}: keys must be texts, got {list(value)!r}")
        return {key: plain(part, f"{where}.{key}") for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(part, f"{where}[{i}]") for i, part in enumerate(value)]
    raise SettingsError(
        f"{where}: a {type(value).__name__} cannot be written down; give plain numbers or text"
    )


def fail(where: str, what: str) -> NoReturn:
    """Raise the error of a document that is not what this version writes."""
    raise ModelFileError(f"{where}: {what}; the file is damaged or was edited, go back to a sound generation")


def check_fields(value: object, where: str, readers: Mapping[str, Reader]) -> dict[str, Any]:
    """Return the fields of a JSON object, each read by its reader; refuse unknown and missing ones."""
    if not isinstance(value, dict):
        fail(where, f"expected an object, got {type(value).__name__}")
    for name in value:
        if name not in readers:
            fail(where, f"unknown field {name!r} {did_you_mean(name, readers)}".rstrip())
    for name in readers:
        if name not in value:
            fail(where, f"field {name!r} is missing")
    return {name: read(value[name], f"{where}.{name}") for name, read in readers.items()}


def whole(value: object, where: str) -> int:
    """Read a whole number of at least 0."""
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        fail(where, f"expected a whole number of at least 0, got {value!r:.50}")
    return value


def text(value: object, where: str) -> str:
    """Read a text."""
    if not isinstance(value, str):
        fail(where, f"expected a text, got {value!r:.50}")
    return value


def number(value: object, where: str) -> float:
    """Read a finite number with a decimal point."""
    if not isinstance(value, float) or not math.isfinite(value):
        fail(where, f"expected a number, got {value!r:.50}")
    return value


def truth(value: object, where: str) -> bool:
    """Read true or false."""
    if not isinstance(value, bool):
        fail(where, f"expected true or false, got {value!r:.50}")
    return value


def _share(value: object, where: str) -> float:
    if not isinstance(value, float) or not 0.0 <= value <= 1.0:
        fail(where, f"expected a number from 0.0 to 1.0, got {value!r:.50}")
    return value


def _ids(value: object, where: str) -> tuple[int, ...]:
    return tuple(list_of(whole)(value, where))


def _evidence(value: object, where: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        fail(where, f"expected an object, got {value!r:.50}")
    try:
        read: dict[str, Any] = plain(value, where)
    except SettingsError as error:
        raise ModelFileError(str(error)) from error
    return read


def or_none(reader: Reader) -> Reader:
    """Return the reader of what may also be null."""
    return lambda value, where: None if value is None else reader(value, where)


def object_of(readers: Mapping[str, Reader]) -> Reader:
    """Return the reader of an object with just these fields."""
    return lambda value, where: check_fields(value, where, readers)


def list_of(reader: Reader) -> Reader:
    """Return the reader of a list whose parts are read by `reader`."""

    def read(value: object, where: str) -> list[Any]:
        if not isinstance(value, list):
            fail(where, f"expected a list, got {value!r:.50}")
        return [reader(part, f"{where}[{i}]") for i, part in enumerate(value)]

    return read


def _one_of(allowed: tuple[str, ...]) -> Reader:
    def read(value: object, where: str) -> str:
        if not isinstance(value, str) or value not in allowed:
            fail(where, f"expected one of {', '.join(allowed)}, got {value!r:.50}")
        return value

    return read
