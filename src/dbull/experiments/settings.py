"""What is to be run: a scenario, methods with their parameters, seeds, and a folder for the results."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dbull.data.files import tomllib
from dbull.errors import SettingsError, check_known

DEFAULT_OUT = Path("results")
MAX_SEEDS = 10_000  # in one range; more is a slip of the finger
CONFIG_KEYS = ("scenario", "seeds", "out", "methods")
_WORD = re.compile(r"[^\W\d][\w.:/+-]*")  # a text that needs no quotes
METHOD_KEYS = ("name", "path", "label", "settings")
SAFE_LABEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


@dataclass(frozen=True)
class MethodChoice:
    """A registered method by ``name``, or any class by ``path`` ("package.module:Class"), with parameters."""

    name: str | None = None
    path: str | None = None
    label: str = ""  # names the result folder; the method's own name when empty
    parameters: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if (self.name is None) == (self.path is None):
            raise SettingsError(
                "a method is given by its registered name or by package.module:Class, one of the two"
            )
        if not self.label:
            object.__setattr__(self, "label", self.name or (self.path or "").rpartition(":")[2])
        if not SAFE_LABEL.fullmatch(self.label):
            raise SettingsError(
                f"method label {self.label!r} cannot name a folder: use letters, digits, '.', '_' and '-'"
            )


@dataclass(frozen=True)
class BenchSettings:
    """Every (scenario, method, seed) of one call of the benchmark."""

    scenario: str
    methods: tuple[MethodChoice, ...]
    seeds: tuple[int, ...] = (0,)
    out: Path = DEFAULT_OUT

    def __post_init__(self) -> None:
        if not self.methods:
            raise SettingsError("no method is named: give at least one")
        labels = [method.label for method in self.methods]
        twice = sorted({label for label in labels if labels.count(label) > 1})
        if twice:
            raise SettingsError(f"two methods are called {twice[0]!r}: give each a label of its own")
        if not self.seeds:
            raise SettingsError("seeds must hold at least one whole number")


def parse_seeds(text: str) -> tuple[int, ...]:
    """Read ``"0..4"`` (both ends included), ``"0,2,5"``, ``"7"``, or a mixture such as ``"0..2,9"``."""
    seeds: list[int] = []
    for part in text.split(","):
        match = re.fullmatch(r"\s*(\d+)(?:\.\.(\d+))?\s*", part)
        if match is None:
            raise SettingsError(
                f"seeds {text!r} cannot be read: write 0..4 (both included), 0,2,5 or a single number"
            )
        first = int(match[1])
        last = first if match[2] is None else int(match[2])
        if last < first:
            raise SettingsError(f"seeds {text!r}: {first}..{last} runs backwards")
        if last - first >= MAX_SEEDS:
            raise SettingsError(f"seeds {text!r}: {first}..{last} is more than {MAX_SEEDS} seeds")
        seeds.extend(range(first, last + 1))
    return _checked_seeds(seeds, repr(text))


def parse_assignments(texts: Iterable[str]) -> dict[str, Any]:
    """Read ``key=value`` pairs whose values are typed as in TOML: 3, 0.5, true, "word", [1, 2].

    A word may also stand without quotes, and a list without brackets: cuda; a,b.
    """
    parameters: dict[str, Any] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        key = key.strip()
        if not equals or not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", key):
            raise SettingsError(f"setting {text!r} cannot be read: write key=value")
        if key in parameters:
            raise SettingsError(f"setting {key!r} is given twice")
        parameters[key] = _value(key, value.strip())
    return parameters


def _value(key: str, text: str) -> Any:
    try:
        read = tomllib.loads(f"value = {text}")
    except tomllib.TOMLDecodeError:
        read = {}
    if read.keys() == {"value"}:  # a line break in the text could bring in further keys
        return read["value"]
    if _WORD.fullmatch(text):
        return {"True": True, "False": False}.get(text, text)
    if "," in text and not set(text) & set("[]{}\"'\n"):
        return [_value(key, part.strip()) for part in text.split(",") if part.strip()]
    raise SettingsError(
        f"setting {key}: {text!r} is no TOML value; numbers, true, false and single words stand alone, "
        f"lists have commas between, other texts need quotes: {key}='\"{text}\"'"
    )


def read_toml(path: Path) -> dict[str, Any]:
    """Return what a TOML file holds."""
    try:
        table: dict[str, Any] = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise SettingsError(f"{path}: cannot be read ({error.strerror or error})") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingsError(f"{path}: not valid TOML ({error})") from error
    return table


def read_config(path: Path) -> BenchSettings:
    """Read one experiment from a TOML file; keys that mean nothing are refused with the nearest known one."""
    table = read_toml(path)
    try:
        return _from_table(table)
    except SettingsError as error:
        raise SettingsError(f"{path}: {error}") from None


def _from_table(table: dict[str, Any]) -> BenchSettings:
    _refuse_unknown("key", table, CONFIG_KEYS)
    scenario = _of_type(table, "scenario", str, "a scenario's name")
    methods = _of_type(table, "methods", list, "a list of tables [[methods]]")
    return BenchSettings(
        scenario=scenario,
        methods=tuple(_method_from_table(entry) for entry in methods),
        seeds=_seeds_from(table.get("seeds", [0])),
        out=Path(_of_type({"out": str(DEFAULT_OUT), **table}, "out", str, "a folder")),
    )


def _method_from_table(entry: object) -> MethodChoice:
    if not isinstance(entry, dict):
        raise SettingsError(f"methods must be tables [[methods]], got {entry!r}")
    _refuse_unknown("key of [[methods]]", entry, METHOD_KEYS)
    name, path, label = (
        _of_type(entry, key, str, "text") if key in entry else None for key in ("name", "path", "label")
    )
    parameters = _of_type({"settings": {}, **entry}, "settings", dict, "a table of parameters")
    return MethodChoice(name, path, label or "", parameters)


def _seeds_from(value: object) -> tuple[int, ...]:
    if isinstance(value, str):
        return parse_seeds(value)
    if isinstance(value, list) and all(type(seed) is int and seed >= 0 for seed in value):
        return _checked_seeds(value, repr(value))
    raise SettingsError(f"seeds must be text such as '0..4' or a list of whole numbers from 0, got {value!r}")


def _checked_seeds(seeds: list[int], shown: str) -> tuple[int, ...]:
    if len(set(seeds)) != len(seeds):
        raise SettingsError(f"seeds {shown} name a seed twice")
    return tuple(seeds)


def _refuse_unknown(kind: str, table: Mapping[str, Any], known: tuple[str, ...]) -> None:
    for key in table:
        check_known(kind, key, known)


def _of_type(table: Mapping[str, Any], key: str, kind: type, meaning: str) -> Any:
    if key not in table:
        raise SettingsError(f"key {key!r} is missing: it holds {meaning}")
    if not isinstance(table[key], kind):
        raise SettingsError(f"key {key!r} must be {meaning}, got {table[key]!r}")
    return table[key]
