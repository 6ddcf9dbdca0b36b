"""Rows of any number as numbered blocks: files, frames that are not in memory, chunks that come one by one.

A block is the unit of work: whoever has it reads its rows, a chunk at a time, wherever that is. Which rows it
has depends on the source alone. Blocks of files are paths and ranges of rows, so that no row is sent.
"""

from __future__ import annotations

import hashlib
import importlib
import os
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import joblib
import numpy as np

from dbull.data.containers import n_rows, some_rows
from dbull.data.readers import expand_sources, find_source, parts, read_chunks
from dbull.data.readers.chunk import ReadSettings, SparseRows, Table, need_pyarrow
from dbull.data.readers.images import channels_last, image_files, is_picture_folder
from dbull.data.readers.remote import copied, is_address, listed
from dbull.data.readers.text_folders import text_files
from dbull.errors import DataError, SettingsError

BLOCK_ROWS = 50_000
SAMPLE_ROWS = 20_000


class Piece(NamedTuple):
    """Some rows of a block."""

    rows: Any  # an array, a sparse matrix, a frame or a dict of columns
    first_row: int  # number of the first, in the file or in the block
    keys: Sequence[str] | None = None  # what they are called, if they have names
    names: tuple[str, ...] | None = None  # of the columns of an array
    sample_shape: tuple[int, ...] = ()  # of one row before it was flattened


@dataclass(frozen=True)
class FileBlock:
    """A file, or a range of its rows."""

    path: str
    settings: ReadSettings
    shown: str = ""  # the path as it was given
    size: int | None = None  # of the file when it was cut, in bytes

    def pieces(self) -> Iterator[Piece]:
        """Yield the rows; a file from elsewhere is here while they are read, and no longer."""
        self._check_unchanged()
        with copied(self.path) as path:
            for read in read_chunks(path, self.settings):
                chunk = channels_last(read, path)
                rows = chunk.x
                if isinstance(rows, SparseRows):
                    rows = rows.matrix
                elif isinstance(rows, Table):
                    rows = rows.columns
                keys = None if chunk.keys is None else [str(key) for key in chunk.keys.tolist()]
                yield Piece(rows, chunk.first_row, keys, chunk.names, chunk.sample_shape)

    def _check_unchanged(self) -> None:
        """Refuse a file that has become another since it was cut."""
        if self.size is None:
            return
        try:
            size = os.path.getsize(self.path)
        except OSError as error:
            raise DataError(
                f"{self.shown}: it was there, and cannot be read again ({error.strerror})"
            ) from error
        if size != self.size:
            raise DataError(
                f"{self.shown}: it had {self.size:,} bytes, and has {size:,} now that it is read again; run "
                "the same again when nobody writes it"
            )

    @property
    def name(self) -> str:
        """What the file is called."""
        return self.path.rpartition("/")[2]

    @property
    def identity(self) -> str:
        """What tells the block from others, and its file from what it was before."""
        stamp: tuple[int, ...] = ()
        if not is_address(self.path):
            found = os.stat(self.path)
            stamp = found.st_size, found.st_mtime_ns
        return repr((self.path, stamp, self.settings))


@dataclass(frozen=True, eq=False)
class RowsBlock:
    """Rows that are in memory, or that some library gives when it is asked."""

    rows: Any
    identity: str
    name: str = ""

    def pieces(self) -> Iterator[Piece]:
        """Yield the rows at once."""
        rows = self.rows
        if hasattr(rows, "dask"):
            rows = rows.compute(scheduler="synchronous")
        elif type(rows).__name__ == "LazyFrame":
            rows = rows.collect()
        elif hasattr(rows, "to_batches") and hasattr(rows, "physical_schema"):  # a fragment of Arrow
            rows = rows.to_table(use_threads=False)
            if b"pandas" in (rows.schema.metadata or {}):
                rows = rows.to_pandas()
        if n_rows(rows):
            yield Piece(rows, 0, _index(rows))


def _index(rows: Any) -> Sequence[str] | None:
    """Return what the rows of a pandas frame are called, if they have names of their own."""
    index = getattr(rows, "index", None)
    if index is None or not hasattr(rows, "iloc") or type(index).__name__ == "RangeIndex":
        return None
    return [str(key) for key in index.tolist()]


@dataclass(eq=False)
class Source:
    """An arrival of any length, to be given to `DBULL.fit` or `DBULL.partial_fit`.

    Parameters
    ----------
    given
        Files, by name, address or pattern, or a list of them; a dataset of Arrow; a frame or an array of
        Dask; a lazy frame of polars; an iterator of chunks, which are kept in a temporary folder meanwhile;
        or rows in memory.
    block_rows
        Rows of a block, about. Sums are made block by block, so that another number rounds otherwise.
    sample_rows
        Rows of the sample by which networks and clusters are found. An arrival that is no longer is learned
        as an array is, to the bit.
    checkpoint
        A folder in which each finished lap is kept, for the same call to go on after it was stopped.
    reading
        How files are read.
    """

    given: Any
    block_rows: int = BLOCK_ROWS
    sample_rows: int = SAMPLE_ROWS
    checkpoint: str | os.PathLike[str] | None = None
    reading: ReadSettings | None = None
    _spooled: Any = field(default=None, repr=False)

    def __post_init__(self) -> None:
        for name, least in (("block_rows", 1), ("sample_rows", 100)):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < least:
                raise SettingsError(f"{name} must be a whole number of at least {least}, got {value!r:.50}")

    @property
    def of_files(self) -> bool:
        """Whether these are files; a list of texts here is names of them."""
        given = self.given
        of_names = isinstance(given, list | tuple) and bool(given) and all(isinstance(o, str) for o in given)
        return of_names or is_files(given)

    def files(self) -> list[str]:
        """Return the paths and addresses of the files, patterns resolved."""
        given = [self.given] if isinstance(self.given, str | os.PathLike) else list(self.given)
        found: list[str] = []
        for one in map(str, given):
            if is_address(one) and not os.path.exists(one):
                found += listed(one)
            else:
                found += [str(find_source(path)) for path in expand_sources([one])]
        return found

    def blocks(self, reading: ReadSettings | None = None) -> list[Any]:
        """Return the blocks in their order; files are read as told, else as `reading` of the source says."""
        if not self.of_files:
            return list(self._rows_blocks())
        settings = replace(reading or self.reading or ReadSettings(), tap=None)
        # Whoever may work on blocks looks for them, since a text must be read for that.
        files = [(path if is_address(path) else os.path.abspath(path), path) for path in self.files()]
        cutting = (joblib.delayed(file_blocks)(*file, settings, self.block_rows) for file in files)
        return list(chain.from_iterable(joblib.Parallel()(cutting)))

    def _rows_blocks(self) -> Iterator[RowsBlock]:
        given, size = self.given, self.block_rows
        if isinstance(given, Iterator):
            if self._spooled is None:
                self._spooled = _spooled(given)
            for i, part in enumerate(self._spooled[1]):
                for block in replace(self, given=part)._rows_blocks():
                    yield replace(block, identity=f"chunk {i} {block.identity}")
        elif hasattr(given, "to_delayed"):
            parts = np.ravel(given.to_delayed()).tolist()
            if getattr(given, "ndim", 2) == 2 and hasattr(given, "numblocks") and given.numblocks[1:] != (1,):
                raise DataError("an array of Dask must have all columns in one chunk: rechunk((rows, -1))")
            yield from (RowsBlock(part, str(part.key)) for part in parts)
        elif hasattr(given, "get_fragments"):
            for fragment in given.get_fragments():
                split = getattr(fragment, "split_by_row_group", lambda fragment=fragment: [fragment])
                where = getattr(fragment, "path", "in memory")
                yield from (RowsBlock(part, f"{where} {i}") for i, part in enumerate(split()))
        elif type(given).__name__ == "LazyFrame":
            n = int(given.select(importlib.import_module("polars").len()).collect().item())
            yield from (RowsBlock(given.slice(i, size), f"lazy {i} {n}") for i in range(0, n, size))
        else:
            n = n_rows(given)
            places = (slice(i, min(i + size, n)) for i in range(0, n, size))
            yield from (RowsBlock(some_rows(given, place), f"{place} of {n}") for place in places)


def is_files(given: Any) -> bool:
    """Tell names of files from rows; a list of texts is rows, a list of paths is files."""
    if isinstance(given, list | tuple) and given:
        return all(isinstance(one, os.PathLike) for one in given)
    return isinstance(given, str | os.PathLike)


def is_source(given: Any) -> bool:
    """Tell what may be of any length from rows in memory."""
    return (
        isinstance(given, Source | str | os.PathLike | Iterator)
        or is_files(given)
        or any(hasattr(given, name) for name in ("to_delayed", "get_fragments"))
        or type(given).__name__ == "LazyFrame"
    )


def file_blocks(path: str, shown: str, settings: ReadSettings, n_rows: int) -> list[FileBlock]:
    """Return a file as blocks: of about so many rows where it can be cut, else as one.

    The path is an absolute one, since workers may be in another folder.
    """
    if os.path.isdir(path):
        files = (image_files if is_picture_folder(Path(path)) else text_files)(Path(path))
        keys = list(files)
        some = (keys[i : i + n_rows] for i in range(0, len(keys), n_rows))
        hashed = ({key: _hash_of(files[key]) for key in part} for part in some)
        return [FileBlock(path, replace(settings, only=only), shown) for only in hashed]
    if is_address(path):
        return [FileBlock(path, settings, shown)]
    size = os.path.getsize(path)
    return [FileBlock(path, part, shown, size) for part in parts(Path(path), settings, n_rows)]


def _hash_of(path: Path) -> str:
    """Return the SHA-256 of a small file, by which it is seen that it has not changed."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _spooled(chunks: Iterable[Any]) -> tuple[Any, list[Any]]:
    """Write chunks that come only once to files of a temporary folder; return it, and what is in them."""
    folder = tempfile.TemporaryDirectory(prefix="dbull-")
    kept: list[Any] = []
    for i, chunk in enumerate(chunks):
        path = os.path.join(folder.name, f"{i:08}")
        if hasattr(chunk, "tocsr"):
            raise DataError("chunks of an iterator cannot be sparse: save them as .npz, and give these")
        if hasattr(chunk, "columns") or hasattr(chunk, "column_names") or isinstance(chunk, Mapping):
            kept.append(_table_kept(chunk, path))
        else:
            array = np.asarray(chunk.detach().cpu() if hasattr(chunk, "detach") else chunk)
            if array.dtype.hasobject:
                raise DataError(f"chunk {i + 1} of the iterator is no array of numbers and no table")
            np.save(f"{path}.npy", array, allow_pickle=False)
            kept.append(np.load(f"{path}.npy", mmap_mode="r"))
    return folder, kept


def _table_kept(chunk: Any, path: str) -> Any:
    """Write a table as a Parquet file, and return it as a dataset of Arrow."""
    pyarrow = need_pyarrow("an iterator of tables")
    dataset = importlib.import_module("pyarrow.dataset")
    if hasattr(chunk, "to_arrow"):  # polars
        table = chunk.to_arrow()
    elif hasattr(chunk, "iloc"):
        table = pyarrow.Table.from_pandas(chunk)
    else:
        table = chunk if hasattr(chunk, "column_names") else pyarrow.table(dict(chunk))
    pyarrow.parquet.write_table(table, f"{path}.parquet", row_group_size=BLOCK_ROWS)
    return dataset.dataset(f"{path}.parquet")
