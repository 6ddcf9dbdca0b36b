"""Arrays in .npy and .npz files and on a stream, in chunks of rows; nothing is ever unpickled."""

import math
import os
import tokenize
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.lib import format as npy_format

from dbull.data.archives import DAMAGED_NPZ
from dbull.data.readers.chunk import TIMES, Chunk, ReadSettings, check_width, select_columns
from dbull.data.readers.sparse_files import is_sparse_file, read_sparse
from dbull.errors import DataError

_BLOCK = 1 << 24  # no more is reserved at once than this, whatever a damaged header asks for


def read_npy(path: Path, settings: ReadSettings) -> Iterator[Chunk]:
    """Yield rows of a .npy file."""
    with path.open("rb") as stream:
        shape, fortran_order, dtype = _read_header(stream, str(path))
        if not fortran_order or len(shape) < 2:
            yield from _rows(stream, shape, dtype, settings, str(path))
            return
    # Stored column by column: rows are gathered through a memory map, whose pages the system can take back.
    layout = _Layout(shape, dtype, settings, str(path))
    try:
        array = np.load(path, mmap_mode="r", allow_pickle=False)
    except (ValueError, OSError) as error:
        raise DataError(f"{path}: not a readable .npy file of numbers ({error})") from error
    first, last = settings.rows or (0, layout.n_rows)
    step = settings.rows_at_once(layout.n_columns)
    for start in range(first, last, step):
        yield layout.chunk(array[start : min(start + step, last)], start)


def npy_cuts(path: Path, n_rows: int) -> list[int]:
    """Return rows at which a .npy file is cut into parts of so many rows, and how many there are."""
    with path.open("rb") as stream:
        shape = _read_header(stream, str(path))[0]
    return [*range(0, shape[0], n_rows), shape[0]] if shape else []


def read_npz(path: Path, settings: ReadSettings) -> Iterator[Chunk]:
    """Yield rows of one array of an .npz file, unpacked as it is read."""
    try:
        with zipfile.ZipFile(path) as archive:
            members = [name.removesuffix(".npy") for name in archive.namelist() if name.endswith(".npy")]
            if settings.array is None and is_sparse_file(members):
                yield from read_sparse(path, settings)
                return
            array = _choose_array(members, settings.array, str(path))
            with archive.open(f"{array}.npy") as stream:
                yield from read_npy_stream(stream, settings, f"{path}:{array}")
    except DataError:
        raise
    except DAMAGED_NPZ as error:
        raise DataError(f"{path}: not a readable .npz file ({error})") from error


def read_npy_stream(stream: IO[bytes], settings: ReadSettings, where: str) -> Iterator[Chunk]:
    """Yield rows of an array in .npy format from a stream that can only be read forward."""
    shape, fortran_order, dtype = _read_header(stream, where)
    if fortran_order and len(shape) > 1:
        raise DataError(
            f"{where}: stored column by column, so it has no rows to stream; save np.ascontiguousarray(x)"
        )
    yield from _rows(stream, shape, dtype, settings, where)


def _read_header(stream: IO[bytes], where: str) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    try:
        version = npy_format.read_magic(stream)
        read = npy_format.read_array_header_1_0 if version == (1, 0) else npy_format.read_array_header_2_0
        return read(stream)
    # A header is a Python literal, and so is the type named in it: it fails as damaged Python does.
    except (ValueError, TypeError, SyntaxError, EOFError, tokenize.TokenError) as error:
        raise DataError(f"{where}: not an array in .npy format ({error})") from error


def _rows(
    stream: IO[bytes], shape: tuple[int, ...], dtype: np.dtype[Any], settings: ReadSettings, where: str
) -> Iterator[Chunk]:
    layout = _Layout(shape, dtype, settings, where)
    row_bytes = dtype.itemsize * math.prod(shape[1:])
    first, last = settings.rows or (0, layout.n_rows)
    if first:
        stream.seek(first * row_bytes, os.SEEK_CUR)
    step = settings.rows_at_once(layout.n_columns)
    for start in range(first, last, step):
        n_rows = min(step, last - start)
        data = _read_exactly(stream, n_rows * row_bytes)
        if len(data) < n_rows * row_bytes:
            complete = start + len(data) // row_bytes
            raise DataError(f"{where}: cut off after {complete} of {layout.n_rows} rows")
        yield layout.chunk(np.frombuffer(data, dtype=dtype).reshape(n_rows, *shape[1:]), start)


class _Layout:
    """What the columns of an array are called and how its rows become chunks."""

    def __init__(self, shape: tuple[int, ...], dtype: np.dtype[Any], settings: ReadSettings, where: str):
        if not shape:
            raise DataError(
                f"{where}: a single number is not a table; expected an array of at least one dimension"
            )
        if 0 in shape:
            raise DataError(f"{where}: the array is empty (shape {shape})")
        if dtype.hasobject or dtype.itemsize == 0 or dtype.subdtype is not None:
            raise DataError(
                f"{where}: expected numbers, got {dtype}; save an array of numbers, such as x.astype(float)"
            )
        self.n_rows = shape[0]
        self._named = dtype.names is not None
        if not self._named:
            _check_kind(dtype, where)
        if self._named and len(shape) > 1:
            raise DataError(f"{where}: an array with named fields must have one dimension, got shape {shape}")
        self.n_columns = len(dtype.names) if dtype.names is not None else math.prod(shape[1:])
        check_width(self.n_columns, where)
        names = list(dtype.names or map(str, range(self.n_columns)))
        self._names = names
        self._selection = select_columns(names, settings, where)
        n_chosen = len(self._selection.names)
        self._sample_shape = shape[1:] if n_chosen == len(names) and len(shape) > 1 else (n_chosen,)
        for name in self._selection.names if self._named else ():
            _check_kind(dtype[name], f"{where}: column '{name}'")

    def chunk(self, rows: np.ndarray, first_row: int) -> Chunk:
        selection, key_position = self._selection, self._selection.key_position
        if self._named:
            x = np.column_stack([rows[name] for name in selection.names])
            keys = None if key_position is None else np.array(rows[self._names[key_position]])
        else:
            flat = rows.reshape(len(rows), -1)
            as_they_are = selection.positions == tuple(range(self.n_columns))
            x = flat if as_they_are else flat[:, selection.positions]
            keys = None if key_position is None else np.array(flat[:, key_position])
        return selection.chunk(x, keys, first_row, self._sample_shape)


def _check_kind(dtype: np.dtype[Any], where: str) -> None:
    if dtype.kind not in "biuf" or dtype.shape:
        advice = f"; {TIMES}" if dtype.kind in "mM" else "; save an array of numbers"
        raise DataError(f"{where}: expected numbers, got {dtype}{advice}")


def _choose_array(members: list[str], wanted: str | None, where: str) -> str:
    has = ", ".join(members) or "none"
    if wanted is not None and wanted not in members:
        raise DataError(f"{where}: no array '{wanted}'; the file has {has}")
    usual = members if len(members) == 1 else [name for name in ("x", "X") if name in members]
    if wanted is not None or usual:
        return wanted or usual[0]
    raise DataError(
        f"{where}: which array? It has {has}; name one with array=... "
        "(on the command line: --set 'array=\"NAME\"')"
    )


def _read_exactly(stream: IO[bytes], n_bytes: int) -> bytes:
    """Read until there are so many bytes or the stream ends: a pipe gives only what it has at the moment."""
    parts, missing = [], n_bytes
    while missing and (part := stream.read(min(missing, _BLOCK))):
        parts.append(part)
        missing -= len(part)
    return b"".join(parts)
