"""The evidence lower bound of the mixture: term by term, and in closed form after a global step.

Every constant that depends on the number of components is kept, because births and merges compare across
it (scikit-learn's `lower_bound_` drops some and must not be used so).
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from dbull.mixture.posterior import MixturePosterior, log_evidence, stick_posterior
from dbull.mixture.prior import MixturePrior
from dbull.mixture.stats import SufficientStats
from dbull.probability import normal_wishart as nw
from dbull.probability import stick_breaking as sb


@dataclass(frozen=True)
class ElboTerms:
    """The bound as named terms; larger is better."""

    log_likelihood: float  # E log p(z | y, components)
    assignment: float  # E log p(y | sticks)
    entropy: float  # -E log q(y)
    minus_stick_divergence: float  # -KL(q(sticks) || p(sticks))
    minus_component_divergence: float  # -KL(q(components) || p(components))

    @property
    def total(self) -> float:
        """The bound."""
        of_rows = self.log_likelihood + self.assignment + self.entropy
        return of_rows + self.minus_stick_divergence + self.minus_component_divergence


def elbo_terms(prior: MixturePrior, posterior: MixturePosterior, stats: SufficientStats) -> ElboTerms:
    """Return the terms for any posterior and statistics (Bishop 10.71-10.77, in aggregated form)."""
    c = posterior.components
    D = c.n_dims
    precision = c.dof[:, None, None] * torch.cholesky_inverse(posterior.factor)
    # sum_n r_nk E[(z_n - m_k)(z_n - m_k)^T]
    cross = stats.sum_z[:, :, None] * c.mean[:, None, :]
    outer = c.mean[:, :, None] * c.mean[:, None, :]
    scatter = stats.sum_zz - cross - cross.mT + stats.counts[:, None, None] * outer
    log_det = nw.expected_log_det(c, posterior.factor)
    log_lik = 0.5 * (
        stats.counts * (log_det - D / c.mean_precision - D * nw.LOG_2PI) - (precision * scatter).sum((-2, -1))
    )
    return ElboTerms(
        log_likelihood=float(log_lik.sum()),
        assignment=float((stats.counts * sb.expected_log_weights(posterior.sticks)).sum()),
        entropy=float(stats.entropy.sum()),
        minus_stick_divergence=-float(sb.kl_to_prior(posterior.sticks, prior.concentration).sum()),
        minus_component_divergence=-float(nw.kl(c, prior.base).sum()),
    )


def elbo_after_global_step(prior: MixturePrior, stats: SufficientStats) -> Tensor:
    """Return the bound for the posterior that `global_step` makes of these statistics, summed over K.

    Then most terms collapse to differences of log-normalisers (Hughes & Sudderth 2013):
    sum_k log M(S_k) + sum_k [log B(on_k, off_k) - log B(1, alpha)] + sum_k entropy_k.
    """
    sticks = stick_posterior(prior, stats.counts)
    one = torch.ones_like(sticks.on)
    before = sb.log_beta_function(one, one * prior.concentration)
    allocation = sb.log_beta_function(sticks.on, sticks.off) - before
    return (log_evidence(prior, stats) + allocation + stats.entropy).sum(-1)
