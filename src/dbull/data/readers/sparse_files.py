"""Sparse matrices in .npz files, as scipy.sparse.save_npz writes them; read whole, since they are small."""

import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from dbull.data.archives import read_arrays
from dbull.data.readers.chunk import Chunk, ReadSettings, SparseRows, check_width
from dbull.errors import DataError

# What each format keeps beside its values and its shape.
_PARTS = {"csr": ("indices", "indptr"), "csc": ("indices", "indptr"), "coo": ("row", "col")}


def is_sparse_file(members: list[str]) -> bool:
    """Tell a sparse matrix from other arrays by the names in the file."""
    return {"format", "shape", "data"} <= set(members)


def read_sparse(path: Path, settings: ReadSettings) -> Iterator[Chunk]:
    """Yield the rows of a sparse matrix."""
    if settings.columns is not None or (settings.key is not None and not settings.key_optional):
        raise DataError(
            f"{path}: a sparse matrix has no names of columns, so none can be chosen or be the key"
        )
    matrix = _matrix(path)
    n_rows, n_columns = matrix.shape
    bad = np.flatnonzero(~np.isfinite(matrix.data))
    if len(bad):
        row = int(np.searchsorted(matrix.indptr, bad[0], side="right"))
        raise DataError(
            f"{path}: row {row}, column {matrix.indices[bad[0]]}: the value is no number or infinite; "
            "fill or drop such values first"
        )
    names = tuple(map(str, range(n_columns)))
    for start in range(0, n_rows, settings.chunk_rows):
        rows = SparseRows(matrix[start : start + settings.chunk_rows])
        yield Chunk(rows, names, None, start, (n_columns,))


def _matrix(path: Path) -> Any:
    """Return the matrix in the format CSR with sorted indices, none of which lies outside of it."""
    from scipy import sparse

    facts = read_arrays(path, ("format", "shape"))
    kind = facts["format"].item() if facts["format"].size == 1 else b""
    name = kind.decode("ascii", "replace") if isinstance(kind, bytes) else str(kind)
    if name not in _PARTS:
        known = ", ".join(_PARTS)
        raise DataError(f"{path}: a sparse matrix in the format {name!r:.20}; save it as one of {known}")
    shape = tuple(facts["shape"].tolist())
    if len(shape) != 2 or min(shape) < 1 or facts["shape"].dtype.kind not in "iu":
        raise DataError(f"{path}: expected a matrix with rows and columns; got the shape {shape}")
    check_width(shape[1], str(path))
    _check_sizes(path, name, shape)
    parts = read_arrays(path, ("data", *_PARTS[name]))
    if parts["data"].dtype.kind not in "biuf" or parts["data"].ndim != 1:
        raise DataError(f"{path}: expected values that are real numbers; got {parts['data'].dtype}")
    try:
        return _checked(parts, name, shape, sparse)
    except (ValueError, TypeError, IndexError, OverflowError) as error:
        raise DataError(f"{path}: is no sparse matrix that holds together ({error})") from error


def _check_sizes(path: Path, name: str, shape: tuple[int, ...]) -> None:
    """Refuse more rows than the file has places for: what is made for each would be large."""
    if name == "csr":
        return  # one number of the file for each row
    with zipfile.ZipFile(path) as archive:
        n_bytes = sum(member.file_size for member in archive.infolist())
    if shape[0] > n_bytes:
        raise DataError(f"{path}: {shape[0]:,} rows in {n_bytes:,} bytes; is the file damaged?")


def _checked(parts: Mapping[str, np.ndarray], name: str, shape: tuple[int, ...], sparse: Any) -> Any:
    values = parts["data"].astype(np.float32)
    if any(
        part.dtype.kind not in "iu" or part.ndim != 1 for part in parts.values() if part is not parts["data"]
    ):
        raise ValueError("places must be whole numbers")
    if name == "coo":
        row, column = parts["row"].astype(np.int64), parts["col"].astype(np.int64)
        matrix = sparse.coo_matrix((values, (row, column)), shape=shape)
    else:
        make = sparse.csr_matrix if name == "csr" else sparse.csc_matrix
        matrix = make((values, parts["indices"], parts["indptr"]), shape=shape)
        matrix.check_format(full_check=True)  # an index outside would be read from other memory
    matrix = matrix.tocsr()
    matrix.sum_duplicates()
    return matrix
