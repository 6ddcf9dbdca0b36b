"""JSON that comes back exactly as it was given, or not at all."""

from __future__ import annotations

import json
import math
import re
from typing import Any

from dbull.errors import ModelFileError, SettingsError
from dbull.lifelong.records import plain

__all__ = ["MAX_DEPTH", "dump_document", "dump_line", "parse_document"]

MAX_DEPTH = 50
# Each goes over a text once, whatever is in it; a backslash outside of a text is refused by the parser.
_ESCAPES, _TEXTS, _OTHERS = (re.compile(p, re.DOTALL) for p in (rb"\\.", rb'"[^"]*"?', rb"[^\[\]{}]+"))


def dump_document(value: object, where: str) -> bytes:
    """Return a value as indented JSON; refuse what would not come back the same."""
    return _dump(value, where, indent=1) + b"\n"


def dump_line(value: object, where: str) -> bytes:
    """Return a value as one line of JSON."""
    return _dump(value, where, indent=None) + b"\n"


def parse_document(data: bytes, where: str) -> Any:
    """Return the value of a JSON text; anything but strict JSON of bounded depth is a ModelFileError."""
    if _depth(data) > MAX_DEPTH:
        raise ModelFileError(f"{where}: nested deeper than {MAX_DEPTH}; this was not written by dbull")
    try:
        return json.loads(
            data.decode("utf-8"),
            parse_constant=_no_constant,
            parse_float=_finite,
            object_pairs_hook=_no_doubles,
        )
    except (ValueError, RecursionError) as error:
        raise ModelFileError(f"{where}: not valid JSON ({error}); bring the file back from a copy") from error


def _dump(value: object, where: str, indent: int | None) -> bytes:
    try:
        kept = plain(value, where)
    except RecursionError:
        raise SettingsError(f"{where}: nested deeper than {MAX_DEPTH}") from None
    data = json.dumps(kept, allow_nan=False, indent=indent).encode("ascii")
    if _depth(data) > MAX_DEPTH:
        raise SettingsError(f"{where}: nested deeper than {MAX_DEPTH}")
    return data


def _depth(data: bytes) -> int:
    """Return the deepest nesting of brackets outside of texts, 0 where it cannot matter."""
    depth = deepest = 0
    if data.count(b"[") + data.count(b"{") <= MAX_DEPTH:  # most documents: nothing can be nested deeper
        return 0
    for bracket in _OTHERS.sub(b"", _TEXTS.sub(b"", _ESCAPES.sub(b"", data))):
        depth += 1 if bracket in b"[{" else -1
        deepest = max(deepest, depth)
    return deepest


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not a number")


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text:.20} is too large")
    return value


def _no_doubles(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a name occurs twice")
    return found
