"""What is kept of rows that are gone: the shape of each component's inputs.

The statistics of the mixture live in the coordinates of an encoder that goes on learning. Inputs do not move:
their view was fixed by the first data. So each component also keeps, of the inputs of its rows, the mean, the
leading directions of their spread and the variance that these leave over: a Gaussian of low rank. Imprints
add up over data sets, rows that look like the past can be drawn from them, and they say how well a row fits.
An imprint holds `rank` + 2 vectors however many rows it has seen. Directions are principal ones, never rows,
and of fewer than `FEWEST_ROWS` distinct rows only the mean is kept (docs/privacy.md).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from dbull.mixture.stats import SufficientStats

__all__ = [
    *(
        "FEWEST_ROWS",
        "IMPRINT_RANK",
        "Imprint",
        "draw_rows",
        "imprint_of",
        "imprints_of_stats",
        "log_densities",
        "pooled",
    ),
    *("pooled_shape", "private_imprint_of"),
]

IMPRINT_RANK = 20
FEWEST_ROWS = 20  # distinct rows from which a component has a shape of its own

SMALLEST_COUNT = 1e-12
SMALLEST_LEFTOVER = 0.02  # variance in any one direction; inputs have variance 1 on average


@dataclass(frozen=True)
class Imprint:
    """A Gaussian N(mean, factor^T factor + diag(leftover)) of inputs; float32."""

    n_rows: float
    mean: Tensor  # (d,)
    factor: Tensor  # (r, d) leading directions, each as long as the standard deviation along it
    leftover: Tensor  # (d,) variance beside the factor

    @property
    def variance(self) -> Tensor:
        """Variance of each input, (d,)."""
        return self.leftover + self.factor.square().sum(0)


def imprint_of(inputs: Tensor, rank: int) -> Imprint:
    """Return the imprint of rows (N, d), at least one."""
    mean = inputs.mean(0)
    spread = (inputs - mean) / math.sqrt(len(inputs))
    return _packed(float(len(inputs)), mean, spread, spread.square().sum(0), rank)


def private_imprint_of(inputs: Tensor, rank: int, shape: Imprint) -> Imprint:
    """Return the imprint of rows (N, d) as it is kept: few rows get a `shape` that is not theirs alone."""
    if len(inputs) < FEWEST_ROWS or len(inputs.unique(dim=0)) < FEWEST_ROWS:
        return Imprint(float(len(inputs)), inputs.mean(0), shape.factor, shape.leftover)
    return imprint_of(inputs, rank)


def pooled_shape(inputs: Tensor, labels: Tensor, rank: int) -> Imprint:
    """Return the average shape of components: rows (N, d) around the means of their components (N,).

    Of too few rows it is that of the first data as a whole, as which inputs are scaled.
    """
    which, sizes = labels.unique(return_inverse=True, return_counts=True)[1:]
    sums = inputs.new_zeros(len(sizes), inputs.shape[1]).index_add_(0, which, inputs)
    beside = inputs - (sums / sizes[:, None])[which]
    if len(beside.unique(dim=0)) < FEWEST_ROWS:
        return Imprint(0.0, inputs.new_zeros(inputs.shape[1]), beside[:0], torch.ones(inputs.shape[1]))
    return imprint_of(beside, rank)


def imprints_of_stats(stats: SufficientStats, rank: int) -> list[Imprint]:
    """Return the imprints that follow from the statistics where codes are the inputs themselves."""
    mean = stats.sum_z / stats.counts.clamp_min(SMALLEST_COUNT)[:, None]
    spread = stats.sum_zz / stats.counts.clamp_min(SMALLEST_COUNT)[:, None, None]
    covariance = spread - mean[:, :, None] * mean[:, None, :]
    values, vectors = torch.linalg.eigh(covariance)
    length = values[:, -rank:].clamp_min(0).sqrt()
    factors = (vectors[:, :, -rank:] * length[:, None, :]).transpose(1, 2).to(torch.float32)
    variances = covariance.diagonal(dim1=1, dim2=2).to(torch.float32)
    leftovers = (variances - factors.square().sum(1)).clamp_min(SMALLEST_LEFTOVER)
    parts = zip(stats.counts.tolist(), mean.to(torch.float32), factors, leftovers, strict=True)
    return [Imprint(*part) for part in parts]


def pooled(a: Imprint, b: Imprint, rank: int) -> Imprint:
    """Return the imprint of the rows of both.

    Mean and variance of each input are those of all rows together; of the directions the leading ones stay.
    Few rows change no shape: the way from the mean of others to a single row would be that row.
    """
    n_rows = a.n_rows + b.n_rows
    share_a, share_b = a.n_rows / n_rows, b.n_rows / n_rows
    if min(a.n_rows, b.n_rows) < FEWEST_ROWS:
        shaped = b if b.n_rows >= FEWEST_ROWS else a
        return Imprint(n_rows, share_a * a.mean + share_b * b.mean, shaped.factor, shaped.leftover)
    between = (math.sqrt(share_a * share_b) * (a.mean - b.mean))[None]
    spread = torch.cat([math.sqrt(share_a) * a.factor, math.sqrt(share_b) * b.factor, between])
    variance = share_a * a.variance + share_b * b.variance + between[0].square()
    return _packed(n_rows, share_a * a.mean + share_b * b.mean, spread, variance, rank)


def _packed(n_rows: float, mean: Tensor, spread: Tensor, variance: Tensor, rank: int) -> Imprint:
    """Keep the leading directions of spread^T spread, and the variance that they leave over."""
    rank = min(rank, len(spread))
    factor = spread
    if rank > 0:
        # The small Gram matrix has the same spectrum as the large covariance.
        wide = spread.to(torch.float64)
        if len(spread) <= spread.shape[1]:
            vectors = torch.linalg.eigh(wide @ wide.T).eigenvectors[:, -rank:]
            factor = (vectors.T @ wide).to(torch.float32)
        else:
            values, vectors = torch.linalg.eigh(wide.T @ wide)
            factor = (vectors[:, -rank:] * values[-rank:].clamp_min(0).sqrt()).T.to(torch.float32)
    leftover = (variance - factor.square().sum(0)).clamp_min(SMALLEST_LEFTOVER)
    return Imprint(n_rows, mean, factor, leftover)


def draw_rows(imprint: Imprint, n_rows: int, generator: torch.Generator) -> Tensor:
    """Draw inputs (n_rows, d) that look like those the imprint was taken from."""
    along = torch.randn(n_rows, len(imprint.factor), generator=generator)
    beside = torch.randn(n_rows, len(imprint.mean), generator=generator)
    return torch.addmm(imprint.mean + imprint.leftover.sqrt() * beside, along, imprint.factor)


def log_densities(imprint: Imprint, inputs: Tensor) -> Tensor:
    """Return the log density of inputs (N, d), (N,) float64.

    By the Woodbury identity, so that only an r x r matrix is factored.
    """
    leftover = imprint.leftover.to(torch.float64)
    factor = imprint.factor.to(torch.float64)
    weighted = factor / leftover
    root = torch.linalg.cholesky(torch.eye(len(factor), dtype=torch.float64) + weighted @ factor.T)
    offset = (inputs - imprint.mean).to(torch.float64)
    explained = torch.linalg.solve_triangular(root, weighted @ offset.T, upper=False).square().sum(0)
    distance = offset.square() @ (1 / leftover) - explained
    log_det = leftover.log().sum() + 2 * root.diagonal().log().sum()
    log_density: Tensor = -0.5 * (distance + log_det + inputs.shape[1] * math.log(2 * math.pi))
    return log_density
