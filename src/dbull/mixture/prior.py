"""The prior of the mixture: by name from the paper, or from the scale of the data."""

from dataclasses import dataclass

import torch
from torch import Tensor

from dbull.mixture.stats import SufficientStats
from dbull.probability.normal_wishart import NormalWishart

TINY = 1e-12
FLOOR = 1e-6  # keeps the scale positive definite when columns are nearly collinear within components,
TINY_FLOOR = 1e-10  # and when components are single points; relative to the variance of all data


@dataclass(frozen=True)
class MixturePrior:
    """Concentration of the Dirichlet process and the Normal-Wishart base measure of its components."""

    concentration: float  # alpha
    mean: Tensor  # (D,)    m0
    mean_precision: float  # beta0
    dof: float  # nu0
    scale_inv: Tensor  # (D, D)  W0^-1

    @property
    def n_dims(self) -> int:
        """D."""
        return self.mean.shape[0]

    @property
    def base(self) -> NormalWishart:
        """The base measure as a batch of one Normal-Wishart distribution."""
        beta, nu = (torch.tensor([part], dtype=torch.float64) for part in (self.mean_precision, self.dof))
        return NormalWishart(self.mean[None], beta, nu, self.scale_inv[None])


def paper_prior(n_dims: int, concentration: float = 1.0) -> MixturePrior:
    """Return the paper's prior: mean 0, mean precision 0.2, D + 2 degrees of freedom, W0 = identity."""
    f64 = torch.float64
    return MixturePrior(
        concentration, torch.zeros(n_dims, dtype=f64), 0.2, n_dims + 2.0, torch.eye(n_dims, dtype=f64)
    )


def adapted_prior(stats: SufficientStats, concentration: float = 1.0, pooled_rows: float = 0) -> MixturePrior:
    """Return a prior in the units of the data, from the statistics of the components found so far.

    A component is expected to have the covariance that components have on average (pooled within
    components), and means are expected to spread as they do: mean_precision is the ratio of the two. With a
    single component this is the covariance of the data. Shift, rescaling and (with many more rows than
    columns) any invertible linear map of the data change nothing but the units.

    `pooled_rows` is how many observations the expectation of a covariance counts for, beyond the least that a
    prior can count. Without it a component may become as broad as it likes and catch what lies between the
    others; with it, components differ in shape only as far as their rows insist.
    """
    D = stats.n_dims
    n_rows = stats.counts.sum()
    mean = stats.sum_z.sum(0) / n_rows
    centres = stats.sum_z / stats.counts.clamp_min(TINY)[:, None]
    scatter = stats.sum_zz.sum(0) - stats.sum_z.T @ centres
    within = scatter / n_rows
    variances = torch.diagonal(within).clamp_min(0.0)
    total_var = torch.diagonal(stats.sum_zz.sum(0)) / n_rows - mean.square()
    # Off-diagonal entries are only as good as there are rows to estimate them from.
    shrink = D / (D + float(n_rows))
    # A constant column has no scale of its own.
    floor = FLOOR * variances + TINY_FLOOR * torch.where(total_var > TINY, total_var, 1.0)
    scale_inv = (1.0 - shrink) * within + torch.diag(shrink * variances + floor)
    offset = centres - mean
    apart = (offset * torch.linalg.solve(scale_inv, offset.T).T).sum(1)
    share = stats.counts / n_rows
    mean_precision = min(1.0, D / max(float((share * apart).sum()), TINY))
    # The expected covariance of a component is scale_inv / (dof - D - 1).
    scale_inv = (0.5 + 0.5 * pooled_rows) * (scale_inv + scale_inv.T)
    return MixturePrior(concentration, mean, mean_precision, D + 2.0 + pooled_rows, scale_inv)
