"""Sparse matrices for an estimator: checked and projected, never made dense as a whole.

The first matrix fixes the projection. Of its columns the model counts, cluster by cluster, how many rows have
them, in a bounded way; these counts tell what sets clusters apart.
"""

import copy
from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from dbull.codec.networks import Tensors, refusing_damage
from dbull.documents import check_fields, fail, mapping, truth
from dbull.errors import DataError
from dbull.lifelong.profiles import Profile
from dbull.methods.base import check_rows
from dbull.tables import Feature, SparseProjection, WordCounts
from dbull.tables.sparse import column_blocks

DOCUMENT, TENSORS = "sparse", "projection"  # names of what is stored
TEXTS = "texts"  # the document of a model whose columns are words
NARROW = 256  # columns up to which rows are taken as dense ones


def is_sparse(X: Any) -> bool:
    """Tell matrices and arrays of scipy.sparse, without importing it."""
    return hasattr(X, "tocsr") and hasattr(X, "nnz")


def projected_rows(model: Any, X: Any, *, first: bool) -> NDArray[Any] | None:
    """Return the rows of a sparse matrix as the learner sees them; None if neither X nor the model is sparse.

    A wide first matrix makes `projection_`; from then on dense rows are projected too.
    """
    if first:
        model.__dict__.pop("projection_", None)
        model.__dict__.pop("column_counts_", None)
    projection: SparseProjection | None = getattr(model, "projection_", None)
    if not is_sparse(X):
        if projection is None:
            return None
        from scipy.sparse import csr_matrix

        return projection.project(csr_matrix(check_rows(model, X, reset=False, keep_float32=True)))
    n_columns = X.shape[-1]
    if projection is None and (not first or n_columns <= NARROW or model.image_shape is not None):
        return check_rows(model, X.toarray(), reset=first, min_rows=1 + first, keep_float32=True)
    rows = _checked(model, X, first)
    if first:
        model.n_features_in_ = n_columns
        model.__dict__.pop("feature_names_in_", None)
        projection = model.projection_ = SparseProjection.fit(rows)
    assert projection is not None
    return projection.project(rows)


def _checked(model: Any, X: Any, first: bool) -> Any:
    """Return a matrix in the format CSR; refuse other numbers of columns, and what is not finite."""
    if X.ndim != 2 or X.dtype.kind not in "biuf":
        raise TypeError(f"expected a sparse matrix of real numbers; got {X.dtype} of shape {X.shape}")
    if not first and X.shape[1] != model.n_features_in_:
        raise ValueError(
            f"X has {X.shape[1]} features, but {type(model).__name__} is expecting {model.n_features_in_} "
            "features as input."
        )
    if X.shape[0] < 1 + first:
        raise ValueError(
            f"Found array with {X.shape[0]} sample(s) while a minimum of {1 + first} is required."
        )
    rows = X.tocsr()
    if not rows.has_canonical_format:
        rows = rows.copy()  # a value that is stored in parts would be weighted in parts
        rows.sum_duplicates()
    bad = ~np.isfinite(rows.data)
    if bad.any():
        at = int(bad.argmax())
        row = int(np.searchsorted(rows.indptr, at, side="right")) - 1
        what = "NaN" if np.isnan(rows.data[at]) else "infinity"
        raise DataError(
            f"Input X contains {what}: first at row {row}, column {rows.indices[at]}. Remove or fill such "
            "values before learning or predicting."
        )
    if first and not rows.data.any():
        raise DataError("Input X has no value but 0, so nothing tells its rows apart.")
    return rows


def count_columns(model: Any, X: Any) -> None:
    """Count the columns of rows that were just learned, by cluster."""
    if not is_sparse(X):
        from scipy.sparse import csr_matrix

        X = csr_matrix(np.asarray(X))
    counts = copy.deepcopy(getattr(model, "column_counts_", WordCounts()))
    for cluster, having in column_blocks(X.tocsr(), model.labels_):
        columns = np.flatnonzero(having)
        found = zip(map(str, columns.tolist()), having[columns].tolist(), strict=True)
        counts.add_counts(cluster, Counter(dict(found)))
    model.column_counts_ = counts


def column_profiles(model: Any) -> tuple[list[Feature], dict[int, list[Profile]]]:
    """Return the columns that were counted, and which share of each cluster's rows has them."""
    ledger, counts = model.state_.ledger, model.column_counts_
    found: dict[int, Counter[str]] = {}
    for cluster in counts.clusters:
        found.setdefault(int(ledger.resolve([cluster])[0]), Counter()).update(counts.counts(cluster))
    columns = sorted({column for having in found.values() for column in having}, key=int)
    names = getattr(model, "feature_names_in_", None)
    features = [
        Feature(f"column {i}" if names is None else str(names[int(i)]), "flag", "true", "share", 0.0, 1.0)
        for i in columns
    ]
    profiles = {}
    for cluster in model.state_.cluster_ids:
        n_rows, having = max(ledger[cluster].rows, 1), found.get(cluster, Counter())
        shares = torch.tensor([having[i] / n_rows for i in columns], dtype=torch.float64).clamp(max=1.0)
        profiles[cluster] = [Profile(float(n_rows), shares, shares * (1 - shares))]
    return features, profiles


def pack_sparse(model: Any) -> tuple[dict[str, dict[str, torch.Tensor]], dict[str, Any]]:
    """Return the projection of a model as a group of tensors and a document; nothing if it has none."""
    projection: SparseProjection | None = getattr(model, "projection_", None)
    if projection is None:
        return {}, {}
    tensors = {name: torch.from_numpy(getattr(projection, name)) for name in ("directions", "weights")}
    columns = getattr(model, "column_counts_", WordCounts()).to_document()
    return {TENSORS: tensors}, {DOCUMENT: {"counts": projection.counts, "columns": columns}}


def unpack_sparse(
    tensors: Tensors, documents: Mapping[str, Any], n_values: int, where: str
) -> tuple[SparseProjection, WordCounts] | None:
    """Return what `pack_sparse` was given, for a learner of rows of so many values."""
    if DOCUMENT not in documents:
        return None
    with refusing_damage(where):
        values = check_fields(documents[DOCUMENT], where, {"counts": truth, "columns": mapping})
        group = tensors.get(TENSORS, {})
        if set(group) != {"directions", "weights"}:
            fail(where, f"a projection of {', '.join(sorted(group)) or 'nothing'}")
        directions, weights = group["directions"].numpy(), group["weights"].numpy()
        projection = SparseProjection(directions, weights, values["counts"])
        kinds = directions.dtype == weights.dtype == np.float32 and directions.ndim == 2 and weights.ndim == 1
        if not kinds or len(directions) != len(weights) or projection.n_values != n_values:
            fail(where, f"directions of shape {directions.shape} for a learner of {n_values} values")
        if not (np.isfinite(directions).all() and np.isfinite(weights).all() and (weights > 0).all()):
            fail(where, "directions or weights that no data have")
        counts = WordCounts.from_document(values["columns"], f"{where}.columns")
        for cluster in counts.clusters:
            columns = () if TEXTS in documents else counts.counts(cluster)
            if not all(i.isdecimal() and int(i) < len(weights) for i in columns):
                fail(f"{where}.columns", f"columns of cluster {cluster} that are not there")
    return projection, counts
