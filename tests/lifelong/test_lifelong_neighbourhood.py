"""The neighbour graph against scikit-learn, scipy and plain loops; codes laid out along it."""

import math

import numpy as np
import pytest
import torch
from scipy import sparse, stats
from sklearn.neighbors import NearestNeighbors

from dbull.lifelong import neighbourhood as module
from dbull.lifelong.directions import NARROW, leading_directions, products_of_halves, reproducible
from dbull.lifelong.neighbourhood import (
    NeighbourGraph,
    alone_share,
    build_graph,
    edge_weights,
    edges_of,
    first_codes,
    fuzzy_weights,
    lay_out,
    nearest_neighbours,
    neighbours_for,
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


@pytest.mark.parametrize("shape", [(400, 150), (400, 30)])
def test_leading_directions_are_those_of_the_singular_value_decomposition(shape):
    rows = rows_of(*shape) * torch.linspace(10, 0.1, shape[1])
    centred = (rows - rows.mean(0)).double()
    by_svd = torch.linalg.svdvals(centred)[:20].square()
    found = leading_directions(rows, 20, seeded()).double()
    torch.testing.assert_close(found.T @ found, torch.eye(20, dtype=torch.float64), atol=1e-5, rtol=0)
    along = (centred @ found).square().sum(0)
    torch.testing.assert_close(along, by_svd, atol=0, rtol=0.05)  # each as strong, the strongest first


def test_directions_count_as_far_as_both_halves_have_them():
    """Ten of 200 columns vary; the others are noise, in which each half has directions of its own."""
    rows = rows_of(2000, 200)
    rows[:, :10] *= torch.linspace(20, 10, 10)
    found = reproducible(rows, 50, seeded())
    assert found.shape == (2000, 50)
    spread = found.std(0)
    by_svd = torch.linalg.svdvals(rows - rows.mean(0))[:50] / math.sqrt(2000)
    torch.testing.assert_close(spread[:7], by_svd[:7], atol=0, rtol=0.02)
    assert (spread[20:] < 0.6 * by_svd[20:]).all()


@pytest.mark.parametrize("n_rows", [2, 3, 5, 12])
def test_few_wide_rows_have_finite_directions(n_rows):
    rows = rows_of(n_rows, 40)
    found = reproducible(rows, 100, seeded())
    assert len(found) == n_rows
    assert torch.isfinite(found).all()
    assert len(build_graph(rows, GraphSettings(), seeded())) == n_rows


@pytest.mark.parametrize(("n_rows", "expected"), [(10, 15), (1000, 15), (3375, 22), (8000, 30), (10**6, 30)])
def test_neighbours_by_the_number_of_rows(n_rows, expected):
    assert neighbours_for(n_rows) == expected


def test_replayed_rows_do_not_ask_for_more_neighbours():
    rows = rows_of(4000, 3)
    assert build_graph(rows, GraphSettings(), seeded()).neighbours.shape[1] == 24
    assert build_graph(rows, GraphSettings(), seeded(), n_present=500).neighbours.shape[1] == 15


def test_neighbours_count_less_the_farther_apart_their_codes_are():
    graph = NeighbourGraph(torch.tensor([[1, 2], [0, 2], [0, 1]]), torch.tensor([[1.0, 0.5]] * 3))
    codes = torch.tensor([[0.0, 0.0], [0.0, 0.0], [3.0, 4.0]])
    among = graph.among(codes)
    assert torch.equal(among.neighbours, graph.neighbours)
    torch.testing.assert_close(
        among.weights, torch.tensor([[1.0, 0.5 / 26], [1.0, 0.5 / 26], [1 / 26, 0.5 / 26]])
    )


@pytest.mark.parametrize(("angle_width", "by_angle"), [(4, True), (5, False)])
def test_the_length_of_wide_rows_does_not_matter(angle_width, by_angle):
    settings = GraphSettings(n_neighbors=5, angle_width=angle_width)
    rows = rows_of(60, 5)
    rows = torch.cat([rows, -rows])  # so that the mean is 0
    longer = rows * (0.5 + torch.rand(60, 1, generator=seeded())).repeat(2, 1)
    graph, other = (build_graph(some, settings, seeded()) for some in (rows, longer))
    assert torch.equal(graph.neighbours, other.neighbours) == by_angle


def test_edge_weights_by_a_double_loop():
    graph = build_graph(rows_of(60, 3), GraphSettings(n_neighbors=5), seeded())
    labels = torch.arange(60) % 4  # label 4 holds nothing
    expected = np.zeros((5, 5))
    for row in range(60):
        for neighbour, weight in zip(graph.neighbours[row], graph.weights[row], strict=True):
            expected[labels[row], labels[neighbour]] += float(weight)
    np.testing.assert_allclose(edge_weights(graph, labels, 5).numpy(), expected, rtol=1e-12)
    assert not np.allclose(expected, expected.T)  # neighbours are not mutual


# Who keeps to himself.


@pytest.mark.parametrize("n_replay", [1, 10, 40])
def test_alone_by_a_plain_loop(n_replay):
    """Of 50 rows, then 40 replayed ones of which some lie among them."""
    rows = torch.cat([rows_of(50, 2), rows_of(40, 2, seed=1) + 1.5])
    graph = build_graph(rows, GraphSettings(n_neighbors=8), seeded())
    alone = 0
    for others in graph.neighbours[:50].tolist():
        replayed = sum(other >= 50 for other in others) / len(others)
        alone += replayed < 0.5 * n_replay / (n_replay + 50)
    assert 0 < alone < 50
    assert alone_share(graph, 50, n_replay) == pytest.approx(alone / 50)


def test_a_new_cluster_is_alone_and_an_old_one_is_not():
    old, again, new = rows_of(150, 4), rows_of(300, 4, seed=1), rows_of(300, 4, seed=2) + 30
    for rows, least, most in ((again, 0.0, 0.2), (new, 1.0, 1.0)):
        graph = build_graph(torch.cat([rows, old]), GraphSettings(), seeded())
        assert least <= alone_share(graph, 300, 150) <= most


@pytest.mark.parametrize("n_columns", [4, 40])
def test_some_rows_have_the_neighbours_that_they_have_among_all(n_columns):
    rows = rows_of(300, n_columns)
    whole = build_graph(rows, GraphSettings(), seeded(), 200)
    asked = torch.randperm(300, generator=seeded())[:30]
    some = build_graph(rows, GraphSettings(), seeded(), 200, asked)
    assert torch.equal(some.neighbours, whole.neighbours[asked])
    torch.testing.assert_close(some.weights, whole.weights[asked])


@pytest.mark.parametrize("n_columns", [7, NARROW + 1])
def test_the_scatter_of_all_rows_is_that_of_two_halves_and_of_their_means(n_columns):
    one, other = rows_of(40, n_columns), 3 + 2 * rows_of(25, n_columns, seed=1)
    basis = rows_of(n_columns, 4, seed=2)
    for product, rows in zip(
        products_of_halves(one, other), (one, other, torch.cat([one, other])), strict=True
    ):
        centred = rows - rows.mean(0)
        torch.testing.assert_close(product(basis), centred.T @ (centred @ basis), rtol=1e-3, atol=1e-2)


def test_nobody_is_alone_where_nobody_is():
    graph = build_graph(rows_of(20, 3), GraphSettings(), seeded())
    assert alone_share(graph, 0, 20) == 0.0
    assert alone_share(graph, 20, 0) == 0.0  # nothing is replayed: nobody can keep away from it


# Codes along the graph.


def test_edges_are_the_fuzzy_union():
    """A + A^T - A * A^T, as in UMAP; here by scipy's sparse matrices."""
    graph = build_graph(rows_of(80, 3), GraphSettings(n_neighbors=6), seeded())
    row = np.repeat(np.arange(80), 6)
    directed = sparse.csr_matrix(
        (graph.weights.double().numpy().ravel(), (row, graph.neighbours.numpy().ravel())), shape=(80, 80)
    )
    union = (directed + directed.T - directed.multiply(directed.T)).toarray()
    one, other, weights = edges_of(graph)
    assert bool((one < other).all())
    assert len(one) == len(set(zip(one.tolist(), other.tolist(), strict=True)))
    found = np.zeros((80, 80))
    found[one.numpy(), other.numpy()] = weights.numpy()
    np.testing.assert_allclose(found + found.T, union, atol=1e-6)


def test_first_codes_are_the_leading_directions():
    """Up to turns: distances are those of the singular value decomposition, the widest has a spread of 3."""
    rows = rows_of(400, 40) * torch.tensor([10.0, 8.0, 6.0, 5.0, 4.0] + [0.5] * 35) + 5
    codes = first_codes(rows, 5, seeded()).double()
    centred = (rows - rows.mean(0)).double()
    by_svd = centred @ torch.linalg.svd(centred, full_matrices=False).Vh[:5].T
    by_svd *= module.START_SPREAD / by_svd.std(0).max()
    torch.testing.assert_close(torch.pdist(codes), torch.pdist(by_svd), rtol=0.02, atol=0.1)
    assert torch.equal(codes, first_codes(rows, 5, seeded()).double())


@pytest.mark.parametrize("shape", [(1, 3), (2, 40), (8, 40), (50, 3), (50, 5)])
@pytest.mark.parametrize("unit", [0.0, 1e-3, 1e5])
def test_first_codes_of_few_and_narrow_rows(shape, unit):
    """As many columns as asked for, and no two rows in one place: pushes need a direction."""
    codes = first_codes(unit * rows_of(*shape), 5, seeded())
    assert codes.shape == (shape[0], 5)
    assert codes.dtype == torch.float32
    assert bool(torch.isfinite(codes).all())
    assert len(codes.unique(dim=0)) == shape[0]
    assert float(codes.abs().max()) < 10 * module.START_SPREAD


PAIR = NeighbourGraph(torch.tensor([[1], [0]]), torch.ones(2, 1))


@pytest.mark.parametrize("distance", [0.1, 1.0, 6.0])
@pytest.mark.parametrize("n_held", [0, 1])
def test_one_round_of_two_rows_by_hand(distance, n_held, monkeypatch):
    """Both are drawn, so each is pulled by the other once, and pushed by it as one of two rows."""
    monkeypatch.setattr(module, "N_OPPONENTS", 200_000)  # so many that chance does not show
    start = torch.tensor([[0.0, 0.0], [distance, 0.0]], dtype=torch.float64)  # so many round to much
    codes = lay_out(PAIR, start, n_held, 1, seeded())
    pull = 2 * distance / (1 + distance**2)
    push = min(2 * distance / ((1e-3 + distance**2) * (1 + distance**2)), 4.0)
    towards = 0.25 * (pull - 5 * 0.5 * push)
    assert float(codes[0, 0]) == pytest.approx(towards, rel=0.02)
    assert float(codes[1, 0]) == pytest.approx(distance - (0 if n_held else towards), rel=0.02)
    assert codes[:, 1].tolist() == [0.0, 0.0]
    assert float(start[0].abs().sum()) == 0.0  # what was given is not changed


def test_rows_in_one_place_stay_finite():
    codes = lay_out(PAIR, torch.zeros(2, 3), 0, 20, seeded())
    assert bool(torch.isfinite(codes).all())
    spread = lay_out(PAIR, 1e-4 * rows_of(2, 3), 0, 1, seeded())
    assert float(spread.abs().max()) <= 0.25 * 5 * module.STRONGEST + 1


def islands(n_rows=60, seed=0):
    """Two islands of rows without an edge between them, and where codes of both start: mixed up."""
    rows = torch.cat([rows_of(n_rows, 4, seed), rows_of(n_rows, 4, seed + 1) + 50])
    graph = build_graph(rows, GraphSettings(n_neighbors=8), seeded())
    assert bool(((graph.neighbours < n_rows) == (torch.arange(2 * n_rows) < n_rows)[:, None]).all())
    return graph, rows_of(2 * n_rows, 3, seed + 2)


def test_neighbours_end_together_and_islands_apart():
    graph, start = islands()
    codes = lay_out(graph, start, 0, 200, seeded())
    away = torch.cdist(codes, codes)
    near = away.gather(1, graph.neighbours).mean()
    within = (away[:60, :60].mean() + away[60:, 60:].mean()) / 2
    between = away[:60, 60:]
    assert float(near) < 0.5 * float(within)
    assert float(within) < 0.6 * float(between.mean())
    assert float(between.min()) > float(near)  # from any to any of the other island
    island = torch.arange(120) < 60
    for places, least, most in ((start, 0.0, 0.7), (codes, 0.99, 1.0)):
        of_same = island[nearest_neighbours(places, 8)[1]] == island[:, None]
        assert least <= float(of_same.double().mean()) <= most


def test_held_rows_do_not_move_at_all():
    graph, start = islands()
    codes = lay_out(graph, start, 50, 100, seeded())
    assert torch.equal(codes[-50:], start[-50:])
    assert bool((codes[:-50] != start[:-50]).any(1).all())
    assert torch.equal(lay_out(graph, start, 120, 5, seeded()), start)
    assert torch.equal(lay_out(graph, start, 0, 0, seeded()), start)


def test_free_rows_come_to_their_held_neighbours():
    """Rows of the past hold their place, and the rows of the same kind come to them from anywhere."""
    rows = torch.cat([rows_of(40, 4), rows_of(40, 4, seed=1) + 50, rows_of(40, 4, seed=2)])
    graph = build_graph(rows, GraphSettings(n_neighbors=8), seeded())
    start = torch.cat([rows_of(80, 3, seed=3), rows_of(40, 3, seed=4) + 12])  # the last 40 are held
    codes = lay_out(graph, start, 40, 300, seeded())
    held = start[-40:].mean(0)
    same, new = ((codes[part] - held).norm(dim=1) for part in (slice(40), slice(40, 80)))
    assert float(same.max()) < float(new.min())


def test_places_are_those_of_the_generator():
    graph, start = islands()
    one, same, other = (lay_out(graph, start, 0, 20, seeded(seed)) for seed in (3, 3, 4))
    assert torch.equal(one, same)
    assert not torch.equal(one, other)


def test_an_edge_of_little_weight_seldom_pulls():
    """Row 1 hangs on row 0 by a full edge, row 2 by one of hardly any weight."""
    graph = NeighbourGraph(torch.tensor([[1], [0], [0]]), torch.tensor([[1.0], [1.0], [1e-4]]))
    start = torch.tensor([[0.0, 0.0], [8.0, 0.0], [0.0, 8.0]])
    codes = lay_out(graph, start, 0, 100, seeded())
    assert float((codes[0] - codes[1]).norm()) < 5
    assert torch.equal(codes[2], start[2])  # who is never drawn is not pushed, either
