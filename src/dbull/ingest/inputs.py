"""Files for a model: those that arrive in a folder; columns in its order, by name where both have names."""

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from dbull.data.readers import SUFFIXES, Chunk, ReadSettings, find_source, read_chunks, table_names
from dbull.data.readers.chunk import Table
from dbull.data.readers.images import channels_last, is_picture_folder
from dbull.data.readers.text_folders import is_text_folder
from dbull.errors import DataError, SettingsError
from dbull.ingest.beside import with_embeddings
from dbull.ingest.settings import ARRIVAL_ROWS, Reading
from dbull.methods.dbull import DBULL

FIRST_ROWS = 1000  # by which it is told what only names rows


class Inbox:
    """Tells which files of a folder are new, or are not as they were when they were told last.

    Names that begin with a dot, and unknown kinds of files, are left alone. `settle` is how many seconds a
    file must have been left alone before it is told.
    """

    def __init__(self, folder: Path, settle: float = 0.0):
        if not folder.is_dir():
            raise SettingsError(f"{folder}: is not a folder; make it, or name the one where files arrive")
        self.folder, self.settle = folder, settle
        self._told: dict[Path, tuple[int, int]] = {}

    def arrived(self) -> Iterator[Path]:
        """Yield the files in the order of their names."""
        try:
            paths = sorted(self.folder.iterdir())
        except OSError as error:
            raise SettingsError(
                f"{self.folder}: cannot be looked into any more ({error.strerror})"
            ) from error
        for path in paths:
            if path.name.startswith(".") or not path.is_file() or not path.name.lower().endswith(SUFFIXES):
                continue
            try:
                found = path.stat()
                stamp = found.st_size, found.st_mtime_ns
            except OSError:  # taken away meanwhile
                stamp = 0, 0
            # The clock that stamped a file may be ahead of ours.
            if abs(time.time() - stamp[1] / 1e9) >= self.settle and self._told.get(path) != stamp:
                self._told[path] = stamp
                yield path


@dataclass(frozen=True)
class Input:
    """A file or a folder of images, and who is to read it."""

    path: Path
    model: DBULL | None
    reading: Reading
    key_optional: bool = False
    mixed: bool = False  # whether columns may be of any type
    named: bool = True  # whether its name says that it is the same file, grown

    def __post_init__(self) -> None:
        if str(self.path) != "-":
            object.__setattr__(self, "path", find_source(self.path))
        of_texts = self.path.is_dir() and not is_picture_folder(self.path) and is_text_folder(self.path)
        reads = ("column_encoder_", "text_reader_", "vocabulary_")
        if of_texts or any(hasattr(self.model, name) for name in reads):
            object.__setattr__(self, "mixed", True)

    def chunks(
        self,
        *,
        max_bytes: int | None = None,
        tap: Callable[[bytes], object] | None = None,
        only: Mapping[str, str] | None = None,
    ) -> Iterator[Chunk]:
        """Yield chunks with the columns of the model in its order; `ReadSettings` has the limits."""
        path, model, reading = self.path, self.model, self.reading
        names = None if model is None else getattr(model, "feature_names_in_", None)
        settings = replace(self._settings(), max_bytes=max_bytes, tap=tap, only=only)
        if self.mixed:  # the encoder finds its columns, and tells of others
            columns = reading.columns if model is None else None
            chunks = read_chunks(path, replace(settings, columns=columns))
            yield from chunks if reading.beside is None else with_embeddings(chunks, path, reading.beside)
            return
        if names is None:
            chunks = read_chunks(path, replace(settings, columns=reading.columns))
        elif _has_names(path, settings):
            chunks = _by_name(path, tuple(names), settings)
        else:
            chunks = read_chunks(path, settings)
        for chunk in chunks:
            expected = chunk.x.shape[1] if model is None else model.n_features_in_
            if chunk.x.shape[1] != expected:
                told = "" if names is None else f": {', '.join(map(str, names[:20]))}"
                raise DataError(f"{path}: {chunk.x.shape[1]} columns, the model takes {expected}{told}")
            yield channels_last(chunk, path)

    def _settings(self) -> ReadSettings:
        """Return how the file is read, but for its columns."""
        reading = self.reading
        return ReadSettings(
            **{name: getattr(reading, name) for name in ("key", "header", "array", "image_size", "grey")},
            key_optional=self.key_optional,
            chunk_rows=min(reading.arrival_rows, ARRIVAL_ROWS),
            mixed=self.mixed,
        )

    def settings(self) -> ReadSettings:
        """Return how a block of the file is read by whoever gets it: by name, where both have names."""
        settings, names = self._settings(), getattr(self.model, "feature_names_in_", None)
        if self.model is None:
            return replace(settings, columns=self.reading.columns)
        if self.mixed or names is None or not _has_names(self.path, settings):
            return settings
        return replace(settings, columns=tuple(map(str, names)), unnamed=True)

    def first_table(self) -> Table | None:
        """Return the first rows of a file that has names of columns and holds numbers alone; else None."""
        if str(self.path) == "-" or table_names(self.path) is None:
            return None
        settings = ReadSettings(header=self.reading.header, chunk_rows=FIRST_ROWS)
        try:
            numbers = next(read_chunks(self.path, settings))
            if numbers.names is None:
                return None
            table: Table = next(read_chunks(self.path, replace(settings, mixed=True))).x
            return table
        except DataError:  # which reading will tell, or which are other columns
            return None


def _by_name(path: Path, names: tuple[str, ...], settings: ReadSettings) -> Iterator[Chunk]:
    """Yield chunks with columns of these names, some of which may be parts of a column of lists."""
    for chunk in read_chunks(path, replace(settings, columns=names)):
        if chunk.columns != names:
            found, wanted = ", ".join(chunk.columns[:20]), ", ".join(names[:20])
            raise DataError(f"{path}: has the columns {found}, the model takes {wanted}")
        yield chunk


def _has_names(path: Path, settings: ReadSettings) -> bool:
    """Look at the first row only, to tell a table with names from one without."""
    if str(path) == "-":  # a stream cannot be looked at twice
        return True
    try:
        chunks = read_chunks(path, replace(settings, chunk_rows=1, tap=None))
        return next(iter(chunks)).names is not None
    except DataError:  # most often text in a column that the model does not want; reading will tell
        return True
