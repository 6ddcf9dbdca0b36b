"""How strange a row is to the cluster that takes it, on a scale that each cluster sets itself.

A cluster keeps count, sum and sum of squares of the log densities that its own rows had when they were new to
it. A row is a stranger when its log density is several standard deviations below what is usual there. Scores
are made in input space, which does not move, so they stay comparable over the whole stream.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from dbull.lifelong.imprint import Imprint, imprint_of, log_densities

__all__ = ["Calibration", "cluster_scores", "cross_scores", "novel_share"]

FEWEST_ROWS = 8  # of a component on one side of a cross-fit
MOST_ROWS = 2000  # that a calibration is made from at once


@dataclass(frozen=True)
class Calibration:
    """What scores are usual in a cluster, as statistics that add up."""

    n_rows: float = 0.0
    total: float = 0.0
    total_squares: float = 0.0

    @classmethod
    def of(cls, scores: Tensor) -> Calibration:
        """Return the record of some scores."""
        return cls(float(len(scores)), float(scores.sum()), float(scores.square().sum()))

    def __add__(self, other: Calibration) -> Calibration:
        return Calibration(
            self.n_rows + other.n_rows, self.total + other.total, self.total_squares + other.total_squares
        )

    def shifted(self, by: float) -> Calibration:
        """Return the record of the same rows if each score were higher by this much."""
        squares = self.total_squares + 2 * by * self.total + self.n_rows * by**2
        return Calibration(self.n_rows, self.total + self.n_rows * by, squares)

    def threshold(self, n_std: float) -> float:
        """Return the score `n_std` standard deviations below the usual one; minus infinity if none is."""
        if self.n_rows == 0:
            return -math.inf
        mean = self.total / self.n_rows
        return mean - n_std * math.sqrt(max(self.total_squares / self.n_rows - mean**2, 0.0))


def cluster_scores(inputs: Tensor, imprints: Sequence[Imprint]) -> Tensor:
    """Return the log density of inputs (N, d) under a cluster, the mixture of its imprints, (N,)."""
    sizes = torch.tensor([imprint.n_rows for imprint in imprints], dtype=torch.float64)
    densities = torch.stack([log_densities(imprint, inputs) for imprint in imprints], dim=1)
    return torch.logsumexp(densities + (sizes / sizes.sum()).log(), dim=1)


def cross_scores(inputs: Tensor, labels: Tensor, rank: int, generator: torch.Generator) -> Tensor:
    """Return scores of a new cluster's rows (N, d), each under an imprint that has not seen it.

    The rows' components are `labels` (N,). Each half is scored by imprints of the other half.
    """
    if len(inputs) > MOST_ROWS:
        some = torch.randperm(len(inputs), generator=generator)[:MOST_ROWS]
        inputs, labels = inputs[some], labels[some]
    side = torch.rand(len(inputs), generator=generator) < 0.5
    scores = [torch.zeros(0, dtype=torch.float64)]
    for half in (side, ~side):
        members = [inputs[half & (labels == label)] for label in labels.unique()]
        imprints = [imprint_of(rows, rank) for rows in members if len(rows) >= FEWEST_ROWS]
        if imprints and not bool(half.all()):
            scores.append(cluster_scores(inputs[~half], imprints))
    return torch.cat(scores)


def novel_share(scores: Tensor, thresholds: Tensor) -> float:
    """Return the share of rows that even their best cluster finds strange; scores (N, C), thresholds (C,)."""
    best = scores.max(1)
    return float((best.values < thresholds[best.indices]).double().mean())
