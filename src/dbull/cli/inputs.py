"""Files as arrivals: columns in the order of the model, pieces of bounded size, known by their content."""

import hashlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from dbull.cli.config import Reading
from dbull.errors import AlreadyLearnedError, DataError
from dbull.store import LearnedInput, hash_file
from dbull.store.learned import LearnedRecord

if TYPE_CHECKING:
    import numpy as np

    from dbull.data.readers import Chunk, ReadSettings
    from dbull.methods.dbull import DBULL

__all__ = [
    *("Piece", "Source", "chunks_for", "column_names", "open_source"),
]

GROWING = (".csv", ".csv.gz")  # files to which rows may be added at the end
HASH_BLOCK = 1 << 20
_PART_OF_LIST = re.compile(r"\[\d+\]\Z")


@dataclass(frozen=True)
class Piece:
    """One arrival of a source."""

    rows: "np.ndarray"
    names: tuple[str, ...] | None
    sample_shape: tuple[int, ...]
    learned: tuple[LearnedInput, ...]  # what the model is to remember of it
    label: str


@dataclass(frozen=True)
class Source:
    """A file or a folder of images, and how much of it a model has learned."""

    path: Path
    sha256: str
    n_bytes: int
    n_done: int  # rows learned in an earlier run that was interrupted, or before more were added
    n_passes: int  # how often all of it was learned before

    @property
    def complete(self) -> bool:
        """Whether all of it was learned before."""
        return self.n_passes > 0

    def pieces(
        self, model: "DBULL | None", reading: Reading, *, key_optional: bool = False
    ) -> Iterator[Piece]:
        """Yield what is left to learn, at most one and a half times `arrival_rows` rows each."""
        import numpy as np

        first, total, held, size = self.n_done, 0, [], reading.arrival_rows
        chunk: Chunk | None = None
        max_bytes = self.n_bytes if self.path.name.lower().endswith(GROWING) else None
        chunks = chunks_for(self.path, model, reading, key_optional=key_optional, max_bytes=max_bytes)
        for chunk in chunks:
            skip = max(0, self.n_done - total)
            total += len(chunk.x)
            held.append(chunk.x[skip:])
            while sum(map(len, held)) >= size + size // 2:
                rows = np.concatenate(held)
                held = [rows[size:]]
                yield self._piece(rows[:size], chunk, first, last=False)
                first += size
        rest = np.concatenate(held) if held else np.zeros((0, 0))
        if total == self.n_done and not self.complete:
            raise AlreadyLearnedError(f"{self.path}: no rows were added since it was learned")
        if len(rest) == 0 or chunk is None:
            raise DataError(
                f"{self.path}: has {total} rows, {self.n_done} of which were learned: it has changed"
            )
        yield self._piece(rest, chunk, first, last=True)

    def _piece(self, rows: "np.ndarray", chunk: "Chunk", first: int, last: bool) -> Piece:
        whole = last and first == 0
        label = self.path.name if whole else f"{self.path.name} rows {first + 1}-{first + len(rows)}"
        learned: tuple[LearnedInput, ...] = ()
        if not whole:
            part = _part_key(self.sha256, first, self.n_passes)
            learned = (LearnedInput(part, label, len(rows), self.n_bytes),)
        if last:
            everything = LearnedInput(self.sha256, self.path.name, first + len(rows), self.n_bytes)
            learned = (*learned, everything)
        return Piece(rows, column_names(chunk), chunk.sample_shape, learned, label)


def open_source(path: Path, known: Mapping[str, LearnedRecord], force: bool) -> Source:
    """Identify an input by its content; refuse it if all of it was learned, unless forced."""
    if str(path) == "-":
        raise DataError(
            "standard input cannot be learned, since learning could not go on after a stop; "
            "save it to a file, and learn that"
        )
    sha256, n_bytes = _content_hash(path)
    whole = known.get(sha256)
    n_passes = 0 if whole is None else whole.times
    before = 0 if whole is not None or force else _rows_learned_of_its_beginning(path, n_bytes, known)
    done = max(_parts_done(sha256, first, known, n_passes) for first in (0, before))
    if whole is not None and not force and done == 0:
        raise AlreadyLearnedError(
            f"{path}: this was learned in generation {whole.generation} as {whole.name!r}; learning it again "
            "would count its rows twice: leave it out, or give --force"
        )
    return Source(path, sha256, n_bytes, done, n_passes)


def chunks_for(
    path: Path,
    model: "DBULL | None",
    reading: Reading,
    *,
    key_optional: bool = False,
    max_bytes: int | None = None,
) -> "Iterator[Chunk]":
    """Yield chunks with the columns of a model in its order, by name where both have names."""
    from dbull.data.readers import read_chunks

    names = None if model is None else getattr(model, "feature_names_in_", None)
    settings = replace(reading.read_settings(None), key_optional=key_optional, max_bytes=max_bytes)
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
        yield _channels_last(chunk, path)


def _by_name(path: Path, names: tuple[str, ...], settings: "ReadSettings") -> "Iterator[Chunk]":
    """Yield chunks with columns of these names, some of which may be parts of a column of lists."""
    from dbull.data.readers import read_chunks

    chunks = iter(read_chunks(path, replace(settings, columns=names)))
    whole = tuple(dict.fromkeys(_PART_OF_LIST.sub("", name) for name in names))
    if whole != names:
        try:
            yield next(chunks)
        except DataError:
            chunks = iter(read_chunks(path, replace(settings, columns=whole)))
    for chunk in chunks:
        if chunk.columns != names:
            found, wanted = ", ".join(chunk.columns[:20]), ", ".join(names[:20])
            raise DataError(f"{path}: has the columns {found}, the model takes {wanted}")
        yield chunk


def column_names(chunk: "Chunk") -> tuple[str, ...] | None:
    """Return the names of the columns, None if they are only numbered."""
    numbered = all(name == str(i) for i, name in enumerate(chunk.columns))
    return None if numbered else chunk.columns


def _has_names(path: Path, settings: "ReadSettings") -> bool:
    """Look at the first row only, to tell a table with names from one without."""
    from dbull.data.readers import read_chunks

    if str(path) == "-":  # a stream cannot be looked at twice
        return True
    try:
        chunks = read_chunks(path, replace(settings, chunk_rows=1))
        return column_names(next(iter(chunks))) is not None
    except DataError:  # most often text in a column that the model does not want; reading will tell
        return True


def _channels_last(chunk: "Chunk", path: Path) -> "Chunk":
    """Return pixels in the order of `DBULL`: readers of colour images have the channels first."""
    if not path.is_dir() or len(chunk.sample_shape) != 3:
        return chunk
    n_channels, height, width = chunk.sample_shape
    pixels = chunk.x.reshape(-1, n_channels, height, width).transpose(0, 2, 3, 1)
    return replace(chunk, x=pixels.reshape(len(chunk.x), -1), sample_shape=(height, width, n_channels))


def _rows_learned_of_its_beginning(path: Path, n_bytes: int, known: Mapping[str, LearnedRecord]) -> int:
    """Return how many rows of a CSV file were learned when it was shorter.

    Its content decides: a part from the start must be, byte for byte, what was learned, whole or in part.
    """
    lengths = sorted({record.bytes for record in known.values() if 0 < record.bytes < n_bytes})
    if not lengths or not path.name.lower().endswith(GROWING):
        return 0
    digest, at, done = hashlib.sha256(), 0, 0
    try:
        with path.expanduser().open("rb") as file:
            for length in lengths:
                while at < length and (block := file.read(min(length - at, HASH_BLOCK))):
                    digest.update(block)
                    at += len(block)
                sha256 = digest.hexdigest()
                whole = known.get(sha256)
                starts = (0, done, 0 if whole is None else whole.rows)
                done = max(_parts_done(sha256, first, known) for first in starts)
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror})") from error
    return done


def _parts_done(sha256: str, first: int, known: Mapping[str, LearnedRecord], n_passes: int = 0) -> int:
    """Return up to which row the arrivals of a content were learned in this pass, from a first row on."""
    while (part := known.get(_part_key(sha256, first, n_passes))) is not None:
        first += part.rows
    return first


def _content_hash(path: Path) -> tuple[str, int]:
    """Return the hash of a file or a folder, and of how many bytes; a file may be growing meanwhile."""
    path = path.expanduser()
    try:
        if not path.is_dir():
            n_bytes = path.stat().st_size
            return hash_file(path, n_bytes), n_bytes
        digest = hashlib.sha256()
        for file_path in sorted(p for p in path.rglob("*") if p.is_file()):
            digest.update(f"{file_path.relative_to(path).as_posix()}\0{hash_file(file_path)}\n".encode())
        return digest.hexdigest(), 0
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror})") from error


def _part_key(sha256: str, first_row: int, n_passes: int) -> str:
    """Name an arrival of a content; in a pass after the first, which was forced, by another name."""
    again = f":{n_passes}" if n_passes else ""
    return hashlib.sha256(f"{sha256}:{first_row}{again}".encode()).hexdigest()
