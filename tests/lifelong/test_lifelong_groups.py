"""Clusters as groups of components: hand-made graphs, and what holds for any graph."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dbull.lifelong.groups import AMONG_OLD, LOWERED, join_components, lowered, mixing, number_clusters
from dbull.lifelong.neighbourhood import NeighbourGraph, build_graph, edge_weights
from dbull.lifelong.settings import GraphSettings


def edges_of(within, between):
    """Edges from a diagonal and a dict of pairs, as many one way as the other."""
    edges = torch.diag(torch.tensor(within, dtype=torch.float64))
    for (a, b), weight in between.items():
        edges[a, b] = edges[b, a] = weight
    return edges


def sizes_of(*sizes):
    return torch.tensor(sizes)


TWO = edges_of([86.0, 2.0], {(0, 1): 4.0})


def test_joining_leaves_edges_and_sizes_as_they_are():
    edges, sizes = TWO.clone(), sizes_of(45, 5)
    mixing(edges)
    assert join_components(edges, sizes, 0.1).tolist() == [0, 0]
    assert torch.equal(edges, TWO)
    assert sizes.tolist() == [45, 5]


@pytest.mark.parametrize(("beyond", "expected"), [(-1e-6, [0, 0]), (0.0, [0, 0]), (1e-6, [0, 1])])
def test_the_threshold_itself_joins(beyond, expected):
    threshold = float(mixing(TWO)[0, 1])
    assert join_components(TWO, sizes_of(45, 5), threshold + beyond).tolist() == expected


def test_two_pieces_and_a_stranger():
    edges = edges_of([50.0, 50.0, 50.0], {(0, 2): 20.0, (1, 2): 0.1})
    assert join_components(edges, sizes_of(9, 9, 9), 0.05).tolist() == [0, 1, 0]


def test_a_chain_is_one_group():
    edges = edges_of([10.0] * 4, {(0, 1): 5.0, (1, 2): 5.0, (2, 3): 5.0})
    assert join_components(edges, sizes_of(5, 5, 5, 5), 0.1).tolist() == [0, 0, 0, 0]


def test_the_joined_ones_go_on_as_one():
    """0 and 1 join first; then what was enough for 1 alone is too little for the two together."""
    edges, sizes = edges_of([100.0, 4.0, 100.0], {(0, 1): 4.0, (1, 2): 2.0}), sizes_of(100, 10, 100)
    assert float(mixing(edges)[1, 2]) > 0.2
    assert join_components(edges, sizes, 0.1).tolist() == [0, 0, 1]


PIECES = edges_of([100.0] * 4, {(0, 1): 4.0, (2, 3): 4.0})  # two clusters of two pieces


def test_pieces_are_one_where_clusters_stand_clearly_apart():
    assert 0.03 < float(mixing(PIECES)[0, 1]) < 0.1
    assert lowered(PIECES, 0.1) == pytest.approx(LOWERED * 0.1)
    assert join_components(PIECES, sizes_of(9, 9, 9, 9), lowered(PIECES, 0.1)).tolist() == [0, 0, 1, 1]


def test_clusters_that_touch_more_and_less_are_a_matter_of_degree():
    """Each contact is at most half of the one before: there is no level at which clusters stand apart."""
    edges = edges_of([100.0] * 5, {(0, 1): 4.0, (1, 2): 2.0, (2, 3): 1.0, (3, 4): 0.5})
    assert lowered(edges, 0.1) == 0.1
    assert lowered(edges_of([100.0] * 4, {(0, 1): 4.0, (1, 2): 2.0}), 0.1) < 0.1  # the last touches nothing


def test_two_kinds_that_touch_are_not_one_for_want_of_others():
    """Two pieces of each, and a contact between the kinds that would join them at the lowered threshold."""
    edges = edges_of([100.0] * 4, {(0, 1): 5.0, (2, 3): 5.0, (1, 2): 4.6})
    contact = float(mixing(join_first(edges))[0, 2])
    assert LOWERED * 0.1 < contact < 0.1
    assert join_components(edges, sizes_of(9, 9, 9, 9), lowered(edges, 0.1)).tolist() == [0, 0, 1, 1]
    assert lowered(edges_of([10.0] * 2, {(0, 1): 9.0}), 0.1) == 0.1  # as one, whatever the gap


def join_first(edges):
    """Return the edges with the first two and the last two components joined."""
    both = torch.tensor([[1.0, 0, 0, 0], [1, 0, 0, 0], [0, 0, 1, 0], [0, 0, 1, 0]], dtype=torch.float64)
    return both.T @ edges @ both


def test_what_touches_old_clusters_only_says_nothing_of_new_ones():
    """A gap is sought among new components, whose contacts with old ones are another matter."""
    edges = edges_of([100.0] * 4, {(0, 1): 6.0, (1, 2): 2.5, (2, 3): 1.0, (0, 3): 0.6})
    with_old = torch.zeros(5, 5, dtype=torch.float64)
    with_old[1:, 1:] = edges
    with_old[0, 0] = 100.0
    assert lowered(edges, 0.1) == lowered(with_old, 0.1, n_old=1)
    touching = edges_of([100.0] * 3, {(0, 1): 20.0, (1, 2): 0.02})
    assert lowered(touching, 0.1, n_old=1) == pytest.approx(LOWERED * 0.1)


def test_new_ones_join_an_old_cluster_at_a_threshold_of_its_own():
    edges = edges_of([100.0] * 3, {(0, 1): 8.0, (1, 2): 8.0})
    assert join_components(edges, sizes_of(9, 9, 9), 0.03, 1, among_old=0.2).tolist() == [0, 1, 1]
    assert join_components(edges, sizes_of(9, 9, 9), 0.03, 1, among_old=0.05).tolist() == [0, 0, 0]


def test_joining_can_bring_pairs_over_the_threshold():
    """Two pieces are each mixed too little with a third; together enough."""
    edges = edges_of([20.0, 20.0, 20.0], {(0, 1): 10.0, (0, 2): 1.5, (1, 2): 1.5})
    sizes = sizes_of(20, 20, 20)
    assert float(mixing(edges)[0, 2]) < 0.15
    assert join_components(edges, sizes, 0.15).tolist() == [0, 0, 0]


def test_components_without_edges_stay_alone():
    nothing = torch.zeros(3, 3, dtype=torch.float64)
    assert join_components(nothing, sizes_of(4, 4, 0), 0.01).tolist() == [0, 1, 2]
    assert join_components(torch.ones(1, 1, dtype=torch.float64), sizes_of(3), 0.01).tolist() == [0]


@st.composite
def graphs(draw):
    """Edges, sizes, and how many of the first are old."""
    n = draw(st.integers(1, 8))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    edges = rng.exponential(size=(n, n)) * (rng.random((n, n)) < 0.6)
    edges = edges + np.diag(rng.exponential(5.0, n))
    return torch.tensor(edges), torch.tensor(rng.integers(1, 50, n)), draw(st.integers(0, n))


def contracted(edges, group):
    """Edges of groups, from those of their members."""
    member = (group[:, None] == torch.arange(int(group.max()) + 1)).double()
    return member.T @ edges @ member


@given(graphs(), st.floats(1e-3, 1.0))
def test_a_partition_numbered_by_first_members(graph, threshold):
    group = join_components(*graph[:2], threshold).tolist()
    firsts = [group.index(g) for g in sorted(set(group))]
    assert sorted(set(group)) == list(range(len(firsts)))
    assert firsts == sorted(firsts)


@given(graphs(), st.floats(1e-3, 1.0), st.floats(1e-3, 1.0))
def test_a_higher_threshold_only_refines(graph, one, other):
    """Joins happen in the same order whatever the threshold, so the groups of a higher one lie within."""
    low, high = sorted((one, other))
    coarse, fine = (join_components(*graph[:2], threshold, graph[2]) for threshold in (low, high))
    assert len(set(fine.tolist())) >= len(set(coarse.tolist()))
    assert len(set(zip(coarse.tolist(), fine.tolist(), strict=True))) == len(set(fine.tolist()))


@given(graphs(), st.floats(1e-3, 1.0))
def test_what_is_left_is_mixed_too_little(graph, threshold):
    edges, sizes, n_old = graph
    group = join_components(edges, sizes, threshold, n_old)
    left = mixing(contracted(edges, group))
    left[:n_old, :n_old] = 0.0  # old clusters may be mixed as they like
    left[:n_old] /= AMONG_OLD  # and new ones with them, as long as they do not lie among their rows
    left[:, :n_old] /= AMONG_OLD
    assert bool((left < threshold + 1e-9).all())


@given(graphs(), st.floats(1e-3, 1.0))
def test_old_clusters_are_never_joined_and_keep_their_places(graph, threshold):
    edges, sizes, n_old = graph
    group = join_components(edges, sizes, threshold, n_old)
    assert group[:n_old].tolist() == list(range(n_old))


def test_a_newborn_joins_the_old_one_it_is_mixed_with_most():
    """It touches both, and would be a bridge between them."""
    edges = edges_of([100.0, 100.0, 20.0], {(0, 2): 4.0, (1, 2): 8.0})
    sizes = sizes_of(100, 100, 20)
    assert join_components(edges, sizes, 0.05, 2).tolist() == [0, 1, 1]
    assert join_components(edges, sizes, 0.05).tolist() == [0, 0, 0]  # if none were old
    assert join_components(edges, sizes, 0.9, 2).tolist() == [0, 1, 2]  # a touch is not enough


def test_a_strange_newborn_is_not_taken_along_by_another():
    """The first is of the old cluster, the second only touches the first: too little of what is now one."""
    edges, sizes = edges_of([100.0, 20.0, 20.0], {(0, 1): 40.0, (1, 2): 3.0}), sizes_of(100, 20, 20)
    assert float(mixing(edges)[1, 2]) > 0.15
    assert join_components(edges, sizes, 0.15, 1).tolist() == [0, 0, 1]


def test_a_newborn_must_lie_among_the_rows_of_an_old_cluster():
    """What would join a new one only touches an old one."""
    edges, sizes = edges_of([100.0, 20.0], {(0, 1): 5.0}), sizes_of(100, 20)
    threshold = float(mixing(edges)[0, 1]) / AMONG_OLD**0.5
    assert join_components(edges, sizes, threshold).tolist() == [0, 0]
    assert join_components(edges, sizes, threshold, n_old=1).tolist() == [0, 1]


def joined(graph, labels, n_components, threshold):
    """Clusters of components when all are newborn, as they are in a first data set."""
    edges, sizes = edge_weights(graph, labels, n_components), torch.bincount(labels, minlength=n_components)
    return number_clusters(join_components(edges, sizes, threshold), labels, 0)


def test_clusters_are_numbered_by_size():
    """Ten rows of component 2, four of 0 and three of 1; 0 and 1 are joined."""
    labels = torch.tensor([2] * 10 + [0] * 4 + [1] * 3)
    neighbours = torch.tensor(
        [[(i + 1) % 10] for i in range(10)] + [[14], [14], [15], [16], [10], [11], [12]]
    )
    graph = NeighbourGraph(neighbours, torch.ones(17, 1))
    assert joined(graph, labels, 3, 0.1).tolist() == [1, 1, 0]


@pytest.mark.parametrize("empty", [0, 1, 2])
def test_a_component_that_is_nobodys_first_choice(empty):
    """It holds a part of many rows and the largest part of none: a cluster of its own, the smallest."""
    full = [c for c in range(3) if c != empty]
    labels = torch.tensor([full[0]] * 6 + [full[1]] * 4)
    neighbours = torch.tensor([[(i + 1) % 6] for i in range(6)] + [[7], [8], [9], [6]])
    clusters = joined(NeighbourGraph(neighbours, torch.ones(10, 1)), labels, 3, 0.1)
    assert [int(clusters[c]) for c in (*full, empty)] == [0, 1, 2]


def test_groups_and_their_numbers():
    """Components 0 and 3 belong together and are the largest; an empty component stands at the end."""
    labels = torch.tensor([0] * 10 + [1] * 15 + [2] * 3 + [3] * 10)
    neighbours = torch.arange(38)[:, None].clone()
    neighbours[:10, 0] = 30  # rows of component 0 point to component 3 and back
    neighbours[28:, 0] = 0
    graph = NeighbourGraph(neighbours, torch.ones(38, 1))
    assert joined(graph, labels, 4, 0.5).tolist() == [0, 1, 2, 0]
    assert joined(graph, labels, 5, 0.5).tolist() == [0, 1, 2, 0, 3]


# How much one set lies among another.


def test_mixing_by_hand():
    """25 edges between sets that have 145 and 415 ends of edges, where 145 * 415 / 560 are by chance."""
    edges = torch.tensor([[60.0, 20.0], [5.0, 195.0]], dtype=torch.float64)
    want = 25 / (145 * 415 / 560)
    got = mixing(edges)
    torch.testing.assert_close(got, torch.tensor([[0.0, want], [want, 0.0]], dtype=torch.float64))


@given(graphs())
def test_mixing_is_mutual_and_has_no_unit(graph):
    edges = graph[0]
    got = mixing(edges)
    assert torch.equal(got, got.T)
    assert bool((got >= 0).all())
    assert got.diagonal().tolist() == [0.0] * len(edges)
    torch.testing.assert_close(mixing(7 * edges), got)


@given(graphs())
def test_joined_sets_are_mixed_with_a_third_by_all_their_edges(graph):
    """Whether sets are counted together before or after: edges add up, and so do the ends of edges."""
    edges = graph[0]
    ends = (edges + edges.T).sum(1)
    between = mixing(edges) * ends[:, None] * ends / (ends[:, None] + ends).clamp_min(1e-300)
    torch.testing.assert_close(between, (edges + edges.T).fill_diagonal_(0.0))


@pytest.mark.parametrize("sizes", [(300, 300), (300, 20), (20, 300)])
def test_one_set_cut_at_random_is_mixed_whatever_the_sizes(sizes):
    rng = np.random.default_rng(0)
    labels = torch.tensor(rng.permutation(np.repeat([0, 1], sizes)))
    rows = torch.tensor(rng.normal(size=(sum(sizes), 3)), dtype=torch.float32)
    graph = build_graph(rows, GraphSettings(n_neighbors=15), torch.Generator().manual_seed(0))
    got = mixing(edge_weights(graph, labels, 2))
    assert float(got[0, 1]) == pytest.approx(1.0, abs=0.1)


def test_sets_without_contact_are_not_mixed():
    rng = np.random.default_rng(0)
    labels = torch.arange(2).repeat_interleave(50)
    rows = torch.tensor(rng.normal(size=(100, 3)), dtype=torch.float32) + 100.0 * labels[:, None]
    graph = build_graph(rows, GraphSettings(n_neighbors=15), torch.Generator().manual_seed(0))
    assert mixing(edge_weights(graph, labels, 2)).tolist() == [[0.0, 0.0], [0.0, 0.0]]


def test_empty_sets_are_mixed_with_nothing():
    edges = torch.tensor([[9.0, 0.0, 1.0], [0.0, 0.0, 0.0], [1.0, 0.0, 9.0]], dtype=torch.float64)
    got = mixing(edges)
    assert bool(torch.isfinite(got).all())
    assert got[1].tolist() == got[:, 1].tolist() == [0.0, 0.0, 0.0]
    nobody = mixing(torch.zeros(2, 2, dtype=torch.float64))
    assert nobody.tolist() == [[0.0, 0.0], [0.0, 0.0]]


# Their numbers.


@given(st.integers(0, 4), st.lists(st.integers(0, 9), min_size=1, max_size=12), st.integers(0, 2**32 - 1))
def test_old_clusters_keep_their_numbers_and_new_ones_follow_by_size(n_old, raw, seed):
    # Groups in order of first members, the old ones first, as `join_components` numbers them.
    given_groups = torch.unique(
        torch.tensor([*range(n_old), *(n_old + g for g in raw)]), return_inverse=True
    )[1]
    rng = np.random.default_rng(seed)
    labels = torch.tensor(rng.integers(0, len(given_groups), 40))
    numbers = number_clusters(given_groups, labels, n_old)
    assert numbers[:n_old].tolist() == list(range(n_old))
    founded = sorted(set(numbers[n_old:].tolist()))
    assert founded == list(range(n_old, n_old + len(founded)))
    sizes = torch.bincount(numbers[labels], minlength=n_old + len(founded))[n_old:]
    assert sizes.tolist() == sorted(sizes.tolist(), reverse=True)
    same = given_groups[:, None] == given_groups
    assert torch.equal(numbers[:, None] == numbers, same)


def test_new_ones_of_few_rows_go_with_the_new_one_that_they_touch_most():
    edges = torch.diag(torch.tensor([900.0, 800.0, 700.0, 60.0, 50.0], dtype=torch.float64))
    edges[3, 0] = edges[0, 3] = 9.0  # the old one: no new kind is lost to it
    edges[3, 1] = edges[1, 3] = 2.0
    edges[3, 2] = edges[2, 3] = 1.0
    sizes = torch.tensor([100, 90, 80, 10, 9])
    assert join_components(edges, sizes, 0.9, n_old=1).tolist() == [0, 1, 2, 3, 4]
    assert join_components(edges, sizes, 0.9, n_old=1, n_least=16).tolist() == [
        0,
        1,
        2,
        1,
        3,
    ]  # the last: alone


def test_small_ones_that_are_one_have_the_rows_of_both():
    edges = edges_of([900.0, 60.0, 60.0], {(1, 2): 50.0, (0, 1): 2.0})
    assert join_components(edges, sizes_of(90, 10, 10), 0.3, n_least=16).tolist() == [0, 1, 1]
    assert join_components(edges, sizes_of(90, 5, 5), 0.3, n_least=16).tolist() == [0, 0, 0]
