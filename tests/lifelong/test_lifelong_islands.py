"""Islands of the graph become components, however few their rows are; copies and old components do not."""

from dataclasses import replace

import numpy as np
import torch

from dbull import DBULL
from dbull.lifelong.codes import CodeMixture
from dbull.lifelong.neighbourhood import build_graph, islands_of
from dbull.lifelong.settings import GraphSettings
from dbull.mixture.memory import StatsMemory
from dbull.mixture.posterior import global_step
from dbull.mixture.prior import adapted_prior
from dbull.mixture.updates import Points, summarize


def heaps(sizes, seed=0, n_dims=4):
    """Return heaps of rows 50 apart, and the heap of each row."""
    rng = np.random.default_rng(seed)
    which = np.repeat(np.arange(len(sizes)), sizes)
    rows = rng.normal(size=(len(which), n_dims))
    rows[:, 0] += 50.0 * which
    return torch.from_numpy(rows), torch.from_numpy(which)


def one_component(rows, established=False):
    """Return a mixture in which one component holds everything."""
    points = Points.from_rows(rows)
    memory = StatsMemory.empty(rows.shape[1])
    memory.add_components(1)
    everything = summarize(torch.zeros(len(rows), 1, dtype=torch.float64), points)
    memory.refill([everything])
    memory.established[:] = established
    prior = adapted_prior(everything)
    labels = torch.zeros(len(rows), dtype=torch.int64)
    fit = CodeMixture(memory, prior, global_step(prior, everything), 0.0, labels, torch.ones(len(rows), 1))
    return fit, points


def graph_of(rows):
    return build_graph(rows.float(), GraphSettings(n_neighbors=5), torch.Generator().manual_seed(0))


def test_islands_are_far_parts_of_the_graph_but_the_largest():
    rows, which = heaps((40, 30, 50))
    islands = islands_of(graph_of(rows), rows.float(), 6)
    assert bool((islands[which == 2] == 0).all())
    assert torch.equal(islands[:, None] == islands, which[:, None] == which)


def test_a_part_that_is_no_farther_than_neighbours_elsewhere_is_no_island():
    """Two heaps that no edge joins, beside rows that are as far from each other as the two are."""
    rows, which = heaps((60, 60, 60))
    rows[which == 1, 0] -= 40.0  # ten away from the first heap
    rows[which == 2, 1:] *= 20.0  # a wide heap: neighbours are farther than that
    graph = graph_of(rows)
    islands = islands_of(graph, rows.float(), 6)
    assert bool((graph.neighbours[which == 0] < 60).all())  # yet they are connected parts
    assert bool((islands[which < 2] == 0).all())
    assert bool((islands_of(graph, rows.float(), 61) == 0).all())


def test_each_whole_island_but_the_largest_gets_a_component():
    rows, which = heaps((200, 20, 30))
    fit, points = one_component(rows)
    divided = fit.apart(which, 16, points)
    assert divided.memory.n_components == 3
    assert torch.equal(divided.labels[:, None] == divided.labels, which[:, None] == which)
    counts = divided.memory.current.counts
    assert sorted(counts.tolist()) == [20.0, 30.0, 200.0]
    torch.testing.assert_close(divided.memory.current.sum_z.sum(0), rows.sum(0))


def test_few_rows_copies_and_old_components_stay():
    rows, which = heaps((200, 15))
    fit, points = one_component(rows)
    assert fit.apart(which, 16, points) is fit  # too few
    rows, which = heaps((200, 40))
    rows[which == 1] = rows[which == 1][:1]
    fit, points = one_component(rows)
    assert fit.apart(which, 16, points) is fit  # copies
    rows, which = heaps((200, 40))
    fit, points = one_component(rows, established=True)
    assert fit.apart(which, 16, points) is fit  # an old component has rows that are not here


def test_a_component_that_is_no_first_choice_has_no_islands():
    rows, which = heaps((200, 40))
    fit, points = one_component(rows)
    memory = fit.memory.coarse()
    memory.add_components(1)
    thin = torch.tensor([[0.9, 0.1]]).expand(len(rows), 2)
    memory.refill([summarize(thin.double().log(), points)])
    both = replace(fit, memory=memory, posterior=global_step(fit.prior, memory.total), responsibilities=thin)
    assert both.apart(which, 16, points).memory.n_components == 3


def test_fifty_rows_far_from_twenty_thousand_are_a_cluster():
    rng = np.random.default_rng(10)
    rows = rng.normal(size=(20_050, 8))
    rows[:50, 0] += 15.0
    labels = DBULL(random_state=10).fit(rows).labels_
    assert len(set(labels[:50])) == 1
    assert labels[0] not in labels[50:]


def test_tight_heaps_are_all_found():
    rng = np.random.default_rng(10)
    which = np.repeat(np.arange(6), 100)
    rows = (10.0 * rng.normal(size=(6, 8)))[which] + 0.1 * rng.normal(size=(600, 8))
    labels = DBULL(random_state=10).fit(rows).labels_
    assert len(set(zip(which, labels, strict=True))) == 6 == len(set(labels))
