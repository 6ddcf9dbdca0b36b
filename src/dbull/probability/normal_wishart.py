"""The Normal-Wishart distribution over the mean and precision of a Gaussian, batched over clusters.

    precision ~ Wishart(W, dof),   mean | precision ~ N(m, (mean_precision * precision)^-1)

What is stored is `scale_inv` = W^-1, because it is what adds up when data come in. Letters inside the
functions follow Bishop (2006), section 10.2: m, beta, nu, W, B = W^-1.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from dbull.errors import NumericalError

LOG_2 = math.log(2.0)
LOG_PI = math.log(math.pi)
LOG_2PI = math.log(2.0 * math.pi)


@dataclass(frozen=True)
class NormalWishart:
    """K independent Normal-Wishart distributions in D dimensions."""

    mean: Tensor  # (K, D)  m
    mean_precision: Tensor  # (K,)    beta
    dof: Tensor  # (K,)    nu
    scale_inv: Tensor  # (K, D, D)  B = W^-1

    @property
    def n_dims(self) -> int:
        """D."""
        return self.mean.shape[-1]


def cholesky_scale_inv(nw: NormalWishart) -> Tensor:
    """Return the lower Cholesky factor of `scale_inv`, (K, D, D); no jitter is added."""
    factor: Tensor
    factor, info = torch.linalg.cholesky_ex(nw.scale_inv)
    if bool((info != 0).any()):
        bad = int(torch.nonzero(info)[0])
        raise NumericalError(
            f"the scale matrix of component {bad} is not positive definite: the data are degenerate beyond "
            "what the prior can hold. Use a prior with a larger scale, or rescale the data."
        )
    return factor


def log_det_scale_inv(factor: Tensor) -> Tensor:
    """Return log|B| from the Cholesky factor of B, (K,)."""
    return 2.0 * torch.diagonal(factor, dim1=-2, dim2=-1).log().sum(-1)


def _half_dofs(nw: NormalWishart) -> Tensor:
    """Return (nu + 1 - i) / 2 for i = 1..D, (K, D)."""
    i = torch.arange(1, nw.n_dims + 1, dtype=nw.dof.dtype, device=nw.dof.device)
    return 0.5 * (nw.dof[..., None] + 1.0 - i)


def expected_log_det(nw: NormalWishart, factor: Tensor) -> Tensor:
    """Return E[log|precision|] = sum_i digamma((nu+1-i)/2) + D log 2 - log|B|, (K,); Bishop 10.65."""
    return torch.digamma(_half_dofs(nw)).sum(-1) + nw.n_dims * LOG_2 - log_det_scale_inv(factor)


def log_partition(nw: NormalWishart, factor: Tensor) -> Tensor:
    """Return the log normaliser log Z: the density is exp(-log Z) times the exponential part, (K,).

    log Z = D/2 log 2pi + D(D-1)/4 log pi + nu D/2 log 2 + sum_i logGamma((nu+1-i)/2)
            - D/2 log beta - nu/2 log|B|.
    """
    D = nw.n_dims
    return (
        0.5 * D * LOG_2PI
        + 0.25 * D * (D - 1) * LOG_PI
        + 0.5 * D * LOG_2 * nw.dof
        + torch.lgamma(_half_dofs(nw)).sum(-1)
        - 0.5 * D * nw.mean_precision.log()
        - 0.5 * nw.dof * log_det_scale_inv(factor)
    )


def _mahalanobis(nw: NormalWishart, factor: Tensor, z: Tensor) -> Tensor:
    """Return (z_n - m_k)^T W_k (z_n - m_k) by triangular solves, (N, K)."""
    diff = z.T[None] - nw.mean[:, :, None]  # (K, D, N)
    white: Tensor = torch.linalg.solve_triangular(factor, diff, upper=False)
    return white.square().sum(1).T


def expected_covariance(nw: NormalWishart) -> Tensor:
    """Return E[covariance] = B / (nu - D - 1), (K, D, D); needs nu > D + 1."""
    return nw.scale_inv / (nw.dof - nw.n_dims - 1.0)[..., None, None]


def log_student_t(nw: NormalWishart, factor: Tensor, z: Tensor) -> Tensor:
    """Return the log predictive density of z under each component, (N, K).

    Mean and precision integrated out: Student-t with nu - D + 1 degrees of freedom, location m and scale
    matrix B (beta + 1) / (beta (nu - D + 1)); Bishop 10.81.
    """
    D = nw.n_dims
    t_dof = nw.dof - D + 1.0
    ratio = nw.mean_precision / (nw.mean_precision + 1.0)
    log_det_shape = log_det_scale_inv(factor) - D * (ratio.log() + t_dof.log())
    return (
        torch.lgamma(0.5 * (t_dof + D))
        - torch.lgamma(0.5 * t_dof)
        - 0.5 * D * (t_dof.log() + LOG_PI)
        - 0.5 * log_det_shape
        - 0.5 * (t_dof + D) * torch.log1p(ratio * _mahalanobis(nw, factor, z))
    )


def kl(q: NormalWishart, p: NormalWishart) -> Tensor:
    """Return KL(q_k || p_k), (K,); the two are matched entry by entry (p may have K = 1)."""
    D = q.n_dims
    q_factor, p_factor = cholesky_scale_inv(q), cholesky_scale_inv(p)
    w_q = torch.cholesky_inverse(q_factor)
    diff = q.mean - p.mean
    mahalanobis = torch.einsum("...i,...ij,...j->...", diff, w_q, diff)
    trace = (p.scale_inv * w_q).sum((-2, -1))
    return (
        log_partition(p, p_factor)
        - log_partition(q, q_factor)
        + 0.5 * (q.dof - p.dof) * expected_log_det(q, q_factor)
        - 0.5 * D * q.dof
        + 0.5 * q.dof * trace
        + 0.5 * p.mean_precision * (D / q.mean_precision + q.dof * mahalanobis)
        - 0.5 * D
    )
