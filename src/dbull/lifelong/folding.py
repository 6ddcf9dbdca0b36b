"""The end of a data set: its statistics are folded in, once, and its rows may go."""

import copy
import math
from dataclasses import dataclass, replace
from functools import cache

import torch
from torch import Tensor

from dbull.ledger import ArrivalReport, Newborn
from dbull.lifelong.codes import CodeMixture
from dbull.lifelong.inference import bounds_of, elbo_of
from dbull.lifelong.novelty import Calibration, cluster_peak, cluster_scores, cross_scores
from dbull.lifelong.past import (
    FEWEST_ROWS,
    IMPRINT_RANK,
    Imprint,
    encoder_fingerprint,
    pooled,
    pooled_shape,
    private_imprint_of,
)
from dbull.lifelong.placing import Arrival, Placed, placed_components
from dbull.lifelong.settings import LearnSettings, PastSettings
from dbull.lifelong.state import LearnerState
from dbull.mixture.memory import StatsMemory
from dbull.mixture.posterior import global_step, merge_gaps
from dbull.mixture.prior import MixturePrior
from dbull.mixture.stats import SufficientStats
from dbull.mixture.updates import local_summary
from dbull.probability.normal_wishart import expected_covariance


def fold_in(
    state: LearnerState,
    fit: CodeMixture,
    arrival: Arrival,
    settings: LearnSettings,
    generator: torch.Generator,
) -> tuple[LearnerState, ArrivalReport, Tensor]:
    """Return the state with a learned data set taken in, once, what that did, and which rows count."""
    s = settings.past
    placed = placed_components(state, fit, arrival, settings.graph)
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


@dataclass(frozen=True)
class _Rows:
    """Rows and what they were assigned to."""

    inputs: Tensor
    components: Tensor  # (N,)
    clusters: Tensor  # (N,)


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
    state: LearnerState, fit: CodeMixture, memory: StatsMemory, placed: Placed
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
