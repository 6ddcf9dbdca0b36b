"""What a learner makes of rows: lower bounds on their log densities, in the units of the data."""

from __future__ import annotations

from torch import Tensor

from dbull.lifelong.inference import row_bounds
from dbull.lifelong.objective import FrozenMixture
from dbull.lifelong.state import LearnerState
from dbull.mixture.elbo import elbo_terms

__all__ = ["bounds_of", "elbo_of", "log_volume"]


def bounds_of(state: LearnerState, values: Tensor, inputs: Tensor) -> Tensor:
    """Return each row's bound, or its density if there are no networks, in the units of the data, (N,)."""
    if state.vae.learns:
        frozen = FrozenMixture.of(state.posterior, next(state.vae.parameters()).device)
        bounds = row_bounds(state.vae, frozen, values, inputs, state.seed)
    else:
        bounds = state.log_density(inputs.double())
    return bounds - log_volume(state)


def elbo_of(state: LearnerState, values: Tensor, inputs: Tensor, codes: Tensor) -> float:
    """Return the evidence lower bound of a data set under the learner, in the units of the data."""
    if state.vae.learns:
        total = float(bounds_of(state, values, inputs).sum())
    else:
        # A predictive density integrates the posterior out, so a sum of them is no bound.
        total = float(state.code_bounds(codes).sum()) - len(codes) * log_volume(state)
    divergence = elbo_terms(state.prior, state.posterior, state.memory.total)
    return total + divergence.stick_divergence + divergence.component_divergence


def log_volume(state: LearnerState) -> float:
    """Return the log of the units that densities are divided by; probabilities have none."""
    if state.vae.shape.likelihood == "bernoulli":
        return 0.0
    scale = state.view.scale.double()
    return float(scale.log().sum() * (state.vae.shape.n_values / len(scale)))
