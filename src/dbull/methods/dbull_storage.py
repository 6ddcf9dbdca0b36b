"""`DBULL` in a model folder: each save is one generation, and a loaded model goes on as if never stored."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from dbull.codec.learner import pack_state, unpack_state
from dbull.documents import check_fields, fail, number, or_none, text
from dbull.errors import ModelFileError
from dbull.ledger import Event, Ledger
from dbull.methods.storing import (
    Origin,
    anything,
    chosen_device,
    columns_of,
    pack_parameters,
    place_for,
    set_columns,
    unpack_parameters,
)
from dbull.nets.augment import Augmentation
from dbull.store import Checkpoint, LearnedInput, Loaded, Manifest, ModelFolder

if TYPE_CHECKING:
    from dbull.methods.dbull import DBULL

METHOD = "dbull"


def save(
    model: DBULL,
    path: str | os.PathLike[str],
    *,
    note: str = "",
    time: str | None = None,
    learned: Sequence[LearnedInput] = (),
    reading: Mapping[str, Any] | None = None,
    again: bool = False,
    keep: int | None = None,
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
    keep
        How many generations to keep; see `ModelFolder.prune`.
    """
    folder, parent = place_for(model, path)
    ledger = model.state_.ledger
    since = ledger.n_earlier_events if parent is None else model.origin_.n_events
    tensors, learner = pack_state(model.state_)
    elbo = getattr(model, "elbo_", None)
    checkpoint = Checkpoint(
        tensors=tensors,
        documents={
            "learner": learner,
            "clusters": ledger.to_json(since=ledger.n_events),
            "columns": columns_of(model),
        },
        events=[{**event.to_json(), "time": event.time or time} for event in ledger.since(since)],
        settings={
            "method": METHOD,
            "parameters": pack_parameters(model),
            "reading": dict(reading or {}),
            "elbo": elbo if elbo is not None and np.isfinite(elbo) else None,
        },
        data_schema={"n_columns": int(model.n_features_in_), "named": hasattr(model, "feature_names_in_")},
        encoder_fingerprint=model.state_.fingerprint or None,
        learned_inputs=tuple(learned),
        ids_given=ledger.ids_given,
        note=note,
        time=time,
    )
    manifest = folder.commit(checkpoint, parent, again=again, keep=keep)
    model.origin_ = Origin(folder.path.resolve(), manifest, ledger.n_events)
    return manifest


def load_generation(
    folder: ModelFolder,
    loaded: Loaded,
    *,
    events: bool = False,
    augment: Augmentation | None = None,
    device: str | None = None,
) -> DBULL:
    """Return the model of a generation that was read, with or without the events up to it."""
    from dbull.methods.dbull import DBULL

    checkpoint, place = loaded.checkpoint, folder.folder(loaded.generation)
    method = checkpoint.settings.get("method", METHOD)
    if method != METHOD:
        raise ModelFileError(
            f"{place}: is a model of {method!r:.40} and not of DBULL; use dbull.load in Python"
        )
    for name in ("learner", "clusters", "columns"):
        if name not in checkpoint.documents:
            raise ModelFileError(f"{place / name}.json: is missing; this is no model of dbull's own")
    settings = check_fields(
        dict(checkpoint.settings),
        f"{place / 'manifest.json'}.settings",
        {"method": text, "parameters": anything, "reading": _object, "elbo": or_none(number)},
    )
    parameters = unpack_parameters(DBULL, settings["parameters"], augment, str(place / "manifest.json"))
    parameters["device"] = chosen_device(parameters.get("device"), device, place)
    model = DBULL(**parameters)
    ledger = Ledger.from_json(
        checkpoint.documents["clusters"],
        earlier=partial(_events, folder, loaded.generation) if events else None,
        where=str(place / "clusters.json"),
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
    set_columns(model, checkpoint, place, state.vae.shape.n_values)
    model.restore(state, settings["elbo"])
    if loaded.generation == folder.latest():
        model.origin_ = Origin(folder.path.resolve(), loaded.manifest, ledger.n_events)
    return model


def told_events(
    folder: ModelFolder, generation: int | None = None, *, abandoned: bool = False
) -> list[dict[str, Any]]:
    """Return what happened as `ModelFolder.events` does, after checking that each is an event of `DBULL`."""
    found = folder.events(generation, abandoned=abandoned)
    for stored in found:
        if stored.get("kind") == "rollback":
            others = {"generation": anything, "kind": text, "restores": anything, "time": anything}
            check_fields(stored, f"{folder.path}: events", {**others, "note": text})
        else:
            _event(stored, folder)
    return found


def _events(folder: ModelFolder, generation: int) -> list[Event]:
    return [_event(stored, folder) for stored in folder.events(generation)]


def _event(stored: dict[str, Any], folder: ModelFolder) -> Event:
    return Event.from_json({k: v for k, v in stored.items() if k != "generation"}, f"{folder.path}: events")


def _object(value: object, where: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        fail(where, f"expected an object, got {value!r:.50}")
    return value
