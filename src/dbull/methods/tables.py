"""Tables of mixed columns for an estimator: whether they need an encoder, its rows, and its place in a model.

The first table fixes the encoder. Tables of plain numbers need none, and are rows as they are.
"""

import os
import types
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from dbull.codec.networks import Tensors, refusing_damage
from dbull.documents import fail
from dbull.errors import DataError, TableNotice
from dbull.methods.words import Vocabulary
from dbull.tables import ColumnEncoder, columns_of, propose_roles
from dbull.tables.frames import Columns

DOCUMENT, TENSORS = "table", "encoding"  # names of what is stored
_NO_ROWS = (str, bytes, os.PathLike, set, frozenset, Iterator, types.FunctionType, types.NoneType)


def is_table(X: Any) -> bool:
    """Tell tables, whose columns have names, from rows of numbers."""
    if _of_dicts(X):
        return True
    if type(X).__name__ == "LazyFrame" or (hasattr(X, "iloc") and hasattr(X, "columns")):
        return True
    return hasattr(X, "get_columns") or hasattr(X, "itercolumns")


def _of_dicts(X: Any) -> bool:
    """Tell a dict of columns, or a list of dicts; some sparse matrices are dicts too."""
    if isinstance(X, Sequence):
        return bool(X) and isinstance(X[0], Mapping)
    return isinstance(X, Mapping) and not hasattr(X, "shape")


def n_values(model: Any) -> int:
    """Return how many numbers a row of a model has: its columns, or what their encoder makes of them."""
    if hasattr(model, "projection_"):
        return int(model.projection_.n_values)
    encoder: ColumnEncoder | None = getattr(model, "column_encoder_", None)
    return int(model.n_features_in_) if encoder is None else len(encoder.features)


@dataclass(frozen=True, eq=False)
class Encoded:
    """Rows of a table that were encoded already, so that several answers about them encode them once."""

    rows: NDArray[np.float32]

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.rows)


def encoded_rows(model: Any, X: Any, *, first: bool) -> NDArray[np.float32] | None:
    """Return the rows of a table as its encoder has them; None if X are rows of numbers already.

    The first table of a model decides; what it becomes is in `column_encoder_`, `feature_names_in_` and
    `n_features_in_` afterwards.
    """
    if isinstance(X, _NO_ROWS):
        raise TypeError(
            f"X must be rows: an array, a frame of pandas, polars or pyarrow, a dict of columns or a list of "
            f"dicts; got {type(X).__name__}. For files there are dbull.ingest.Learner and `dbull learn`."
        )
    if not first:
        return _later_rows(model, X)
    for name in ("column_encoder_", "vocabulary_"):
        model.__dict__.pop(name, None)
    if not is_table(X):
        if model.columns is not None:
            model.check_parameters()
            raise TypeError(
                f"columns={model.columns!r:.80} are roles of named columns, but {type(X).__name__} has no "
                "names: give a frame or a dict"
            )
        return None
    columns = columns_of(X)
    declared = _declared(X, columns)
    if model.columns is None and not declared and not _of_dicts(X) and _all_numbers(columns):
        return None
    return _first_rows(model, columns, declared)


def _declared(X: Any, columns: Columns) -> dict[str, str]:
    """Return the columns of numbers that a frame of pandas or polars declares to be categories."""
    kinds = zip(map(str, getattr(X, "columns", ())), getattr(X, "dtypes", ()), strict=False)
    return {
        name: "category"
        for name, kind in kinds
        if str(kind).lower().startswith("categor") and columns[name].dtype.kind in "iuf"
    }


def _first_rows(model: Any, columns: Columns, declared: dict[str, str]) -> NDArray[np.float32]:
    if model.kind not in ("auto", "dense") or model.image_shape is not None:
        raise TypeError(
            f"kind={model.kind!r} and image_shape={model.image_shape!r} are for rows of numbers, but the "
            "table has columns of other types, or with missing values; give an array, or leave both out"
        )
    n_rows = len(next(iter(columns.values()), ()))
    if n_rows < 2:
        raise DataError(f"the table has {n_rows} rows; the first data set of a model needs at least 2")
    model.check_parameters()
    roles = propose_roles(columns, {**declared, **(model.columns or {})})
    encoder = ColumnEncoder.fit(columns, roles)
    asked = model.columns or {}
    unasked = [role for role in roles if role.name in encoder.left_out and role.name not in asked]
    if unasked:
        told = "; ".join(f"{role.name!r} ({role.reason})" for role in unasked[:20])
        more = f" and {len(unasked) - 20} more" if len(unasked) > 20 else ""
        warnings.warn(f"columns left out: {told}{more}", TableNotice, stacklevel=6)
    model.column_encoder_ = encoder
    model.n_features_in_ = len(encoder.names)
    model.feature_names_in_ = np.array(encoder.names, dtype=object)
    if encoder.text_names:
        model.vocabulary_ = Vocabulary(encoder.text_names)
    return encoder.encode(columns)


def _later_rows(model: Any, X: Any) -> NDArray[Any] | None:
    encoder: ColumnEncoder | None = getattr(model, "column_encoder_", None)
    if encoder is not None:
        if not is_table(X):
            told = ", ".join(encoder.names[:10]) + (", ..." if len(encoder.names) > 10 else "")
            raise TypeError(
                f"this model has learned a table with the columns {told}; give a frame or a dict with these "
                f"names, got {type(X).__name__}"
            )
        rows = encoder.encode(X, lambda notice: warnings.warn(notice, TableNotice, stacklevel=9))
        if not len(rows):
            raise DataError("the table has no rows")
        return rows
    if not _of_dicts(X):
        return None
    columns, names = columns_of(X), list(getattr(model, "feature_names_in_", ""))
    try:
        rows = np.column_stack([columns.pop(name) for name in names]).astype(np.float64)
        if not columns and np.isfinite(rows).all():
            return rows
    except (KeyError, TypeError, ValueError):
        pass
    wanted = ", ".join(names[:10]) or f"{model.n_features_in_} without names"
    raise TypeError(
        f"this model takes columns of finite numbers ({wanted}); got a {type(X).__name__} with other "
        "columns, or with other values"
    )


def _all_numbers(columns: Columns) -> bool:
    """Tell whether a table is numbers alone, without anything missing."""
    return all(
        column.ndim == 1 and column.dtype.kind in "iuf" and not np.isnan(column).any()
        for column in columns.values()
    )


def pack_table(model: Any) -> tuple[dict[str, dict[str, torch.Tensor]], dict[str, Any]]:
    """Return the encoder of a model as a group of tensors and a document; nothing if it has none."""
    encoder: ColumnEncoder | None = getattr(model, "column_encoder_", None)
    if encoder is None:
        return {}, {}
    document, arrays = encoder.to_document()
    tensors = {name: torch.from_numpy(np.ascontiguousarray(array)) for name, array in arrays.items()}
    return {TENSORS: tensors}, {DOCUMENT: document}


def unpack_table(
    tensors: Tensors, documents: Mapping[str, Any], n_values: int, where: str
) -> ColumnEncoder | None:
    """Return the encoder that `pack_table` was given, for a learner of rows of so many values."""
    if DOCUMENT not in documents:
        return None
    with refusing_damage(where):
        arrays = {name: tensor.numpy() for name, tensor in tensors.get(TENSORS, {}).items()}
        encoder = ColumnEncoder.from_document(documents[DOCUMENT], arrays, where)
        if len(encoder.features) != n_values:
            fail(where, f"{len(encoder.features)} features for a learner of {n_values} values")
    return encoder
