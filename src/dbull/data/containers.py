"""Rows in whatever holds them: how many there are, some of them, and those of several in one."""

import importlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dbull.data.readers.chunk import Table, joined, need_pyarrow


def n_rows(rows: Any) -> int:
    """Return how many rows there are."""
    if isinstance(rows, Mapping) and not hasattr(rows, "shape"):
        return len(next(iter(rows.values()), ()))
    return int(rows.shape[0]) if hasattr(rows, "shape") else len(rows)


def some_rows(rows: Any, which: Any) -> Any:
    """Return the rows of a slice or of an array of indices, in the container that they are in."""
    if isinstance(rows, Mapping) and not hasattr(rows, "shape"):
        return {name: np.asarray(column)[which] for name, column in rows.items()}
    if hasattr(rows, "iloc"):
        return rows.iloc[which]
    if hasattr(rows, "column_names"):  # pyarrow
        places = np.arange(rows.num_rows)[which]
        return rows.take(places)
    if isinstance(rows, list | tuple):
        return [rows[i] for i in range(len(rows))[which]] if isinstance(which, slice) else _at(rows, which)
    return rows[which]


def _at(rows: Sequence[Any], which: Any) -> list[Any]:
    return [rows[int(i)] for i in which]


def joined_rows(parts: Sequence[Any]) -> Any:
    """Return the rows of several containers of one kind in one."""
    first = parts[0]
    if len(parts) == 1:
        return first
    if hasattr(first, "tocsr"):
        return importlib.import_module("scipy.sparse").vstack(parts, format="csr")
    if isinstance(first, Mapping) and not hasattr(first, "shape"):
        tables = [Table({n: np.asarray(c) for n, c in part.items()}, n_rows(part)) for part in parts]
        return joined(tables).columns
    if hasattr(first, "iloc"):
        return importlib.import_module("pandas").concat(parts)
    if hasattr(first, "column_names"):
        return need_pyarrow("a table").concat_tables(parts)
    if hasattr(first, "get_columns"):
        return importlib.import_module("polars").concat(parts)
    if isinstance(first, list | tuple):
        return [row for part in parts for row in part]
    return np.concatenate([np.asarray(part) for part in parts])
