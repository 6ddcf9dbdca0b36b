"""Neighbours by an index against all pairs, and what is said about who found them."""

import builtins
import logging

import numpy as np
import pytest
import torch
from sklearn.metrics import adjusted_rand_score

import dbull
from dbull import DBULL, threads
from dbull.errors import SettingsError
from dbull.lifelong import codes, layout, learn, neighbourhood
from dbull.lifelong import index as module
from dbull.lifelong.index import EXACT, index_for, indexed_neighbours
from dbull.lifelong.neighbourhood import build_graph, nearest_neighbours
from dbull.lifelong.settings import GraphSettings
from dbull.threads import working

FAISS = pytest.mark.skipif(index_for("auto", 10**6) == EXACT, reason="faiss is not installed")


def clusters_of(n_rows, n_clusters=40, n_dims=12, seed=0):
    """Rows of clusters that differ in size, the smallest about a hundredth of the largest."""
    numbers = np.random.default_rng(seed)
    shares = 1 / np.arange(1, n_clusters + 1)
    labels = numbers.choice(n_clusters, n_rows, p=shares / shares.sum())
    centres = numbers.normal(scale=4.0, size=(n_clusters, n_dims))
    rows = centres[labels] + numbers.normal(size=(n_rows, n_dims))
    return torch.from_numpy(rows.astype(np.float32)), labels


def shared_of(one, other):
    """Share of each row's neighbours in one graph that it has in the other, (N,)."""
    return (one[:, :, None] == other[:, None, :]).any(2).double().mean(1)


@FAISS
def test_neighbours_are_nearly_those_of_all_pairs():
    """In clusters of all sizes; distances are those of the neighbours that are named."""
    rows, labels = clusters_of(12_000)
    squared, found = indexed_neighbours(rows, 15)
    exact_squared, exact = nearest_neighbours(rows, 15)
    shared = shared_of(exact, found).numpy()
    assert shared.mean() > 0.995
    assert min(shared[labels == label].mean() for label in np.unique(labels)) > 0.97
    assert (found != torch.arange(len(rows))[:, None]).all()
    assert (squared.diff(dim=1) >= 0).all()
    torch.testing.assert_close(squared, (rows[:, None] - rows[found]).square().sum(2), rtol=1e-3, atol=1e-3)
    assert (squared >= exact_squared - 1e-2).all()


@FAISS
def test_the_number_of_threads_changes_no_neighbour(monkeypatch):
    monkeypatch.setattr(module, "PIECE_ROWS", 500)
    rows, _ = clusters_of(8000)
    found = []
    for n_threads in (1, 3):
        with working(n_threads):
            found.append(indexed_neighbours(rows, 10))
    (one_squared, one), (squared, several) = found
    assert torch.equal(one, several)
    assert torch.equal(one_squared, squared)


@FAISS
def test_faiss_keeps_the_threads_that_others_gave_it():
    import faiss

    before = faiss.omp_get_max_threads()
    try:
        faiss.omp_set_num_threads(3)
        indexed_neighbours(torch.randn(300, 4), 5)
        assert faiss.omp_get_max_threads() == 3
    finally:
        faiss.omp_set_num_threads(before)


@FAISS
def test_rows_whose_lists_are_short_are_compared_with_all(monkeypatch):
    """Lists of a few rows hold fewer than are asked for."""
    monkeypatch.setattr(module, "LIST_ROWS", 3)
    monkeypatch.setattr(module, "LISTS_READ", 2)
    rows = torch.randn(90, 4, generator=torch.Generator().manual_seed(0))
    found = indexed_neighbours(rows, 40)[1]
    assert torch.equal(found.sort(1).values, nearest_neighbours(rows, 40)[1].sort(1).values)


@FAISS
def test_copies_are_neighbours_but_no_row_is_its_own():
    rows = torch.randn(50, 6, generator=torch.Generator().manual_seed(0)).repeat(40, 1)
    squared, found = indexed_neighbours(rows, 20)
    assert (found != torch.arange(2000)[:, None]).all()
    assert (found % 50 == (torch.arange(2000) % 50)[:, None]).all()
    assert float(squared.max()) < 1e-4


@pytest.mark.parametrize(("asked", "n_rows"), [("auto", 60_000), ("exact", 10**7)])
def test_few_rows_and_who_asks_for_it_get_all_pairs(asked, n_rows):
    assert index_for(asked, n_rows) == EXACT


def test_without_faiss(monkeypatch, caplog):
    usual = builtins.__import__

    def without(name, *given, **named):
        if name == "faiss":
            raise ImportError(name)
        return usual(name, *given, **named)

    monkeypatch.setattr(builtins, "__import__", without)
    with caplog.at_level(logging.WARNING, "dbull"):
        assert index_for("auto", 100_000) == EXACT
        assert not caplog.records
        assert index_for("auto", 300_000) == EXACT
    assert "dbull[scale]" in caplog.text
    with pytest.raises(SettingsError, match=r"pip install 'dbull\[scale\]'"):
        index_for("faiss", 100)


@FAISS
def test_what_found_the_neighbours_is_told_and_stored(tmp_path):
    rows, _ = clusters_of(400, n_clusters=4)
    exact, indexed = (
        DBULL(random_state=0, epochs=2, graph_index=asked).fit(rows.numpy()) for asked in ("auto", "faiss")
    )
    assert exact.report_.graph_index == EXACT
    assert "graph_index" not in exact.events_[0].evidence
    told = indexed.report_.graph_index
    assert told.startswith("faiss 1.")
    assert indexed.events_[0].evidence["graph_index"] == told
    again = dbull.load(indexed.save(tmp_path / "model").origin_.path)
    assert again.graph_index == "faiss"
    assert again.state_.graph_index == told
    assert again.events_[0].evidence["graph_index"] == told
    # Two lists, both of which are read: the same neighbours, so the same clusters.
    assert np.array_equal(exact.labels_, indexed.labels_)


@FAISS
def test_pretraining_tells_too():
    rows, _ = clusters_of(300, n_clusters=3)
    model = DBULL(random_state=0, epochs=1, graph_index="faiss").pretrain(rows.numpy())
    assert model.state_.graph_index.startswith("faiss")


def test_an_unknown_index_is_refused():
    with pytest.raises(SettingsError, match="graph_index"):
        DBULL(graph_index="annoy").fit(np.zeros((20, 3)))


def test_graph_of_few_rows_by_all_pairs():
    graph = build_graph(torch.randn(40, 3), GraphSettings(), torch.Generator().manual_seed(0))
    assert graph.index == EXACT
    assert graph.among(torch.zeros(40, 2)).index == EXACT


@FAISS
def test_a_fit_of_many_rows_does_not_depend_on_threads(monkeypatch):
    """All that is done otherwise for many rows, on few, in small pieces; and pieces cost no cluster."""
    for place in (module, learn):
        monkeypatch.setattr(place, "MANY_ROWS", 1000)
    for place, name in ((module, "PIECE_ROWS"), (neighbourhood, "PIECE_ROWS"), (layout, "CHUNK_ROWS")):
        monkeypatch.setattr(place, name, 300)
    monkeypatch.setattr(codes, "PIECE_ROWS", 300)
    monkeypatch.setattr(threads, "WORTH_SHARING", 0.0)
    rows, labels = clusters_of(3000, n_clusters=5)
    one, several = (DBULL(random_state=0, epochs=4, threads=n).fit(rows.numpy()) for n in (1, 3))
    assert one.report_.graph_index.startswith("faiss")
    assert one.state_.fingerprint == several.state_.fingerprint
    assert np.array_equal(one.labels_, several.labels_)
    assert one.elbo_ == several.elbo_
    assert adjusted_rand_score(labels, one.labels_) > 0.95
