"""How a model learns and how files are read: flag > environment > TOML file > default, all keys known."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dbull.errors import SettingsError, check_known

if TYPE_CHECKING:
    from dbull.data.readers import ReadSettings
    from dbull.methods.dbull import DBULL

__all__ = ["Config", "Reading", "parameter_names", "read_config"]

PREFIX = "DBULL_"
ARRIVAL_ROWS = 10_000
COMMAND_ONLY = ("arrival_rows", "keep_generations")  # what a model does not keep of how it was learned
# What the first data set decides for good; everything else may change from one data set to the next.
FIXED = (
    *("objective", "kind", "image_shape", "encoder", "latent_dim", "hidden_dims", "likelihood", "front_end"),
    *("pretraining", "use_encoder_variance", "random_state"),
)


@dataclass(frozen=True)
class Reading:
    """How files become arrivals; what concerns columns and pixels is kept in the model."""

    columns: tuple[str, ...] | None = None
    key: str | None = None
    header: bool | None = None
    array: str | None = None
    image_size: tuple[int, int] | None = None
    grey: bool = False
    arrival_rows: int = ARRIVAL_ROWS  # of one command, not kept
    keep_generations: int | None = None  # neither is this

    def __post_init__(self) -> None:
        for name in ("columns", "image_size"):
            value = getattr(self, name)
            if value is not None:
                if isinstance(value, str) or not isinstance(value, Sequence):
                    raise SettingsError(f"{name} must be a list, got {value!r:.60}")
                kind: type = str if name == "columns" else int
                if not all(isinstance(part, kind) for part in value):
                    raise SettingsError(f"{name} must be a list of {kind.__name__}, got {value!r:.60}")
                object.__setattr__(self, name, tuple(value))
        for name in ("header", "grey"):
            value = getattr(self, name)
            if value is not None and not isinstance(value, bool):
                raise SettingsError(f"{name} must be true or false, got {value!r:.60}")
        for name in ("key", "array"):
            value = getattr(self, name)
            if value is not None and not isinstance(value, str):
                raise SettingsError(f"{name} must be a text, got {value!r:.60}")
        if not isinstance(self.arrival_rows, int) or self.arrival_rows < 2:
            raise SettingsError(
                f"arrival_rows must be a whole number of at least 2, got {self.arrival_rows!r:.60}"
            )
        keep = self.keep_generations
        if keep is not None and (not isinstance(keep, int) or isinstance(keep, bool) or keep < 1):
            raise SettingsError(f"keep_generations must be a whole number of at least 1, got {keep!r:.60}")

    def kept(self) -> dict[str, Any]:
        """Return what a model keeps."""
        return {name: value for name, value in asdict(self).items() if name not in COMMAND_ONLY}

    def read_settings(self, columns: tuple[str, ...] | None) -> "ReadSettings":
        """Return the settings of the readers, for these columns."""
        from dbull.data.readers import ReadSettings

        return ReadSettings(
            columns=columns,
            key=self.key,
            chunk_rows=min(self.arrival_rows, ARRIVAL_ROWS),
            header=self.header,
            array=self.array,
            image_size=self.image_size,
            grey=self.grey,
        )


@dataclass(frozen=True)
class Config:
    """What was asked for, by whatever way; what was not is absent."""

    parameters: dict[str, Any]  # of `DBULL`
    reading: dict[str, Any]

    def new_model(self) -> "DBULL":
        """Return an estimator as asked for; with seed 0 unless given, so that runs can be repeated."""
        from dbull.methods.dbull import DBULL

        return _checked(DBULL(**{"random_state": 0, **self.parameters}))

    def apply(self, model: "DBULL") -> None:
        """Change how a model goes on learning; refuse to change what its first data set has decided."""
        for name, value in self.parameters.items():
            kept = getattr(model, name)
            if name == "kind" and value == model.state_.kind:  # "auto" has become this
                continue
            if name in FIXED and value != kept:
                raise SettingsError(
                    f"{name} is {kept!r} in this model, decided by its first data set, and cannot become "
                    f"{value!r}; leave it out, or begin a new model"
                )
        _checked(model.set_params(**{k: v for k, v in self.parameters.items() if k not in FIXED}))


def read_config(path: Path | None, assignments: Sequence[str], flags: Mapping[str, Any]) -> Config:
    """Gather what a TOML file, the environment, KEY=VALUE texts and flags ask for; the latter wins."""
    from dbull.experiments.settings import parse_assignments

    known = (*parameter_names(), *(field.name for field in fields(Reading)))
    asked: dict[str, Any] = {}
    if path is not None:
        asked |= _from_file(path, known)
    asked |= _from_environment(known)
    given = parse_assignments(assignments)
    for name in given:
        check_known("setting", name, known)
    asked |= given
    asked |= {name: value for name, value in flags.items() if value is not None}
    for name in ("hidden_dims", "image_shape"):
        if isinstance(asked.get(name), list):
            asked[name] = tuple(asked[name])
    reading = {name: asked.pop(name) for name in tuple(asked) if name not in parameter_names()}
    if reading.get("key") is not None and reading["key"] in (reading.get("columns") or ()):
        raise SettingsError(
            f"key: the column {reading['key']!r} names rows and is not learned; take it out of columns"
        )
    return Config(asked, reading)


def parameter_names() -> tuple[str, ...]:
    """Return the parameters of `DBULL` that a file can hold."""
    from dbull.methods.dbull import DBULL

    return tuple(name for name in DBULL().get_params(deep=False) if name != "callback")


def _from_file(path: Path, known: Sequence[str]) -> dict[str, Any]:
    from dbull.experiments.settings import tomllib

    try:
        table: dict[str, Any] = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise SettingsError(f"{path}: cannot be read ({error.strerror})") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingsError(f"{path}: not valid TOML ({error})") from error
    for name in table:
        check_known(f"setting in {path}", name, known)
    return table


def _from_environment(known: Sequence[str]) -> dict[str, Any]:
    from dbull.experiments.settings import parse_assignments

    names = {PREFIX + name.upper(): name for name in known}
    found: dict[str, Any] = {}
    for variable, value in os.environ.items():
        if variable.startswith(PREFIX) and variable not in names:
            # Other tools may have variables of this prefix; what is nearly a setting was meant to be one.
            meant = get_close_matches(variable, names, n=1, cutoff=0.92)
            if meant:
                raise SettingsError(
                    f"{variable} in the environment: there is no such setting; did you mean {meant[0]}?"
                )
        elif variable in names:
            name = names[variable]
            try:
                found |= parse_assignments([f"{name}={value}"])
            except SettingsError:  # a word without quotes, as environments have them
                found[name] = value
    return found


def _checked(model: "DBULL") -> "DBULL":
    try:
        model.check_parameters()
    except SettingsError:
        raise
    except ValueError as error:
        raise SettingsError(str(error)) from error
    return model
