"""The network objective, term by term.

Per row n, with the mixture and the responsibilities r_n held fixed (docs/algorithm.md):

    reconstruction   E_q[log p(x_n | z)]                    one draw z = mean + std * noise
    log_prior        sum_k r_nk (log rho_nk - log r_nk)     exact, encoder variance included (trace term)
    entropy          H[q(z | x_n)]                          exact

Their sum is the row's share of the evidence lower bound. log rho_nk = E[log pi_k] + E[log N(z | k)], expected
over the mixture's posterior and over q(z | x_n).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from dbull.mixture.posterior import MixturePosterior
from dbull.nets.vae import VAE
from dbull.probability import normal_wishart as nw
from dbull.probability import stick_breaking as sb

__all__ = ["FrozenMixture", "RowTerms", "entropy", "row_terms"]


@dataclass(frozen=True)
class FrozenMixture:
    """The mixture as the networks see it: float32, and fixed while they learn."""

    root: Tensor  # (D, K * D) Cholesky factors of the expected precisions, side by side
    offset: Tensor  # (K, D) root applied to the means
    precision_diagonal: Tensor  # (K, D)
    constant: Tensor  # (K,) E[log pi_k] + (E[log det] - D / beta_k - D log 2 pi) / 2

    @classmethod
    def of(cls, posterior: MixturePosterior, device: torch.device | str = "cpu") -> FrozenMixture:
        """Freeze a posterior."""
        c = posterior.components
        precision = c.dof[:, None, None] * torch.cholesky_inverse(posterior.factor)
        root = torch.linalg.cholesky(precision)  # (K, D, D): quadratic form = |root^T (z - m)|^2
        constant = sb.expected_log_weights(posterior.sticks) + 0.5 * (
            nw.expected_log_det(c, posterior.factor) - c.n_dims / c.mean_precision - c.n_dims * nw.LOG_2PI
        )
        offset = torch.einsum("kde,kd->ke", root, c.mean)
        side_by_side = root.movedim(0, 1).reshape(c.n_dims, -1)
        diagonal = torch.diagonal(precision, dim1=1, dim2=2)
        return cls(*(t.to(device, torch.float32) for t in (side_by_side, offset, diagonal, constant)))

    def log_joint(self, mean: Tensor, var: Tensor | None) -> Tensor:
        """Return log rho (N, K), expected over N(mean, diag(var)); without `var` at the mean itself."""
        log_rho: Tensor
        white = (mean @ self.root).unflatten(1, self.offset.shape) - self.offset
        log_rho = self.constant - 0.5 * white.square().sum(2)
        if var is not None:
            log_rho = log_rho - 0.5 * var @ self.precision_diagonal.T
        return log_rho


@dataclass(frozen=True)
class RowTerms:
    """The terms of each row, (N,) each."""

    reconstruction: Tensor
    log_prior: Tensor
    entropy: Tensor

    @property
    def elbo(self) -> Tensor:
        """Their sum."""
        return self.reconstruction + self.log_prior + self.entropy


def entropy(log_var: Tensor) -> Tensor:
    """Return the entropy of N(., diag(exp(log_var))) for each row."""
    return 0.5 * (log_var.shape[1] * (1 + math.log(2 * math.pi)) + log_var.sum(1))


def row_terms(
    vae: VAE,
    mixture: FrozenMixture,
    values: Tensor,
    encoded: tuple[Tensor, Tensor],
    noise: Tensor,
    responsibilities: Tensor | None = None,
) -> RowTerms:
    """Return the terms for encoded rows.

    Parameters
    ----------
    values
        What the decoder should give back, (N, d).
    encoded
        Encoder output: mean and log variance, (N, D) each.
    noise
        Standard normal draws, (N, D).
    responsibilities
        Fixed beforehand, (N, K); None takes the optimum for this very input, whose gradient is that of
        log sum_k rho_nk (envelope theorem).
    """
    mean, log_var = encoded
    var = log_var.exp()
    z = mean + var.sqrt() * noise
    log_rho = mixture.log_joint(mean, var)
    if responsibilities is None:
        log_prior = torch.logsumexp(log_rho, dim=1)
    else:
        log_prior = (responsibilities * log_rho + torch.special.entr(responsibilities)).sum(1)
    return RowTerms(vae.likelihood.log_prob(vae.decode(z), values), log_prior, entropy(log_var))
