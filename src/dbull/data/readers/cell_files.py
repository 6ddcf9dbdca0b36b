"""Cells in .h5ad files, through anndata (the `cells` extra); read whole."""

import importlib
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from dbull.data.readers.chunk import Chunk, ReadSettings, SparseRows, select_columns
from dbull.errors import DataError


def read_cells(path: Path, settings: ReadSettings) -> Iterator[Chunk]:
    """Yield cells as rows: X, or what `array` names, such as "layers/counts" or "obsm/X_pca"."""
    try:
        anndata = importlib.import_module("anndata")
    except ImportError as error:
        raise DataError(
            f"{path}: .h5ad needs anndata; install it with `pip install 'dbull[cells]'`"
        ) from error
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            cells = anndata.read_h5ad(path)
    except Exception as error:  # of many kinds, by what is wrong with the file
        raise DataError(f"{path}: not a readable .h5ad file ({error!s:.200})") from error
    matrix, names = part_of_cells(cells, settings.array or "X", str(path))
    key_optional = ReadSettings(columns=settings.columns) if settings.key is None else settings
    selection = select_columns(names, key_optional, str(path))
    keys = np.array(list(map(str, cells.obs_names)), dtype=object)
    if hasattr(matrix, "tocsr"):
        matrix = matrix.tocsr()
    if selection.positions != tuple(range(len(names))):
        matrix = matrix[:, list(selection.positions)]
    for start in range(0, len(keys), settings.chunk_rows):
        some = slice(start, start + settings.chunk_rows)
        if hasattr(matrix, "tocsr"):
            rows, shape = SparseRows(matrix[some]), (len(selection.names),)
            yield Chunk(rows, selection.names, keys[some], start, shape, selection.unused)
        else:
            yield selection.chunk(np.asarray(matrix[some]), keys[some], start)
    if not len(keys):
        raise DataError(f"{path}: there are no cells")


def part_of_cells(cells: Any, part: str, where: str) -> tuple[Any, list[str]]:
    """Return a matrix of an AnnData, and the names of its columns."""
    group, _, name = part.partition("/")
    if group == "X" and cells.X is not None:
        return cells.X, list(map(str, cells.var_names))
    known = {"layers": cells.layers, "obsm": cells.obsm}
    if group not in known or name not in known[group]:
        there = ["X"] * (cells.X is not None) + [f"{g}/{n}" for g, held in known.items() for n in held]
        raise DataError(f"{where}: there is no {part!r} of the cells; there are {', '.join(there)}")
    matrix = known[group][name]
    if group == "layers":
        return matrix, list(map(str, cells.var_names))
    names = list(map(str, getattr(matrix, "columns", range(matrix.shape[1]))))
    return matrix if hasattr(matrix, "tocsr") else np.asarray(matrix), names
