"""Clusters as groups of components: hand-made graphs, and what holds for any graph."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dbull.lifelong.groups import join_components, number_clusters, place_newborns, shared_edges
from dbull.lifelong.neighbourhood import NeighbourGraph, affinity


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
