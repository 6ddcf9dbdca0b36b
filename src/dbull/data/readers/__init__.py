"""Readers for files of one's own: any known format, in chunks, so that a file may be larger than memory."""

import os
import stat
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from glob import glob, has_magic
from itertools import pairwise
from pathlib import Path
from typing import Any, BinaryIO

from dbull.data.readers.arrow_files import (
    parquet_cuts,
    read_arrow,
    read_arrow_stream,
    read_parquet,
    schema_names,
)
from dbull.data.readers.cell_files import read_cells
from dbull.data.readers.chunk import Chunk, ReadSettings, one_chunk
from dbull.data.readers.csv_files import csv_cuts, first_line, read_csv, read_csv_stream
from dbull.data.readers.images import is_picture_folder, read_images
from dbull.data.readers.json_lines import json_cuts, json_names, read_json, read_json_lines, read_json_stream
from dbull.data.readers.numpy_files import npy_cuts, read_npy, read_npy_stream, read_npz
from dbull.data.readers.opening import PACKED
from dbull.data.readers.remote import fetch, is_address
from dbull.data.readers.standard_input import WHERE, recognised
from dbull.data.readers.text_folders import is_text_folder, read_texts
from dbull.errors import DataError

Reader = Callable[[Path, ReadSettings], Iterator[Chunk]]
_TEXTS: dict[str, Reader] = {
    **dict.fromkeys((".csv", ".tsv", ".tab"), read_csv),
    **dict.fromkeys((".jsonl", ".ndjson"), read_json_lines),
}
TEXT_SUFFIXES = tuple(suffix + packed for suffix in _TEXTS for packed in ("", *PACKED))
_READERS: dict[str, Reader] = {
    ".npy": read_npy,
    ".npz": read_npz,
    **{suffix + packed: reader for suffix, reader in _TEXTS.items() for packed in ("", *PACKED)},
    ".json": read_json,
    ".h5ad": read_cells,
    ".parquet": read_parquet,
    ".arrow": read_arrow,
    ".feather": read_arrow,
}
WITHOUT_TEXT = tuple(suffix for suffix in _READERS if suffix not in TEXT_SUFFIXES)
_STREAMS: dict[str, Callable[[Any, ReadSettings, str], Iterator[Chunk]]] = {
    ".npy": read_npy_stream,
    ".arrow": read_arrow_stream,
    ".jsonl": read_json_stream,
    ".csv": read_csv_stream,
}
SUFFIXES = tuple(_READERS)  # of the files that can be read


def read_chunks(
    source: Path | str, settings: ReadSettings | None = None, stream: BinaryIO | None = None
) -> Iterator[Chunk]:
    """Yield the rows of a file, a folder of images, or a stream, a chunk at a time.

    `source` is a .npy, .npz, .csv, .tsv, .jsonl, .parquet, .arrow or .feather file, text also packed (.gz,
    .bz2, .zst); a folder of images; or "-" for CSV or JSON lines (also packed), an Arrow stream or a .npy
    array on standard input, or on `stream` if that is given. A DataError names the file, the row (from 1) and
    the column of what cannot be used. With `settings.mixed` columns of tables may be of any type.
    """
    settings = settings or ReadSettings()
    if str(source) == "-":
        return _read_stream(stream if stream is not None else sys.stdin.buffer, settings)
    path = find_source(source)
    if path.is_dir():
        of_texts = not is_picture_folder(path) and is_text_folder(path)
        return (read_texts if of_texts else read_images)(path, settings)
    if path.stat().st_size == 0:
        raise DataError(f"{path}: the file is empty")
    for suffix, reader in _READERS.items():
        if path.name.lower().endswith(suffix):
            return reader(path, settings)
    raise DataError(
        f"{path}: unknown kind of file; known are {', '.join((*_TEXTS, *WITHOUT_TEXT))}, text also packed "
        f"({', '.join(PACKED)}), image folders, and - for a stream"
    )


def find_source(source: Path | str) -> Path:
    """Return where a file or a folder lies, brought here from an address; refuse what is neither of them."""
    if is_address(source) and not os.path.exists(source):
        (source, *others) = fetch(source)
        if others:
            raise DataError(f"{source.name} and {len(others)} more files are there; name one")
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


def expand_sources(sources: Iterable[Path | str]) -> list[Path]:
    """Return files for patterns such as data/*.csv, and for folders that hold tables; others as they are."""
    found: list[Path] = []
    for source in map(Path, sources):
        if is_address(source) and not os.path.exists(source):
            found += fetch(source)
        elif has_magic(str(source)) and not os.path.exists(source):
            matches = sorted(map(Path, glob(str(source.expanduser()), recursive=True)))
            if not matches:
                raise DataError(f"{source}: no file matches this pattern")
            found += matches
        elif os.path.isdir(source) and not is_picture_folder(source):
            tables = sorted(path for path in source.rglob("*") if path.name.lower().endswith(SUFFIXES))
            found += [path for path in tables if path.is_file() and not path.name.startswith(".")] or [source]
        else:
            found.append(source)
    return found


def read_table(
    source: Path | str, settings: ReadSettings | None = None, stream: BinaryIO | None = None
) -> Chunk:
    """Read everything at once; for what fits into memory."""
    chunks = list(read_chunks(source, settings, stream))
    if not chunks:
        raise DataError(f"{source}: there are no rows")
    return one_chunk(chunks)


def parts(path: Path, settings: ReadSettings, n_rows: int) -> list[ReadSettings]:
    """Return how parts of a file, of about so many rows, are read alone; a file that cannot be cut is one."""
    name = path.name.lower()
    if name.endswith(tuple(_TEXTS)):
        of_json = name.endswith((".jsonl", ".ndjson"))
        cuts = json_cuts(path, n_rows) if of_json else csv_cuts(path, settings, n_rows)
        found = [
            replace(settings, rows=(start.row, end.row), span=(start.byte, end.byte))
            for start, end in pairwise(cuts)
        ]
    else:
        found = [replace(settings, rows=pair) for pair in pairwise(_row_numbers(path, name, n_rows))]
    return found if len(found) > 1 else [settings]


def _row_numbers(path: Path, name: str, n_rows: int) -> list[int]:
    """Return rows at which a file that knows where its rows are can be cut, and its end; none for others."""
    if name.endswith(".npy"):
        return npy_cuts(path, n_rows)
    if not name.endswith(".parquet"):
        return []
    starts = parquet_cuts(path)
    found = starts[:1]
    for before, start in pairwise(starts):
        if start - found[-1] > n_rows and before > found[-1]:
            found.append(before)
    return [*found, starts[-1]] if starts[-1] > found[-1] else found


def table_names(path: Path) -> tuple[str, ...] | None:
    """Return the names of a table's columns as its first line or its schema has them, None if it has none."""
    name = path.name.lower()
    if not path.is_file():
        return None
    if name.endswith(TEXT_SUFFIXES):
        return json_names(path) if ".jsonl" in name or ".ndjson" in name else first_line(path)
    return schema_names(path) if name.endswith((".parquet", ".arrow", ".feather")) else None


def _read_stream(stream: BinaryIO, settings: ReadSettings) -> Iterator[Chunk]:
    buffered, suffix = recognised(stream)
    return _STREAMS[suffix](buffered, settings, WHERE)
