"""Whole runs on real data: the embedded digits, and MNIST and Reuters10k where they are found."""

import json
import os
from pathlib import Path

import pytest

from dbull.data import scenario
from dbull.experiments.run import run
from dbull.experiments.settings import MethodChoice

needs_data = pytest.mark.skipif(
    not os.environ.get("DBULL_DATA"), reason="DBULL_DATA names no folder of data sets"
)


def final_of(name: str, method: str, out: Path, seed: int = 0):
    *_, done = run(scenario(name, seed), MethodChoice(name=method), out)
    return done.final


def test_split_digits_by_a_method_told_k(tmp_path):
    final = final_of("split-digits", "kmeans", tmp_path)
    assert final["phases"] == final["tasks"] == [0, 1, 2, 3, 4]
    assert final["n_classes"] == final["n_clusters"] == 10
    assert 0.4 < final["scores"]["nmi_geometric"] < 0.8
    assert final["id_stability"] > 0.8


def test_batch_digits_by_kmeans_agrees_with_the_usual_figure(tmp_path):
    # k-means with ten centres is known to reach an NMI near .74 on these digits.
    assert final_of("batch-digits", "kmeans", tmp_path)["scores"]["nmi_geometric"] == pytest.approx(
        0.74, abs=0.06
    )


def test_recurring_tasks_get_a_row_per_visit(tmp_path):
    final = final_of("recurring-digits", "kmeans", tmp_path)
    assert len(final["phases"]) == 10
    assert [len(row) for row in final["lifelong"]["ari"]["matrix"]] == [5] * 10


@pytest.mark.slow
def test_our_mixture_on_split_digits_is_told_nothing(tmp_path):
    *_, done = run(scenario("split-digits", 0), MethodChoice(name="dp-mixture"), tmp_path)
    settings = json.loads((done.folder / "settings.json").read_text())
    assert (settings["told_true_k"], settings["learning"], settings["pca_dims"]) == (None, "partial_fit", 10)
    assert done.final["scores"]["nmi_geometric"] > 0.5
    assert done.final["n_clusters"] > 2
    assert done.final["id_stability"] > 0.9


@pytest.mark.slow
@needs_data
def test_split_mnist(tmp_path):
    final = final_of("split-mnist", "kmeans", tmp_path)
    assert (final["arrivals"], final["rows"]) == (50, 50_000)
    assert len(final["lifelong"]["ari"]["matrix"]) == 5
    assert 0.2 < final["scores"]["nmi_geometric"] < 0.6


@pytest.mark.slow
@needs_data
def test_batch_reuters10k(tmp_path):
    final = final_of("batch-reuters10k", "kmeans", tmp_path)
    # The two best optima of k-means on these documents have NMI .41 and .54.
    assert 0.35 < final["scores"]["nmi_geometric"] < 0.6
    assert final["lifelong"]["ari"]["forgetting"] is None
