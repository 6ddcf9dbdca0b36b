"""How strange a row is to the clusters of the past, and which rows of a data set may change them.

A cluster keeps count, sum and sum of squares of the log densities that its own rows had when they were new to
it, and a histogram of how far below the cluster's peak they were. A row is an outlier when its log density is
several standard deviations below what is usual there. Scores are made in input space, which does not move, so
they stay comparable over the whole stream.

One row that is a thousand times too large would set the scale for all others, and a data set in other units
would teach the networks nothing but those units. So rows are sorted before anything is learned from them:

near        learned as always
far         beyond all that the first data were like, but enough of them to be something: the networks are not
            trained on them, and they are searched for clusters apart from the near ones
outliers    strange to every cluster, able to move them all, and alone: answered, and nothing else
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from dbull.lifelong.inference import bounds_of, encode_rows
from dbull.lifelong.neighbourhood import nearest_neighbours
from dbull.lifelong.past import FAR, Imprint, imprint_of, log_densities

if TYPE_CHECKING:
    from dbull.lifelong.state import LearnerState

FEWEST_CROSS_FITTED = 8  # of a component on one side of a cross-fit
MOST_ROWS = 2000  # that a calibration is made from at once
BINS_PER_DOUBLING = 16  # of the histogram of depths; bins are 4 % wide
SHALLOWEST = 2.0**-4  # nats below the peak, the upper end of the first bin
LEVERAGE = 0.1  # part of all variance seen so far that one row may bring
FEWEST_SEEN = 100  # rows that the past counts for at least
SUPPORT = 5  # rows that are something together; one fewer is nothing
NOVEL_STD = 2.0
ONE_STD_SHARE = 0.8413  # of a normal distribution, up to one standard deviation above the mean
HUNDREDFOLD = 100.0


@dataclass(frozen=True)
class Calibration:
    """What scores are usual in a cluster, as statistics that add up."""

    n_rows: float = 0.0
    total: float = 0.0
    total_squares: float = 0.0
    depths: Mapping[int, int] = field(default_factory=dict)  # bin of the depth below the peak -> rows

    @classmethod
    def of(cls, scores: Tensor, depths: Tensor) -> Calibration:
        """Return the record of some scores, and how far below the cluster's peak they are."""
        bins, counts = _bin_of(depths).floor().to(torch.int64).unique(return_counts=True)
        rows_of = dict(zip(bins.tolist(), counts.tolist(), strict=True))
        return cls(float(len(scores)), float(scores.sum()), float(scores.square().sum()), rows_of)

    def __add__(self, other: Calibration) -> Calibration:
        bins = sorted({*self.depths, *other.depths})
        return Calibration(
            self.n_rows + other.n_rows,
            self.total + other.total,
            self.total_squares + other.total_squares,
            {b: self.depths.get(b, 0) + other.depths.get(b, 0) for b in bins},
        )

    def shifted(self, by: float) -> Calibration:
        """Return the record of the same rows if each score were higher by this much."""
        squares = self.total_squares + 2 * by * self.total + self.n_rows * by**2
        return Calibration(self.n_rows, self.total + self.n_rows * by, squares, self.depths)

    def threshold(self, n_std: float, peak: float | None = None) -> float:
        """Return the score `n_std` standard deviations below the usual one; minus infinity if none is.

        Depths below the peak of a Gaussian of few dimensions are skewed: as if scores were normal, one row of
        forty would be strange at three standard deviations in place of one of 700. With the `peak` they are
        taken to be gamma distributed, as those of a Gaussian are (its quantiles: Wilson and Hilferty 1931).
        """
        if self.n_rows == 0:
            return -math.inf
        mean = self.total / self.n_rows
        std = math.sqrt(max(self.total_squares / self.n_rows - mean**2, 0.0))
        limit = mean - n_std * std
        if peak is None or peak <= mean or std == 0 or math.isinf(n_std):
            return limit
        part = std / (3 * (peak - mean))  # a third of 1 / sqrt(shape)
        return min(limit, peak - (peak - mean) * max(1 - part**2 + n_std * part, 0.0) ** 3)

    def robust_threshold(self, n_std: float, peak: float) -> float:
        """Return the threshold by the middle of the histogram alone; minus infinity without one.

        A few rows that are no part of the cluster, but came with its first ones, make everything look usual.
        The cube root of a gamma distributed depth is nearly normal (Wilson and Hilferty 1931), so its median
        and the quantile one standard deviation above tell the rest.
        """
        if not self.depths or math.isinf(n_std):
            return -math.inf
        middle, above = (self._depth_at(share) ** (1 / 3) for share in (0.5, ONE_STD_SHARE))
        return float(peak - (middle + n_std * (above - middle)) ** 3)

    def _depth_at(self, share: float) -> float:
        """Return the depth that this share of the rows does not exceed, evenly within a bin."""
        left = share * sum(self.depths.values())
        for place, count in sorted(self.depths.items()):
            if count >= left:
                return float(SHALLOWEST * 2.0 ** ((place + left / count - 1) / BINS_PER_DOUBLING))
            left -= count
        return math.inf

    def share_beyond(self, scores: Tensor, peak: float) -> Tensor:
        """Return the share of the cluster's own rows that are as strange or stranger, (N,); 1 if none is.

        By the histogram, evenly within a bin. Records of older models have none: as if scores were normal.
        """
        if self.n_rows == 0:
            return torch.ones_like(scores)
        if not self.depths:
            mean = self.total / self.n_rows
            std = math.sqrt(max(self.total_squares / self.n_rows - mean**2, 0.0))
            shares: Tensor = torch.special.ndtr((scores - mean) / max(std, torch.finfo(torch.float64).tiny))
            return shares
        counts = torch.zeros(max(self.depths) + 2, dtype=torch.float64)
        counts[list(self.depths)] = torch.tensor(list(self.depths.values()), dtype=torch.float64)
        beyond = counts.flip(0).cumsum(0).flip(0)  # rows in a bin and in all deeper ones
        place = _bin_of(peak - scores)
        bins = place.floor().clamp(max=len(counts) - 1).to(torch.int64)
        inside = (place - bins).clamp(0.0, 1.0)
        return (beyond[bins] - inside * counts[bins]) / counts.sum()


def _bin_of(depths: Tensor) -> Tensor:
    """Return the place of depths among the bins of the histogram, from 0.

    Between two imprints the density of a cluster may be a little above that at the mean of either.
    """
    return (BINS_PER_DOUBLING * (depths.clamp_min(0.0) / SHALLOWEST).log2() + 1).clamp_min(0.0)


def cluster_peak(imprints: Sequence[Imprint]) -> float:
    """Return the log density of a cluster where it is highest: at the mean of one of its imprints."""
    means = torch.stack([imprint.mean for imprint in imprints])
    return float(cluster_scores(means, imprints).max())


def cluster_scores(inputs: Tensor, imprints: Sequence[Imprint]) -> Tensor:
    """Return the log density of inputs (N, d) under a cluster, the mixture of its imprints, (N,)."""
    sizes = torch.tensor([imprint.n_rows for imprint in imprints], dtype=torch.float64)
    densities = torch.stack([log_densities(imprint, inputs) for imprint in imprints], dim=1)
    return torch.logsumexp(densities + (sizes / sizes.sum()).log(), dim=1)


def cross_scores(
    inputs: Tensor, labels: Tensor, rank: int, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """Return scores of a new cluster's rows (N, d), each under an imprint that has not seen it, and depths.

    The rows' components are `labels` (N,). Each half is scored by imprints of the other half.
    """
    if len(inputs) > MOST_ROWS:
        some = torch.randperm(len(inputs), generator=generator)[:MOST_ROWS]
        inputs, labels = inputs[some], labels[some]
    side = torch.rand(len(inputs), generator=generator) < 0.5
    scores = [torch.zeros(0, dtype=torch.float64)]
    depths = list(scores)
    for half in (side, ~side):
        members = [inputs[half & (labels == label)] for label in labels.unique()]
        imprints = [imprint_of(rows, rank) for rows in members if len(rows) >= FEWEST_CROSS_FITTED]
        if imprints and not bool(half.all()):
            scores.append(cluster_scores(inputs[~half], imprints))
            depths.append(cluster_peak(imprints) - scores[-1])
    return torch.cat(scores), torch.cat(depths)


def novel_share(scores: Tensor, thresholds: Tensor) -> float:
    """Return the share of rows that even their best cluster finds strange; scores (N, C), thresholds (C,)."""
    best = scores.max(1)
    return float((best.values < thresholds[best.indices]).double().mean())


@dataclass(frozen=True)
class Strangeness:
    """What the clusters of the past make of rows, in input space."""

    clusters: tuple[int, ...]
    scores: Tensor  # (N, C) log densities
    peaks: tuple[float, ...]  # highest log density of each cluster
    scales: tuple[Calibration, ...]
    skewed: bool = False  # whether rows have few dimensions

    def thresholds(self, n_std: float) -> Tensor:
        """Return the score of each cluster below which a row is strange to it, (C,).

        A cluster of few rows has no scale of its own; it gets the most generous of the others', measured from
        its peak. Without it all that is new would go to the smallest cluster and be strange to nobody.
        """
        limits = (
            scale.threshold(n_std, peak if self.skewed else None)
            for scale, peak in zip(self.scales, self.peaks, strict=True)
        )
        own = torch.tensor(list(limits), dtype=torch.float64)
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
        skewed=not state.vae.learns,
    )


def bounds_novelty(state: LearnerState, values: Tensor, inputs: Tensor) -> tuple[Tensor, float]:
    """Return each row's share of the bound, (N,), and the share of rows that their cluster finds strange.

    Where nothing is kept of inputs, networks and mixture say what is usual: a row that they describe far
    worse than the rows of its cluster is new. A cluster of few rows has no scale, and finds nothing strange.
    """
    bounds = bounds_of(state, values, inputs)
    clusters = state.assign(encode_rows(state.vae, inputs)[0])
    strange = torch.zeros(len(bounds), dtype=torch.bool)
    for cluster in clusters.unique().tolist():
        scale = state.calibrations.get(cluster, Calibration())
        mine = clusters == cluster
        strange[mine] = bounds[mine] < scale.threshold(NOVEL_STD)
    return bounds, float(strange.double().mean())


def sort_rows(state: LearnerState, inputs: Tensor, n_std: float) -> Triage:
    """Sort the rows of a further data set, inputs (N, d); strange is what lies `n_std` below the usual."""
    seen = strangeness(state, inputs)
    if seen is None:
        return _by_size(inputs)
    strange = seen.strange_to_all(n_std)
    wide, away = _away(state, inputs)
    leverage = away / (inputs.shape[1] * max(state.n_rows, FEWEST_SEEN))
    suspicious = (strange & (leverage > LEVERAGE)).nonzero()[:, 0]
    outlier = torch.zeros(len(inputs), dtype=torch.bool)
    outlier[suspicious] = ~_supported(wide, strange.nonzero()[:, 0], suspicious, away)
    far = (wide.square().mean(1) > FAR**2) & ~outlier
    near = (~far & ~outlier).nonzero()[:, 0]
    novel = seen.novel_share(near) if len(near) and int(strange[near].sum()) >= SUPPORT else 0.0
    return Triage(near, far.nonzero()[:, 0], outlier.nonzero()[:, 0], seen.novel_share(), novel)


def keeping_together(state: LearnerState, inputs: Tensor) -> Tensor:
    """Return which rows (N, d) have four others nearer than half way to what is known, (N,) bool."""
    wide, away = _away(state, inputs)
    all_of_them = torch.arange(len(inputs))
    return _supported(wide, all_of_them, all_of_them, away)


def _away(state: LearnerState, inputs: Tensor) -> tuple[Tensor, Tensor]:
    """Return rows in float64, and their squared distances from the nearest component."""
    # Rounded differences of huge inputs would not tell rows apart.
    wide = inputs.to(torch.float64)
    means = torch.stack([state.imprints[i].mean for i in state.memory.ids]).to(torch.float64)
    return wide, torch.cdist(wide, means).square().amin(1)


def copies_beyond(values: Tensor, most: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return rows (N, d) without copies beyond the first `most` of each, these copies, and what they copy.

    All are indices; what they copy counts among the rows that stay. A flood of copies has no neighbours but
    itself, looks new for ever, and outweighs all else that is learned beside it.
    """
    seen: dict[bytes, list[int]] = {}
    kept: list[int] = []
    copies, of = [], []
    for row, value in enumerate(values.numpy()):
        places = seen.setdefault(hashlib.blake2b(value.tobytes(), digest_size=16).digest(), [])
        if len(places) < most:
            places.append(len(kept))
            kept.append(row)
        else:
            copies.append(row)
            of.append(places[0])
    first, further, origin = (torch.tensor(index, dtype=torch.int64) for index in (kept, copies, of))
    return first, further, origin


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
    smaller; not for pixels and words, which may well be nearly absent, nor for columns of heavy tails. Few
    rows say nothing.
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
    if len(view.unit):  # on a logarithmic scale nothing is a hundred times larger
        farthest = view.unit * (view.shift.double().abs() + view.scale * state.column_rms).sinh()
        larger = (rows.double() - view.centre).abs().median(0).values > HUNDREDFOLD * farthest
        changed = torch.where(view.unit > 0, larger, changed)
    return (changed & (state.column_rms > 0)).nonzero()[:, 0].tolist()


def _supported(rows: Tensor, strange: Tensor, suspicious: Tensor, away: Tensor) -> Tensor:
    """Return which suspicious rows have others nearer than half way to what is known, (S,) bool."""
    if len(strange) < SUPPORT or len(suspicious) == 0:
        return torch.zeros(len(suspicious), dtype=torch.bool)
    squared, _ = nearest_neighbours(rows[strange], SUPPORT - 1)
    reach = torch.full((len(rows),), torch.inf, dtype=torch.float64)
    reach[strange] = squared[:, -1].to(torch.float64)
    return reach[suspicious] <= away[suspicious] / 4
