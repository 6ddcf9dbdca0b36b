import subprocess
import sys

import numpy as np
import pytest

from dbull import data
from dbull.errors import DataError, SettingsError

WITHOUT_FILES = [
    "split-digits",
    "recurring-digits",
    "batch-digits",
    "batch-gaussian",
    "batch-skewed",
    "drift-gaussian",
]
PROMISED = {
    "split-mnist": 50,
    "split-mnist-tasks": 5,
    "split-mnist-classes": 50,
    "split-fashion-mnist": 50,
    "recurring-mnist": 20,
    "imbalanced-mnist": 13,
    "same-classes-mnist": 20,
    "batch-mnist": 1,
    "batch-fashion-mnist": 1,
    "batch-usps": 1,
    "batch-reuters10k": 1,
    "batch-cifar10-features": 1,
}  # number of arrivals


def row_set(x: np.ndarray) -> set[bytes]:
    return {row.tobytes() for row in x}


def test_all_promised_names_are_known():
    assert {*WITHOUT_FILES, *PROMISED, "kdd"} <= set(data.scenario_names())


def test_same_name_and_seed_give_the_same_bytes_in_another_process():
    here = [data.scenario(name, 3).fingerprint for name in WITHOUT_FILES]
    code = f"from dbull.data import scenario; print(*[scenario(n, 3).fingerprint for n in {WITHOUT_FILES!r}])"
    there = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert there.stdout.split() == here
    other_seed = [data.scenario(name, 4).fingerprint for name in WITHOUT_FILES]
    assert len({*here, *other_seed}) == 2 * len(WITHOUT_FILES)


@pytest.mark.parametrize("name", WITHOUT_FILES)
class TestWithoutFiles:
    def test_held_out_rows_never_arrive(self, name):
        scenario = data.scenario(name, 0)
        arrived = set().union(*(row_set(arrival.x) for arrival in scenario.arrivals))
        held_out = set().union(*(row_set(part.x) for part in scenario.held_out))
        assert arrived
        assert held_out
        assert not arrived & held_out

    def test_records_keep_to_the_contract(self, name):
        scenario = data.scenario(name, 0)
        assert [arrival.index for arrival in scenario.arrivals] == list(range(len(scenario.arrivals)))
        assert [part.task for part in scenario.held_out] == list(range(len(scenario.held_out)))
        for record in [*scenario.arrivals, *scenario.held_out]:
            assert record.x.dtype == np.float32
            assert record.y_true.dtype == np.int64
            assert record.x.shape == (len(record.y_true), np.prod(scenario.sample_shape))
            assert record.x.flags.c_contiguous
            assert set(record.y_true) <= set(record.classes)
            assert record.classes == scenario.held_out[record.task].classes


def test_fingerprint_is_pinned():
    """Fails if numpy, scikit-learn or we change what a name and a seed mean: results no longer compare."""
    assert data.scenario("split-digits", 0).fingerprint.startswith("bbc6b67eb528")


def test_arrivals_are_a_sequence_made_on_demand():
    arrivals = data.scenario("split-digits", 0).arrivals
    assert arrivals[-1].index == len(arrivals) - 1
    assert [arrival.index for arrival in arrivals[2:6:2]] == [2, 4]
    with pytest.raises(IndexError, match="out of range"):
        arrivals[len(arrivals)]
    first, again = arrivals[0], arrivals[0]
    first.x[:] = -1  # what one reader does to its copy does not reach the next
    assert again.x.min() >= 0
    assert arrivals[0].x.min() >= 0


def test_labels_belong_to_their_rows():
    digits = data.load("digits")
    label_of = {row.tobytes(): label for row, label in zip(digits.x, digits.y_true, strict=True)}
    scenario = data.scenario("split-digits", 1)
    for record in [*scenario.arrivals, *scenario.held_out]:
        assert [label_of[row.tobytes()] for row in record.x] == record.y_true.tolist()
    total = sum(len(r.y_true) for r in [*scenario.arrivals, *scenario.held_out])
    assert total == len(digits)


def test_unknown_names_get_the_nearest():
    with pytest.raises(SettingsError, match="unknown scenario 'split-minst': did you mean 'split-mnist'"):
        data.scenario("split-minst", 0)
    with pytest.raises(SettingsError, match="unknown data set 'mnits': did you mean 'mnist'"):
        data.load("mnits")


def test_negative_seed_is_refused():
    with pytest.raises(SettingsError, match="seed must not be negative, got -1"):
        data.scenario("split-digits", -1)


def test_missing_files_are_named_with_what_to_do(empty_home, monkeypatch):
    monkeypatch.setenv("DBULL_DATA", str(empty_home / "here"))
    with pytest.raises(DataError) as caught:
        data.scenario("split-mnist", 0)
    message = str(caught.value)
    for part in (
        "train-images-idx3-ubyte.gz",
        str(empty_home / "here" / "mnist"),
        "dbull data get mnist",
        "DBULL_DATA",
    ):
        assert part in message


class TestRealData:
    @pytest.fixture(autouse=True)
    def load_each_set_once(self, real_set, monkeypatch):
        monkeypatch.setattr("dbull.data.scenarios.load", lambda name, _folder: real_set(name))

    def test_split_mnist_is_the_papers(self, real_data):
        scenario = data.scenario("split-mnist", 0, real_data)
        assert len(scenario.arrivals) == 50
        assert [arrival.task for arrival in scenario.arrivals] == [i // 10 for i in range(50)]
        assert {len(arrival.y_true) for arrival in scenario.arrivals} == {1000}
        assert [part.classes for part in scenario.held_out] == [(0, 1), (2, 3), (4, 5), (6, 7), (8, 9)]
        assert [len(part.y_true) for part in scenario.held_out] == [2115, 2042, 1874, 1986, 1983]
        assert all(set(a.y_true) == set(a.classes) for a in scenario.arrivals)
        arrived = set().union(*(row_set(arrival.x) for arrival in scenario.arrivals))
        held_out = set().union(*(row_set(part.x) for part in scenario.held_out))
        assert len(arrived) == 50_000  # no image twice, by value
        assert not arrived & held_out
        assert scenario.fingerprint.startswith("32edaa7c8115")

    @pytest.mark.slow
    @pytest.mark.parametrize("name", PROMISED)
    def test_every_scenario_can_be_made(self, real_data, name):
        scenario = data.scenario(name, 1, real_data)
        assert np.isfinite(scenario.arrivals[0].x).all()
        assert len(scenario.arrivals) == PROMISED[name]

    @pytest.mark.slow
    def test_kdd_keeps_the_order_of_the_file(self, real_data, real_set):
        scenario = data.scenario("kdd", 0, real_data)
        arrived = [label for arrival in scenario.arrivals for label in arrival.y_true.tolist()]
        assert len(arrived) + sum(len(part.y_true) for part in scenario.held_out) == 494_021
        in_file = iter(real_set("kddcup99").y_true.tolist())
        assert all(label in in_file for label in arrived)  # `in` takes from the iterator: a subsequence
