"""Rows that an old cluster took although the graph knows of no contact between the two."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from dbull import DBULL
from dbull.lifelong import learn as module
from dbull.lifelong.codes import CodeSearch
from dbull.lifelong.neighbourhood import NeighbourGraph
from dbull.lifelong.placing import out_of_contact

N_OWN, N_REPLAYED, K = 60, 60, 5


def graph_of(among):
    """Rows 0 to 29 and 30 to 59 of a data set, 60 to 89 and 90 to 119 replayed: halves know their own alone.

    But for `among`, (half, replayed half): these know each other as well as themselves.
    """
    random = np.random.default_rng(0)
    known = {half: [half] for half in range(4)}
    for one, other in among:
        known[one].append(other)
        known[other].append(one)
    neighbours = np.stack(
        [
            random.choice(
                [i for h in known[row // 30] for i in range(30 * h, 30 * h + 30) if i != row], K, False
            )
            for row in range(N_OWN + N_REPLAYED)
        ]
    )
    return NeighbourGraph(torch.tensor(neighbours), torch.full(neighbours.shape, 0.9))


def strangers(graph, components, established=(True, True, False), silent=None, threshold=0.1):
    """Clusters 7 and 3 of components 0 and 1, of which rows 60 to 89 and 90 to 119 are replayed."""
    state = SimpleNamespace(cluster_ids=[7, 3], n_clusters=2, owner={10: 7, 11: 3, 12: 7})
    memory = SimpleNamespace(ids=(10, 11, 12), established=torch.tensor(established))
    fit = SimpleNamespace(memory=memory, labels=torch.tensor(components))
    replay = SimpleNamespace(clusters=torch.tensor([7] * 30 + [3] * 30))
    silent = torch.zeros(N_OWN, dtype=torch.bool) if silent is None else silent
    return out_of_contact(state, fit, graph, replay, silent, threshold).tolist()


def test_rows_among_those_of_their_cluster_stay():
    graph = graph_of([(0, 2), (1, 3)])
    assert strangers(graph, [0] * 30 + [1] * 30) == [0] * 60
    # Where clusters are to be finer, more must be mixed to be joined; what is known stays known.
    assert strangers(graph, [0] * 30 + [1] * 30, threshold=5.0) == [0] * 60


def test_rows_without_contact_to_their_cluster_go_together():
    graph = graph_of([(0, 2)])
    assert strangers(graph, [0] * 30 + [1] * 30) == [0] * 30 + [1] * 30
    assert strangers(graph_of([]), [0] * 30 + [1] * 30) == [1] * 30 + [2] * 30


def test_contact_with_another_cluster_is_none():
    graph = graph_of([(0, 3), (1, 2)])
    assert strangers(graph, [0] * 30 + [1] * 30) == [1] * 30 + [2] * 30


def test_components_of_one_cluster_are_one():
    graph = graph_of([(0, 2)])  # half of the rows of cluster 7 are mixed with it
    assert strangers(graph, [0] * 30 + [2] * 30, (True, True, True)) == [0] * 60
    assert strangers(graph_of([]), [0] * 30 + [2] * 30, (True, True, True)) == [1] * 60


def test_newborns_few_and_silent_rows_are_left_alone():
    graph = graph_of([])
    assert strangers(graph, [2] * 60) == [0] * 60  # of no old cluster
    few = [0] * K + [2] * (60 - K)
    assert strangers(graph, few) == [0] * 60
    assert strangers(graph, [0] * (K + 1) + [2] * (59 - K)) == [1] * (K + 1) + [0] * (59 - K)
    assert strangers(graph, [0] * 60, silent=torch.ones(N_OWN, dtype=torch.bool)) == [0] * 60
    assert strangers(graph, [0] * 60, threshold=0.0) == [0] * 60


@pytest.mark.parametrize("usually", [0.0, 0.9])
def test_what_an_old_cluster_swallowed_founds_its_own(usually, monkeypatch):
    """A search that has no births leaves a new kind to the old clusters; the graph does not."""
    search = CodeSearch.__call__

    def without_births(self, fit, points, births=True):
        return search(self, fit, points, births and not fit.memory.established.any())

    monkeypatch.setattr(CodeSearch, "__call__", without_births)
    random = np.random.default_rng(0)
    centres = 6 * random.normal(size=(3, 12))
    first = np.concatenate([centres[k] + random.normal(size=(150, 12)) for k in (0, 1)])
    second = np.concatenate([centres[k] + random.normal(size=(150, 12)) for k in (1, 2)])
    model = DBULL(random_state=0, epochs=5).fit(first)
    assert model.n_clusters_ == 2
    model.state_.alone_usually = usually  # where most rows are alone, the graph cannot tell
    known = model.predict(first)
    model.partial_fit(second)
    if usually > module.TELLING:
        assert model.n_clusters_ == 2
        return
    assert model.n_clusters_ == 3
    assert (model.predict(first) == known).mean() > 0.98
    new = model.predict(second[150:])
    assert (new == 2).mean() > 0.98
