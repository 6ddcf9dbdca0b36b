"""Arrivals that are never in memory as a whole: what each block of rows adds to a learner, as a record.

A sample of the arrival is learned first (learn.py). What this makes, networks and components and clusters, is
the trial; under it each block of rows gives its statistics, sketches and calibrations, with nothing that
depends on any other block. Their sum takes the place of what the sample had brought: see `finished`. Rows
that every cluster finds strange come along, a bounded number of them. Those that keep to themselves are
learned as a further data set, which makes the next trial, and all blocks are gone through again: a lap.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components
from torch import Tensor

from dbull.lifelong.folding import usual_rows, without_small_shapes
from dbull.lifelong.inference import encode_rows
from dbull.lifelong.neighbourhood import build_graph
from dbull.lifelong.novelty import (
    FEWEST_SEEN,
    LEVERAGE,
    Calibration,
    Strangeness,
    cluster_scores,
    strangeness,
)
from dbull.lifelong.past import IMPRINT_RANK, Imprint, Past, encoder_fingerprint, pooled
from dbull.lifelong.settings import GraphSettings, LearnSettings
from dbull.lifelong.sketches import Sketch, pooled_shape_of, summed
from dbull.lifelong.state import LearnerState
from dbull.mixture.posterior import global_step
from dbull.mixture.stats import SufficientStats
from dbull.mixture.updates import Points, local_summary, most_probable

PIECE_ROWS = 1 << 14  # rows in memory at once on the way to a record
MOST_STRANGE = 2000  # rows that are kept of those that every cluster finds strange


def tickets(seed: int, block: int, first: int, n_rows: int) -> Tensor:
    """Return a number of each row of a block, as if drawn at random, (n,) int64 from 0 on.

    A hash of seed, block and row (the finaliser of splitmix64: Steele, Lea and Flood 2014): the rows with the
    smallest numbers are a sample, whoever looks at which block, and when.
    """
    with np.errstate(over="ignore"):
        place = np.arange(first, first + n_rows, dtype=np.uint64)
        mixed = _mixed(_mixed(_mixed(np.array(seed, dtype=np.uint64)) + np.uint64(block)) + place)
    return torch.from_numpy((mixed >> np.uint64(1)).astype(np.int64))


def _mixed(x: np.ndarray) -> np.ndarray:
    x = x + np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed: np.ndarray = x ^ (x >> np.uint64(31))
    return mixed


@dataclass(frozen=True)
class StrangeRows:
    """Rows that every cluster finds strange: half of those kept are the strangest, half drawn by ticket."""

    rows: Tensor  # (S, d) as the learner gets them
    depths: Tensor  # (S,) how far below the peak of a cluster, in units of what is still usual there
    tickets: Tensor  # (S,)

    def __add__(self, other: StrangeRows) -> StrangeRows:
        both = zip(vars(self).values(), vars(other).values(), strict=True)
        return StrangeRows(*(torch.cat(parts) for parts in both)).fewest()

    def fewest(self) -> StrangeRows:
        """Return those that are kept; of those of two records the same are kept as of both together."""
        if len(self.rows) <= MOST_STRANGE // 2:
            return self
        by_ticket = self.tickets.argsort(stable=True)
        by_depth = by_ticket[self.depths[by_ticket].argsort(descending=True, stable=True)]
        half = MOST_STRANGE // 2
        kept = torch.cat([by_ticket[:half], by_depth[:half]]).unique()
        return StrangeRows(*(part[kept] for part in vars(self).values()))


@dataclass(frozen=True)
class Added:
    """What rows add to a learner; records add up."""

    n_rows: int
    n_outliers: int  # rows that count for nothing else here
    stats: SufficientStats  # by component of the trial
    squares: Tensor  # (d,) float64, sums over all rows but outliers that are set aside
    n_squared: int  # these rows
    sketches: dict[int, Sketch]  # by id of component; none without networks
    calibrations: dict[int, Calibration]  # by cluster of the past
    strange: StrangeRows

    def __add__(self, other: Added) -> Added:
        return Added(
            self.n_rows + other.n_rows,
            self.n_outliers + other.n_outliers,
            self.stats + other.stats,
            self.squares + other.squares,
            self.n_squared + other.n_squared,
            _merged(self.sketches, other.sketches),
            _merged(self.calibrations, other.calibrations),
            self.strange + other.strange,
        )


def _merged(a: dict[int, Any], b: dict[int, Any]) -> dict[int, Any]:
    return {key: a[key] + b[key] if key in a and key in b else a.get(key, b.get(key)) for key in {**a, **b}}


class Lap:
    """What is the same for all blocks of a lap: the learner before the arrival, and the trial."""

    def __init__(self, before: LearnerState, trial: LearnerState, settings: LearnSettings, n_rows: int):
        self.before, self.trial, self.settings, self.n_rows = before, trial, settings, n_rows
        none = trial.view.inputs(trial.view.values(torch.zeros(0, trial.vae.shape.n_values)))
        seen = strangeness(trial, none)
        assert seen is not None, "only what keeps imprints is learned in blocks"
        self._seen: Strangeness = seen
        n_std, scales = settings.past.outlier_std, zip(seen.scales, seen.peaks, strict=True)
        robust = torch.tensor([s.robust_threshold(n_std, p) for s, p in scales], dtype=torch.float64)
        self._limits = torch.maximum(seen.thresholds(n_std), robust)
        self._means = torch.stack([trial.imprints[i].mean for i in trial.memory.ids]).to(torch.float64)
        self._newborn = torch.tensor([i not in before.owner for i in trial.memory.ids])

    def added(self, rows: Tensor, drawn: Tensor) -> Added:
        """Return what rows (N, d) with their tickets (N,) add."""
        pieces = zip(rows.split(PIECE_ROWS), drawn.split(PIECE_ROWS), strict=True)
        total: Added = summed(self._piece(*piece) for piece in pieces)
        return total

    def usual(self, rows: Tensor) -> Tensor:
        """Return which rows (N, d) are usual to some cluster, (N,) bool."""
        view, found = self.trial.view, torch.ones(len(rows), dtype=torch.bool)
        inputs = view.inputs(view.values(rows))
        points = Points.from_rows(encode_rows(self.trial.vae, inputs)[0])
        clusters = self.trial.cluster_of[most_probable(self.trial.posterior, points)]
        found[self._strange(inputs, clusters)[0]] = False
        return found

    def _piece(self, rows: Tensor, drawn: Tensor) -> Added:
        trial, past = self.trial, self.settings.past
        values = trial.view.values(rows)
        inputs = trial.view.inputs(values)
        codes, var = encode_rows(trial.vae, inputs)
        with_var = self.settings.use_encoder_variance and trial.vae.learns
        points = Points.from_rows(codes, var if with_var else None)
        labels = most_probable(trial.posterior, points)
        clusters = trial.cluster_of[labels]
        counted = torch.ones(len(rows), dtype=torch.bool)
        calibrations = {}
        for cluster in clusters.unique().tolist():
            if self.before.calibrations.get(cluster, Calibration()).n_rows == 0:
                continue
            mine = (clusters == cluster).nonzero()[:, 0]
            usual, *scored = usual_rows(self.before, cluster, inputs[mine], past.outlier_std)
            counted[mine] = usual | self._newborn[labels[mine]]
            calibrations[cluster] = Calibration.of(*scored)
        strange, depths = self._strange(inputs, clusters)
        # A row so far away that it moves what a million others say is set aside.
        away = torch.cdist(inputs[strange].to(torch.float64), self._means).square().amin(1)
        aside = strange[away > LEVERAGE * inputs.shape[1] * max(self.n_rows, FEWEST_SEEN)]
        counted[aside] = False
        taken = counted.nonzero()[:, 0]
        sketches = {}
        if trial.vae.learns:
            for k in labels[taken].unique().tolist():
                sketches[trial.memory.ids[k]] = Sketch.of(inputs[taken[labels[taken] == k]])
        near = torch.ones(len(rows), dtype=torch.bool)
        near[aside] = False
        return Added(
            len(rows),
            len(rows) - len(taken),
            local_summary(trial.posterior, points if len(taken) == len(rows) else points.take(taken)),
            values[near].to(torch.float64).square().sum(0),
            int(near.sum()),
            sketches,
            calibrations,
            StrangeRows(rows[strange], depths, drawn[strange]).fewest(),
        )

    def _strange(self, inputs: Tensor, clusters: Tensor) -> tuple[Tensor, Tensor]:
        """Return the rows that every cluster finds strange, and how deep they lie, (S,) each.

        Nearly all rows are usual to the cluster that they are told to; only the others are looked at again.
        """
        unusual = torch.zeros(len(inputs), dtype=torch.bool)
        for place, cluster in enumerate(self._seen.clusters):
            mine = (clusters == cluster).nonzero()[:, 0]
            if len(mine):
                scores = cluster_scores(inputs[mine], self.trial.imprints_of(cluster))
                unusual[mine] = scores < self._limits[place]
        rows = unusual.nonzero()[:, 0]
        if len(rows) == 0:
            return rows, torch.zeros(0, dtype=torch.float64)
        parts = [cluster_scores(inputs[rows], self.trial.imprints_of(c)) for c in self._seen.clusters]
        scores = torch.stack(parts, dim=1)
        peaks = torch.tensor(self._seen.peaks, dtype=torch.float64)
        depths = ((peaks - scores) / (peaks - self._limits).clamp_min(1e-12)).amin(1)
        strange = (scores < self._limits).all(1)
        return rows[strange], depths[strange]


def gathered(
    strange: Tensor, usual: Tensor, n_rows: int, settings: GraphSettings, generator: torch.Generator
) -> Tensor:
    """Return which strange rows, inputs (S, d), keep to themselves among usual ones (U, d): their indices.

    The outskirts of a cluster are strange too, but their neighbours are its own rows. Who has mostly strange
    rows for neighbours, each usual one standing for its share of the `n_rows` of the arrival, and is one of
    more that are each other's neighbours than a row has neighbours, may be of a new kind.
    """
    nobody = torch.zeros(0, dtype=torch.int64)
    if len(strange) < 2:
        return nobody
    graph = build_graph(torch.cat([strange, usual]), settings, generator)
    n_strange, k = len(strange), graph.neighbours.shape[1]
    neighbours = graph.neighbours[:n_strange]
    n_alike = (neighbours < n_strange).sum(1)
    apart = n_alike > (k - n_alike) * (n_rows / max(len(usual), 1))
    kept = (neighbours < n_strange) & apart[:, None]
    one = torch.arange(n_strange)[:, None].expand(-1, k)[kept].numpy()
    edges = csr_array((np.ones(len(one)), (one, neighbours[kept].numpy())), (n_strange, n_strange))
    edges = edges.multiply(edges.T)  # a row far from all has neighbours, but is nobody's
    parts = torch.from_numpy(connected_components(edges, directed=False)[1]).to(torch.int64)
    found = [
        members
        for part in parts[apart].unique().tolist()
        if len(members := (parts == part).nonzero()[:, 0]) > k and len(strange[members].unique(dim=0)) > k
    ]
    return torch.cat(found).sort().values if found else nobody


def finished(
    before: LearnerState, trial: LearnerState, added: Added, settings: LearnSettings
) -> LearnerState:
    """Return the learner after an arrival: made as the trial is, from the past and what all rows add.

    The ledger is still that of the trial, which took the sample for the arrival.
    """
    learns = trial.vae.learns
    generator = before.new_generator()
    past = before.memory.overall
    if learns and before.n_data_sets and settings.past.carry:
        past = Past(before, settings.past.replay, generator).carried(trial.vae)
    place = {component: i for i, component in enumerate(before.memory.ids)}
    index = torch.tensor([place.get(component, len(place)) for component in trial.memory.ids])
    memory = replace(
        trial.memory.coarse(), current=added.stats, overall=past.with_empty(1).select(index.to(torch.int64))
    )
    memory.fold()
    memory.overall = without_small_shapes(memory.overall, trial.prior)
    reached = (added.squares / max(added.n_squared, 1)).sqrt()
    known = {cluster: scale for cluster, scale in before.calibrations.items() if scale.n_rows}
    state = replace(
        trial,
        memory=memory,
        posterior=global_step(trial.prior, memory.total),
        n_data_sets=before.n_data_sets + 1,
        n_rows=before.n_rows + added.n_rows,
        calibrations=trial.calibrations | _merged(known, added.calibrations),
        fingerprint=encoder_fingerprint(trial.vae),
        column_rms=torch.maximum(before.column_rms, reached) if len(before.column_rms) else reached,
    )
    if learns:
        state.imprints = dict(_imprints(before, trial, added))
    else:
        state.imprint_inputs()
    return state


def _imprints(before: LearnerState, trial: LearnerState, added: Added) -> Iterator[tuple[int, Imprint]]:
    """Yield the imprint of each component: of the past, of now, or of both."""
    shape = pooled_shape_of(added.sketches.values(), trial.view.n_inputs)
    for component in trial.memory.ids:
        kept = before.imprints.get(component)
        if component in added.sketches:
            fresh = added.sketches[component].imprint(shape)
            yield component, fresh if kept is None else pooled(kept, fresh, IMPRINT_RANK)
        else:  # no row chose it this time
            yield component, trial.imprints[component] if kept is None else kept
