"""Scores against cases worked by hand, against definitions written out, and under renaming of ids."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dbull.errors import DataError
from dbull.metrics import (
    SCORE_NAMES,
    clustering_scores,
    hungarian_accuracy,
    per_class_scores,
    purity,
    top_majority_accuracy,
)

# Classes 0,1,2 with 6, 3 and 1 rows. Counts per (class, cluster):
#            cluster 5  cluster 7  cluster 8  cluster 9
# class 0        4          0          2          0
# class 1        1          2          0          0
# class 2        0          0          0          1
Y = np.array([0, 0, 0, 0, 1, 1, 1, 0, 0, 2])
IDS = np.array([5, 5, 5, 5, 5, 7, 7, 8, 8, 9])


def test_three_accuracies_worked_by_hand():
    # The three biggest clusters are 5 (4 right), 7 (2 right), 8 (2 right); cluster 9 is left out.
    assert top_majority_accuracy(Y, IDS) == pytest.approx(8 / 10)
    # One to one: 0-5 (4), 1-7 (2), 2-9 (1); cluster 8 is paired with nothing.
    assert hungarian_accuracy(Y, IDS) == pytest.approx(7 / 10)
    # Every cluster counts: 4 + 2 + 2 + 1.
    assert purity(Y, IDS) == pytest.approx(9 / 10)
    assert top_majority_accuracy(Y, IDS, n_top=1) == pytest.approx(4 / 10)


def test_hungarian_is_one_to_one_where_majority_is_not():
    y = np.array([0, 0, 0, 1, 1])
    ids = np.array([0, 0, 1, 1, 1])
    assert hungarian_accuracy(y, ids) == pytest.approx(4 / 5)
    # The greedy pairing of the biggest cell first would give 3 + 0; the best pairing gives 2 + 2.
    y = np.array([0] * 5 + [1] * 2)
    ids = np.array([0, 0, 0, 1, 1, 0, 0])
    assert hungarian_accuracy(y, ids) == pytest.approx(4 / 7)


def test_fewer_clusters_than_classes():
    y = np.array([0, 0, 1, 1])
    ids = np.zeros(4, dtype=int)
    assert hungarian_accuracy(y, ids) == top_majority_accuracy(y, ids) == purity(y, ids) == 0.5


def test_equal_sizes_take_the_purer_cluster():
    # One true class is cut off (n_top=1): both clusters have 2 rows, cluster 1 is pure.
    assert top_majority_accuracy([0, 1, 0, 0], [0, 0, 1, 1], n_top=1) == 0.5
    assert top_majority_accuracy([0, 0, 0, 1], [0, 0, 1, 1], n_top=1) == 0.5


def test_information_scores_worked_by_hand():
    # Two classes of two rows; cluster 0 is class 0, class 1 is split in two single rows.
    y, ids = [0, 0, 1, 1], [0, 0, 1, 2]
    scores = clustering_scores(y, ids)
    # H(Y) = log 2, H(C) = 1.5 log 2, I = log 2.
    assert scores["nmi_geometric"] == pytest.approx(1 / np.sqrt(1.5))
    assert scores["nmi_arithmetic"] == pytest.approx(1 / 1.25)
    assert scores["homogeneity"] == pytest.approx(1.0)
    assert scores["completeness"] == pytest.approx(1 / 1.5)
    assert scores["v_measure"] == pytest.approx(0.8)
    # Pairs: 6 in all, together in truth 2, together in clusters 1, in both 1: expected 1/3.
    assert scores["ari"] == pytest.approx((1 - 1 / 3) / (1.5 - 1 / 3))
    assert tuple(scores) == SCORE_NAMES


def test_precision_and_recall_unite_sub_clusters():
    zero, one, two = per_class_scores(Y, IDS)
    # Class 0 owns clusters 5 and 8: 7 rows, 6 of them right, and all 6 of the class.
    assert (zero.precision, zero.recall, zero.n_rows, zero.n_clusters) == (6 / 7, 1.0, 6, 2)
    assert (one.precision, one.recall, one.n_rows, one.n_clusters) == (1.0, 2 / 3, 3, 1)
    assert (two.precision, two.recall, two.n_rows, two.n_clusters) == (1.0, 1.0, 1, 1)


def test_single_class_is_all_or_nothing_but_for_the_accuracies():
    split = clustering_scores([4, 4, 4, 4], [0, 1, 1, 1])
    all_or_nothing = ("nmi_geometric", "nmi_arithmetic", "ari", "completeness", "v_measure")
    assert [split[name] for name in all_or_nothing] == [0.0] * 5
    assert split["homogeneity"] == split["purity"] == 1.0
    assert split["accuracy_hungarian"] == split["accuracy_top"] == 0.75
    whole = clustering_scores([4, 4, 4, 4], [1, 1, 1, 1])
    assert set(whole.values()) == {1.0}


def test_class_without_cluster_has_no_precision():
    three, four = per_class_scores([3, 3, 4], [0, 0, 0])
    assert (three.label, three.precision, three.recall) == (3, 2 / 3, 1.0)
    assert (four.label, four.precision, four.recall, four.n_clusters) == (4, None, 0.0, 0)


labellings = st.lists(st.tuples(st.integers(0, 4), st.integers(-1, 6)), min_size=1, max_size=60).map(
    lambda pairs: tuple(np.array(column) for column in zip(*pairs, strict=True))
)


@given(labellings, st.permutations(range(8)), st.permutations(range(5)))
def test_renaming_changes_nothing(pair, new_ids, new_classes):
    y, ids = pair
    renamed = 100 * np.array(new_ids)[ids + 1]
    relabelled = np.array(new_classes)[y]
    expected = clustering_scores(y, ids)
    assert clustering_scores(relabelled, renamed) == pytest.approx(expected, abs=1e-12)


@given(labellings, st.randoms())
def test_row_order_changes_nothing(pair, random):
    y, ids = pair
    order = list(range(len(y)))
    random.shuffle(order)
    assert clustering_scores(y[order], ids[order]) == pytest.approx(clustering_scores(y, ids), abs=1e-12)


@given(labellings)
def test_orders_among_scores(pair):
    y, ids = pair
    scores = clustering_scores(y, ids)
    assert scores["accuracy_hungarian"] <= scores["purity"] + 1e-12
    assert scores["accuracy_top"] <= scores["purity"] + 1e-12
    assert scores["nmi_geometric"] >= scores["nmi_arithmetic"] - 1e-12  # geometric mean <= arithmetic mean
    assert scores["nmi_arithmetic"] == pytest.approx(scores["v_measure"], abs=1e-9)
    recalls = per_class_scores(y, ids)
    assert sum(c.recall * c.n_rows for c in recalls) / len(y) == pytest.approx(scores["purity"])
    assert sum(c.n_clusters for c in recalls) == len(np.unique(ids))


@given(st.lists(st.integers(0, 5), min_size=1, max_size=40))
def test_perfect_clustering_scores_one(labels):
    y = np.array(labels)
    assert all(value == pytest.approx(1.0) for value in clustering_scores(y, 9 - y).values())


@pytest.mark.parametrize(
    ("y", "ids", "words"),
    [
        ([0, 1], [0], "2 rows and ids has 1"),
        (np.array([], int), np.array([], int), "no rows"),
        ([[0]], [[0]], r"y_true .* shape \(1, 1\)"),
        ([0, 1], [0.5, 1.0], "ids must be whole numbers"),
    ],
)
def test_bad_input_is_named(y, ids, words):
    with pytest.raises(DataError, match=words):
        clustering_scores(y, ids)
