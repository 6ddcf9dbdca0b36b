"""The beginning of a stream: what the first rows were like is kept, as means of a few, until they are many.

A hundred rows show two or three clusters of ten, and a hundred more of the same kinds do not look strange to
these: what the first rows are too few to tell would never be told. So while a stream is young, a learner
keeps means of small groups of neighbouring rows. Whenever twice as many rows are known as when clusters were
last sought from nothing, they are sought from nothing again, on these means and the rows at hand, and with
networks and scales of their own. What is found takes the place of what was known if it tells enough more.
Ids go on: a cluster is the one of which it holds most rows.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from dbull.ledger import ArrivalReport, Newborn
from dbull.lifelong.few_rows import MOST_ALONE, FewRows
from dbull.lifelong.inference import elbo_of, encode_rows
from dbull.lifelong.neighbourhood import neighbours_for
from dbull.lifelong.novelty import SUPPORT, sort_rows
from dbull.mixture.posterior import global_step
from dbull.mixture.updates import local_step

if TYPE_CHECKING:
    from dbull.lifelong.settings import LearnSettings
    from dbull.lifelong.state import LearnerState

YOUNG = 1000  # rows up to which a stream has only begun
ENOUGH = 128  # rows of a first data set, which show by themselves what there is
FEWEST_SOUGHT = 32  # rows from which it is worth while to look again
FEWEST_NEIGHBOURS = 8  # of a mean, but for a third of all
JOIN = 0.5  # times as mixed as usual: few rows lie in lumps
NEWS = 0.5  # bits that the clusters found must tell of a row beyond those known


def settings_for(known: FewRows, usual: LearnSettings) -> LearnSettings:
    """Return how to learn the means: each counts for its rows, and has as many times fewer neighbours."""
    per_mean = known.n_rows / len(known.means)
    graph, mixture = replace(usual.graph, join=JOIN * usual.graph.join), usual.mixture
    if graph.n_neighbors is None:
        fewest = max(2, min(FEWEST_NEIGHBOURS, len(known.means) // 3))
        n_neighbors = max(fewest, round(neighbours_for(known.n_rows) / per_mean))
        graph = replace(graph, n_neighbors=n_neighbors)
    mixture = replace(mixture, most_weight=mixture.most_weight * per_mean)
    return replace(usual, graph=graph, mixture=mixture)


def begun(before: LearnerState, rows: Tensor, settings: LearnSettings) -> FewRows | None:
    """Return all rows of a stream that has only begun, those at hand among them; None if it has not.

    Where rows are of another scale, or so many that they show what there is by themselves, it is over; and
    where a person has named, retired or merged clusters: what was decided is not decided again.
    """
    learns_so = settings.past.replay == "imprints" and settings.past.novelty and settings.graph.join > 0
    if not learns_so or settings.training.freeze or before.n_pretrain_rows:
        return None
    if before.n_data_sets == 0:
        if len(rows) >= ENOUGH:
            return None
        return replace(FewRows.none(rows).followed_by(rows), n_tried=len(rows))
    told = (before.ledger[cluster] for cluster in before.cluster_ids)
    if before.beginning is None or any(one.name is not None or one.status != "active" for one in told):
        return None
    if len(rows) >= YOUNG and not too_few(before):
        return None
    if before.beginning.n_rows >= FEWEST_SOUGHT:  # fewer do not tell a scale
        parts = sort_rows(before, before.view.inputs(before.view.values(rows)), settings.past.outlier_std)
        if len(parts.far):
            return None
    return before.beginning.followed_by(rows)


def too_few(before: LearnerState) -> bool:
    """Tell whether a learner has seen too few rows to know on which scale the data are."""
    return before.beginning is not None and before.beginning.n_rows < SUPPORT


def goes_on(before: LearnerState, everything: FewRows) -> bool:
    """Tell whether each known cluster has rows among the means, which show where it goes on."""
    assert before.beginning is not None
    known = labels_of(before, everything.means[: len(before.beginning.means)])
    return set(known.tolist()) == set(before.cluster_ids)


def grown_up(known: FewRows, state: LearnerState, n_latest: int) -> FewRows | None:
    """Return the rows as they wait for the next data set; None if the stream is young no longer.

    If they were due, clusters have been sought in them. The `n_latest` that came last are at least two to a
    group, unless they came almost alone.
    """
    if known.n_rows >= YOUNG:
        return None
    if known.due(FEWEST_SOUGHT):
        known = replace(known, n_tried=known.n_rows)
    if n_latest < SUPPORT and int((known.counts == 1).sum()) <= MOST_ALONE:
        return known
    return known.pooled(state.view)


def news(known: Tensor, found: Tensor, counts: Tensor) -> float:
    """Return how many bits labels that were found tell of a row whose known label is told, on average."""
    pairs = torch.stack([known, found], dim=1).unique(dim=0, return_inverse=True)[1]
    share, given = (torch.bincount(which, counts) / counts.sum() for which in (pairs, _numbered(known)))
    return float(torch.special.entr(share).sum() - torch.special.entr(given).sum()) / math.log(2)


def _numbered(labels: Tensor) -> Tensor:
    numbered: Tensor = labels.unique(return_inverse=True)[1]
    return numbered


def labels_of(state: LearnerState, rows: Tensor) -> Tensor:
    """Return the id of the cluster of each row, (N,)."""
    inputs = state.view.inputs(state.view.values(rows))
    return state.assign(encode_rows(state.vae, inputs)[0])


def renewed(
    before: LearnerState,
    found: LearnerState,
    everything: FewRows,
    rows: Tensor,
    reports: tuple[ArrivalReport, ArrivalReport],
) -> tuple[LearnerState, ArrivalReport]:
    """Let what was found in all rows of a stream take the place of what was known.

    Parameters
    ----------
    before
        The learner before the data set at hand, whose ids go on.
    found
        What came of learning everything from nothing, lonely rows left out.
    everything
        Means of earlier rows and, behind them, those at hand.
    rows
        The data set at hand.
    reports
        Of learning it on top of what was known, and of learning everything.
    """
    usual, anew = reports
    n_past = len(before.beginning.means) if before.beginning is not None else 0
    now, past_counts = labels_of(found, everything.means), everything.counts[:n_past]
    shared = torch.zeros(len(before.cluster_ids), found.n_clusters, dtype=torch.float64)
    places = torch.searchsorted(
        torch.tensor(before.cluster_ids), labels_of(before, everything.means[:n_past])
    )
    shared.index_put_((places, now[:n_past]), past_counts, accumulate=True)
    id_of, merges = continued(before.cluster_ids, shared)
    totals = torch.bincount(now, everything.counts, minlength=found.n_clusters)
    newborn = sorted((j for j in range(found.n_clusters) if j not in id_of), key=lambda j: -float(totals[j]))
    ledger = copy.deepcopy(before.ledger)
    id_of |= {j: ledger.ids_given + i for i, j in enumerate(newborn)}
    parents = {}
    for j in newborn:
        if float(shared[:, j].sum()) > 0:
            parent = before.cluster_ids[int(shared[:, j].argmax())]
            while parent in merges:
                parent = merges[parent]
            parents[id_of[j]] = parent
    state = _as_the_next(before, found, everything, id_of, rows)
    values = state.view.values(rows)
    inputs = state.view.inputs(values)
    codes = encode_rows(state.vae, inputs)[0]
    ids, counts = state.assign(codes).unique(return_counts=True)
    born = {
        id_of[j]: Newborn(
            n_rows=round(float(totals[j])),
            elbo_gain=anew.born[j].elbo_gain,
            nearest=parents.get(id_of[j]),
            mixing=0.0,
            n_components=anew.born[j].n_components,
        )
        for j in newborn
    }
    report = replace(
        usual,
        rows=dict.fromkeys(state.cluster_ids, 0) | dict(zip(ids.tolist(), counts.tolist(), strict=True)),
        weights=dict(zip(state.cluster_ids, state.weights.clamp(max=1.0).tolist(), strict=True)),
        born=born,
        grown={},
        elbo=elbo_of(state, values, inputs, codes),
        graph_index=anew.graph_index,
        seconds=usual.seconds + anew.seconds,
    )
    gone = dict.fromkeys(merges, 0)
    ledger.record(
        replace(report, rows=report.rows | gone, weights=report.weights | dict.fromkeys(merges, 0.0))
    )
    for newer, older in sorted(merges.items(), reverse=True):
        ledger.merged(older, newer)
    known = {id_of[j]: round(float(totals[j])) for j in range(found.n_clusters)}
    ledger.redistribute(known, {child: (parent,) for child, parent in parents.items()})
    state.ledger = ledger
    return state, report


def continued(ids: tuple[int, ...], shared: Tensor) -> tuple[dict[int, int], dict[int, int]]:
    """Return the id of each cluster that goes on under one, and the older id of each that does not go on.

    `shared` are the rows that each of `ids`, oldest first, has in common with each cluster found, (C, F). The
    pair with most is matched first. What is left without a cluster lives on where most of its rows are; of
    two ids there the older one stays.
    """
    id_of: dict[int, int] = {}
    merges: dict[int, int] = {}
    free = shared.clone()
    while free.numel() and float(free.max()) > 0:
        c, f = divmod(int(free.argmax()), shared.shape[1])
        id_of[f] = ids[c]
        free[c], free[:, f] = 0.0, 0.0
    for c, one in enumerate(ids):
        if one in id_of.values() or one in merges:
            continue
        f = int(shared[c].argmax())
        other = id_of.setdefault(f, one)
        if other != one:
            merges[max(one, other)] = id_of[f] = min(one, other)
    return id_of, merges


def _as_the_next(
    before: LearnerState,
    found: LearnerState,
    everything: FewRows,
    id_of: Mapping[int, int],
    rows: Tensor,
) -> LearnerState:
    """Return what was found with ids that follow those given before, and counts of rows instead of means."""
    behind = before.memory.next_id
    # Each component counts for the rows that its means stand for.
    inputs = found.view.inputs(found.view.values(everything.means))
    nearest = found.by_chunks(local_step, encode_rows(found.vae, inputs)[0]).argmax(1)
    n_rows, n_means = (
        torch.bincount(nearest, counts, minlength=found.memory.n_components)
        for counts in (everything.counts, torch.ones_like(everything.counts))
    )
    times = n_rows.clamp_min(1.0) / n_means.clamp_min(1.0)
    memory = replace(
        found.memory.coarse(),
        overall=found.memory.overall.each(lambda part: part * times.reshape(-1, *[1] * (part.dim() - 1))),
        ids=tuple(i + behind for i in found.memory.ids),
        next_id=found.memory.next_id + behind,
        n_given=found.memory.n_given + behind,
    )
    times_of = dict(zip(found.memory.ids, times.tolist(), strict=True))
    imprints = {
        i + behind: replace(imprint, n_rows=times_of[i] * imprint.n_rows)
        for i, imprint in found.imprints.items()
    }
    return replace(
        found,
        memory=memory,
        posterior=global_step(found.prior, memory.total),
        owner={i + behind: id_of[cluster] for i, cluster in found.owner.items()},
        imprints=imprints,
        calibrations={id_of[cluster]: scale for cluster, scale in found.calibrations.items()},
        n_data_sets=before.n_data_sets + 1,
        n_rows=before.n_rows + len(rows),
    )
