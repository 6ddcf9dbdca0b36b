"""Embeddings of one's own among the columns of a table: they are clustered, texts beside them give words."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dbull.errors import DataError, TableNotice
from dbull.methods.tables import is_table
from dbull.methods.words import Vocabulary
from dbull.tables import columns_of, propose_roles
from dbull.tables.cells import read_numbers, read_vectors, tidy, width_of
from dbull.tables.frames import Columns


def embedding_rows(model: Any, X: Any, *, first: bool) -> Any:
    """Return the embeddings of a table, (N, d); rows of numbers are embeddings already.

    The first table decides which columns they are, and which others are texts.
    """
    if first:
        model.check_parameters()
        model.__dict__.pop("vocabulary_", None)
    if not is_table(X):
        if first:
            model.vocabulary_ = Vocabulary((), ("embedding",))
        return X
    columns = columns_of(X)
    if first:
        model.vocabulary_ = _chosen(model, columns)
    names = model.vocabulary_.embeddings
    absent = [name for name in names if name not in columns]
    if absent:
        raise DataError(
            f"no column {', '.join(map(repr, absent[:20]))} with embeddings; the table has "
            f"{', '.join(list(columns)[:20])}"
        )
    return np.column_stack([_numbers(columns[name]) for name in names])


def _numbers(column: NDArray[Any]) -> NDArray[np.float64]:
    """Return one column of embeddings: numbers, or vectors of them."""
    cells = tidy(column)
    if column.ndim == 2 or any(np.ndim(cell) for cell in cells[:1]):
        return read_vectors(cells, width_of(cells)).values
    return read_numbers(cells).values


def _chosen(model: Any, columns: Columns) -> Vocabulary:
    asked: Sequence[str] = [model.embeddings] if isinstance(model.embeddings, str) else model.embeddings
    names = [name for name in columns if any(name == one or fnmatchcase(name, one) for one in asked)]
    missing = [one for one in asked if not any(name == one or fnmatchcase(name, one) for name in columns)]
    if missing:
        raise DataError(
            f"embeddings={', '.join(map(repr, missing))}: there is no such column; the table has "
            f"{', '.join(list(columns)[:20])}"
        )
    beside = {name: column for name, column in columns.items() if name not in names}
    given = {name: role for name, role in (model.columns or {}).items() if name in beside}
    roles = propose_roles(beside, given) if beside else ()
    texts = tuple(role.name for role in roles if role.role == "text")
    left_out = [role.name for role in roles if role.role not in ("text", "key") and role.name not in given]
    if left_out:
        told = ", ".join(map(repr, left_out[:20]))
        warnings.warn(
            f"columns left out: {told} (embeddings are clustered, texts beside them give words)",
            TableNotice,
            stacklevel=6,
        )
    return Vocabulary(texts, tuple(names))
