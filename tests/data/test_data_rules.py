"""What every rule promises, on labels drawn by hypothesis, and what single rules promise, by hand."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dbull.data import rules
from dbull.errors import DataError

GROUPS = ((0, 1), (2,))
RULES = {
    "batch": lambda y, n, r: rules.batch(y, n, r),
    "tasks": lambda y, n, r: rules.tasks(y, n, r, GROUPS, 7),
    "recurring": lambda y, n, r: rules.recurring(y, n, r, GROUPS, rounds=2),
    "mixed": lambda y, n, r: rules.mixed(y, n, r, 3, 4),
    "imbalanced": lambda y, n, r: rules.imbalanced(y, n, r, 7, 0.1),
    "in_order": lambda y, n, r: rules.in_order(y, n, r, 7, 3),
}


@pytest.mark.parametrize("name", RULES)
@given(data=st.data())
@settings(max_examples=30)
def test_no_row_comes_twice_and_none_that_is_held_out(name, data):
    n_rows = data.draw(st.integers(60, 200))
    n_train = data.draw(st.none() | st.integers(40, n_rows - 10))
    y_true = np.arange(n_rows) % 3
    seed = data.draw(st.integers(0, 2**32))
    plan = RULES[name](y_true, n_train, np.random.default_rng(seed))
    arrived = np.concatenate([rows for _, rows in plan.arrivals])
    held_out = np.concatenate(plan.held_out)
    assert len(np.unique(arrived)) == len(arrived) > 0
    assert len(np.unique(held_out)) == len(held_out) > 0
    assert not set(arrived) & set(held_out)
    assert 0 <= min(arrived.min(), held_out.min()) <= max(arrived.max(), held_out.max()) < n_rows
    if n_train is not None and name not in ("batch", "in_order"):
        assert arrived.max() < n_train <= held_out.min()
    assert len(plan.held_out) == len(plan.classes) == 1 + max(task for task, _ in plan.arrivals)
    for task, rows in plan.arrivals:
        assert len(rows) > 0
        assert set(y_true[rows]) <= set(plan.classes[task])
    for task, rows in enumerate(plan.held_out):
        assert set(y_true[rows]) <= set(plan.classes[task])
    again = RULES[name](y_true, n_train, np.random.default_rng(seed))
    assert [rows.tolist() for _, rows in again.arrivals] == [rows.tolist() for _, rows in plan.arrivals]


Y = np.repeat(np.arange(4), 50)


def random():
    return np.random.default_rng(0)


def test_batch_learns_from_80_percent_in_random_order():
    plan = rules.batch(Y, None, random())
    ((task, rows),) = plan.arrivals
    assert (task, len(rows), len(plan.held_out[0])) == (0, 160, 40)
    assert sorted([*rows, *plan.held_out[0]]) == list(range(200))
    assert rows.tolist() != sorted(rows)
    assert plan.classes == ((0, 1, 2, 3),)


def test_tasks_come_in_order_each_a_shuffled_mix_of_its_classes():
    y_true = np.tile(Y, 2)
    plan = rules.tasks(y_true, 200, random(), ((0, 1), (2, 3)), arrival_size=20, rows_per_task=80)
    assert [task for task, _ in plan.arrivals] == [0] * 4 + [1] * 4
    assert [len(rows) for _, rows in plan.arrivals] == [20] * 8
    for task, rows in plan.arrivals:
        assert set(y_true[rows]) == {2 * task, 2 * task + 1}  # both classes in every arrival
    assert plan.held_out[1].tolist() == list(range(300, 400))


def test_uneven_arrivals_differ_by_at_most_one_row():
    plan = rules.tasks(Y, 200, random(), ((0, 1),), arrival_size=33)
    assert sorted(len(rows) for _, rows in plan.arrivals) == [33, 33, 34]


def test_recurring_groups_come_back_with_new_rows():
    plan = rules.recurring(Y, 200, random(), ((0, 1), (2, 3)), rounds=3, rows_per_visit=30)
    assert [task for task, _ in plan.arrivals] == [0, 1] * 3
    assert [len(rows) for _, rows in plan.arrivals] == [30] * 6


def test_imbalance_falls_geometrically_and_its_order_depends_on_the_seed():
    y_true = np.repeat(np.arange(3), 1000)
    plans = [
        rules.imbalanced(y_true, 3000, np.random.default_rng(seed), 500, ratio=0.01) for seed in range(6)
    ]
    for plan in plans:
        rows = np.concatenate([rows for _, rows in plan.arrivals])
        assert sorted(np.bincount(y_true[rows])) == [10, 100, 1000]
        assert 950 < np.bincount(y_true[rows[: len(rows) // 2]]).max() * 2 < 1050  # rare classes all along
    commonest = {int(np.bincount(y_true[np.concatenate([r for _, r in p.arrivals])]).argmax()) for p in plans}
    assert len(commonest) > 1


def test_in_order_keeps_the_order_and_holds_out_a_tenth_of_each_stretch():
    plan = rules.in_order(Y, None, random(), arrival_size=15, n_tasks=4)
    rows = np.concatenate([rows for _, rows in plan.arrivals])
    assert rows.tolist() == sorted(rows)
    assert [len(rows) for rows in plan.held_out] == [5] * 4
    assert plan.classes == ((0,), (1,), (2,), (3,))


def test_too_few_rows_are_counted():
    with pytest.raises(DataError, match="task 0 needs 101 rows, its classes have 100"):
        rules.tasks(Y, 200, random(), ((0, 1),), 10, rows_per_task=101)
    with pytest.raises(DataError, match="the stream needs 210 rows"):
        rules.mixed(Y, 200, random(), 30, 7)
