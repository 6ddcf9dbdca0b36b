"""Cells of an AnnData: their rows for an estimator, and its answers written back beside them."""

import sys
from collections.abc import Iterable
from typing import Any

import numpy as np

from dbull.errors import DataError


def is_cells(X: Any) -> bool:
    """Tell an AnnData, without importing its package."""
    anndata = sys.modules.get("anndata")
    return anndata is not None and isinstance(X, anndata.AnnData)


def cells(adata: Any, use: str = "X") -> Any:
    """Return the rows of an AnnData, to be given to `DBULL`: its X, "layers/NAME" or "obsm/NAME".

    Sparse matrices stay sparse; dense ones become a frame with the names of genes.
    """
    group, _, name = use.partition("/")
    known = {"layers": adata.layers, "obsm": adata.obsm}
    if group != "X" and (group not in known or name not in known[group]):
        there = ["X", *(f"{g}/{n}" for g, held in known.items() for n in held)]
        raise DataError(f"use={use!r}: there is no such matrix; there are {', '.join(there)}")
    matrix = adata.X if group == "X" else known[group][name]
    if matrix is None:
        raise DataError("the AnnData has no X; say which matrix to use, such as use='obsm/X_pca'")
    if hasattr(matrix, "tocsr"):
        return matrix
    if group == "obsm":
        return np.asarray(matrix)
    import pandas  # which anndata has brought

    return pandas.DataFrame(np.asarray(matrix), index=adata.obs_names, columns=adata.var_names)


def with_keys(X: Any, keys: Iterable[Any] | None) -> tuple[Any, Iterable[Any] | None]:
    """Return rows and what they are called; of an AnnData its X and the names of its cells."""
    if not is_cells(X):
        return X, keys
    return cells(X), list(map(str, X.obs_names)) if keys is None else keys


def to_anndata(model: Any, adata: Any, use: str = "X", key: str = "dbull") -> Any:
    """Write what a model says about cells into their AnnData, and return it.

    ``obs[key]`` are the ids of clusters, ``obs[key + "_probability"]`` how sure they are,
    ``obsm[key + "_probabilities"]`` the probabilities of all clusters, whose ids and names are in
    ``uns[key]``, and ``obsm["X_" + key]`` the codes, for neighbours and maps.
    """
    import pandas

    rows = model.encoded(cells(adata, use))
    proba = model.predict_proba(rows)
    ids = [str(cluster) for cluster in model.cluster_ids_.tolist()]
    best = proba.argmax(1)
    adata.obs[key] = pandas.Categorical([ids[i] for i in best], categories=ids)
    adata.obs[f"{key}_probability"] = proba[np.arange(len(best)), best]
    adata.obsm[f"{key}_probabilities"] = proba
    adata.obsm[f"X_{key}"] = np.asarray(model.transform(rows))
    named = {str(row["id"]): row["name"] or "" for row in model.clusters_}
    adata.uns[key] = {"ids": ids, "names": [named[i] for i in ids]}
    return adata
