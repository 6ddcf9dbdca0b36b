"""Estimators in model folders: what is the same for all of them. Nothing that is run is written."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from dbull.codec.networks import Tensors, fitting
from dbull.documents import check_fields, fail, list_of, or_none, text
from dbull.errors import ModelFileError, SettingsError, did_you_mean
from dbull.methods.devices import check_device, device_here
from dbull.nets.augment import Augmentation, ImageShifts, MaskingNoise
from dbull.store import Checkpoint, Loaded, Manifest, ModelFolder

AUGMENTATIONS: dict[str, type[ImageShifts] | type[MaskingNoise]] = {
    "image-shifts": ImageShifts,
    "masking-noise": MaskingNoise,
}
RENAMED = {"n_neighbours": "n_neighbors"}  # former names of parameters, which models of long ago have
UNUSED = "deprecated"
CUSTOM = "custom"  # an augmentation that the caller must give again

Model = TypeVar("Model", bound="Stored")


@dataclass(frozen=True)
class Origin:
    """Where a model is kept: the next save there is the generation after this one."""

    path: Path
    manifest: Manifest | None  # None: the folder was empty when the model was begun
    n_events: int = 0  # that the folder has


class Stored:
    """An estimator that can be saved, a mixin.

    Subclasses say under which name their models are known, and turn what they have learned into tensors and
    plain values and back, to the bit.
    """

    stored_as: str
    n_features_in_: int
    n_clusters_: int
    labels_: NDArray[np.int64]
    origin_: Origin

    def save(self: Model, path: str | os.PathLike[str], *, note: str = "") -> Model:
        """Write the model to a folder, as one more generation if it was saved there or loaded from there.

        `dbull.load` gives it back, to predict with or, where the method can, to go on learning, to the bit.
        Earlier generations stay; a crash at any moment leaves the folder as it was or with the new generation
        whole.

        Raises
        ------
        SettingsError
            if the folder holds another model
        ConflictError
            if another process went on from the same generation
        """
        check_is_fitted(self)
        self.check_parameters()
        folder, parent = place_for(self, path)
        tensors, learner = self._pack()
        checkpoint = Checkpoint(
            tensors=tensors,
            documents={"learner": learner, "columns": columns_of(self)},
            settings={"method": self.stored_as, "parameters": pack_parameters(self)},
            data_schema={"n_columns": int(self.n_features_in_), "named": hasattr(self, "feature_names_in_")},
            encoder_fingerprint=self._encoder_fingerprint(),
            ids_given=self._ids_given(),
            note=note,
            time=now(),
        )
        self.origin_ = Origin(folder.path.resolve(), folder.commit(checkpoint, parent))
        return self

    def check_parameters(self) -> None:
        """Name the first parameter that has a value it cannot have."""
        raise NotImplementedError

    def _pack(self) -> tuple[dict[str, dict[str, Tensor]], dict[str, Any]]:
        """Return groups of tensors and a document of plain values: all that was learned."""
        raise NotImplementedError

    def _unpack(self, tensors: Tensors, document: object, ids_given: int, where: str) -> int:
        """Become what `_pack` was given, and return the number of columns of the data."""
        raise NotImplementedError

    def _encoder_fingerprint(self) -> str | None:
        return None

    def _ids_given(self) -> int:
        return self.n_clusters_


def restore(
    kind: type[Model],
    folder: ModelFolder,
    loaded: Loaded,
    augment: Augmentation | None = None,
    device: str | None = None,
) -> Model:
    """Return the model of a generation that was read; see `loading.load`."""
    checkpoint, place = loaded.checkpoint, folder.folder(loaded.generation)
    for name in ("learner", "columns"):
        if name not in checkpoint.documents:
            raise ModelFileError(f"{place / name}.json: is missing; this is no model of dbull's own")
    parameters = unpack_parameters(
        kind, checkpoint.settings.get("parameters"), augment, str(place / "manifest.json")
    )
    if "device" in parameters:
        parameters["device"] = chosen_device(parameters["device"], device, place)
    elif device is not None:
        raise SettingsError(f"{place}: a model of {kind.__name__} has no device; load it without")
    model = kind(**parameters)
    try:
        model.check_parameters()
    except ValueError as error:
        fail(str(place / "manifest.json"), str(error).rstrip("."))
    where = str(place / "learner.json")
    with fitting(where):
        n_columns = model._unpack(
            checkpoint.tensors, checkpoint.documents["learner"], checkpoint.ids_given, where
        )
    set_columns(model, checkpoint, place, n_columns)
    if loaded.generation == folder.latest():
        model.origin_ = Origin(folder.path.resolve(), loaded.manifest)
    return model


def chosen_device(stored: Any, asked: str | None, place: Path) -> str:
    """Return where stored networks go: where the caller says, else where they were, if that is here."""
    if asked is not None:
        check_device(asked)
        return str(asked)
    if not isinstance(stored, str):
        fail(str(place / "manifest.json"), f"device is {stored!r:.50}")
    return device_here(stored)


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


def place_for(model: Any, path: str | os.PathLike[str]) -> tuple[ModelFolder, Manifest | None]:
    """Return the folder to write a model to, and the generation of it that the model comes from, if any."""
    folder = ModelFolder(path)
    origin: Origin | None = getattr(model, "origin_", None)
    if origin is not None and origin.path == Path(path).resolve():
        if origin.manifest is None or not folder.generations():  # also where they were removed
            return folder, None
        return folder, origin.manifest
    if folder.generations():
        raise SettingsError(
            f"{folder.path}: another model is here; load it and go on from it, or save to another folder"
        )
    return folder, None


def columns_of(model: Any) -> dict[str, Any]:
    """Return the document that tells the names of the columns."""
    names = getattr(model, "feature_names_in_", None)
    return {"names": None if names is None else [str(name) for name in names]}


def set_columns(model: Any, checkpoint: Checkpoint, place: Path, n_columns: int) -> None:
    """Let a model know the columns of its data."""
    where = str(place / "columns.json")
    readers = {"names": or_none(list_of(text))}
    names = check_fields(checkpoint.documents["columns"], where, readers)["names"]
    if names is not None and len(names) != n_columns:
        fail(where, f"{len(names)} names for {n_columns} columns")
    model.n_features_in_ = n_columns
    if names is not None:
        model.feature_names_in_ = np.array(names, dtype=object)


def pack_parameters(model: Any) -> dict[str, Any]:
    """Return parameters as plain values; what only the caller can give is left for the caller."""
    parameters: Mapping[str, Any] = model.get_params(deep=False)
    packed = {name: value for name, value in parameters.items() if name not in ("callback", *RENAMED)}
    packed |= {new: parameters[old] for old, new in RENAMED.items() if parameters.get(old, UNUSED) != UNUSED}
    augment = packed.get("augment")
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
        elif name == "device":
            packed[name] = str(value)
        elif name in ("hidden_dims", "image_shape", "fresh_sizes") and not isinstance(value, str | None):
            packed[name] = [int(part) for part in value]
    return packed


def unpack_parameters(kind: Any, packed: Any, augment: Augmentation | None, where: str) -> dict[str, Any]:
    """Return the parameters of an estimator of a class, as `pack_parameters` had them."""
    if not isinstance(packed, dict):
        fail(where, "has no parameters")
    packed = {RENAMED.get(name, name): value for name, value in packed.items()}
    known = set(kind().get_params(deep=False)) - {"callback", *RENAMED}
    for name in packed:
        if name not in known:
            fail(where, f"unknown parameter {name!r:.40} {did_you_mean(name, known)}".rstrip())
    parameters = {name: tuple(value) if isinstance(value, list) else value for name, value in packed.items()}
    told = parameters.get("augment")
    chosen = told.get("name") if isinstance(told, dict) else None
    if augment is not None and chosen != CUSTOM:
        raise SettingsError(f"{where}: the model has no `augment` of the caller's own; load it without")
    if isinstance(told, dict):
        if chosen == CUSTOM:
            if augment is None:
                raise SettingsError(
                    f"{where}: the model's `augment` is a function that no file can hold: "
                    "give it again, load(path, augment=...)"
                )
            parameters["augment"] = augment
        else:
            if chosen not in AUGMENTATIONS:
                fail(where, f"unknown augmentation {chosen!r:.40}")
            kept = AUGMENTATIONS[str(chosen)]
            readers = {field.name: anything for field in fields(kept)}
            rest = {key: value for key, value in told.items() if key != "name"}
            parameters["augment"] = kept(**check_fields(rest, f"{where}.augment", readers))
    return parameters


def anything(value: object, where: str) -> Any:
    """Read whatever is there."""
    return value
