"""Which cluster a component belongs to: an old one, one with other newborns, or one of its own."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from dbull.lifelong.codes import CodeMixture
from dbull.lifelong.groups import AMONG_OLD, join_components, lowered, mixing, number_clusters
from dbull.lifelong.neighbourhood import NeighbourGraph, edge_weights
from dbull.lifelong.novelty import strangeness
from dbull.lifelong.past import Replay
from dbull.lifelong.settings import GraphSettings
from dbull.lifelong.state import LearnerState
from dbull.mixture.updates import Points

CONTACT = 0.1  # mixing with an old cluster below which rows are no part of it, however fine clusters are
MOST = 0.5  # share of rows that speaks for all
USUAL_STD = 3.0  # a row is usual to a cluster if it is not farther below what its own rows score


@dataclass(frozen=True)
class Arrival:
    """A data set that has been learned and is about to go."""

    values: Tensor  # (N, d)
    inputs: Tensor  # (N, n_inputs)
    codes: Tensor  # (N, D) float64
    points: Points  # the codes as the statistics count them
    replay: Replay | None
    graph: NeighbourGraph | None  # of the near rows and, behind them, the replayed ones, among their codes
    novel_share: float | None  # rows that the clusters of the past find strange, if they can say
    n_near: int  # rows that were searched together with the past; those behind them, apart
    outlier_codes: Tensor  # (O, D) of rows that were set aside
    own: Tensor  # (N,) bool, which rows are of the data set; others came before, and have waited
    bounds: Tensor | None = None  # (N,) of rows before they were learned, if these say what is usual
    changed_columns: tuple[str, ...] = ()

    @property
    def n_rows(self) -> int:
        """All rows, outliers among them."""
        return int(self.own.sum()) + len(self.outlier_codes)


@dataclass(frozen=True)
class Placed:
    """Where components belong."""

    cluster_of: Tensor  # (K,) ids; those of new clusters are the next to be given
    contact: Tensor  # (K, n_old) how much each newborn is mixed with each old cluster
    copies: frozenset[int]  # newborns that an old cluster took because it finds them usual


def placed_components(state: LearnerState, fit: CodeMixture, arrival: Arrival, s: GraphSettings) -> Placed:
    """Give each component its cluster: old ones keep theirs, newborns join one or found their own."""
    memory, old, n_old = fit.memory, state.cluster_ids, state.n_clusters
    place = {cluster: i for i, cluster in enumerate(old)}
    known = {k: state.owner[memory.ids[k]] for k in memory.established.nonzero()[:, 0].tolist()}
    copies = {} if arrival.graph is None else _familiar_copies(state, fit, arrival)
    node_of = torch.full((memory.n_components,), -1)
    for k, cluster in (known | copies).items():
        node_of[k] = place[cluster]
    newborn = node_of < 0
    node_of[newborn] = n_old + torch.arange(int(newborn.sum()))
    n_nodes = n_old + int(newborn.sum())
    group, contact = torch.arange(n_nodes), torch.zeros(n_nodes, n_old, dtype=torch.float64)
    if arrival.graph is not None and s.join > 0 and n_nodes > n_old:
        nodes = node_of[fit.labels[: arrival.n_near]]
        if arrival.replay is not None:
            replayed = torch.tensor([place[c] for c in arrival.replay.clusters.tolist()], dtype=torch.int64)
            nodes = torch.cat([nodes, replayed])
        sizes = torch.bincount(nodes, minlength=n_nodes)
        edges = edge_weights(arrival.graph, nodes, n_nodes)
        contact = mixing(edges)[:, :n_old]
        n_least = arrival.graph.neighbours.shape[1] + 1
        # Without a layout there are no lumps but those of the data.
        join = lowered(edges, s.join, n_old) if state.vae.learns else s.join
        group = join_components(edges, sizes, join, n_old, n_least, AMONG_OLD * s.join)
    numbers = number_clusters(group[node_of], fit.labels, n_old)
    n_new = max(0, int(numbers.max()) + 1 - n_old)
    given = state.ledger.ids_given
    ids = torch.tensor([*old, *range(given, given + n_new)], dtype=torch.int64)
    contact = contact[node_of]
    contact[list(copies)] = 0.0  # of these the graph says nothing
    return Placed(ids[numbers], contact, frozenset(copies))


def _familiar_copies(state: LearnerState, fit: CodeMixture, arrival: Arrival) -> dict[int, int]:
    """Return newborn components of copies that their nearest old cluster finds usual, and that cluster.

    A row that comes more often than it has neighbours is the neighbour of its copies alone, so the graph says
    of a flood of them that it touches nothing. Densities decide instead, as they do what is new: a broad
    cluster finds much usual that it is not the nearest to.
    """
    assert arrival.graph is not None
    newborn = (~fit.memory.established).nonzero()[:, 0].tolist()
    if not state.imprints or not newborn:
        return {}
    _, which, counts = arrival.inputs.unique(dim=0, return_inverse=True, return_counts=True)
    silent = counts[which] > arrival.graph.neighbours.shape[1]
    found = {}
    for k in newborn:
        members = fit.labels == k
        if float(silent[members].double().mean()) < MOST:
            continue
        seen = strangeness(state, arrival.inputs[members])
        if seen is None:
            return {}
        nearest = int(seen.scores.argmax(1).mode().values)
        usual = seen.scores[:, nearest] >= seen.thresholds(USUAL_STD)[nearest]
        if float(usual.double().mean()) >= MOST:
            found[k] = seen.clusters[nearest]
    return found


def out_of_contact(
    state: LearnerState,
    fit: CodeMixture,
    graph: NeighbourGraph,
    replay: Replay,
    silent: Tensor,
    join: float,
) -> Tensor:
    """Return which rows old clusters took although they are in no contact with them, (N,).

    Rows that one cluster took have the same number, from 1 on; the others have 0. What is mixed less than
    pieces of one cluster are, from `join` on, is no part of it, whatever the densities say: a broad component
    reaches far. Of silent rows, (N,) bool, the graph says nothing.
    """
    place, n_old = {cluster: i for i, cluster in enumerate(state.cluster_ids)}, state.n_clusters
    known = [
        place[state.owner[i]] if old else n_old
        for i, old in zip(fit.memory.ids, fit.memory.established.tolist(), strict=True)
    ]
    taken = torch.tensor(known)[fit.labels]
    taken[silent] = n_old
    replayed = torch.tensor([place[c] for c in replay.clusters.tolist()])
    contact = mixing(edge_weights(graph, torch.cat([n_old + taken, replayed]), 2 * n_old + 1))
    apart = contact.diagonal(n_old)[:n_old] < min(join, CONTACT)
    apart &= torch.bincount(taken, minlength=n_old + 1)[:n_old] > graph.neighbours.shape[1]
    number = torch.where(apart, apart.cumsum(0), 0)
    return torch.cat([number, number.new_zeros(1)])[taken]
