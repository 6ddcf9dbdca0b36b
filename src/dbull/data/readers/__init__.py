"""Readers for files of one's own: any known format, in chunks, so that a file may be larger than memory."""

import gzip
import io
import stat
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

import numpy as np

from dbull.data.readers.arrow_files import read_arrow, read_arrow_stream, read_parquet, schema_names
from dbull.data.readers.chunk import Chunk, ReadSettings
from dbull.data.readers.csv_files import first_line, read_csv, read_csv_stream
from dbull.data.readers.images import read_images
from dbull.data.readers.numpy_files import read_npy, read_npy_stream, read_npz
from dbull.errors import DataError

_READERS: dict[str, Callable[[Path, ReadSettings], Iterator[Chunk]]] = {
    ".npy": read_npy,
    ".npz": read_npz,
    ".csv": read_csv,
    ".csv.gz": read_csv,
    ".parquet": read_parquet,
    ".arrow": read_arrow,
    ".feather": read_arrow,
}
SUFFIXES = tuple(_READERS)  # of the files that can be read


def read_chunks(
    source: Path | str, settings: ReadSettings | None = None, stream: BinaryIO | None = None
) -> Iterator[Chunk]:
    """Yield the rows of a file, a folder of images, or a stream, a chunk at a time.

    `source` is a .npy, .npz, .csv, .csv.gz, .parquet, .arrow or .feather file; a folder of images; or "-" for
    CSV (also gzipped), an Arrow stream or a .npy array on standard input, or on `stream` if that is given. A
    DataError names the file, the row (from 1) and the column of what cannot be used.
    """
    settings = settings or ReadSettings()
    if str(source) == "-":
        return _read_stream(stream if stream is not None else sys.stdin.buffer, settings)
    path = find_source(source)
    if path.is_dir():
        return read_images(path, settings)
    if path.stat().st_size == 0:
        raise DataError(f"{path}: the file is empty")
    for suffix, reader in _READERS.items():
        if path.name.lower().endswith(suffix):
            return reader(path, settings)
    raise DataError(
        f"{path}: unknown kind of file; known are {', '.join(_READERS)}, image folders, and - for a stream"
    )


def find_source(source: Path | str) -> Path:
    """Return where a file or a folder lies; refuse what is not there, or neither of them."""
    path = Path(source)
    try:
        path = path.expanduser()
        mode = path.stat().st_mode
    except (FileNotFoundError, NotADirectoryError) as error:
        raise DataError(f"{path}: no such file or folder") from error
    except (OSError, RuntimeError, ValueError) as error:  # no permission, too long, the home of nobody
        raise DataError(f"{str(path)[:300]}: cannot be read ({getattr(error, 'strerror', error)})") from error
    if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
        raise DataError(f"{path}: is a device, a pipe or a socket; save it to a file, or give - for a stream")
    return path


def read_table(
    source: Path | str, settings: ReadSettings | None = None, stream: BinaryIO | None = None
) -> Chunk:
    """Read everything at once; for what fits into memory."""
    chunks = list(read_chunks(source, settings, stream))
    if not chunks:
        raise DataError(f"{source}: there are no rows")
    first = chunks[0]
    keys = [chunk.keys for chunk in chunks if chunk.keys is not None]
    x = np.concatenate([chunk.x for chunk in chunks]) if len(chunks) > 1 else first.x
    all_keys = np.concatenate(keys) if keys else None
    return Chunk(x, first.columns, all_keys, 0, first.sample_shape, first.unused)


def table_names(path: Path) -> tuple[str, ...] | None:
    """Return the names of a table's columns as its first line or its schema has them, None if it has none."""
    name = path.name.lower()
    if not path.is_file():
        return None
    if name.endswith((".csv", ".csv.gz")):
        return first_line(path)
    return schema_names(path) if name.endswith((".parquet", ".arrow", ".feather")) else None


def _read_stream(stream: BinaryIO, settings: ReadSettings) -> Iterator[Chunk]:
    """Tell the format by the first bytes, which are looked at but not taken."""
    where = "standard input"
    buffered = stream if isinstance(stream, io.BufferedReader) else io.BufferedReader(stream)  # type: ignore[type-var]
    head = buffered.peek(8)
    if not head:
        raise DataError(f"{where}: nothing came")
    if head.startswith(b"\x1f\x8b"):
        return read_csv_stream(gzip.GzipFile(fileobj=buffered), settings, where)
    if head.startswith(b"\x93NUMPY"):
        return read_npy_stream(buffered, settings, where)
    if head.startswith((b"ARROW1", b"PAR1")):
        raise DataError(
            f"{where}: this format must be read from a file, not from a stream; send an Arrow IPC stream"
        )
    if head.startswith(b"\xff\xff\xff\xff"):
        return read_arrow_stream(buffered, settings, where)
    return read_csv_stream(buffered, settings, where)
