"""How strange a row is to the cluster that takes it, on a scale that each cluster sets itself.

A cluster keeps count, sum and sum of squares of the log densities that its own rows had when they were new to
it, and a histogram of how far below the cluster's peak they were. A row is an outlier when its log density is
several standard deviations below what is usual there. Scores are made in input space, which does not move, so
they stay comparable over the whole stream.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from dbull.lifelong.imprint import Imprint, imprint_of, log_densities

__all__ = ["Calibration", "cluster_peak", "cluster_scores", "cross_scores", "novel_share"]

FEWEST_ROWS = 8  # of a component on one side of a cross-fit
MOST_ROWS = 2000  # that a calibration is made from at once
BINS_PER_DOUBLING = 16  # of the histogram of depths; bins are 4 % wide
SHALLOWEST = 2.0**-4  # nats below the peak, the upper end of the first bin


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

    def threshold(self, n_std: float) -> float:
        """Return the score `n_std` standard deviations below the usual one; minus infinity if none is."""
        if self.n_rows == 0:
            return -math.inf
        mean = self.total / self.n_rows
        return mean - n_std * math.sqrt(max(self.total_squares / self.n_rows - mean**2, 0.0))

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
    """Return the place of depths among the bins of the histogram, from 0."""
    return (BINS_PER_DOUBLING * (depths / SHALLOWEST).log2() + 1).clamp_min(0.0)


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
        imprints = [imprint_of(rows, rank) for rows in members if len(rows) >= FEWEST_ROWS]
        if imprints and not bool(half.all()):
            scores.append(cluster_scores(inputs[~half], imprints))
            depths.append(cluster_peak(imprints) - scores[-1])
    return torch.cat(scores), torch.cat(depths)


def novel_share(scores: Tensor, thresholds: Tensor) -> float:
    """Return the share of rows that even their best cluster finds strange; scores (N, C), thresholds (C,)."""
    best = scores.max(1)
    return float((best.values < thresholds[best.indices]).double().mean())
