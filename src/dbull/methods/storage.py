"""Estimators in model folders: each save is one generation, and a loaded model goes on as if never stored.

Nothing that is run is written.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from dbull.codec.learner import pack_state, unpack_state
from dbull.codec.networks import Tensors, refusing_damage
from dbull.documents import Reader, anything, check_fields, fail, list_of, or_none, text
from dbull.errors import ModelFileError, SettingsError
from dbull.ledger import Event, Ledger
from dbull.lifelong.plane import Plane
from dbull.lifelong.state import LearnerState
from dbull.methods.exemplars import Exemplars, pack_exemplars, unpack_exemplars
from dbull.methods.listing import EXEMPLARS, SETTINGS, VOCABULARY, check_method, read_event
from dbull.methods.mapping import DOCUMENT as MAP
from dbull.methods.mapping import pack_map, unpack_map
from dbull.methods.parameters import ALLOWED, Check, device_for, pack_parameters, unpack_parameters
from dbull.methods.sparse import DOCUMENT as SPARSE
from dbull.methods.sparse import pack_sparse, unpack_sparse
from dbull.methods.tables import DOCUMENT, pack_table, unpack_table
from dbull.methods.texts import DOCUMENT as TEXTS
from dbull.methods.texts import TextReader, pack_texts, unpack_texts
from dbull.methods.words import Vocabulary, pack_vocabulary, unpack_vocabulary
from dbull.nets.augment import Augmentation
from dbull.store import Checkpoint, LearnedInput, Loaded, Manifest, ModelFolder
from dbull.tables import ColumnEncoder, SparseProjection, WordCounts
from dbull.writing import now

if TYPE_CHECKING:
    from dbull.methods.dbull import DBULL

# The name that a folder has for a method -> module and class, imported when one is met.
STORED = {
    "curl": ("competitors.curl", "CURL"),
    "dbull": ("dbull", "DBULL"),
    "dec": ("competitors.dec", "DEC"),
    "dp-mixture": ("dp_mixture", "DPMixture"),
    "vade": ("competitors.vade", "VaDE"),
    "vae-dp": ("competitors.vae_dp", "VAEDP"),
}
Model = TypeVar("Model", bound="Stored")


@dataclass(frozen=True)
class Origin:
    """Where a model is kept: the next save there is the generation after this one."""

    path: Path
    manifest: Manifest | None  # None: the folder was empty when the model was begun
    n_events: int = 0  # that the folder has


@dataclass(frozen=True)
class Provenance:
    """Where that comes from what a model has learned since its last save, and what the folder keeps."""

    learned: Sequence[LearnedInput] = ()  # the same content again is refused unless `again`
    reading: Mapping[str, Any] = field(default_factory=dict)  # how inputs were read, for the next time
    again: bool = False
    keep: int | None = None  # generations; see `ModelFolder.prune`
    offsets: Mapping[str, Sequence[int]] = field(default_factory=dict)  # of logs, to go on from


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
    _documents: ClassVar[tuple[str, ...]] = ("learner", "columns")
    _settings_read: ClassVar[dict[str, Reader]] = {"method": text, "parameters": anything}
    _allowed: ClassVar[dict[str, Check]] = {}  # where it is otherwise than in `parameters.ALLOWED`

    def save(self: Model, path: str | os.PathLike[str], *, note: str = "") -> Model:
        """Write the model to a folder, as one more generation if it was saved there or loaded from there.

        `dbull.load` gives it back, to predict with or, where the method can, to go on learning, to the bit.
        Earlier generations stay; a crash at any moment leaves the folder as it was or with the new generation
        whole. Rows are not written, but by `CURL`; statistics of them are: docs/privacy.md says what these
        reveal.

        Raises
        ------
        SettingsError
            if the folder holds another model
        ConflictError
            if another process went on from the same generation
        """
        save(self, path, note)
        return self

    def check_parameters(self) -> None:
        """Name the first parameter that has a value it cannot have; `fit` does this too."""
        parameters = self.get_params(deep=False)  # type: ignore[attr-defined]
        for name, check in {**ALLOWED, **self._allowed}.items():
            if name in parameters:
                check(name, parameters[name])
        if parameters.get("kind") == "images" and parameters["image_shape"] is None:
            raise SettingsError("kind='images' needs image_shape, e.g. image_shape=(28, 28)")

    def _pack(self) -> Checkpoint:
        """Return all that was learned: groups of tensors, documents of plain values, the facts about both."""
        raise NotImplementedError

    def _unpack(self, tensors: Tensors, document: object, ids_given: int, where: str) -> int:
        """Become what `_pack` gave, and return the number of columns of the data."""
        raise NotImplementedError

    # A learner of streams has more to tell.

    def _become(self, checkpoint: Checkpoint, place: Path, earlier: Callable[[], list[Event]] | None) -> int:
        """Undo `_pack`, and return the number of columns; `earlier` gives the events so far."""
        where, learner = str(place / "learner.json"), checkpoint.documents["learner"]
        with refusing_damage(where):
            return self._unpack(checkpoint.tensors, learner, checkpoint.ids_given, where)

    def _ledger(self) -> Ledger:
        return Ledger()


class StoredLearner(Stored):
    """An estimator with a learner's state, whose clusters have a history."""

    state_: LearnerState
    column_encoder_: ColumnEncoder  # of tables of mixed columns alone
    projection_: SparseProjection  # of wide sparse matrices alone
    column_counts_: WordCounts  # the same; of texts, how many of a cluster have each word
    text_reader_: TextReader  # of texts alone
    vocabulary_: Vocabulary  # of tables with texts, and beside embeddings
    exemplars_: Exemplars
    map_: Plane
    elbo_: float
    device: str
    _documents = ("learner", "clusters", "columns")
    _settings_read = SETTINGS

    def _adopt(self, state: LearnerState) -> None:
        """Set the fitted attributes that a state alone decides."""
        self.state_ = state
        self.n_data_sets_ = state.n_data_sets
        self.n_clusters_ = state.n_clusters
        self.cluster_ids_ = np.array(state.cluster_ids, dtype=np.int64)
        self.weights_ = state.weights.numpy()
        self._n_features_out = state.vae.shape.latent_dim

    def _pack(self) -> Checkpoint:
        ledger, elbo = self.state_.ledger, getattr(self, "elbo_", None)
        tensors, learner = pack_state(self.state_)
        documents: dict[str, Any] = {"learner": learner, "clusters": ledger.to_json(since=ledger.n_events)}
        for pack in (
            pack_table,
            pack_sparse,
            pack_texts,
            pack_vocabulary,
            pack_exemplars,
            pack_map,
        ):  # of what a model may lack
            more, told = pack(self)
            tensors, documents = {**tensors, **more}, {**documents, **told}
        return Checkpoint(
            tensors=tensors,
            documents=documents,
            settings={"elbo": elbo if elbo is not None and np.isfinite(elbo) else None},
            encoder_fingerprint=self.state_.fingerprint or None,
            ids_given=ledger.ids_given,
        )

    def _become(self, checkpoint: Checkpoint, place: Path, earlier: Callable[[], list[Event]] | None) -> int:
        clusters = checkpoint.documents["clusters"]
        ledger = Ledger.from_json(clusters, earlier=earlier, where=str(place / "clusters.json"))
        ledger.reserve(checkpoint.ids_given)
        state = unpack_state(
            checkpoint.tensors,
            checkpoint.documents["learner"],
            ledger,
            checkpoint.encoder_fingerprint,
            str(place / "learner.json"),
            self.device,
        )
        self._adopt(state)
        if checkpoint.settings["elbo"] is not None:
            self.elbo_ = checkpoint.settings["elbo"]
        where = str(place / f"{MAP}.json")
        plane = unpack_map(checkpoint.documents, state, where)
        if plane is not None:
            self.map_ = plane
        where = str(place / f"{EXEMPLARS}.json")
        kept = unpack_exemplars(checkpoint.tensors, checkpoint.documents, state, where)
        if kept:
            self.exemplars_ = kept
        where = str(place / f"{VOCABULARY}.json")
        vocabulary = unpack_vocabulary(checkpoint.documents, ledger, where)
        if vocabulary is not None:
            self.vocabulary_ = vocabulary
        n_values, where = state.vae.shape.n_values, str(place / f"{DOCUMENT}.json")
        encoder = unpack_table(checkpoint.tensors, checkpoint.documents, n_values, where)
        if encoder is not None:
            self.column_encoder_ = encoder
            return len(encoder.names)
        sparse = str(place / f"{SPARSE}.json")
        found = unpack_sparse(checkpoint.tensors, checkpoint.documents, n_values, sparse)
        if found is None:
            return n_values
        self.projection_, self.column_counts_ = found
        n_columns, where = self.projection_.n_columns, str(place / f"{TEXTS}.json")
        reader = unpack_texts(checkpoint.tensors, checkpoint.documents, n_columns, where)
        if reader is not None:
            self.text_reader_ = reader
        return n_columns

    def _ledger(self) -> Ledger:
        return self.state_.ledger


def save(
    model: Stored, path: str | os.PathLike[str], note: str = "", provenance: Provenance | None = None
) -> Manifest:
    """Write a model as the next generation of a folder; see `Stored.save`."""
    if not hasattr(model, "state_"):  # a pretrained learner has learned no cluster yet
        check_is_fitted(model)
    model.check_parameters()
    folder, parent = _place_for(model, path)
    provenance, time = provenance or Provenance(), now()
    content = model._pack()
    settings: dict[str, Any] = {"method": model.stored_as, "parameters": pack_parameters(model)}
    if "reading" in model._settings_read:
        settings["reading"] = dict(provenance.reading)
    names = getattr(model, "feature_names_in_", None)
    columns = {"names": None if names is None else [str(name) for name in names]}
    ledger = model._ledger()
    events = ledger.since(ledger.n_unread_events if parent is None else model.origin_.n_events)
    checkpoint = replace(
        content,
        documents={**content.documents, "columns": columns},
        events=[{**event.to_json(), "time": event.time or time} for event in events],
        settings={**settings, **content.settings},
        data_schema={"n_columns": int(model.n_features_in_), "named": names is not None},
        learned_inputs=tuple(provenance.learned),
        offsets=provenance.offsets,
        note=note,
        time=time,
    )
    manifest = folder.commit(checkpoint, parent, again=provenance.again, keep=provenance.keep)
    model.origin_ = Origin(folder.path.resolve(), manifest, ledger.n_events)
    return manifest


def load(
    path: str | os.PathLike[str],
    generation: int | None = None,
    *,
    events: bool = True,
    augment: Augmentation | None = None,
    device: str | None = None,
) -> Any:
    """Return the model of a folder, to predict with or to go on learning, as if it had never been stored.

    A `DBULL`, or whatever else was saved there. `labels_`, `history_` and `chosen_`, which are about one fit,
    and what `set_output` said are not kept; `callback` and a `random_state` that is no whole number are None.

    Parameters
    ----------
    path
        Folder that `save` or ``dbull learn`` wrote.
    generation
        The newest unless named. A model loaded from an older one can be saved elsewhere only.
    events
        Whether `events_` of a `DBULL` holds everything that ever happened, or only what happens from now on.
    augment
        The function that the model was given as `augment`, if it was one of your own.
    device
        Where the networks go, if not where they were; on the CPU, with a warning, if that is not here.

    Raises
    ------
    ModelFileError
        if a file is damaged, missing, foreign or of a newer format; never half a model
    """
    folder = ModelFolder(path)
    return _restored(folder, folder.load(generation), events, augment, device)


def load_generation(folder: ModelFolder, loaded: Loaded, *, events: bool = False) -> DBULL:
    """Return the `DBULL` of a generation that was read, with or without the events up to it."""
    check_method(folder, loaded.manifest)
    model: DBULL = _restored(folder, loaded, events, None, None)
    return model


def _restored(
    folder: ModelFolder, loaded: Loaded, events: bool, augment: Augmentation | None, device: str | None
) -> Any:
    """Return the model of a generation that was read."""
    checkpoint, place = loaded.checkpoint, folder.folder(loaded.generation)
    method = checkpoint.settings.get("method", "dbull")
    if not isinstance(method, str) or method not in STORED:
        raise ModelFileError(f"{place}: is a model of {method!r:.40}, which this dbull does not know")
    module, name = STORED[method]
    kind: type[Stored] = getattr(importlib.import_module(f"dbull.methods.{module}"), name)
    for name in kind._documents:
        if name not in checkpoint.documents:
            raise ModelFileError(f"{place / name}.json: is missing; this is no model of dbull's own")
    where = str(place / "manifest.json")
    settings = check_fields(dict(checkpoint.settings), f"{where}.settings", kind._settings_read)
    parameters = unpack_parameters(kind, settings["parameters"], augment, where)
    if hasattr(kind, "device"):
        parameters["device"] = device_for(parameters.get("device"), device, where)
    elif device is not None:
        raise SettingsError(f"{place}: a model of {kind.__name__} has no device; load it without")
    model = kind(**parameters)
    try:
        model.check_parameters()
    except ValueError as error:
        fail(where, str(error).rstrip("."))

    def earlier() -> list[Event]:
        return [read_event(stored, folder) for stored in folder.events(loaded.generation)]

    n_columns = model._become(checkpoint, place, earlier if events else None)
    where, told = str(place / "columns.json"), checkpoint.documents["columns"]
    names = check_fields(told, where, {"names": or_none(list_of(text))})["names"]
    encoder = getattr(model, "column_encoder_", None)
    if (names is not None and len(names) != n_columns) or (encoder and names != [*encoder.names]):
        fail(where, f"other names than those of the {n_columns} columns")
    model.n_features_in_ = n_columns
    if names is not None:
        model.feature_names_in_ = np.array(names, dtype=object)  # type: ignore[attr-defined]
    if loaded.generation == folder.latest():
        model.origin_ = Origin(folder.path.resolve(), loaded.manifest, model._ledger().n_events)
    return model


def _place_for(model: Stored, path: str | os.PathLike[str]) -> tuple[ModelFolder, Manifest | None]:
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
