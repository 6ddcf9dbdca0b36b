"""Clusters as groups of components: hand-made graphs, and what holds for any graph."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dbull.lifelong.groups import join_components, mixing, number_clusters, place_newborns, shared_edges
from dbull.lifelong.neighbourhood import NeighbourGraph, affinity, build_graph, edge_weights
from dbull.lifelong.settings import GraphSettings


def weights_of(within, between):
    """Symmetric weights from a diagonal and a dict of pairs."""
    weights = torch.diag(torch.tensor(within, dtype=torch.float64))
    for (a, b), weight in between.items():
        weights[a, b] = weights[b, a] = weight
    return weights


def test_share_is_of_the_one_with_less():
    shared = shared_edges(weights_of([90.0, 6.0], {(0, 1): 4.0}))
    assert shared.tolist() == [[0.0, 0.4], [0.4, 0.0]]  # 4 of the 10 of the second


def test_shares_leave_the_weights_as_they_are():
    weights = weights_of([90.0, 6.0], {(0, 1): 4.0})
    before = weights.clone()
    shared_edges(weights)
    join_components(weights, 0.1)
    assert torch.equal(weights, before)


@pytest.mark.parametrize(("threshold", "expected"), [(0.39, [0, 0]), (0.4, [0, 0]), (0.41, [0, 1])])
def test_the_threshold_itself_joins(threshold, expected):
    assert join_components(weights_of([90.0, 6.0], {(0, 1): 4.0}), threshold).tolist() == expected


def test_two_pieces_and_a_stranger():
    weights = weights_of([50.0, 50.0, 50.0], {(0, 2): 20.0, (1, 2): 0.1})
    assert join_components(weights, 0.05).tolist() == [0, 1, 0]


def test_a_chain_is_one_group():
    weights = weights_of([10.0] * 4, {(0, 1): 5.0, (1, 2): 5.0, (2, 3): 5.0})
    assert join_components(weights, 0.1).tolist() == [0, 0, 0, 0]


def test_the_joined_ones_go_on_as_one():
    """0 and 1 join first; then what was enough for 1 alone is too little for the two together."""
    weights = weights_of([100.0, 4.0, 100.0], {(0, 1): 4.0, (1, 2): 2.0})
    assert float(shared_edges(weights)[1, 2]) == 0.2  # of 10
    assert join_components(weights, 0.1).tolist() == [0, 0, 1]  # 2 of 102


def test_joining_can_bring_pairs_over_the_threshold():
    """Two small pieces each share too little with a third; together enough of the smaller side."""
    weights = weights_of([20.0, 20.0, 20.0], {(0, 1): 10.0, (0, 2): 1.5, (1, 2): 1.5})
    assert float(shared_edges(weights)[0, 2]) < 0.1
    assert join_components(weights, 0.12).tolist() == [0, 0, 0]  # 3 of the 23 of the third


def test_apart_stays_apart_also_through_a_third():
    weights = weights_of([10.0] * 3, {(0, 1): 8.0, (1, 2): 7.0})
    apart = torch.zeros(3, 3, dtype=torch.bool)
    apart[2, 0] = True  # one side of the pair is enough
    assert join_components(weights, 0.01).tolist() == [0, 0, 0]
    assert join_components(weights, 0.01, apart).tolist() == [0, 0, 1]
    assert apart.sum() == 1  # what was given is not changed


def test_components_without_edges_stay_alone():
    assert join_components(torch.zeros(3, 3, dtype=torch.float64), 0.01).tolist() == [0, 1, 2]
    assert join_components(torch.ones(1, 1, dtype=torch.float64), 0.01).tolist() == [0]


@st.composite
def graphs(draw):
    n = draw(st.integers(1, 8))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    weights = rng.exponential(size=(n, n)) * (rng.random((n, n)) < 0.6)
    weights = weights + weights.T + np.diag(rng.exponential(5.0, n))
    apart = np.triu(rng.random((n, n)) < draw(st.sampled_from([0.0, 0.3])), 1)
    return torch.tensor(weights), torch.tensor(apart)


@given(graphs(), st.floats(1e-3, 1.0))
def test_a_partition_numbered_by_first_members(graph, threshold):
    weights, apart = graph
    group = join_components(weights, threshold, apart).tolist()
    firsts = [group.index(g) for g in sorted(set(group))]
    assert sorted(set(group)) == list(range(len(firsts)))
    assert firsts == sorted(firsts)
    for a, b in apart.nonzero().tolist():
        assert group[a] != group[b]


@given(graphs(), st.floats(1e-3, 1.0), st.floats(1e-3, 1.0))
def test_a_higher_threshold_only_refines(graph, one, other):
    """Joins happen in the same order whatever the threshold, so the groups of a higher one lie within."""
    low, high = sorted((one, other))
    coarse, fine = join_components(graph[0], low), join_components(graph[0], high)
    assert len(set(fine.tolist())) >= len(set(coarse.tolist()))
    assert len(set(zip(coarse.tolist(), fine.tolist(), strict=True))) == len(set(fine.tolist()))


@given(graphs(), st.floats(1e-3, 1.0))
def test_what_is_left_shares_too_little(graph, threshold):
    weights = graph[0]
    group = join_components(weights, threshold)
    n = int(group.max()) + 1
    member = (group[:, None] == torch.arange(n)).double()
    left = shared_edges(member.T @ weights @ member)
    assert (left < threshold + 1e-9).all()


def joined(graph, labels, n_components, threshold):
    """Clusters of components when all are newborn, as they are in a first data set."""
    near = affinity(graph, labels, n_components)
    contact = torch.zeros(n_components, 0, dtype=torch.float64)
    return number_clusters(place_newborns(near, contact, 0, threshold, 0.2), labels, 0)


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
    group = join_components(affinity(graph, labels, 4), 0.5)
    assert group.tolist() == [0, 1, 2, 0]


# How much one set lies among another.


def test_mixing_by_hand():
    """Of 10 rows against 30: 20 edges to the other, 60 within; a share of 1/4 where 3/4 is expected."""
    edges = torch.tensor([[60.0, 20.0], [5.0, 195.0]], dtype=torch.float64)
    got = mixing(edges, torch.tensor([10, 30]))
    want = [[0.0, (20 / 80) / (30 / 40)], [(5 / 200) / (10 / 40), 0.0]]
    torch.testing.assert_close(got, torch.tensor(want, dtype=torch.float64))


@pytest.mark.parametrize("sizes", [(300, 300), (300, 20), (20, 300)])
def test_one_set_cut_at_random_is_mixed_whatever_the_sizes(sizes):
    rng = np.random.default_rng(0)
    labels = torch.tensor(rng.permutation(np.repeat([0, 1], sizes)))
    rows = torch.tensor(rng.normal(size=(sum(sizes), 3)), dtype=torch.float32)
    graph = build_graph(rows, GraphSettings(n_neighbors=15), torch.Generator().manual_seed(0))
    got = mixing(edge_weights(graph, labels, 2), torch.tensor(sizes))
    np.testing.assert_allclose([float(got[0, 1]), float(got[1, 0])], 1.0, atol=0.25)


def test_sets_without_contact_are_not_mixed():
    rng = np.random.default_rng(0)
    labels = torch.arange(2).repeat_interleave(50)
    rows = torch.tensor(rng.normal(size=(100, 3)), dtype=torch.float32) + 100.0 * labels[:, None]
    graph = build_graph(rows, GraphSettings(n_neighbors=15), torch.Generator().manual_seed(0))
    assert mixing(edge_weights(graph, labels, 2), torch.tensor([50, 50])).tolist() == [[0.0, 0.0], [0.0, 0.0]]


def test_empty_sets_are_mixed_with_nothing():
    edges = torch.tensor([[9.0, 0.0, 1.0], [0.0, 0.0, 0.0], [1.0, 0.0, 9.0]], dtype=torch.float64)
    got = mixing(edges, torch.tensor([4, 0, 4]))
    assert bool(torch.isfinite(got).all())
    assert got[1].tolist() == got[:, 1].tolist() == [0.0, 0.0, 0.0]
    nobody = mixing(torch.zeros(2, 2, dtype=torch.float64), torch.tensor([0, 0]))
    assert nobody.tolist() == [[0.0, 0.0], [0.0, 0.0]]


# Where newborns go.


@st.composite
def arrivals(draw):
    """Weights between old clusters and newborns, and how much newborns are mixed with the old ones."""
    weights, _ = draw(graphs())
    n = len(weights)
    n_old = draw(st.integers(0, n))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    return weights, torch.tensor(rng.uniform(0, 0.5, (n, n_old))), n_old


@given(arrivals(), st.floats(1e-3, 1.0), st.floats(0.0, 0.5))
def test_old_clusters_are_never_joined_and_keep_their_places(arrival, threshold, mixed):
    weights, contact, n_old = arrival
    group = place_newborns(weights, contact, n_old, threshold, mixed)
    assert group[:n_old].tolist() == list(range(n_old))
    for newborn in range(n_old, len(weights)):
        home = int(group[newborn])
        if home < n_old:
            assert float(contact[newborn, home]) >= mixed


@given(arrivals(), st.floats(1e-3, 1.0))
def test_newborns_that_are_mixed_with_none_join_only_each_other(arrival, threshold):
    weights, contact, n_old = arrival
    group = place_newborns(weights, contact, n_old, threshold, 0.6)
    assert bool((group[n_old:] >= n_old).all())
    if n_old == 0:
        assert torch.equal(group, join_components(weights, threshold))


def test_a_newborn_joins_the_old_one_it_is_mixed_with():
    """It touches both; with the first it only shares a border."""
    weights = weights_of([100.0, 100.0, 20.0], {(0, 2): 8.0, (1, 2): 4.0})
    contact = torch.tensor([[0.0, 0.0], [0.0, 0.0], [0.1, 0.9]], dtype=torch.float64)
    assert place_newborns(weights, contact, 2, 0.1, 0.2).tolist() == [0, 1, 1]
    assert place_newborns(weights, contact, 2, 0.1, 0.05).tolist() == [0, 1, 0]  # more edges to the first
    assert place_newborns(weights, contact, 2, 0.1, 0.95).tolist() == [0, 1, 2]
    assert place_newborns(weights, contact, 2, 0.5, 0.2).tolist() == [0, 1, 2]  # edges decide, too


@pytest.mark.parametrize(("edges", "want"), [(20.0, [0, 0, 1]), (5.0, [0, 1, 1])])
def test_a_strange_newborn_is_not_taken_along_by_another(edges, want):
    """The first newborn is mixed with the old cluster, the second only touches the first: no bridge.

    Who shares more with the first decides where it goes.
    """
    weights = weights_of([100.0, 20.0, 20.0], {(0, 1): edges, (1, 2): 9.0})
    contact = torch.tensor([[0.0], [0.9], [0.0]], dtype=torch.float64)
    assert place_newborns(weights, contact, 1, 0.1, 0.2).tolist() == want


@given(st.integers(0, 4), st.lists(st.integers(0, 9), min_size=1, max_size=12), st.integers(0, 2**32 - 1))
def test_old_clusters_keep_their_numbers_and_new_ones_follow_by_size(n_old, raw, seed):
    # Groups in order of first members, the old ones first, as `place_newborns` numbers them.
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
