"""The neighbour graph against scikit-learn and plain loops."""

import math

import numpy as np
import pytest
import torch
from scipy import stats
from sklearn.neighbors import NearestNeighbors

from dbull.lifelong import neighbourhood as module
from dbull.lifelong.neighbourhood import (
    NeighbourGraph,
    affinity,
    build_graph,
    fuzzy_weights,
    nearest_neighbours,
    neighbourhood_loss,
    projected,
)
from dbull.lifelong.settings import GraphSettings


def rows_of(n_rows, n_dims, seed=0):
    return torch.randn(n_rows, n_dims, generator=torch.Generator().manual_seed(seed))


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize("chunk_numbers", [1 << 25, 1000, 1])
def test_neighbours_are_scikit_learns(monkeypatch, chunk_numbers):
    """Whatever the chunks; the last chunk is smaller than the others."""
    monkeypatch.setattr(module, "CHUNK_NUMBERS", chunk_numbers)
    rows = rows_of(103, 5)
    squared, indices = nearest_neighbours(rows, 7)
    distance, index = NearestNeighbors(n_neighbors=7, algorithm="brute").fit(rows.numpy()).kneighbors()
    np.testing.assert_array_equal(indices.numpy(), index)
    np.testing.assert_allclose(squared.sqrt().numpy(), distance, rtol=1e-4, atol=1e-4)


def test_duplicated_rows_are_neighbours_but_no_row_is_its_own():
    rows = torch.cat([rows_of(20, 3)] * 3)
    squared, indices = nearest_neighbours(rows, 2)
    assert (indices != torch.arange(60)[:, None]).all()
    assert (indices % 20 == (torch.arange(60) % 20)[:, None]).all()
    assert (squared >= 0).all()
    assert (squared < 1e-5).all()


def test_all_rows_the_same():
    graph = build_graph(torch.ones(30, 4), GraphSettings(n_neighbors=15), seeded())
    assert torch.isfinite(graph.weights).all()
    assert (graph.weights == 1).all()
    assert (graph.draw(torch.arange(30), seeded()) != torch.arange(30)).all()


@pytest.mark.parametrize("n_rows", [2, 3, 10])
def test_fewer_rows_than_neighbours(n_rows):
    graph = build_graph(rows_of(n_rows, 4), GraphSettings(n_neighbors=15), seeded())
    assert len(graph) == n_rows
    assert graph.neighbours.shape == graph.weights.shape == (n_rows, n_rows - 1)
    for row, others in enumerate(graph.neighbours.tolist()):
        assert sorted([row, *others]) == list(range(n_rows))


@pytest.mark.parametrize("k", [3, 6, 15])
@pytest.mark.parametrize("unit", [1e-3, 1.0, 1e4])
def test_fuzzy_weights_sum_to_log2_k(k, unit):
    squared, _ = nearest_neighbours(rows_of(200, 4) * unit, k)
    weights = fuzzy_weights(squared.sqrt())
    np.testing.assert_allclose(weights.sum(1).numpy(), math.log2(k), rtol=1e-3)
    assert (weights[:, 0] == 1).all()
    assert (weights.diff(dim=1) <= 0).all()
    assert (weights >= 0).all()


def test_fuzzy_weights_have_the_form_they_say():
    distances = torch.tensor([[1.0, 2.0, 3.0, 5.0]])
    weights = fuzzy_weights(distances).double()
    scale = -(distances[0, 1:] - 1) / weights[0, 1:].log()
    np.testing.assert_allclose(scale.numpy(), float(scale[0]), rtol=1e-5)
    assert float(weights.sum()) == pytest.approx(2.0, rel=1e-5)


def test_weights_do_not_know_the_density_of_a_region():
    """A region blown up by 100 has the same weights."""
    tight = rows_of(60, 3)
    graph = build_graph(torch.cat([tight, 100 * tight + 2000]), GraphSettings(n_neighbors=10), seeded())
    torch.testing.assert_close(graph.weights[:60], graph.weights[60:], rtol=0.02, atol=0.02)


def test_drawn_neighbours_follow_the_weights():
    graph = build_graph(rows_of(30, 3), GraphSettings(n_neighbors=6), seeded())
    n_draws = 6000
    row = 4
    drawn = graph.draw(torch.full((n_draws,), row), seeded(1))
    counts = [(drawn == other).sum().item() for other in graph.neighbours[row]]
    assert sum(counts) == n_draws
    expected = (graph.weights[row] / graph.weights[row].sum()).double().numpy() * n_draws
    assert stats.chisquare(counts, expected * n_draws / expected.sum()).pvalue > 1e-3
    assert stats.chisquare(counts).pvalue < 1e-6  # all alike they are not


def test_draws_are_of_the_rows_asked_for():
    graph = build_graph(rows_of(50, 3), GraphSettings(n_neighbors=5), seeded())
    rows = torch.tensor([7, 0, 49, 7])
    drawn = graph.draw(rows, seeded(2))
    for row, neighbour in zip(rows, drawn, strict=True):
        assert neighbour in graph.neighbours[row]
    assert torch.equal(drawn, graph.draw(rows, seeded(2)))


def test_a_neighbour_without_weight_is_never_drawn():
    graph = NeighbourGraph(torch.tensor([[1, 2, 3]]), torch.tensor([[1.0, 0.0, 1.0]]))
    drawn = graph.draw(torch.zeros(2000, dtype=torch.int64), seeded())
    assert set(drawn.tolist()) == {1, 3}


def test_nearest_keeps_the_nearest():
    graph = build_graph(rows_of(40, 3), GraphSettings(n_neighbors=10), seeded())
    few = graph.nearest(4)
    assert torch.equal(few.neighbours, nearest_neighbours(rows_of(40, 3), 4)[1])
    assert torch.equal(few.weights, graph.weights[:, :4])


def test_wide_rows_keep_their_neighbours_when_projected():
    """Rows that vary in 20 of 300 directions: the projection loses nothing."""
    directions = rows_of(20, 300, seed=1)
    rows = rows_of(250, 20) @ directions + 1.0
    assert projected(rows, 100, seeded()).shape == (250, 100)
    exact = nearest_neighbours(rows.double(), 5)[1]
    assert (
        build_graph(rows, GraphSettings(n_neighbors=5), seeded()).neighbours == exact
    ).double().mean() > 0.99


def test_projected_distances_are_those_of_the_leading_directions():
    """Against the singular value decomposition of the whole."""
    spread = torch.linspace(10, 0.1, 150)
    rows = rows_of(400, 150) * spread
    centred = (rows - rows.mean(0)).double()
    by_svd = centred @ torch.linalg.svd(centred, full_matrices=False).Vh[:100].T
    found = projected(rows, 100, seeded()).double()
    torch.testing.assert_close(torch.pdist(found), torch.pdist(by_svd), rtol=5e-3, atol=5e-3)


@pytest.mark.parametrize("shape", [(400, 100), (100, 400)])
def test_narrow_rows_and_few_rows_are_not_projected(shape):
    rows = rows_of(*shape)
    assert projected(rows, 100, seeded()) is rows


def test_by_angle_the_length_of_a_row_does_not_matter():
    rows = rows_of(60, 5)
    rows = torch.cat([rows, -rows])  # so that the mean is 0
    longer = rows * (0.5 + torch.rand(60, 1, generator=seeded())).repeat(2, 1)
    by_angle = build_graph(rows, GraphSettings(n_neighbors=5, cosine=True), seeded())
    assert torch.equal(
        build_graph(longer, GraphSettings(n_neighbors=5, cosine=True), seeded()).neighbours,
        by_angle.neighbours,
    )
    assert not torch.equal(
        build_graph(longer, GraphSettings(n_neighbors=5), seeded()).neighbours, by_angle.neighbours
    )


def test_loss_by_a_double_loop():
    mean, neighbour = rows_of(9, 3).double(), rows_of(9, 3, seed=1).double()
    together = apart = 0.0
    for i in range(9):
        for j in range(9):
            squared = float(((mean[i] - neighbour[j]) ** 2).sum())
            if i == j:
                together += math.log(1 + squared) / 9
            else:
                apart -= math.log(squared / (1 + squared)) / (9 * 8)
    found = float(neighbourhood_loss(mean, neighbour))
    assert found == pytest.approx(together + 5 * apart, rel=2e-3)  # the push is softened by a thousandth
    assert found < together + 5 * apart


def test_loss_draws_neighbours_together_and_pushes_others_apart():
    near = torch.zeros(2, 1, dtype=torch.float64)
    near[1] = 2.0
    neighbour = near + 0.5
    near.requires_grad_()
    loss = neighbourhood_loss(near, neighbour)
    together = torch.log1p((near - neighbour).square().sum(1)).mean()
    (pull,) = torch.autograd.grad(together, near, retain_graph=True)
    (push,) = torch.autograd.grad(loss - together, near)
    assert (pull < 0).all()  # towards the neighbours, which lie above
    assert push[0] > 0  # the other neighbour lies above row 0,
    assert push[1] < 0  # and below row 1: the loss falls by moving away


def test_coinciding_codes_have_finite_loss_and_gradient():
    mean = torch.zeros(5, 3, requires_grad=True)
    loss = neighbourhood_loss(mean, torch.zeros(5, 3))
    loss.backward()
    assert torch.isfinite(loss)
    assert torch.isfinite(mean.grad).all()


def test_one_row_is_only_drawn_together():
    loss = neighbourhood_loss(torch.tensor([[0.0, 0.0]]), torch.tensor([[3.0, 4.0]]))
    assert float(loss) == pytest.approx(math.log(26))


def test_affinity_by_a_double_loop():
    graph = build_graph(rows_of(60, 3), GraphSettings(n_neighbors=5), seeded())
    labels = torch.arange(60) % 4  # label 4 holds nothing
    expected = np.zeros((5, 5))
    for row in range(60):
        for neighbour, weight in zip(graph.neighbours[row], graph.weights[row], strict=True):
            expected[labels[row], labels[neighbour]] += float(weight)
            expected[labels[neighbour], labels[row]] += float(weight)
    np.testing.assert_allclose(affinity(graph, labels, 5).numpy(), expected, rtol=1e-12)
