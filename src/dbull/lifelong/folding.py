"""The end of a data set: newborns find their clusters, the statistics are folded in, and rows may go."""

import copy
import math
from dataclasses import dataclass, replace
from functools import cache

import torch
from torch import Tensor

from dbull.ledger import ArrivalReport, Newborn
from dbull.lifelong.codes import CodeMixture
from dbull.lifelong.groups import AMONG_OLD, join_components, lowered, mixing, number_clusters
from dbull.lifelong.inference import bounds_of, elbo_of
from dbull.lifelong.neighbourhood import NeighbourGraph, edge_weights
from dbull.lifelong.novelty import Calibration, cluster_peak, cluster_scores, cross_scores
from dbull.lifelong.past import (
    FEWEST_ROWS,
    IMPRINT_RANK,
    Imprint,
    Replay,
    encoder_fingerprint,
    pooled,
    pooled_shape,
    private_imprint_of,
)
from dbull.lifelong.settings import GraphSettings, LearnSettings, PastSettings
from dbull.lifelong.state import LearnerState
from dbull.mixture.memory import StatsMemory
from dbull.mixture.posterior import global_step, merge_gaps
from dbull.mixture.prior import MixturePrior
from dbull.mixture.stats import SufficientStats
from dbull.mixture.updates import Points, local_summary
from dbull.probability.normal_wishart import expected_covariance

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


def fold_in(
    state: LearnerState,
    fit: CodeMixture,
    arrival: Arrival,
    settings: LearnSettings,
    generator: torch.Generator,
) -> tuple[LearnerState, ArrivalReport, Tensor]:
    """Return the state with a learned data set taken in, once, what that did, and which rows count."""
    s = settings.past
    placed = _place(state, fit, arrival, settings.graph)
    rows = _Rows(arrival.inputs, fit.labels, placed.cluster_of[fit.labels])
    counted = torch.ones(len(arrival.inputs), dtype=torch.bool)
    calibrations, memory = state.calibrations, fit.memory.coarse()
    if s.replay == "imprints":
        calibrations, counted = _calibrated(state, rows, ~memory.established, s, generator)
        if not bool(counted.all()):
            some = arrival.points.take(counted.nonzero()[:, 0])
            memory.refill([local_summary(fit.posterior, some)])
    newborns = _newborns(state, fit, memory, placed)
    final = memory.fold()  # sorts the components; `ids` and `placed` stay in the order of `fit`
    ids = tuple(final[component_id] for component_id in fit.memory.ids)
    memory.overall = without_small_shapes(memory.overall, fit.prior)
    reached = state.column_rms
    if len(arrival.values):
        reached = arrival.values.double().square().mean(0).sqrt()
        reached = torch.maximum(state.column_rms, reached) if len(state.column_rms) else reached
    state = replace(
        state,
        memory=memory,
        prior=fit.prior,
        posterior=global_step(fit.prior, memory.total),
        owner=dict(zip(ids, placed.cluster_of.tolist(), strict=True)),
        calibrations=calibrations,
        imprints=dict(state.imprints),
        fingerprint=encoder_fingerprint(state.vae),
        n_data_sets=state.n_data_sets + 1,
        n_rows=state.n_rows + arrival.n_rows,
        column_rms=reached,
        ledger=copy.deepcopy(state.ledger),
        beginning=None,  # whoever goes on with these says so
        waiting=None,
    )
    if s.replay == "imprints" and state.vae.learns:
        _imprint(state.imprints, rows, counted, ids)
    elif s.replay == "imprints":
        state.imprint_inputs()
    elif s.by_bounds and state.vae.learns:
        state.calibrations = _calibrated_by_bounds(state, rows, arrival)
    n_outliers = int((~counted & arrival.own).sum()) + len(arrival.outlier_codes)
    report = _report(state, arrival, newborns, n_outliers)
    state.ledger.record(report)
    return state, report, counted


def out_of_contact(
    state: LearnerState,
    fit: CodeMixture,
    graph: NeighbourGraph,
    replay: Replay,
    silent: Tensor,
    threshold: float,
) -> Tensor:
    """Return which rows old clusters took although they are in no contact with them, (N,).

    Rows that one cluster took have the same number, from 1 on; the others have 0. What is mixed less than
    pieces of one cluster are is no part of it, whatever the densities say: a broad component reaches far. Of
    silent rows, (N,) bool, the graph says nothing.
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
    apart = contact.diagonal(n_old)[:n_old] < threshold
    apart &= torch.bincount(taken, minlength=n_old + 1)[:n_old] > graph.neighbours.shape[1]
    number = torch.where(apart, apart.cumsum(0), 0)
    return torch.cat([number, number.new_zeros(1)])[taken]


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


def _place(state: LearnerState, fit: CodeMixture, arrival: Arrival, s: GraphSettings) -> _Placed:
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
    return _Placed(ids[numbers], contact, frozenset(copies))


def _familiar_copies(state: LearnerState, fit: CodeMixture, arrival: Arrival) -> dict[int, int]:
    """Return newborn components of copies that an old cluster finds usual, and that cluster.

    A row that comes more often than it has neighbours is the neighbour of its copies alone, so the graph says
    of a flood of them that it touches nothing. What the clusters of the past find usual decides instead.
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


def _calibrated(
    state: LearnerState, rows: _Rows, newborn: Tensor, s: PastSettings, generator: torch.Generator
) -> tuple[dict[int, Calibration], Tensor]:
    """Return each cluster's scale of strangeness brought up to date, and which rows count, (N,) bool.

    A row that an old component took although it is strange to the whole cluster counts for nothing: outliers
    would make the cluster broader, so that it takes more of them the next time.
    """
    counted = torch.ones(len(rows.inputs), dtype=torch.bool)
    calibrations = dict(state.calibrations)
    for cluster in rows.clusters.unique().tolist():
        members = (rows.clusters == cluster).nonzero()[:, 0]
        inputs, components = rows.inputs[members], rows.components[members]
        before = calibrations.get(cluster, Calibration())
        if before.n_rows == 0:
            scores, depths = cross_scores(inputs, components, IMPRINT_RANK, generator)
        else:
            usual, scores, depths = usual_rows(state, cluster, inputs, s.outlier_std)
            counted[members] = usual | newborn[components]
        calibrations[cluster] = before + Calibration.of(scores, depths)
    return calibrations, counted


def usual_rows(
    state: LearnerState, cluster: int, inputs: Tensor, n_std: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Return which rows (N, d) are usual to a cluster with a scale, (N,) bool; their scores and depths."""
    imprints = state.imprints_of(cluster)
    scores, peak = cluster_scores(inputs, imprints), cluster_peak(imprints)
    usual = scores >= state.calibrations[cluster].threshold(n_std, None if state.vae.learns else peak)
    return usual, scores[usual], peak - scores[usual]


def _calibrated_by_bounds(state: LearnerState, rows: _Rows, arrival: Arrival) -> dict[int, Calibration]:
    """Return which bounds are usual in each cluster: those that rows had before they were learned.

    Rows of a new cluster have none that are worth anything, so theirs are those after.
    """
    after = bounds_of(state, arrival.values, arrival.inputs)
    calibrations = dict(state.calibrations)
    for cluster in rows.clusters.unique().tolist():
        mine = rows.clusters == cluster
        # The ledger does not know the data set yet, so what it does not have was born now.
        scores = after if arrival.bounds is None or cluster not in state.ledger else arrival.bounds
        scores = scores[mine]
        more = Calibration(float(len(scores)), float(scores.sum()), float(scores.square().sum()))
        calibrations[cluster] = calibrations.get(cluster, Calibration()) + more
    return calibrations


def _imprint(imprints: dict[int, Imprint], rows: _Rows, counted: Tensor, ids: tuple[int, ...]) -> None:
    """Add the rows of each component to its imprint."""
    if not bool(counted.any()):
        return
    shape = cache(lambda: pooled_shape(rows.inputs[counted], rows.components[counted], IMPRINT_RANK))
    for k, component_id in enumerate(ids):
        members = rows.inputs[(rows.components == k) & counted]
        if len(members):
            before = imprints.get(component_id)
            if before is not None and len(members) < FEWEST_ROWS:  # too few to change its shape
                fresh = replace(before, n_rows=float(len(members)), mean=members.mean(0))
            else:
                fresh = private_imprint_of(members, IMPRINT_RANK, shape)
            imprints[component_id] = fresh if before is None else pooled(before, fresh, IMPRINT_RANK)


def without_small_shapes(overall: SufficientStats, prior: MixturePrior) -> SufficientStats:
    """Let components of few rows keep count and mean alone, with the covariance that is expected of any.

    The second moments of two rows are the two rows (docs/privacy.md).
    """
    small = (overall.counts > 0) & (overall.counts < FEWEST_ROWS)
    if not bool(small.any()):
        return overall
    n_rows, mean = overall.counts[small, None, None], overall.sum_z[small] / overall.counts[small, None]
    squares = overall.sum_zz.clone()
    squares[small] = n_rows * (mean[:, :, None] * mean[:, None, :] + expected_covariance(prior.base)[0])
    return replace(overall, sum_zz=squares)


def _newborns(
    state: LearnerState, fit: CodeMixture, memory: StatsMemory, placed: _Placed
) -> dict[int, Newborn]:
    """Describe new clusters and what old ones took in, by cluster, from the statistics that count."""
    old = state.cluster_ids
    gaps = merge_gaps(fit.prior, memory.total)
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
    own = arrival.own
    codes = torch.cat([arrival.codes[own], arrival.outlier_codes])
    ids, counts = state.assign(codes).unique(return_counts=True)
    return ArrivalReport(
        rows=dict.fromkeys(state.cluster_ids, 0) | dict(zip(ids.tolist(), counts.tolist(), strict=True)),
        weights=dict(zip(state.cluster_ids, state.weights.clamp(max=1.0).tolist(), strict=True)),
        # The ledger does not know the data set yet, so what it does not have was born now.
        born={cluster: newborn for cluster, newborn in newborns.items() if cluster not in state.ledger},
        grown={cluster: newborn for cluster, newborn in newborns.items() if cluster in state.ledger},
        novel_share=arrival.novel_share,
        n_outliers=n_outliers,
        elbo=elbo_of(state, arrival.values[own], arrival.inputs[own], arrival.codes[own]),
        changed_columns=arrival.changed_columns,
        graph_index="" if arrival.graph is None else arrival.graph.index,
    )
