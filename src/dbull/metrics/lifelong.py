"""What becomes of earlier tasks as a stream goes on.

The score matrix R has one row per phase of the stream and one column per task: ``R[i, j]`` is a score on the
held-out data of task j after phase i was learnt, NaN while task j has not been met. A phase is a run of
arrivals of the same task; in a stream where no task comes back phases and tasks are the same thing and R is
lower triangular.
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dbull.errors import DataError


def average_score(scores: ArrayLike) -> float:
    """Mean of the last row: all tasks met, each counted once, after the whole stream."""
    matrix = _checked(scores)
    return float(np.nanmean(matrix[-1]))


def forgetting_per_task(scores: ArrayLike) -> NDArray[np.float64]:
    """Best earlier score minus final score of every task; NaN for tasks met in the last phase only.

    Negative where a task ended better than it ever was before.

    Returns
    -------
    (tasks,) float64
    """
    matrix = _checked(scores)
    lost = np.full(matrix.shape[1], np.nan)
    for task in _met_before_last(matrix):
        lost[task] = np.nanmax(matrix[:-1, task]) - matrix[-1, task]
    return lost


def forgetting(scores: ArrayLike) -> float | None:
    """Mean of :func:`forgetting_per_task`; None when there is no earlier phase to compare with."""
    return _mean_or_none(forgetting_per_task(scores))


def backward_transfer(scores: ArrayLike) -> float | None:
    """Final score minus the score right after a task was first learnt, mean over tasks.

    Every task met before the last phase counts, the one just before it included. Positive means that later
    data helped. None when there is no earlier phase.
    """
    matrix = _checked(scores)
    gained = np.full(matrix.shape[1], np.nan)
    for task in _met_before_last(matrix):
        column = matrix[:, task]
        gained[task] = matrix[-1, task] - column[~np.isnan(column)][0]
    return _mean_or_none(gained)


def id_stability(before: ArrayLike, after: ArrayLike) -> float:
    """Share of rows whose cluster id is the same before and after a step of learning.

    Where clusters were merged, ``before`` should first be translated to present ids by the method's own
    lineage (its ``resolve``), so that an announced merge is no break while a silent renumbering is one.

    Parameters
    ----------
    before, after : (N,) ids of the same rows
    """
    first, second = np.asarray(before), np.asarray(after)
    if first.shape != second.shape or first.ndim != 1:
        raise DataError(
            f"before has shape {first.shape} and after {second.shape}: both must be (N,) of the same rows"
        )
    if first.size == 0:
        raise DataError("there are no rows to compare")
    return float(np.mean(first == second))


def _met_before_last(matrix: NDArray[np.float64]) -> NDArray[np.int64]:
    return np.flatnonzero(~np.isnan(matrix[:-1]).all(axis=0))


def _mean_or_none(values: NDArray[np.float64]) -> float | None:
    known = values[~np.isnan(values)]
    return float(known.mean()) if known.size else None


def _checked(scores: ArrayLike) -> NDArray[np.float64]:
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
