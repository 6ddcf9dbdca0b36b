"""Learning files into a model folder, one generation per arrival: a stop loses the present one at most."""

import math
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

from dbull.cli.config import COMMAND_ONLY, Config, Reading
from dbull.cli.inputs import Input
from dbull.cli.sources import Piece, open_source
from dbull.errors import ConflictError, DataError, SettingsError
from dbull.store import ModelFolder
from dbull.store.learned import LearnedRecord, add_learned

if TYPE_CHECKING:
    from dbull.methods.dbull import DBULL, Progress

__all__ = ["Learned", "Learner", "open_model", "reading_of", "without_name_warnings"]


@dataclass(frozen=True)
class Learned:
    """What an arrival changed."""

    generation: int | None  # None in a dry run
    name: str
    rows: int
    n_clusters: int
    born: list[int]
    first: bool  # whether it was the first data set of the model
    novel_share: float | None
    elbo: float | None
    rows_per_cluster: dict[str, int]
    outliers: int  # rows that did not count
    changed_columns: list[str]  # of which the scale is not what it was
    seconds: float

    @property
    def line(self) -> str:
        """The same for people."""
        where = "would be" if self.generation is None else f"generation {self.generation}:"
        new = f", new: {' '.join(map(str, self.born))}" if self.born else ""
        novel = "" if self.novel_share is None or self.first else f", {self.novel_share:.0%} novel"
        outliers = f", {self.outliers:,} outliers" if self.outliers else ""
        shown = " ".join(self.changed_columns[:5]) + (" ..." if len(self.changed_columns) > 5 else "")
        scale = f", other scale (units?): {shown}" if shown else ""
        speed = self.rows / max(self.seconds, 1e-9)
        return (
            f"{where} {self.name}, {self.rows:,} rows, {self.n_clusters} clusters"
            f"{new}{novel}{outliers}{scale}, "
            f"{self.seconds:.1f} s ({speed:,.0f} rows/s)"
        )


class Learner:
    """A model folder and the model in it, if there is one yet."""

    def __init__(
        self, path: Path, config: Config, *, name: str = "", dry_run: bool = False, force: bool = False
    ):
        self.folder = ModelFolder(path)
        self.config, self.name, self.dry_run, self.force = config, name, dry_run, force
        self._tried: dict[str, LearnedRecord] = {}  # in a dry run, which leaves nothing in the folder
        if not dry_run:
            self.folder.check_writable()
        self._open()

    def _open(self) -> None:
        """Take the model as it is in the folder now."""
        self.model: DBULL | None = None
        stored: dict[str, Any] = {}
        if self.folder.latest() is not None:
            self.model, stored = open_model(self.folder.path)
            self.config.apply(self.model)
            kept, asked = self.model_columns(), self.config.reading.get("columns")
            if asked is not None and kept is not None and set(asked) != set(kept):
                raise SettingsError(
                    f"this model takes the columns {', '.join(kept[:20])}, decided by its first data set; "
                    "leave columns out, or begin a new model"
                )
        self.reading = Reading(**{**stored, **self.config.reading})

    def model_columns(self) -> tuple[str, ...] | None:
        """Return the names of the columns that the model takes, if it has some."""
        names = getattr(self.model, "feature_names_in_", None)
        return None if names is None else tuple(map(str, names))

    def learn(self, path: Path, tell: "Callable[[str, Progress], object] | None" = None) -> Iterator[Learned]:
        """Learn a file, or what is left of it, and yield after each arrival once it is safe on disk."""
        known = self.folder.learned() if self.folder.latest() is not None else {}
        key_optional = self.model is not None and "key" not in self.config.reading
        given = Input(path, self.model, self.reading, key_optional)
        source = open_source(given, {**known, **self._tried}, self.force)
        for piece in source.pieces():
            yield self._learn(piece, self.force, tell)
            if self.dry_run:
                self._tried = add_learned(self._tried, piece.learned, 0, again=True)

    def learn_among_others(
        self, path: Path, tell: "Callable[[str, Progress], object] | None" = None
    ) -> Iterator[Learned]:
        """Learn a file as `learn` does; if another writer was first, go on from what that one wrote."""
        while True:
            try:
                yield from self.learn(path, tell)
                return
            except ConflictError:
                self._open()

    def _learn(self, piece: Piece, again: bool, tell: "Callable[[str, Progress], object] | None") -> Learned:
        from dbull.methods.storage import Origin, Provenance, save

        model = self._model_for(piece)
        if len(piece.rows) < 2 and not _fitted(model):
            raise DataError(f"{piece.label}: has one row; the first data set of a model needs at least two")
        started = perf_counter()
        if tell is not None:
            model.callback = lambda progress: tell(piece.label, progress)
        first = not _fitted(model)
        with without_name_warnings():
            model.partial_fit(piece.rows)
        if first and piece.names is not None:
            import numpy as np

            model.feature_names_in_ = np.array(piece.names, dtype=object)
        self.model = model
        name = f"{self.name}: {piece.label}" if self.name else piece.label
        if not hasattr(model, "origin_"):  # begun for an empty folder: who has written to it was first
            model.origin_ = Origin(self.folder.path.resolve(), None)
        report = model.report_
        generation = None
        if not self.dry_run:
            provenance = Provenance(piece.learned, self.reading.kept(), again, self.reading.keep_generations)
            generation = save(model, self.folder.path, name, provenance).generation
        return Learned(
            generation,
            name,
            len(piece.rows),
            model.n_clusters_,
            list(report.born),
            first,
            report.novel_share,
            report.elbo if math.isfinite(report.elbo) else None,
            {str(cluster): n for cluster, n in report.rows.items() if n},
            report.n_outliers,
            list(report.changed_columns),
            perf_counter() - started,
        )

    def _model_for(self, piece: Piece) -> "DBULL":
        if self.model is not None:
            return self.model
        model = self.config.new_model()
        if (
            len(piece.sample_shape) in (2, 3)
            and model.image_shape is None
            and model.kind in ("auto", "images")
        ):
            model.set_params(image_shape=piece.sample_shape)
        return model


def open_model(path: Path, generation: int | None = None) -> "tuple[DBULL, dict[str, Any]]":
    """Return a model, without the events of its past, and how its files were read."""
    from dbull.methods.storage import load_generation

    folder = ModelFolder(path)
    loaded = folder.load(generation)
    return load_generation(folder, loaded), reading_of(loaded.checkpoint.settings)


def reading_of(settings: Any) -> dict[str, Any]:
    """Return the settings of `Reading` that a model keeps."""
    kept = settings.get("reading", {})
    names = {field.name for field in fields(Reading)} - set(COMMAND_ONLY)  # some models have one
    return {name: value for name, value in kept.items() if name in names}


@contextmanager
def without_name_warnings() -> Iterator[None]:
    """Columns were put in order by name already; arrays of their values have none, which is no mistake.

    A change of scale is told in the arrival's own line.
    """
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="X does not have valid feature names")
        warnings.filterwarnings("ignore", message="columns .*other units")
        yield


def _fitted(model: "DBULL") -> bool:
    return getattr(model, "n_data_sets_", 0) > 0
