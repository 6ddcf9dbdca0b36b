"""Categories that come spread over columns of plain numbers: a column of 0 and 1 for each value."""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dbull.scaling import Floats

BY_CHANCE = 1e-3  # how likely unrelated flags may look like a category, anywhere in an array
ROUNDING = 1e-3  # of what adds up to one
FIRST = 64  # rows that show most columns to be no signs


def categories_in(rows: NDArray[Any], counts: Floats | None = None) -> list[slice]:
    """Return runs of columns (N, d) of which each row has exactly one, in their order.

    Where runs overlap the longest is taken. Columns without any row go with the category before them: values
    that may come later. With `counts`, (N,), rows are means of so many.
    """
    times = np.ones(len(rows)) if counts is None else counts
    signs = _are_signs(rows[:FIRST], times[:FIRST])
    for column in signs.nonzero()[0]:
        signs[column] = _are_signs(rows[:, [column]], times)[0]
    share = np.zeros(len(signs))
    for column in signs.nonzero()[0]:
        share[column] = np.average(rows[:, column], weights=times)
    runs = [
        run
        for run in _complete_runs(rows, signs)
        if 0 < share[run.start] < 1 and not _may_be_chance(share[run], len(rows), len(signs))
    ]
    apart: list[slice] = []
    for run in sorted(runs, key=lambda run: run.start - run.stop):
        if all(run.stop <= other.start or other.stop <= run.start for other in apart):
            apart.append(run)
    ends_run = ~signs | (share > 0)
    found = []
    for run in sorted(apart, key=lambda run: run.start):
        end = run.stop
        while end < len(signs) and not ends_run[end]:
            end += 1
        found.append(slice(run.start, end))
    return found


def _are_signs(rows: NDArray[Any], times: Floats) -> NDArray[np.bool_]:
    """Return which columns tell whether a row has something; of means, how many of their rows have."""
    held = rows * times[:, None]
    whole = np.abs(held - np.rint(held)) < ROUNDING
    return np.asarray((whole & (rows > -ROUNDING) & (rows < 1 + ROUNDING)).all(0))


def _complete_runs(rows: NDArray[Any], signs: NDArray[np.bool_]) -> list[slice]:
    """Return, for each column, the shortest run of signs from it on of which each row has exactly one."""
    runs, end, had = [], 0, np.zeros(len(rows))  # how much of one a row has within the run
    for start in range(len(signs)):
        end = max(start, end)
        while end < len(signs) and signs[end] and had.min() < 1 - ROUNDING:
            more = had + rows[:, end]
            if more.max() > 1 + ROUNDING:
                break
            end, had = end + 1, more
        if had.min() >= 1 - ROUNDING:
            runs.append(slice(start, end))
        if end > start:
            had = had - rows[:, start]
    return runs


def _may_be_chance(share: Floats, n_rows: int, n_columns: int) -> bool:
    """Tell whether each row might well have just one of some flags though they are unrelated."""
    one = (share / (1 - share)).sum() * np.prod(1 - share)
    return bool(n_rows * math.log(min(1.0, one)) > math.log(BY_CHANCE / n_columns))
