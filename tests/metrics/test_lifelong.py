"""Lifelong scores on matrices worked by hand, the recurring case included."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dbull.errors import DataError
from dbull.metrics import (
    average_score,
    backward_transfer,
    forgetting,
    forgetting_per_task,
    id_stability,
)

NAN = np.nan
THREE_TASKS = [
    [0.9, NAN, NAN],
    [0.95, 0.8, NAN],
    [0.7, 0.85, 0.6],
]


def test_three_tasks_by_hand():
    assert average_score(THREE_TASKS) == pytest.approx((0.7 + 0.85 + 0.6) / 3)
    # Task 0: best earlier is .95 (after task 1, not its own diagonal); task 1 ended better than ever.
    np.testing.assert_allclose(forgetting_per_task(THREE_TASKS), [0.25, -0.05, NAN])
    assert forgetting(THREE_TASKS) == pytest.approx(0.10)
    # Against the diagonal: .7 - .9 and .85 - .8. The task just before the last counts too.
    assert backward_transfer(THREE_TASKS) == pytest.approx((-0.2 + 0.05) / 2)


def test_two_tasks_count_the_first():
    matrix = [[1.0, NAN], [0.4, 0.5]]
    assert forgetting(matrix) == pytest.approx(0.6)
    assert backward_transfer(matrix) == pytest.approx(-0.6)


def test_one_phase_has_nothing_to_forget():
    assert average_score([[0.8]]) == 0.8
    assert forgetting([[0.8]]) is None
    assert backward_transfer([[0.8]]) is None


def test_task_that_comes_back():
    # Phases: task 0, task 1, task 0 again. Columns are tasks; three rows.
    matrix = [[0.9, NAN], [0.5, 0.8], [0.95, 0.6]]
    np.testing.assert_allclose(forgetting_per_task(matrix), [-0.05, 0.2])
    assert backward_transfer(matrix) == pytest.approx((0.05 - 0.2) / 2)


@given(st.integers(1, 6), st.integers(0, 2**31 - 1))
def test_forgetting_is_at_least_minus_backward_transfer(n, seed):
    matrix = np.where(np.tri(n) > 0, np.random.default_rng(seed).random((n, n)), NAN)
    if n == 1:
        assert forgetting(matrix) is backward_transfer(matrix) is None
    else:
        # The best earlier score is at least the first one.
        assert forgetting(matrix) >= -backward_transfer(matrix) - 1e-12


def test_id_stability_by_hand():
    assert id_stability([1, 1, 2, 3], [1, 1, 2, 9]) == 0.75
    # Unlike the clustering scores, a renaming is a break: that is what is measured.
    assert id_stability([0, 0, 1, 1], [1, 1, 0, 0]) == 0.0


@pytest.mark.parametrize("matrix", [[], [0.5], [[NAN, NAN]], [[0.5, NAN], [NAN, 0.5]]])
def test_impossible_matrices_are_refused(matrix):
    with pytest.raises(DataError):
        forgetting(matrix)


def test_stability_of_other_rows_is_refused():
    with pytest.raises(DataError, match="same rows"):
        id_stability([1, 2], [1])
