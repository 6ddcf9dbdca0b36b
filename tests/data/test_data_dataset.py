import numpy as np
import pytest
import scipy.sparse

from dbull import data
from dbull.data.dataset import Dataset, dense_rows
from dbull.errors import DataError


def make(**changes):
    fields = {
        "name": "toy",
        "x": np.zeros((3, 4), np.float32),
        "y_true": np.array([0, 1, 1]),
        "sample_shape": (2, 2),
        "kind": "images",
        "label_names": ("a", "b"),
        "source": "here",
        "licence": "MIT",
    }
    return Dataset(**(fields | changes))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"x": np.zeros((3, 4))}, "x must be float32, got float64"),
        ({"sample_shape": (5,)}, "rows have 4 values, sample_shape"),
        ({"kind": "sounds"}, "kind must be one of"),
        ({"y_true": np.array([0, 1])}, r"y_true must be int64 of shape \(3,\)"),
        ({"y_true": np.array([0, 1, 2])}, "labels must index the 2 names"),
    ],
)
def test_a_record_that_contradicts_itself_is_refused(changes, message):
    with pytest.raises(DataError, match=f"data set 'toy': {message}"):
        make(**changes)


def test_labels_may_be_absent():
    assert make(y_true=None).y_true is None
    assert len(make()) == 3


def test_dense_rows_are_a_copy_for_dense_and_sparse_alike():
    x = np.arange(12, dtype=np.float32).reshape(4, 3)
    for matrix in (x, scipy.sparse.csr_matrix(x)):
        rows = dense_rows(matrix, np.array([2, 0]))
        np.testing.assert_array_equal(rows, x[[2, 0]])
        rows[:] = -1
        np.testing.assert_array_equal(dense_rows(matrix, np.array([2, 0])), x[[2, 0]])


def test_digits_need_no_file(empty_home):
    digits = data.load("digits")
    assert (digits.x.shape, digits.sample_shape, digits.x.min(), digits.x.max()) == ((1797, 64), (8, 8), 0, 1)
    assert np.bincount(digits.y_true).tolist() == [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]
    assert (digits.y_true[:4].tolist(), digits.label_names[9]) == ([0, 1, 2, 3], "9")


def test_catalogue_without_any_data(empty_home):
    entries = data.catalogue()
    found = {entry.name for entry in entries if entry.found}
    assert found == {"digits", "gaussian-mixture", "skewed-mixture", "drifting-mixture"}
    can_get = {entry.name for entry in entries if entry.can_get}
    assert can_get == {
        *("mnist", "fashion-mnist", "usps", "20newsgroups", "reuters-21578", "cifar10", "cifar10-test"),
        *("stl10", "kddcup99", "kddcup99-corrected"),
    }


@pytest.mark.parametrize("name", ["gaussian-mixture", "skewed-mixture", "drifting-mixture"])
def test_synthetic_sets_load(empty_home, name):
    dataset = data.load(name)
    assert dataset.x.shape == (10_000, 10)
    assert set(dataset.y_true) == set(range(5))
