"""Cells in .h5ad files, a chunk at a time, through h5py and anndata (the `cells` extra)."""

import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from dbull.data.readers.chunk import Chunk, ReadSettings, SparseRows, select_columns
from dbull.errors import DataError


def read_cells(path: Path, settings: ReadSettings) -> Iterator[Chunk]:
    """Yield cells as rows: X, or what `array` names, such as "layers/counts" or "obsm/X_pca".

    Of a matrix that is stored by columns all is held at once, since every row is spread over all of it.
    """
    where, part = str(path), settings.array or "X"
    with _reading(path) as (file, read):
        matrix = _matrix(_find(file, part, where), read)
        numbered = list(map(str, range(matrix.shape[1])))
        in_obsm = part.startswith("obsm/")
        names = getattr(matrix, "columns", numbered) if in_obsm else _names(file["var"], read)
        keys = np.array(_names(file["obs"], read), dtype=object)
        unkeyed = ReadSettings(columns=settings.columns) if settings.key is None else settings
        selection = select_columns(names, unkeyed, where)
        chosen = None if selection.positions == tuple(range(len(names))) else list(selection.positions)
        n_rows = settings.chunk_rows if isinstance(matrix, _Csr) else settings.rows_at_once(len(names))
        for start in range(0, len(keys), n_rows):
            some = slice(start, start + n_rows)
            rows = matrix[some] if chosen is None else matrix[some][:, chosen]
            if not hasattr(rows, "tocsr"):
                yield selection.chunk(rows, keys[some], start)
                continue
            shape = (len(selection.names),)
            yield Chunk(SparseRows(rows), selection.names, keys[some], start, shape, selection.unused)
    if not len(keys):
        raise DataError(f"{where}: there are no cells")


class _Csr:
    """A sparse matrix in a file, stored by rows."""

    def __init__(self, group: Any):
        self._data, self._indices, self._starts = group["data"], group["indices"], group["indptr"][:]
        self.shape = tuple(map(int, group.attrs["shape"]))

    def __getitem__(self, rows: slice) -> Any:
        from scipy.sparse import csr_matrix

        starts = self._starts[rows.start : rows.stop + 1]
        held = slice(int(starts[0]), int(starts[-1]))
        parts = self._data[held], self._indices[held], starts - starts[0]
        return csr_matrix(parts, shape=(len(starts) - 1, self.shape[1]))


class _Frame:
    """A frame of numbers among the `obsm`, read whole."""

    def __init__(self, frame: Any):
        self._values, self.columns = np.asarray(frame), list(map(str, frame.columns))
        self.shape = self._values.shape

    def __getitem__(self, rows: slice) -> np.ndarray:
        return self._values[rows]


def _matrix(element: Any, read: Any) -> Any:
    """Return what has a shape, and rows by slices."""
    if hasattr(element, "shape"):
        return element
    if element.attrs.get("encoding-type") == "csr_matrix":
        return _Csr(element)
    found = read(element)
    return found.tocsr() if hasattr(found, "tocsr") else _Frame(found)


def _find(file: Any, part: str, where: str) -> Any:
    """Return a matrix of the file by its name."""
    beside = (f"{group}/{name}" for group in ("layers", "obsm") for name in file.get(group, ()))
    there = [name for name in ("X", *beside) if name in file and not _is_none(file[name])]
    if part not in there:
        raise DataError(f"{where}: there is no {part!r} of the cells; there are {', '.join(there)}")
    return file[part]


def _is_none(element: Any) -> bool:
    return bool(element.attrs.get("encoding-type") == "null")


def _names(frame: Any, read: Any) -> list[str]:
    """Return what the rows of `obs` or `var` are called."""
    return list(map(str, read(frame[frame.attrs["_index"]])))


@contextmanager
def _reading(path: Path) -> Iterator[tuple[Any, Any]]:
    """Yield the open file, and what reads an element of it."""
    try:
        h5py, anndata = importlib.import_module("h5py"), importlib.import_module("anndata")
    except ImportError as error:
        raise DataError(
            f"{path}: .h5ad needs anndata; install it with `pip install 'dbull[cells]'`"
        ) from error
    io = importlib.import_module("anndata.io" if hasattr(anndata, "io") else "anndata.experimental")
    try:
        with h5py.File(path, "r") as file:
            yield file, io.read_elem
    except DataError:
        raise
    except (OSError, KeyError, TypeError, ValueError, AttributeError) as error:
        raise DataError(f"{path}: not a readable .h5ad file ({error!s:.200})") from error
