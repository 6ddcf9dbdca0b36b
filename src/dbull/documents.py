"""Documents of plain values: JSON that comes back as it was given, and readers that name what is wrong.

A reader takes a JSON value and its place and returns what it means, or raises ModelFileError.
"""

import json
import math
import re
from collections.abc import Callable, Mapping
from numbers import Integral, Real
from typing import Any, NoReturn

from dbull.errors import ModelFileError, SettingsError, did_you_mean

Reader = Callable[[object, str], Any]

MAX_DEPTH = 50
# Each goes over a text once, whatever is in it; a backslash outside of a text is refused by the parser.
_ESCAPES, _TEXTS, _OTHERS = (re.compile(p, re.DOTALL) for p in (rb"\\.", rb'"[^"]*"?', rb"[^\[\]{}]+"))


def dump_document(value: object, where: str, indent: int | None = 1) -> bytes:
    """Return a value as JSON, on one line if not indented; refuse what would not come back the same."""
    try:
        kept = plain(value, where)
    except RecursionError:
        raise SettingsError(f"{where}: nested deeper than {MAX_DEPTH}") from None
    data = json.dumps(kept, allow_nan=False, indent=indent).encode("ascii")
    if _depth(data) > MAX_DEPTH:
        raise SettingsError(f"{where}: nested deeper than {MAX_DEPTH}")
    return data + b"\n"


def parse_document(data: bytes, where: str) -> Any:
    """Return the value of a JSON text; anything but strict JSON of bounded depth is a ModelFileError."""
    if _depth(data) > MAX_DEPTH:
        raise ModelFileError(f"{where}: nested deeper than {MAX_DEPTH}; this was not written by dbull")
    try:
        return json.loads(
            data.decode("utf-8"), parse_constant=_no_constant, parse_float=_finite, object_pairs_hook=_unique
        )
    except (ValueError, RecursionError) as error:
        raise ModelFileError(f"{where}: not valid JSON ({error}); bring the file back from a copy") from error


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


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a name occurs twice")
    return found


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
    kind = type(value).__name__
    raise SettingsError(f"{where}: a {kind} cannot be written down; give plain numbers or text")


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


def value_that(is_right: Callable[[Any], bool], expected: str) -> Reader:
    """Return the reader of a value for which `is_right` holds; `expected` says in words what that is."""

    def read(value: object, where: str) -> Any:
        if not is_right(value):
            fail(where, f"expected {expected}, got {value!r:.50}")
        return value

    return read


whole = value_that(
    lambda value: isinstance(value, int) and not isinstance(value, bool) and value >= 0,
    "a whole number of at least 0",
)
text = value_that(lambda value: isinstance(value, str), "a text")
number = value_that(lambda value: isinstance(value, float) and math.isfinite(value), "a number")
truth = value_that(lambda value: isinstance(value, bool), "true or false")
mapping = value_that(lambda value: isinstance(value, dict), "an object")
_list = value_that(lambda value: isinstance(value, list), "a list")


def anything(value: object, where: str) -> Any:
    """Read whatever is there."""
    return value


def or_none(reader: Reader) -> Reader:
    """Return the reader of what may also be null."""
    return lambda value, where: None if value is None else reader(value, where)


def object_of(readers: Mapping[str, Reader]) -> Reader:
    """Return the reader of an object with just these fields."""
    return lambda value, where: check_fields(value, where, readers)


def list_of(reader: Reader) -> Reader:
    """Return the reader of a list whose parts are read by `reader`."""
    return lambda value, where: [reader(part, f"{where}[{i}]") for i, part in enumerate(_list(value, where))]


def one_of(allowed: tuple[str, ...]) -> Reader:
    """Return the reader of one of some texts."""
    return value_that(lambda value: value in allowed, f"one of {', '.join(allowed)}")


def as_text(name: object) -> str:
    """Return a name as Unicode; a byte of a file's name that is no UTF-8 becomes ``\\xe9``."""
    text = str(name)
    if text.isascii():
        return text
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
