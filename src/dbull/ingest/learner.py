"""Learning files into a model folder, one generation per arrival: a stop loses the present one at most."""

import logging
import os
import re
import shutil
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

from dbull.data.blocks import BLOCK_ROWS, SAMPLE_ROWS, Source
from dbull.data.containers import n_rows
from dbull.data.readers.chunk import SparseRows, Table
from dbull.data.readers.kafka_log import KafkaLog, Message
from dbull.data.readers.remote import copied
from dbull.data.readers.standard_input import saved_input
from dbull.data.readers.text_folders import COLUMN as TEXT
from dbull.documents import as_text
from dbull.errors import (
    AlreadyLearnedError,
    ConflictError,
    DataError,
    NumericalError,
    SettingsError,
    TableNotice,
)
from dbull.ingest.inputs import Inbox, Input
from dbull.ingest.log import read_messages
from dbull.ingest.settings import Asked, Reading
from dbull.ingest.sources import Piece, open_source
from dbull.ingest.whole import new_files, one_arrival, readable
from dbull.ledger import ArrivalReport
from dbull.methods.dbull import DBULL, Progress
from dbull.methods.explanation import with_reasons
from dbull.methods.storage import Origin, Provenance, load_generation, save
from dbull.store import ModelFolder
from dbull.store.learned import LearnedRecord, add_learned
from dbull.tables import proposed_keys

_log = logging.getLogger(__name__)
LINGER_SECONDS = 60.0
LAPS = ".laps"  # in the model folder, while an arrival of any length is learned
Tell = Callable[[str, Progress], object]  # is told what is being learned, and how it goes


@dataclass(frozen=True)
class Learned:
    """An arrival that was learned; as text, a line for people."""

    generation: int | None  # None in a dry run
    name: str
    first: bool  # whether it was the first data set of the model
    report: ArrivalReport  # what it changed
    seconds: float  # of learning and writing
    notices: tuple[str, ...] = ()  # what a user should know about its columns

    def __str__(self) -> str:
        report = self.report
        where = "would be" if self.generation is None else f"generation {self.generation}:"
        reasons = {c: "" if self.first else one.because.split("; ")[0] for c, one in report.born.items()}
        born = (f"{cluster} ({why})" if why else str(cluster) for cluster, why in reasons.items())
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
        self._notices: tuple[str, ...] = ()  # to be told with the next arrival
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
        """Learn a file, or what is left of it, and yield after each arrival once it is safe on disk.

        "-" is standard input, saved first: the same content again is known, and goes on after a stop.
        """
        known = self.folder.learned() if self.folder.latest() is not None else {}
        if self.reading.beside is not None and str(path).endswith(".npy"):
            raise AlreadyLearnedError(
                f"{path}: holds embeddings, which are learned with the files beside them"
            )
        named = str(path) != "-"
        where = Path(path) if named else saved_input()
        for piece in open_source(self._input(where, named), {**known, **self._tried}, self.force).pieces():
            yield self._learn(piece, tell)
            if self.dry_run:
                add_learned(self._tried, piece.learned, 0)

    def _input(self, path: Path, named: bool = True) -> Input:
        """Return how a file is read."""
        key_optional = self.model is not None and "key" not in self._asked.reading
        mixed = self.model is None and not {"columns", "embeddings"}.isdisjoint(self._asked.parameters)
        return self._without_ids(Input(path, self.model, self.reading, key_optional, mixed, named))

    def learn_whole(
        self,
        paths: Sequence[str | os.PathLike[str]],
        tell: Tell | None = None,
        *,
        block_rows: int = BLOCK_ROWS,
        sample_rows: int = SAMPLE_ROWS,
    ) -> Learned:
        """Learn files, however long, as one arrival; what was learned before is left out.

        They are read in blocks, through joblib (docs/scale.md). After a stop the same call goes on with the
        last finished lap.
        """
        if self.reading.beside is not None:
            raise SettingsError("embeddings in a file beside are learned file by file: leave out --whole")
        known = {} if self.folder.latest() is None else self.folder.learned()
        laps = None if self.dry_run else self.folder.path / LAPS
        source = Source([*map(str, paths)], block_rows, sample_rows, laps)
        files, learned = new_files(source.files(), known, self.force)
        source = replace(source, given=files)
        with copied(files[0]) as first:
            given = self._input(first)
            source, peek = readable(source, given)
        name = as_text(files[0].rpartition("/")[2])
        label = name if len(files) == 1 else f"{name} and {len(files) - 1} more"
        rows = Table(peek.rows, n_rows(peek.rows)) if isinstance(peek.rows, dict) else peek.rows
        model = self._model_for(peek.sample_shape, rows)
        piece = Piece(source, None, peek.sample_shape, tuple(learned), label, None)
        arrival = self._learn(piece, tell, model)
        if laps is not None:
            shutil.rmtree(laps, ignore_errors=True)
        return arrival

    def _without_ids(self, given: Input) -> Input:
        """Leave out columns of the first table of numbers that only name its rows."""
        reading = self.reading
        if given.model is not None or given.mixed or reading.columns is not None or reading.key is not None:
            return given
        found = given.first_table()
        keys = () if found is None else proposed_keys(found.columns)
        if found is None or not keys or len(keys) == len(found.columns):
            return given
        self._notices = (f"columns left out: {', '.join(map(repr, keys))} (they name rows, each another)",)
        rest = tuple(name for name in found.columns if name not in keys)
        self.reading = replace(reading, columns=rest)
        return replace(given, reading=self.reading)

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
            try:
                yield from self.learn(path, tell)
            except AlreadyLearnedError as error:
                _log.info("left out: %s", error)

    def learn_log(
        self, log: KafkaLog, tell: Tell | None = None, *, linger: float = LINGER_SECONDS, once: bool = False
    ) -> Iterator[Learned]:
        """Learn a log from where the model is in it, and yield after each arrival once it is safe on disk.

        An arrival is `arrival_rows` messages, or those that have come in `linger` seconds. Offsets are stored
        with what was learned, in one step, so each message is learned exactly once, also among several
        writers. For ever; with `once` up to where the log ends now.
        """
        held: list[Message] = []
        log.seek(self._offsets())
        for messages in log.arrivals(self.reading.arrival_rows, linger, once):
            piece, held = read_messages([*held, *messages], log, self.model, self._input)
            if piece is None:
                continue
            try:
                learned = self._learn(piece, tell)
            except ConflictError:  # another writer was first; what the model has not learned is read again
                self._open()
                log.seek(self._offsets())
            except (DataError, NumericalError) as error:
                raise type(error)(f"{piece.label}: {error}; nothing of this was learned") from error
            else:
                yield learned
        if held:
            raise DataError(f"{log.address}: has one row; the first data set of a model needs at least two")

    def _offsets(self) -> Mapping[str, Sequence[int]]:
        """Return where the model goes on in the logs that it has learned."""
        origin = getattr(self.model, "origin_", None)
        return {} if origin is None or origin.manifest is None else origin.manifest.offsets

    def _learn(self, piece: Piece, tell: Tell | None, model: DBULL | None = None) -> Learned:
        model = model or self._model_for(piece.sample_shape, piece.rows)
        first, whole = getattr(model, "n_data_sets_", 0) == 0, isinstance(piece.rows, Source)
        if first and not whole and len(piece.rows) < 2:
            raise DataError(f"{piece.label}: has one row; the first data set of a model needs at least two")
        started = perf_counter()
        if tell is not None:
            model.callback = partial(tell, piece.label)
        told: dict[str, None] = dict.fromkeys(self._notices)
        self._notices = ()
        with telling_notices(lambda notice: told.setdefault(notice)):
            model.partial_fit(self._rows(piece.rows), keys=piece.keys)
        if first and piece.names is not None and not isinstance(piece.rows, Table):
            model.feature_names_in_ = np.array(piece.names, dtype=object)
            model.report_ = with_reasons(model, model.state_, model.report_)[1]  # by these names
        self.model = model
        name = f"{self.name}: {piece.label}" if self.name else piece.label
        if not hasattr(model, "origin_"):  # begun for an empty folder: who has written to it was first
            model.origin_ = Origin(self.folder.path.resolve(), None)
        generation = None
        if not self.dry_run:
            reading = self.reading
            learned = piece.learned
            if whole:
                learned = one_arrival(learned, piece.label, model.report_.n_rows)
            provenance = Provenance(
                learned, reading.kept(), self.force, reading.keep_generations, piece.offsets
            )
            generation = save(model, self.folder.path, name, provenance).generation
        return Learned(generation, name, first, model.report_, perf_counter() - started, tuple(told))

    def _rows(self, x: Any) -> Any:
        """Return what was read as the model takes it; columns that are new to it are named once."""
        encoder = getattr(self.model, "column_encoder_", None)
        if not isinstance(x, Table) or encoder is None:
            return rows_for(x)
        rows = rows_for(x, self.reading)
        new = tuple(name for name in rows if name not in (*encoder.names, *encoder.left_out))
        self.reading = replace(self.reading, ignored=(*self.reading.ignored, *new))
        return rows

    def _model_for(self, sample_shape: tuple[int, ...], rows: Any) -> DBULL:
        if self.model is not None:
            return self.model
        model = self._asked.new_model()
        is_image = len(sample_shape) in (2, 3) and model.kind in ("auto", "images")
        if is_image and model.image_shape is None:
            model.set_params(image_shape=sample_shape)
        if model.kind == "auto" and isinstance(rows, Table) and list(rows.columns) == [TEXT]:
            model.set_params(kind="text")
        return model


def rows_for(x: Any, reading: Reading | None = None) -> Any:
    """Return what was read in the way that a model takes it, without new columns that were told before."""
    if isinstance(x, SparseRows):
        return x.matrix
    if not isinstance(x, Table):
        return x
    ignored = () if reading is None else reading.ignored
    return {name: column for name, column in x.columns.items() if name not in ignored}


def open_model(path: str | os.PathLike[str], generation: int | None = None) -> tuple[DBULL, Reading]:
    """Return a model, without the events of its past, and how its files were read."""
    folder = ModelFolder(path)
    loaded = folder.load(generation)
    return load_generation(folder, loaded), Reading.stored(loaded.checkpoint.settings)


@contextmanager
def telling_notices(tell: Callable[[str], object]) -> Iterator[None]:
    """Tell what a user should know about columns; leave out what is no mistake here.

    Columns were put in order by name already; arrays of their values have none. A change of scale is told in
    the arrival's own line.
    """
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield
    for warning in caught:
        text = str(warning.message)
        if issubclass(warning.category, TableNotice):
            tell(text)
        elif not re.match("X does not have valid feature names|columns .*other units", text):
            warnings.warn_explicit(warning.message, warning.category, warning.filename, warning.lineno)
