"""Which rows of a data set may change what was learned before: the rest is set aside or learned apart.

One row that is a thousand times too large would set the scale for all others, and a data set in other units
would teach the networks nothing but those units. So rows are sorted before anything is learned from them:

near        learned as always
far         beyond all that the first data were like, but enough of them to be something: the networks are not
            trained on them, and they are searched for clusters apart from the near ones
outliers    strange to every cluster, able to move them all, and alone: counted, and nothing else
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from dbull.lifelong.imprint import Imprint
from dbull.lifelong.neighbourhood import nearest_neighbours
from dbull.lifelong.novelty import Calibration, cluster_peak, cluster_scores, novel_share
from dbull.lifelong.state import LearnerState

__all__ = ["SUPPORT", "Strangeness", "Triage", "changed_columns", "is_far", "sort_rows", "strangeness"]

FAR = 30.0  # root mean square input from which a row is far; inputs of the first data have variance 1
LEVERAGE = 0.1  # part of all variance seen so far that one row may bring
FEWEST_SEEN = 100  # rows that the past counts for at least
SUPPORT = 5  # rows that are something together; one fewer is nothing
NOVEL_STD = 2.0
HUNDREDFOLD = 100.0


@dataclass(frozen=True)
class Strangeness:
    """What the clusters of the past make of rows, in input space."""

    clusters: tuple[int, ...]
    scores: Tensor  # (N, C) log densities
    peaks: tuple[float, ...]  # highest log density of each cluster
    scales: tuple[Calibration, ...]

    def thresholds(self, n_std: float) -> Tensor:
        """Return the score of each cluster below which a row is strange to it, (C,).

        A cluster of few rows has no scale of its own; it gets the most generous of the others', measured from
        its peak. Without it all that is new would go to the smallest cluster and be strange to nobody.
        """
        own = torch.tensor([scale.threshold(n_std) for scale in self.scales], dtype=torch.float64)
        peaks = torch.tensor(self.peaks, dtype=torch.float64)
        depths = (peaks - own)[own.isfinite()]
        return torch.where(own.isfinite(), own, peaks - depths.max()) if len(depths) else own

    def novel_share(self, rows: Tensor | None = None) -> float:
        """Return the share of rows that even their best cluster finds strange."""
        scores = self.scores if rows is None else self.scores[rows]
        return novel_share(scores, self.thresholds(NOVEL_STD))

    def strange_to_all(self, n_std: float) -> Tensor:
        """Return which rows every cluster finds strange, (N,) bool."""
        return (self.scores < self.thresholds(n_std)).all(1)

    def share_beyond(self, clusters: Tensor) -> Tensor:
        """Return the share of the own rows of each row's cluster that are as strange or stranger, (N,)."""
        shares = [scale.share_beyond(self.scores[:, i], self.peaks[i]) for i, scale in enumerate(self.scales)]
        places = torch.searchsorted(torch.tensor(self.clusters), clusters)
        return torch.stack(shares, dim=1).gather(1, places[:, None])[:, 0]


@dataclass(frozen=True)
class Triage:
    """Rows of a data set by what may be learned from them, as indices."""

    near: Tensor
    far: Tensor
    outliers: Tensor
    novel_share: float | None  # of all rows; None if the past cannot say
    near_novel_share: float

    @classmethod
    def all_near(cls, n_rows: int, novel: float | None) -> Triage:
        """Return the triage where nothing is to be compared with."""
        none = torch.zeros(0, dtype=torch.int64)
        return cls(torch.arange(n_rows), none, none, novel, 1.0)


def strangeness(state: LearnerState, inputs: Tensor) -> Strangeness | None:
    """Return what the clusters make of inputs (N, d); None if they kept too little to say."""
    if not state.imprints or not state.imprints.keys() >= set(state.memory.ids):
        return None
    clusters = state.cluster_ids
    imprints = [state.imprints_of(c) for c in clusters]
    return Strangeness(
        clusters,
        torch.stack([cluster_scores(inputs, parts) for parts in imprints], dim=1),
        tuple(map(cluster_peak, imprints)),
        tuple(state.calibrations.get(c, Calibration()) for c in clusters),
    )


def sort_rows(state: LearnerState, inputs: Tensor, n_std: float) -> Triage:
    """Sort the rows of a further data set, inputs (N, d); strange is what lies `n_std` below the usual."""
    seen = strangeness(state, inputs)
    if seen is None:
        return _by_size(inputs)
    strange = seen.strange_to_all(n_std)
    # Rounded differences of huge inputs would not tell rows apart.
    wide = inputs.to(torch.float64)
    means = torch.stack([state.imprints[i].mean for i in state.memory.ids]).to(torch.float64)
    away = torch.cdist(wide, means).square().amin(1)
    leverage = away / (inputs.shape[1] * max(state.n_rows, FEWEST_SEEN))
    suspicious = (strange & (leverage > LEVERAGE)).nonzero()[:, 0]
    outlier = torch.zeros(len(inputs), dtype=torch.bool)
    outlier[suspicious] = ~_supported(wide, strange.nonzero()[:, 0], suspicious, away)
    far = (wide.square().mean(1) > FAR**2) & ~outlier
    near = (~far & ~outlier).nonzero()[:, 0]
    novel = seen.novel_share(near) if len(near) and int(strange[near].sum()) >= SUPPORT else 0.0
    return Triage(near, far.nonzero()[:, 0], outlier.nonzero()[:, 0], seen.novel_share(), novel)


def _by_size(inputs: Tensor) -> Triage:
    """Sort rows where clusters cannot say what is strange: a few that are far are outliers."""
    huge = inputs.double().square().mean(1) > FAR**2
    if int(huge.sum()) in (0, *range(SUPPORT, len(inputs) + 1)):
        return Triage.all_near(len(inputs), None)
    near, outliers = (~huge).nonzero()[:, 0], huge.nonzero()[:, 0]
    return Triage(near, near[:0], outliers, None, 1.0)


def changed_columns(state: LearnerState, rows: Tensor) -> list[int]:
    """Return columns of rows (N, d) that are a hundred times larger or smaller than in any data set before.

    Larger: most rows lie so far from the middle of the first data. Smaller: their root mean square is so much
    smaller; not for pixels and words, which may well be nearly absent. Few rows say nothing.
    """
    if len(rows) < SUPPORT or len(state.column_rms) == 0:
        return []
    view = state.view
    typical = view.values(rows).double().abs().median(0).values
    changed = typical > HUNDREDFOLD * state.column_rms
    if state.kind == "dense":
        before = (view.shift.double().square() + (view.scale.double() * state.column_rms).square()).sqrt()
        now = rows.double().square().mean(0).sqrt()
        changed |= (now > 0) & (HUNDREDFOLD * now < before)
    return (changed & (state.column_rms > 0)).nonzero()[:, 0].tolist()


def is_far(imprint: Imprint) -> bool:
    """Tell whether the rows of a component are far."""
    return float((imprint.mean.double().square() + imprint.variance).mean()) > FAR**2


def _supported(rows: Tensor, strange: Tensor, suspicious: Tensor, away: Tensor) -> Tensor:
    """Return which suspicious rows have others nearer than half way to what is known, (S,) bool."""
    if len(strange) < SUPPORT or len(suspicious) == 0:
        return torch.zeros(len(suspicious), dtype=torch.bool)
    squared, _ = nearest_neighbours(rows[strange], SUPPORT - 1)
    reach = torch.full((len(rows),), torch.inf, dtype=torch.float64)
    reach[strange] = squared[:, -1].to(torch.float64)
    return reach[suspicious] <= away[suspicious] / 4
