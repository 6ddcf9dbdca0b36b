"""Codes of many rows, laid out row by row: the forces of the other layout, whatever the number of threads."""

import numpy as np
import pytest
import torch
from scipy import sparse

from dbull import threads
from dbull.lifelong import layout as module
from dbull.lifelong.layout import Edges, lay_out_many
from dbull.lifelong.neighbourhood import STRONGEST, NeighbourGraph, build_graph, lay_out
from dbull.lifelong.settings import GraphSettings
from dbull.threads import working


def rows_of(n_rows, n_dims, seed=0):
    return torch.randn(n_rows, n_dims, generator=torch.Generator().manual_seed(seed))


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


PAIR = NeighbourGraph(torch.tensor([[1], [0]]), torch.ones(2, 1))


def test_edges_are_the_fuzzy_union_in_both_directions():
    graph = build_graph(rows_of(80, 3), GraphSettings(n_neighbors=6), seeded())
    row = np.repeat(np.arange(80), 6)
    values = graph.weights.double().numpy().ravel().copy()
    directed = sparse.csr_matrix((values, (row, graph.neighbours.numpy().ravel())), shape=(80, 80)).toarray()
    edges = Edges.of(graph)
    assert (graph.weights.double().numpy().ravel() == values).all()  # the graph stays as it was
    found = np.zeros((80, 80))
    found[np.repeat(np.arange(80), np.diff(edges.starts)), edges.others] = edges.tickets / 65535
    np.testing.assert_allclose(found, directed + directed.T - directed * directed.T, atol=1e-5)
    assert (found == found.T).all()


@pytest.mark.parametrize("distance", [0.1, 1.0, 6.0])
@pytest.mark.parametrize("n_held", [0, 1])
def test_one_round_of_two_rows_by_hand(distance, n_held, monkeypatch):
    """Both draw their edge, so each is pulled by the other once, and pushed by it as one of two rows."""
    monkeypatch.setattr(module, "N_OPPONENTS", 200_000)  # so many that chance does not show
    start = torch.tensor([[0.0, 0.0], [distance, 0.0]], dtype=torch.float64)  # so many round to much
    codes = lay_out_many(PAIR, start, n_held, 1, seeded())
    pull = 2 * distance / (1 + distance**2)
    push = min(2 * distance / ((1e-3 + distance**2) * (1 + distance**2)), STRONGEST)
    towards = 0.25 * (pull - 5 * 0.5 * push)
    assert float(codes[0, 0]) == pytest.approx(towards, rel=0.02)
    assert float(codes[1, 0]) == pytest.approx(distance - (0 if n_held else towards), rel=0.02)
    assert codes[:, 1].tolist() == [0.0, 0.0]
    assert float(start[0].abs().sum()) == 0.0  # what was given is not changed


def test_an_edge_is_drawn_as_often_as_it_weighs():
    graph = NeighbourGraph(torch.tensor([[1], [0]]), torch.tensor([[0.3], [0.0]]))
    edges, n_drawn = Edges.of(graph), torch.zeros(2)
    for number in range(4000):
        n_drawn += module._pull(edges, torch.zeros(2, 2), (0, 2), np.random.default_rng(number))[1]
    assert (n_drawn / 4000).tolist() == pytest.approx([0.3, 0.3], abs=0.03)


def two_islands():
    rows = torch.cat([rows_of(60, 4), rows_of(60, 4, 1) + 50])
    return build_graph(rows, GraphSettings(n_neighbors=8), seeded()), rows_of(120, 3, 2)


def test_the_same_places_on_any_number_of_threads_and_others_by_another_seed(monkeypatch):
    monkeypatch.setattr(threads, "WORTH_SHARING", 0.0)
    monkeypatch.setattr(module, "CHUNK_ROWS", 10)
    graph, start = two_islands()
    places = {}
    for n_threads in (1, 3):
        with working(n_threads):
            places[n_threads] = lay_out_many(graph, start, 0, 20, seeded(3))
    assert torch.equal(places[1], places[3])
    assert not torch.equal(places[1], lay_out_many(graph, start, 0, 20, seeded(4)))


def test_places_are_as_good_as_those_of_the_other_layout():
    """Neighbours as near to each other, islands as far apart."""
    graph, start = two_islands()
    told = []
    for along in (lay_out, lay_out_many):
        codes = along(graph, start, 0, 200, seeded())
        away = torch.cdist(codes, codes)
        near, between = away.gather(1, graph.neighbours).mean(), away[:60, 60:]
        assert float(between.min()) > float(near)
        told.append([float(near), float(between.mean())])
    assert told[0] == pytest.approx(told[1], rel=0.2)


def test_held_rows_do_not_move_at_all():
    graph, start = two_islands()
    codes = lay_out_many(graph, start, 50, 100, seeded())
    assert torch.equal(codes[-50:], start[-50:])
    assert bool((codes[:-50] != start[:-50]).any(1).all())
    assert torch.equal(lay_out_many(graph, start, 120, 5, seeded()), start)
    assert torch.equal(lay_out_many(graph, start, 0, 0, seeded()), start)
