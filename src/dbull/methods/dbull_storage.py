"""`DBULL` in a model folder: each save is one generation, and a loaded model goes on as if never stored."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dbull.errors import ModelFileError, SettingsError, check_known, did_you_mean
from dbull.lifelong.ledger import Event, Ledger
from dbull.lifelong.portable import pack_state, unpack_state
from dbull.lifelong.records import check_fields, fail, list_of, text
from dbull.nets.augment import Augmentation, ImageShifts, MaskingNoise
from dbull.store import Checkpoint, LearnedInput, Loaded, Manifest, ModelFolder

if TYPE_CHECKING:
    from dbull.methods.dbull import DBULL

__all__ = ["Origin", "load", "load_generation", "now", "save"]

METHOD = "dbull"
AUGMENTATIONS: dict[str, type[ImageShifts] | type[MaskingNoise]] = {
    "image-shifts": ImageShifts,
    "masking-noise": MaskingNoise,
}
CUSTOM = "custom"  # an augmentation that the caller must give again


@dataclass(frozen=True)
class Origin:
    """Where a model is kept: the next save there is the generation after this one."""

    path: Path
    generation: int
    n_events: int  # that the folder has


def save(
    model: DBULL,
    path: str | os.PathLike[str],
    *,
    note: str = "",
    time: str | None = None,
    learned: Sequence[LearnedInput] = (),
    reading: Mapping[str, Any] | None = None,
    again: bool = False,
) -> Manifest:
    """Write a model as the next generation of a folder; see `DBULL.save`.

    Parameters
    ----------
    note, time
        For the history, and for the events since the last save.
    learned
        Inputs that were learned since; the same content again is refused unless `again`.
    reading
        How the inputs were read, kept for the next time.
    """
    folder, origin = ModelFolder(path), _origin_at(model, path)
    if origin is None and folder.generations():
        raise SettingsError(
            f"{folder.path}: another model is here; load it and go on from it, or save to another folder"
        )
    ledger = model.state_.ledger
    since = ledger.n_earlier_events if origin is None else origin.n_events
    tensors, learner = pack_state(model.state_)
    names = getattr(model, "feature_names_in_", None)
    elbo = getattr(model, "elbo_", None)
    checkpoint = Checkpoint(
        tensors=tensors,
        documents={
            "learner": learner,
            "clusters": ledger.to_json(since=ledger.n_events),
            "columns": {"names": None if names is None else [str(name) for name in names]},
        },
        events=[
            {**event.to_json(), "time": event.time or time}
            for event in ledger.events[since - ledger.n_earlier_events :]
        ],
        settings={
            "method": METHOD,
            "parameters": _pack_parameters(model.get_params(deep=False)),
            "reading": dict(reading or {}),
            "elbo": elbo if elbo is not None and np.isfinite(elbo) else None,
        },
        data_schema={"n_columns": int(model.n_features_in_), "named": names is not None},
        encoder_fingerprint=model.state_.fingerprint or None,
        learned_inputs=tuple(learned),
        ids_given=ledger.ids_given,
        note=note,
        time=time,
    )
    manifest = folder.commit(checkpoint, None if origin is None else origin.generation, again=again)
    model.origin_ = Origin(folder.path.resolve(), manifest.generation, ledger.n_events)
    return manifest


def load(
    path: str | os.PathLike[str],
    generation: int | None = None,
    *,
    events: bool = True,
    augment: Augmentation | None = None,
    device: str | None = None,
) -> DBULL:
    """Return the model of a folder, to predict with or to go on learning, as if it had never been stored.

    `labels_` and `history_`, which are about rows, are not kept; `callback` and a `random_state` that is no
    whole number are None.

    Parameters
    ----------
    path
        Folder that `DBULL.save` or ``dbull learn`` wrote.
    generation
        The newest unless named. A model loaded from an older one can be saved elsewhere only.
    events
        Whether `events_` holds everything that ever happened, or only what happens from now on.
    augment
        The function that the model was given as `augment`, if it was one of your own.
    device
        Where the networks go, if not where they were.

    Raises
    ------
    ModelFileError
        if a file is damaged, missing, foreign or of a newer format; never half a model
    """
    folder = ModelFolder(path)
    loaded = folder.load(generation)
    earlier = [_event(event, folder) for event in folder.events(loaded.generation)] if events else None
    return load_generation(folder, loaded, earlier, augment, device)


def load_generation(
    folder: ModelFolder,
    loaded: Loaded,
    earlier: Sequence[Event] | None = None,
    augment: Augmentation | None = None,
    device: str | None = None,
) -> DBULL:
    """Return the model of a generation that was read; `earlier` are its events, if they are wanted."""
    from dbull.methods.dbull import DBULL

    checkpoint, place = loaded.checkpoint, folder.folder(loaded.generation)
    for name in ("learner", "clusters", "columns"):
        if name not in checkpoint.documents:
            raise ModelFileError(f"{place / name}.json: is missing; this is no model of dbull's own")
    settings = check_fields(
        dict(checkpoint.settings),
        f"{place / 'manifest.json'}.settings",
        {"method": text, "parameters": _anything, "reading": _anything, "elbo": _anything},
    )
    if settings["method"] != METHOD:
        raise ModelFileError(
            f"{place}: is a model of {settings['method']!r:.40}, which this dbull does not know"
        )
    parameters = _unpack_parameters(settings["parameters"], augment, str(place / "manifest.json"))
    if device is not None:
        parameters["device"] = device
    model = DBULL(**parameters)
    ledger = Ledger.from_json(
        checkpoint.documents["clusters"], earlier=earlier, where=str(place / "clusters.json")
    )
    ledger.reserve(checkpoint.ids_given)
    state = unpack_state(
        checkpoint.tensors,
        checkpoint.documents["learner"],
        ledger,
        checkpoint.encoder_fingerprint,
        str(place / "learner.json"),
        model.device,
    )
    _set_columns(model, checkpoint, place, state.vae.shape.n_values)
    model.restore(state, None if settings["elbo"] is None else float(settings["elbo"]))
    if loaded.generation == folder.latest():
        model.origin_ = Origin(folder.path.resolve(), loaded.generation, ledger.n_events)
    return model


def now() -> str:
    """Return the time as UTC text; SOURCE_DATE_EPOCH sets it, so that a run can be repeated to the byte."""
    fixed = os.environ.get("SOURCE_DATE_EPOCH")
    if fixed is not None:
        try:
            moment = datetime.fromtimestamp(int(fixed), timezone.utc)
        except (ValueError, OverflowError, OSError) as error:
            raise SettingsError(f"SOURCE_DATE_EPOCH must be seconds since 1970, got {fixed!r:.40}") from error
    else:
        moment = datetime.now(timezone.utc)
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def _origin_at(model: DBULL, path: str | os.PathLike[str]) -> Origin | None:
    origin: Origin | None = getattr(model, "origin_", None)
    return origin if origin is not None and origin.path == Path(path).resolve() else None


def _set_columns(model: DBULL, checkpoint: Checkpoint, place: Path, n_values: int) -> None:
    where = str(place / "columns.json")
    names = check_fields(
        checkpoint.documents["columns"],
        where,
        {"names": lambda value, at: None if value is None else list_of(text)(value, at)},
    )["names"]
    if names is not None and len(names) != n_values:
        fail(where, f"{len(names)} names for {n_values} columns")
    model.n_features_in_ = n_values
    if names is not None:
        model.feature_names_in_ = np.array(names, dtype=object)


def _pack_parameters(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return parameters as plain values; what only the caller can give is left for the caller."""
    packed = {name: value for name, value in parameters.items() if name != "callback"}
    augment = packed["augment"]
    if callable(augment):
        packed["augment"] = {"name": CUSTOM}
        for name, kind in AUGMENTATIONS.items():
            if type(augment) is kind:
                packed["augment"] = {"name": name, **asdict(augment)}
    if not isinstance(packed["random_state"], int | np.integer):
        packed["random_state"] = None
    for name, value in packed.items():
        if isinstance(value, np.generic):
            packed[name] = value.item()
        elif name in ("hidden_dims", "image_shape") and not isinstance(value, str | None):
            packed[name] = [int(part) for part in value]
    return packed


def _unpack_parameters(packed: Any, augment: Augmentation | None, where: str) -> dict[str, Any]:
    from dbull.methods.dbull import DBULL

    if not isinstance(packed, dict):
        fail(where, "has no parameters")
    known = set(DBULL().get_params(deep=False)) - {"callback"}
    for name in packed:
        if name not in known:
            fail(where, f"unknown parameter {name!r:.40} {did_you_mean(name, known)}".rstrip())
    parameters = dict(packed)
    for name in ("hidden_dims", "image_shape"):
        if isinstance(parameters.get(name), list):
            parameters[name] = tuple(parameters[name])
    told = parameters.get("augment")
    kind = told.get("name") if isinstance(told, dict) else None
    if augment is not None and kind != CUSTOM:
        raise SettingsError(f"{where}: the model has no `augment` of the caller's own; load it without")
    if isinstance(told, dict):
        if kind == CUSTOM:
            if augment is None:
                raise SettingsError(
                    f"{where}: the model's `augment` is a function that no file can hold: "
                    "give it again, load(path, augment=...)"
                )
            parameters["augment"] = augment
        else:
            check_known("augmentation", str(kind), AUGMENTATIONS)
            kept = AUGMENTATIONS[str(kind)]
            readers = {field.name: _anything for field in fields(kept)}
            rest = {key: value for key, value in told.items() if key != "name"}
            parameters["augment"] = kept(**check_fields(rest, f"{where}.augment", readers))
    return parameters


def _event(stored: dict[str, Any], folder: ModelFolder) -> Event:
    return Event.from_json({k: v for k, v in stored.items() if k != "generation"}, f"{folder.path}: events")


def _anything(value: object, where: str) -> Any:
    return value
