"""Learning files into a model folder, one generation per arrival: a stop loses the present one at most."""

import os
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

from dbull.errors import AlreadyLearnedError, ConflictError, DataError, SettingsError
from dbull.ingest.inputs import Inbox, Input
from dbull.ingest.settings import Asked, Reading
from dbull.ingest.sources import Piece, open_source
from dbull.ledger import ArrivalReport
from dbull.methods.dbull import DBULL, Progress
from dbull.methods.explanation import with_reasons
from dbull.methods.storage import Origin, Provenance, load_generation, save
from dbull.store import ModelFolder
from dbull.store.learned import LearnedRecord, add_learned

Tell = Callable[[str, Progress], object]  # is told what is being learned, and how it goes


@dataclass(frozen=True)
class Learned:
    """An arrival that was learned; as text, a line for people."""

    generation: int | None  # None in a dry run
    name: str
    first: bool  # whether it was the first data set of the model
    report: ArrivalReport  # what it changed
    seconds: float  # of learning and writing

    def __str__(self) -> str:
        report = self.report
        where = "would be" if self.generation is None else f"generation {self.generation}:"
        reasons = {c: newborn.because.split("; ")[0] for c, newborn in report.born.items() if not self.first}
        born = (f"{c} ({reasons[c]})" if reasons.get(c) else str(c) for c in report.born)
        new = f", new: {' '.join(born)}" if report.born else ""
        novel = "" if report.novel_share is None or self.first else f", {report.novel_share:.0%} novel"
        outliers = f", {report.n_outliers:,} outliers" if report.n_outliers else ""
        columns = report.changed_columns
        shown = " ".join(columns[:5]) + (" ..." if len(columns) > 5 else "")
        scale = f", other scale (units?): {shown}" if shown else ""
        speed = report.n_rows / max(self.seconds, 1e-9)
        return (
            f"{where} {self.name}, {report.n_rows:,} rows, {report.n_clusters} clusters"
            f"{new}{novel}{outliers}{scale}, "
            f"{self.seconds:.1f} s ({speed:,.0f} rows/s)"
        )


class Learner:
    """A model folder and the model in it, if there is one yet.

    Parameters
    ----------
    path
        The model folder, made by the first arrival.
    settings
        Parameters of `DBULL` and fields of `Reading`; what is absent is as the model has it.
    name
        Tag of the arrivals in the history.
    dry_run
        Learn, but write nothing.
    force
        Learn files again that were learned before, also in part.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        settings: Mapping[str, Any] | None = None,
        *,
        name: str = "",
        dry_run: bool = False,
        force: bool = False,
    ):
        self._asked = Asked.of(settings or {})
        self.folder = ModelFolder(path)
        self.name, self.dry_run, self.force = name, dry_run, force
        self._tried: dict[str, LearnedRecord] = {}  # in a dry run, which leaves nothing in the folder
        if not dry_run:
            self.folder.check_writable()
        self._open()

    def _open(self) -> None:
        """Take the model as it is in the folder now."""
        self.model: DBULL | None = None
        stored = Reading()
        if self.folder.latest() is not None:
            self.model, stored = open_model(self.folder.path)
            self._asked.apply(self.model)
            kept = getattr(self.model, "feature_names_in_", None)
            asked = self._asked.reading.get("columns")
            if asked is not None and kept is not None and set(asked) != set(kept):
                raise SettingsError(
                    f"this model takes the columns {', '.join(kept[:20])}, decided by its first data set; "
                    "leave columns out, or begin a new model"
                )
        self.reading = replace(stored, **self._asked.reading)

    def learn(self, path: str | os.PathLike[str], tell: Tell | None = None) -> Iterator[Learned]:
        """Learn a file, or what is left of it, and yield after each arrival once it is safe on disk."""
        known = self.folder.learned() if self.folder.latest() is not None else {}
        key_optional = self.model is not None and "key" not in self._asked.reading
        given = Input(Path(path), self.model, self.reading, key_optional)
        for piece in open_source(given, {**known, **self._tried}, self.force).pieces():
            yield self._learn(piece, tell)
            if self.dry_run:
                add_learned(self._tried, piece.learned, 0)

    def learn_among_others(self, path: str | os.PathLike[str], tell: Tell | None = None) -> Iterator[Learned]:
        """Learn a file as `learn` does; if another writer was first, go on from what that one wrote."""
        while True:
            try:
                yield from self.learn(path, tell)
                return
            except ConflictError:
                self._open()

    def learn_folder(self, folder: str | os.PathLike[str], tell: Tell | None = None) -> Iterator[Learned]:
        """Learn the files of a folder as `learn` does, in the order of their names; leave known ones out."""
        for path in Inbox(Path(folder)).arrived():
            with suppress(AlreadyLearnedError):
                yield from self.learn(path, tell)

    def _learn(self, piece: Piece, tell: Tell | None) -> Learned:
        model = self._model_for(piece)
        first = getattr(model, "n_data_sets_", 0) == 0
        if first and len(piece.rows) < 2:
            raise DataError(f"{piece.label}: has one row; the first data set of a model needs at least two")
        started = perf_counter()
        if tell is not None:
            model.callback = partial(tell, piece.label)
        with without_name_warnings():
            model.partial_fit(piece.rows)
        if first and piece.names is not None:
            model.feature_names_in_ = np.array(piece.names, dtype=object)
            model.report_ = with_reasons(model, model.state_, model.report_)[1]  # by these names
        self.model = model
        name = f"{self.name}: {piece.label}" if self.name else piece.label
        if not hasattr(model, "origin_"):  # begun for an empty folder: who has written to it was first
            model.origin_ = Origin(self.folder.path.resolve(), None)
        generation = None
        if not self.dry_run:
            reading = self.reading
            provenance = Provenance(piece.learned, reading.kept(), self.force, reading.keep_generations)
            generation = save(model, self.folder.path, name, provenance).generation
        return Learned(generation, name, first, model.report_, perf_counter() - started)

    def _model_for(self, piece: Piece) -> DBULL:
        if self.model is not None:
            return self.model
        model = self._asked.new_model()
        is_image = len(piece.sample_shape) in (2, 3) and model.kind in ("auto", "images")
        if is_image and model.image_shape is None:
            model.set_params(image_shape=piece.sample_shape)
        return model


def open_model(path: str | os.PathLike[str], generation: int | None = None) -> tuple[DBULL, Reading]:
    """Return a model, without the events of its past, and how its files were read."""
    folder = ModelFolder(path)
    loaded = folder.load(generation)
    return load_generation(folder, loaded), Reading.stored(loaded.checkpoint.settings)


@contextmanager
def without_name_warnings() -> Iterator[None]:
    """Columns were put in order by name already; arrays of their values have none, which is no mistake.

    A change of scale is told in the arrival's own line.
    """
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="X does not have valid feature names")
        warnings.filterwarnings("ignore", message="columns .*other units")
        yield
