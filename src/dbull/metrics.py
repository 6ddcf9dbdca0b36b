"""Scores: labels and cluster ids in, numbers out. Nothing here is ever shown to a learner.

Classes and cluster ids are whole numbers, (N,). Ids are names: every score is unchanged when they are renamed
one to one. Each distinct id is a cluster, a noise id such as -1 included. All scores are larger-is-better and
at most 1.

What becomes of earlier tasks as a stream goes on is told by the score matrix R, with one row per phase of the
stream and one column per task: ``R[i, j]`` is a score on held-out data of task j after phase i was learnt,
NaN while task j has not been met. A phase is a run of arrivals of the same task; in a stream where no task
comes back phases and tasks are the same thing and R is lower triangular.

scikit-learn and scipy are imported by the functions that call them: tables and error messages of the command
line need the names of the scores only, and these imports take more than a second.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dbull.errors import DataError

SCORE_NAMES = (
    *("nmi_geometric", "nmi_arithmetic", "ari", "homogeneity", "completeness", "v_measure"),
    *("accuracy_top", "accuracy_hungarian", "purity"),
)


def clustering_scores(y_true: ArrayLike, ids: ArrayLike) -> dict[str, float]:
    """Return every score of :data:`SCORE_NAMES` for one labelling.

    ``nmi_geometric`` is I(Y; C) / sqrt(H(Y) H(C)), the one the paper prints; ``nmi_arithmetic`` divides by
    the mean of the two entropies and therefore equals ``v_measure``; tables elsewhere use either.
    """
    from sklearn import metrics

    y_true, ids = _pair(y_true, ids)
    homogeneity, completeness, v_measure = metrics.homogeneity_completeness_v_measure(y_true, ids)
    scores = {
        "nmi_geometric": metrics.normalized_mutual_info_score(y_true, ids, average_method="geometric"),
        "nmi_arithmetic": metrics.normalized_mutual_info_score(y_true, ids, average_method="arithmetic"),
        "ari": metrics.adjusted_rand_score(y_true, ids),
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
    first, so that the value does not depend on how clusters are named. ``n_top`` is the number of true
    classes when None.
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
        n_right, n_predicted, n_rows = table[row, owned].sum(), table[:, owned].sum(), table[row].sum()
        precision, recall = float(n_right / n_predicted) if n_predicted else None, float(n_right / n_rows)
        scores.append(ClassScore(int(label), precision, recall, int(n_rows), int(owned.sum())))
    return tuple(scores)


def average_score(scores: ArrayLike) -> float:
    """Mean of the last row: all tasks met, each counted once, after the whole stream."""
    return float(np.nanmean(_score_matrix(scores)[-1]))


def forgetting_per_task(scores: ArrayLike) -> NDArray[np.float64]:
    """Best earlier score minus final score of every task; NaN for tasks met in the last phase only.

    (tasks,); negative where a task ended better than it ever was before.
    """
    matrix = _score_matrix(scores)
    best = np.where(np.isnan(matrix), -np.inf, matrix)[:-1].max(axis=0, initial=-np.inf)
    return np.where(np.isinf(best), np.nan, best - matrix[-1])


def forgetting(scores: ArrayLike) -> float | None:
    """Mean of :func:`forgetting_per_task`; None when there is no earlier phase to compare with."""
    return _mean_or_none(forgetting_per_task(scores))


def backward_transfer(scores: ArrayLike) -> float | None:
    """Final score minus the score right after a task was first learnt, mean over tasks.

    Every task met before the last phase counts, the one just before it included. Positive means that later
    data helped. None when there is no earlier phase.
    """
    matrix = _score_matrix(scores)
    first = (~np.isnan(matrix)).argmax(axis=0)  # the phase in which each task was met
    gained = matrix[-1] - matrix[first, range(matrix.shape[1])]
    return _mean_or_none(gained[first < len(matrix) - 1])


def id_stability(before: ArrayLike, after: ArrayLike) -> float:
    """Share of rows whose cluster id is the same before and after a step of learning.

    Where clusters were merged, ``before`` should first be translated to present ids by the method's own
    lineage (its ``resolve``), so that an announced merge is no break while a silent renumbering is one.
    """
    first, second = np.asarray(before), np.asarray(after)
    if first.shape != second.shape or first.ndim != 1:
        raise DataError(
            f"before has shape {first.shape} and after {second.shape}: both must be (N,) of the same rows"
        )
    if first.size == 0:
        raise DataError("there are no rows to compare")
    return float(np.mean(first == second))


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

    return np.asarray(contingency_matrix(y_true, ids), dtype=np.int64)


def _mean_or_none(values: NDArray[np.float64]) -> float | None:
    known = values[~np.isnan(values)]
    return float(known.mean()) if known.size else None


def _score_matrix(scores: ArrayLike) -> NDArray[np.float64]:
    """Return R as (phases, tasks) float64; a task once met must be scored in every later row."""
    matrix = np.asarray(scores, dtype=np.float64)
    if matrix.ndim != 2 or 0 in matrix.shape:
        raise DataError(
            f"a score matrix is (phases, tasks) with at least one of each, got shape {matrix.shape}"
        )
    met = ~np.isnan(matrix)
    if not met.any(axis=1).all():
        raise DataError("a row of the score matrix has no score at all")
    lost = met[:-1] & ~met[1:]
    if lost.any():
        row, task = np.argwhere(lost)[0]
        raise DataError(f"task {task} has a score in row {row} of the matrix but none in row {row + 1}")
    return matrix
