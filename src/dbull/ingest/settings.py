"""What can be asked for: parameters of `DBULL`, and how files are read."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

from dbull.errors import SettingsError, check_known
from dbull.ingest.beside import COLUMN
from dbull.methods.dbull import DBULL

ARRIVAL_ROWS = 10_000
COMMAND_ONLY = ("arrival_rows", "keep_generations")  # what a model does not keep of how it was learned
# What the first data set decides for good; everything else may change from one data set to the next.
FIXED = (
    *(
        "objective",
        "kind",
        "columns",
        "embeddings",
        "image_shape",
        "encoder",
        "latent_dim",
        "hidden_dims",
        "likelihood",
        "front_end",
    ),
    *("pretraining", "use_encoder_variance", "random_state"),
)
_LISTS = {"columns": str, "image_size": int, "ignored": str}
_SINGLE = {"header": bool, "grey": bool, "key": str, "array": str, "beside": str}
_LEAST = {"arrival_rows": 2, "keep_generations": 1}


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
    beside: str | None = None  # an .npy file of embeddings; no setting, but what `embeddings` may be
    ignored: tuple[str, ...] = ()  # columns that came after the first table and were named; no setting

    def __post_init__(self) -> None:
        for name in (field.name for field in fields(self)):
            value = getattr(self, name)
            if value is not getattr(Reading, name):  # the default is as it should be
                _check(name, value)
                if name in _LISTS:
                    object.__setattr__(self, name, tuple(value))

    def kept(self) -> dict[str, Any]:
        """Return what a model keeps."""
        return {name: value for name, value in asdict(self).items() if name not in COMMAND_ONLY}

    @classmethod
    def stored(cls, settings: Mapping[str, Any]) -> "Reading":
        """Return what the settings of a stored model say; some have kept more than they should."""
        names = {field.name for field in fields(cls)} - set(COMMAND_ONLY)
        return cls(**{name: value for name, value in settings.get("reading", {}).items() if name in names})


def _check(name: str, value: Any) -> None:
    """Refuse a value that a field of `Reading` cannot have."""
    wanted = ""
    if name in _LISTS:
        if isinstance(value, str) or not isinstance(value, Sequence):
            wanted = "a list"
        elif not all(isinstance(part, _LISTS[name]) for part in value):
            wanted = f"a list of {_LISTS[name].__name__}"
    elif name in _LEAST:
        if type(value) is not int or value < _LEAST[name]:
            wanted = f"a whole number of at least {_LEAST[name]}"
    elif not isinstance(value, _SINGLE[name]):
        wanted = "true or false" if _SINGLE[name] is bool else "a text"
    if wanted:
        raise SettingsError(f"{name} must be {wanted}, got {value!r:.60}")


def setting_names() -> tuple[str, ...]:
    """Return all that can be set."""
    reading = (field.name for field in fields(Reading) if field.name not in ("beside", "ignored"))
    return tuple(dict.fromkeys((*_parameter_names(), *reading)))


def _parameter_names() -> tuple[str, ...]:
    """Return the parameters of `DBULL` that a file can hold."""
    return tuple(name for name in DBULL().get_params(deep=False) if name != "callback")


@dataclass(frozen=True)
class Asked:
    """What was asked for, by whatever way; what was not is absent."""

    parameters: dict[str, Any]  # of `DBULL`
    reading: dict[str, Any]

    @classmethod
    def of(cls, settings: Mapping[str, Any]) -> "Asked":
        """Tell settings apart; refuse those that are none, or that do not go together."""
        known, names = setting_names(), _parameter_names()
        for name in settings:
            check_known("setting", name, known)
        parameters = {name: value for name, value in settings.items() if name in names}
        reading = {name: value for name, value in settings.items() if name not in names}
        if "columns" in parameters and not isinstance(parameters["columns"], Mapping):
            reading["columns"] = parameters.pop("columns")  # those to read; a mapping has their roles
        where = parameters.get("embeddings")
        if isinstance(where, str) and where.endswith(".npy"):
            parameters["embeddings"], reading["beside"] = COLUMN, where
        for name in ("hidden_dims", "image_shape", "embeddings"):
            if isinstance(parameters.get(name), list):
                parameters[name] = tuple(parameters[name])
        key = reading.get("key")
        if key is not None and key in (reading.get("columns") or ()):
            raise SettingsError(
                f"key: the column {key!r} names rows and is not learned; take it out of columns"
            )
        return cls(parameters, reading)

    def new_model(self) -> DBULL:
        """Return an estimator as asked for; with seed 0 unless given, so that runs can be repeated."""
        return _checked(DBULL(**{"random_state": 0, **self.parameters}))

    def apply(self, model: DBULL) -> None:
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


def _checked(model: DBULL) -> DBULL:
    try:
        model.check_parameters()
    except SettingsError:
        raise
    except ValueError as error:
        raise SettingsError(str(error)) from error
    return model
