"""How well cluster ids agree with the true classes of the same rows.

Cluster ids are names, not numbers: every score is unchanged when ids are renamed one to one. Each distinct id
is a cluster, a noise id such as -1 included. All scores are larger-is-better and at most 1.

scikit-learn and scipy are imported by the functions that call them: tables and error messages of the command
line need the names of the scores only, and these imports take more than a second.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dbull.errors import DataError

SCORE_NAMES = (
    "nmi_geometric",
    "nmi_arithmetic",
    "ari",
    "homogeneity",
    "completeness",
    "v_measure",
    "accuracy_top",
    "accuracy_hungarian",
    "purity",
)


def clustering_scores(y_true: ArrayLike, ids: ArrayLike) -> dict[str, float]:
    """Return every score of :data:`SCORE_NAMES` for one labelling.

    ``nmi_geometric`` is I(Y; C) / sqrt(H(Y) H(C)), the one the paper prints; ``nmi_arithmetic`` divides by
    the mean of the two entropies and therefore equals ``v_measure``; tables elsewhere use either.

    Parameters
    ----------
    y_true : (N,) true classes
    ids : (N,) cluster ids
    """
    from sklearn.metrics import (
        adjusted_rand_score,
        homogeneity_completeness_v_measure,
        normalized_mutual_info_score,
    )

    y_true, ids = _pair(y_true, ids)
    homogeneity, completeness, v_measure = homogeneity_completeness_v_measure(y_true, ids)
    scores = {
        "nmi_geometric": normalized_mutual_info_score(y_true, ids, average_method="geometric"),
        "nmi_arithmetic": normalized_mutual_info_score(y_true, ids, average_method="arithmetic"),
        "ari": adjusted_rand_score(y_true, ids),
        "homogeneity": homogeneity,
        "completeness": completeness,
        "v_measure": v_measure,
        "accuracy_top": top_majority_accuracy(y_true, ids),
        "accuracy_hungarian": hungarian_accuracy(y_true, ids),
        "purity": purity(y_true, ids),
    }
    return {name: float(scores[name]) for name in SCORE_NAMES}


def top_majority_accuracy(y_true: ArrayLike, ids: ArrayLike, n_top: int | None = None) -> float:
    """Rows of the majority class inside the ``n_top`` biggest clusters, divided by all rows.

    The closest reading of the paper's accuracy ("correctly clustered in the 10 biggest clusters / all test
    samples"). Rows in smaller clusters count as wrong. Of clusters of equal size the purer is taken
    first, so that the value does not depend on how clusters are named.

    Parameters
    ----------
    y_true : (N,) true classes
    ids : (N,) cluster ids
    n_top : how many clusters count; the number of true classes when None
    """
    table = _table(*_pair(y_true, ids))  # (classes, clusters)
    sizes, majorities = table.sum(axis=0), table.max(axis=0)
    biggest_first = np.lexsort((-majorities, -sizes))
    chosen = biggest_first[: table.shape[0] if n_top is None else n_top]
    return float(majorities[chosen].sum() / table.sum())


def hungarian_accuracy(y_true: ArrayLike, ids: ArrayLike) -> float:
    """Share of rows that agree under the best one-to-one pairing of clusters with classes.

    With more clusters than classes the spare clusters are paired with nothing and their rows count as wrong,
    so splitting a class costs.
    """
    from scipy.optimize import linear_sum_assignment

    table = _table(*_pair(y_true, ids))
    rows, columns = linear_sum_assignment(table, maximize=True)
    return float(table[rows, columns].sum() / table.sum())


def purity(y_true: ArrayLike, ids: ArrayLike) -> float:
    """Share of rows that carry the majority class of their cluster.

    Many clusters may share a class, so this rises by splitting alone: read it beside the number of clusters.
    """
    table = _table(*_pair(y_true, ids))
    return float(table.max(axis=0).sum() / table.sum())


@dataclass(frozen=True)
class ClassScore:
    """How one true class fares when all clusters with its majority are united."""

    label: int
    precision: float | None  # None where no cluster has this class as its majority
    recall: float
    n_rows: int
    n_clusters: int


def per_class_scores(y_true: ArrayLike, ids: ArrayLike) -> tuple[ClassScore, ...]:
    """Precision and recall of every true class, its sub-clusters united.

    Every cluster is mapped to its majority class (the smallest label among equals). All rows of all
    clusters mapped to a class are its prediction.
    """
    y_true, ids = _pair(y_true, ids)
    labels = np.unique(y_true)
    table = _table(y_true, ids)  # rows follow the sorted labels
    owner = table.argmax(axis=0)  # (clusters,)
    scores = []
    for row, label in enumerate(labels):
        owned = owner == row
        n_right, n_predicted = table[row, owned].sum(), table[:, owned].sum()
        scores.append(
            ClassScore(
                label=int(label),
                precision=float(n_right / n_predicted) if n_predicted else None,
                recall=float(n_right / table[row].sum()),
                n_rows=int(table[row].sum()),
                n_clusters=int(owned.sum()),
            )
        )
    return tuple(scores)


def _pair(y_true: ArrayLike, ids: ArrayLike) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    truth, clusters = np.asarray(y_true), np.asarray(ids)
    for name, array in (("y_true", truth), ("ids", clusters)):
        if array.ndim != 1 or not np.issubdtype(array.dtype, np.integer):
            raise DataError(
                f"{name} must be whole numbers of shape (N,), got {array.dtype} of shape {array.shape}"
            )
    if truth.shape != clusters.shape:
        raise DataError(
            f"y_true has {truth.size} rows and ids has {clusters.size}: they must be of the same rows"
        )
    if truth.size == 0:
        raise DataError("there are no rows to score")
    return truth.astype(np.int64), clusters.astype(np.int64)


def _table(y_true: NDArray[np.int64], ids: NDArray[np.int64]) -> NDArray[np.int64]:
    """Count rows per (class, cluster), both in sorted order."""
    from sklearn.metrics.cluster import contingency_matrix

    table: NDArray[np.int64] = contingency_matrix(y_true, ids).astype(np.int64)
    return table
