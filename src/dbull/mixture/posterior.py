"""The posterior of the mixture: prior plus statistics, by one pure function."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from dbull.mixture.prior import MixturePrior
from dbull.mixture.stats import SufficientStats
from dbull.probability import normal_wishart as nw
from dbull.probability import stick_breaking as sb


@dataclass(frozen=True)
class MixturePosterior:
    """Beta factors of the sticks and Normal-Wishart factors of the components."""

    sticks: sb.StickBreaking
    components: nw.NormalWishart
    factor: Tensor  # (K, D, D) Cholesky factor of components.scale_inv, computed once per global step

    @property
    def n_components(self) -> int:
        """K."""
        return self.components.mean.shape[0]

    @property
    def n_dims(self) -> int:
        """D."""
        return self.components.n_dims

    def select(self, index: Tensor) -> MixturePosterior:
        """Return the components named by `index`, their sticks unchanged."""
        c = self.components
        return MixturePosterior(
            sb.StickBreaking(self.sticks.on[index], self.sticks.off[index]),
            nw.NormalWishart(c.mean[index], c.mean_precision[index], c.dof[index], c.scale_inv[index]),
            self.factor[index],
        )


def component_posterior(prior: MixturePrior, stats: SufficientStats) -> nw.NormalWishart:
    """Return the Normal-Wishart posterior of each component given its statistics; Bishop 10.60-10.63.

    beta_k = beta0 + N_k, nu_k = nu0 + N_k, m_k = (beta0 m0 + sum_z) / beta_k and
    B_k = W0^-1 + beta0 m0 m0^T + sum_zz - beta_k m_k m_k^T, computed around m0, where nothing is divided by
    N_k (which may be zero) and the cancellation is as small as it can be.
    """
    beta0, m0 = prior.mean_precision, prior.mean
    N = stats.counts.clamp_min(0.0)
    beta = beta0 + N
    first = stats.sum_z - stats.counts[..., None] * m0  # sum_n r_nk (z_n - m0)
    cross = m0[:, None] * stats.sum_z[..., None, :]
    second = stats.sum_zz - cross - cross.mT + stats.counts[..., None, None] * (m0[:, None] * m0)
    scale_inv = prior.scale_inv + second - first[..., :, None] * first[..., None, :] / beta[..., None, None]
    mean = m0 + first / beta[..., None]
    return nw.NormalWishart(mean, beta, prior.dof + N, 0.5 * (scale_inv + scale_inv.mT))


def stick_posterior(prior: MixturePrior, counts: Tensor) -> sb.StickBreaking:
    """Return eta_k1 = 1 + N_k and eta_k0 = alpha + sum over l > k of N_l; Blei & Jordan (2006)."""
    N = counts.clamp_min(0.0)
    after = N.flip(-1).cumsum(-1).flip(-1) - N
    return sb.StickBreaking(1.0 + N, prior.concentration + after.clamp_min(0.0))


def global_step(prior: MixturePrior, stats: SufficientStats) -> MixturePosterior:
    """Return the posterior of sticks and components: prior + statistics."""
    sticks, components = stick_posterior(prior, stats.counts), component_posterior(prior, stats)
    return MixturePosterior(sticks, components, nw.cholesky_scale_inv(components))


def log_evidence(prior: MixturePrior, stats: SufficientStats) -> Tensor:
    """Return the log marginal likelihood log M(S_k) of each component's (fractional) points, (K,)."""
    post = component_posterior(prior, stats)
    base = prior.base
    return (
        nw.log_partition(post, nw.cholesky_scale_inv(post))
        - nw.log_partition(base, nw.cholesky_scale_inv(base))
        - 0.5 * stats.n_dims * nw.LOG_2PI * stats.counts
    )


def mean_weights(posterior: MixturePosterior) -> Tensor:
    """Return E[pi_k] scaled to sum to one over the K components in use, (K,)."""
    weights = sb.mean_weights(posterior.sticks)
    return weights / weights.sum()


def merge_gaps(prior: MixturePrior, stats: SufficientStats) -> Tensor:
    """Return log M(S_a + S_b) - log M(S_a) - log M(S_b) for all pairs, (K, K); the diagonal is -inf.

    The observation part of the change of the bound when a and b are pooled; the paper's candidate rule.
    """
    K = stats.n_components
    a, b = torch.triu_indices(K, K, offset=1)
    single = log_evidence(prior, stats)
    gaps = torch.full((K, K), -torch.inf, dtype=single.dtype)
    if len(a):
        pair = log_evidence(prior, stats.select(a) + stats.select(b)) - single[a] - single[b]
        gaps[a, b] = gaps[b, a] = pair
    return gaps
