"""The end of a data set: newborns find their clusters, the statistics are folded in, and rows may go."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from dbull.ledger import ArrivalReport, Newborn
from dbull.lifelong.codes import CodeMixture
from dbull.lifelong.groups import mixing, number_clusters, place_newborns
from dbull.lifelong.inference import elbo_of
from dbull.lifelong.neighbourhood import NeighbourGraph, affinity, edge_weights
from dbull.lifelong.novelty import Calibration, cluster_peak, cluster_scores, cross_scores
from dbull.lifelong.past import (
    FEWEST_ROWS,
    Imprint,
    Replay,
    encoder_fingerprint,
    pooled,
    pooled_shape,
    private_imprint_of,
)
from dbull.lifelong.settings import LearnSettings
from dbull.lifelong.state import LearnerState
from dbull.mixture.posterior import global_step, merge_gaps
from dbull.mixture.updates import Points, local_summary
from dbull.probability.normal_wishart import expected_covariance

__all__ = ["Arrival", "fold_in"]

MOST = 0.5  # share of rows that speaks for all
USUAL_STD = 2.0  # a row is usual to a cluster if it is not farther below what its own rows score


@dataclass(frozen=True)
class Arrival:
    """A data set that has been learned and is about to go."""

    values: Tensor  # (N, d)
    inputs: Tensor  # (N, n_inputs)
    codes: Tensor  # (N, D) float64
    var: Tensor | None  # of the codes, if the statistics count it
    replay: Replay | None
    graph: NeighbourGraph | None  # of the near rows and, behind them, the replayed ones
    novel_share: float | None  # rows that the clusters of the past find strange, if they can say
    n_near: int  # rows that were searched together with the past; those behind them, apart
    outlier_codes: Tensor  # (O, D) of rows that were set aside
    changed_columns: tuple[str, ...] = ()


def fold_in(
    state: LearnerState,
    mixture: CodeMixture,
    arrival: Arrival,
    s: LearnSettings,
    generator: torch.Generator,
) -> ArrivalReport:
    """Take a learned data set into the state, once, and report what that did; the ledger is left alone."""
    mixture.dissolve_unchosen(arrival.codes, arrival.var)
    placed = _place(state, mixture, arrival, s)
    rows = _Rows(arrival.inputs, mixture.labels, placed.cluster_of[mixture.labels])
    known = torch.ones(len(arrival.inputs), dtype=torch.bool)
    if s.replay == "imprints":
        newborn = ~mixture.memory.established
        known = _calibrate(state, rows, newborn, s, generator)
        if not bool(known.all()):
            var = None if arrival.var is None else arrival.var[known]
            counted = Points.from_rows(arrival.codes[known], var)
            mixture.memory.refill([local_summary(mixture.fitted.posterior, counted)])
    newborns = _newborns(state, mixture, placed)
    provisional = state.memory.ids
    final = state.memory.fold()
    ids = tuple(final[component_id] for component_id in provisional)
    state.owner = dict(zip(ids, placed.cluster_of.tolist(), strict=True))
    state.prior = mixture.fitted.prior
    _hide_small(state)
    if s.replay == "imprints":
        if state.vae.learns:
            _imprint(state.imprints, rows, known, ids, s.imprint_rank)
        else:
            state.imprint_inputs(s.imprint_rank)
    state.posterior = global_step(state.prior, state.memory.total)
    state.fingerprint = encoder_fingerprint(state.vae)
    state.n_data_sets += 1
    state.n_rows += len(arrival.inputs) + len(arrival.outlier_codes)
    if len(arrival.values):
        reached = arrival.values.double().square().mean(0).sqrt()
        state.column_rms = torch.maximum(state.column_rms, reached) if len(state.column_rms) else reached
    n_outliers = int((~known).sum()) + len(arrival.outlier_codes)
    return _report(state, arrival, newborns, n_outliers)


@dataclass(frozen=True)
class _Placed:
    """Where components belong."""

    cluster_of: Tensor  # (K,) ids; those of new clusters are the next to be given
    contact: Tensor  # (K, n_old) how much each newborn is mixed with each old cluster
    copies: frozenset[int]  # newborns that an old cluster took because it finds them usual


@dataclass(frozen=True)
class _Rows:
    """Rows and what they were assigned to."""

    inputs: Tensor
    components: Tensor  # (N,)
    clusters: Tensor  # (N,)


def _place(state: LearnerState, mixture: CodeMixture, arrival: Arrival, s: LearnSettings) -> _Placed:
    """Give each component its cluster: old ones keep theirs, newborns join one or found their own."""
    memory, old, n_old = mixture.memory, state.cluster_ids, state.n_clusters
    place = {cluster: i for i, cluster in enumerate(old)}
    known = {k: state.owner[memory.ids[k]] for k in memory.established.nonzero()[:, 0].tolist()}
    copies = {} if arrival.graph is None else _familiar_copies(state, mixture, arrival)
    node_of = torch.full((memory.n_components,), -1)
    for k, cluster in (known | copies).items():
        node_of[k] = place[cluster]
    newborn = node_of < 0
    node_of[newborn] = n_old + torch.arange(int(newborn.sum()))
    n_nodes = n_old + int(newborn.sum())
    group, contact = torch.arange(n_nodes), torch.zeros(n_nodes, n_old, dtype=torch.float64)
    if arrival.graph is not None and s.join_threshold > 0 and n_nodes > n_old:
        nodes = node_of[mixture.labels[: arrival.n_near]]
        if arrival.replay is not None:
            replayed = torch.tensor([place[c] for c in arrival.replay.clusters.tolist()], dtype=torch.int64)
            nodes = torch.cat([nodes, replayed])
        sizes = torch.bincount(nodes, minlength=n_nodes)
        contact = mixing(edge_weights(arrival.graph, nodes, n_nodes), sizes)[:, :n_old]
        near = affinity(arrival.graph.nearest(s.n_join_neighbours), nodes, n_nodes)
        group = place_newborns(near, contact, n_old, s.join_threshold, s.mixed_share)
    numbers = number_clusters(group[node_of], mixture.labels, n_old)
    n_new = max(0, int(numbers.max()) + 1 - n_old)
    given = state.ledger.ids_given
    ids = torch.tensor([*old, *range(given, given + n_new)], dtype=torch.int64)
    contact = contact[node_of]
    contact[list(copies)] = 0.0  # of these the graph says nothing
    return _Placed(ids[numbers], contact, frozenset(copies))


def _familiar_copies(state: LearnerState, mixture: CodeMixture, arrival: Arrival) -> dict[int, int]:
    """Return newborn components of copies that an old cluster finds usual, and that cluster.

    A row that comes more often than it has neighbours is the neighbour of its copies alone, so the graph says
    of a flood of them that it touches nothing. What the clusters of the past find usual decides instead.
    """
    assert arrival.graph is not None
    newborn = (~mixture.memory.established).nonzero()[:, 0].tolist()
    if not state.imprints or not newborn:
        return {}
    _, which, counts = arrival.inputs.unique(dim=0, return_inverse=True, return_counts=True)
    silent = counts[which] > arrival.graph.neighbours.shape[1]
    found = {}
    for k in newborn:
        members = mixture.labels == k
        if float(silent[members].double().mean()) < MOST:
            continue
        rows = arrival.inputs[members]
        usual = {c: _usual_share(state, c, rows) for c in state.cluster_ids}
        best = max(usual, key=lambda c: usual[c])
        if usual[best] >= MOST:
            found[k] = best
    return found


def _usual_share(state: LearnerState, cluster: int, inputs: Tensor) -> float:
    """Return the share of rows that are as a cluster's own mostly are; none if it has no scale."""
    scale = state.calibrations.get(cluster, Calibration())
    if scale.n_rows == 0:
        return 0.0
    scores = cluster_scores(inputs, state.imprints_of(cluster))
    return float((scores >= scale.threshold(USUAL_STD)).double().mean())


def _calibrate(
    state: LearnerState, rows: _Rows, newborn: Tensor, s: LearnSettings, generator: torch.Generator
) -> Tensor:
    """Bring each cluster's scale of strangeness up to date; return which rows count, (N,) bool.

    A row that an old component took although it is strange to the whole cluster counts for nothing: outliers
    would make the cluster broader, so that it takes more of them the next time.
    """
    known = torch.ones(len(rows.inputs), dtype=torch.bool)
    for cluster in rows.clusters.unique().tolist():
        members = (rows.clusters == cluster).nonzero()[:, 0]
        inputs, components = rows.inputs[members], rows.components[members]
        before = state.calibrations.get(cluster, Calibration())
        if before.n_rows == 0:
            scores, depths = cross_scores(inputs, components, s.imprint_rank, generator)
        else:
            imprints = state.imprints_of(cluster)
            scores = cluster_scores(inputs, imprints)
            usual = scores >= before.threshold(s.stranger_std)
            known[members] = usual | newborn[components]
            scores = scores[usual]
            depths = cluster_peak(imprints) - scores
        state.calibrations[cluster] = before + Calibration.of(scores, depths)
    return known


def _imprint(
    imprints: dict[int, Imprint],
    rows: _Rows,
    known: Tensor,
    ids: tuple[int, ...],
    rank: int,
) -> None:
    """Add the rows of each component to its imprint."""
    if not bool(known.any()):
        return
    shape = pooled_shape(rows.inputs[known], rows.components[known], rank)
    for k, component_id in enumerate(ids):
        members = rows.inputs[(rows.components == k) & known]
        if len(members):
            fresh = private_imprint_of(members, rank, shape)
            before = imprints.get(component_id)
            imprints[component_id] = fresh if before is None else pooled(before, fresh, rank)


def _hide_small(state: LearnerState) -> None:
    """Let components of few rows keep count and mean alone, with the covariance that is expected of any.

    The second moments of two rows are the two rows (docs/privacy.md).
    """
    overall = state.memory.overall
    small = (overall.counts > 0) & (overall.counts < FEWEST_ROWS)
    if bool(small.any()):
        expected = expected_covariance(state.prior.base)[0]
        n_rows, mean = overall.counts[small, None, None], overall.sum_z[small] / overall.counts[small, None]
        overall.sum_zz[small] = n_rows * (mean[:, :, None] * mean[:, None, :] + expected)


def _newborns(state: LearnerState, mixture: CodeMixture, placed: _Placed) -> dict[int, Newborn]:
    """Describe new clusters and what old ones took in, by cluster."""
    memory, old = mixture.memory, state.cluster_ids
    gaps = merge_gaps(mixture.fitted.prior, memory.total)
    counts = memory.total.counts
    found = {}
    newborn = (~memory.established).nonzero()[:, 0].tolist()
    for cluster in sorted({int(placed.cluster_of[k]) for k in newborn}):
        members = [k for k in newborn if int(placed.cluster_of[k]) == cluster]
        largest = max(members, key=lambda k: float(counts[k]))
        others = memory.established if cluster in old else (placed.cluster_of != cluster)
        gain = float(-gaps[largest][others].max()) if bool(others.any()) else 0.0
        contact = placed.contact[largest]
        nearest = None
        if largest in placed.copies:
            nearest = cluster
        elif len(contact) and float(contact.max()) > 0:
            nearest = old[int(contact.argmax())]
        elif bool(memory.established.any()):  # no contact: the one whose mean code is nearest
            means = memory.total.sum_z / memory.total.counts[:, None]
            apart = (means - means[largest]).square().sum(1).masked_fill(~memory.established, torch.inf)
            nearest = int(placed.cluster_of[int(apart.argmin())])
        found[cluster] = Newborn(
            n_rows=round(float(counts[members].sum())),
            elbo_gain=gain if math.isfinite(gain) else None,
            nearest=nearest,
            mixing=float(contact.max()) if len(contact) else 0.0,
            n_components=len(members),
            copies=largest in placed.copies,
        )
    return found


def _report(
    state: LearnerState, arrival: Arrival, newborns: dict[int, Newborn], n_outliers: int
) -> ArrivalReport:
    """Tell what the data set did: rows of each cluster as `predict` tells them, births, growths."""
    codes = torch.cat([arrival.codes, arrival.outlier_codes])
    ids, counts = state.assign(codes).unique(return_counts=True)
    return ArrivalReport(
        rows=dict.fromkeys(state.cluster_ids, 0) | dict(zip(ids.tolist(), counts.tolist(), strict=True)),
        weights=dict(zip(state.cluster_ids, state.weights.clamp(max=1.0).tolist(), strict=True)),
        born={cluster: newborn for cluster, newborn in newborns.items() if cluster not in state.ledger},
        grown={cluster: newborn for cluster, newborn in newborns.items() if cluster in state.ledger},
        novel_share=arrival.novel_share,
        n_outliers=n_outliers,
        elbo=elbo_of(state, arrival.values, arrival.inputs, arrival.codes),
        changed_columns=arrival.changed_columns,
    )
