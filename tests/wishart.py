"""Normal-Wishart references: draws, and the expected log-density by triangular solves instead of products."""

import torch
from torch import Tensor

from dbull.probability.normal_wishart import (
    LOG_2PI,
    NormalWishart,
    _half_dofs,
    _mahalanobis,
    cholesky_scale_inv,
    expected_log_det,
)


def expected_log_density(nw: NormalWishart, factor: Tensor, z: Tensor, var: Tensor | None = None) -> Tensor:
    """Return E[log N(z_n | mean_k, precision_k^-1)] for every pair, (N, K).

    With `var` (N, D) each point is itself N(z_n, diag(var_n)) and the expectation runs over it too, which
    adds the trace term tr(W_k diag(var_n)) (Bishop 10.64 plus the encoder variance).
    """
    D = nw.n_dims
    square = _mahalanobis(nw, factor, z)
    if var is not None:
        w_diag = torch.diagonal(torch.cholesky_inverse(factor), dim1=-2, dim2=-1)
        square = square + var @ w_diag.T
    return 0.5 * (expected_log_det(nw, factor) - D / nw.mean_precision - D * LOG_2PI - nw.dof * square)


def sample_gaussians(nw: NormalWishart, n_draws: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Draw means (L, K, D) and precisions (L, K, D, D) by the Bartlett decomposition."""
    K, D = nw.mean.shape
    normal = torch.randn(n_draws, K, D, D, dtype=nw.mean.dtype, generator=generator)
    lower = torch.tril(normal, diagonal=-1)
    # A chi-square with nu - i + 1 degrees of freedom is twice a Gamma with half of them.
    chi2 = 2.0 * torch._standard_gamma(_half_dofs(nw).expand(n_draws, K, D).contiguous(), generator=generator)
    lower = lower + torch.diag_embed(chi2.sqrt())
    root_w = torch.linalg.solve_triangular(  # L^-T with B = L L^T, so that W = L^-T L^-1
        cholesky_scale_inv(nw).mT.contiguous(), torch.eye(D, dtype=nw.mean.dtype), upper=True
    )
    half = root_w @ lower
    precision = half @ half.mT
    noise = torch.randn(n_draws, K, D, 1, dtype=nw.mean.dtype, generator=generator)
    # half half^T = precision, so half^-T noise has covariance precision^-1.
    spread = torch.linalg.solve(half.mT, noise)[..., 0]
    return nw.mean + spread / nw.mean_precision.sqrt()[:, None], precision
