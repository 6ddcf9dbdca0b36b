"""Stick-breaking weights of a Dirichlet process under nested truncation.

Every one of the K sticks has its own Beta factor (Hughes & Sudderth 2013), so that bounds for different K
are bounds on the same infinite model and may be compared; with the last stick fixed at one (Blei & Jordan
2006, and the paper's text) they may not.
"""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class StickBreaking:
    """Beta(on_k, off_k) for each stick v_k; the paper's eta_k1 and eta_k0."""

    on: Tensor  # (K,)
    off: Tensor  # (K,)


def expected_log_sticks(sticks: StickBreaking) -> tuple[Tensor, Tensor]:
    """Return E[log v_k] and E[log(1 - v_k)], each (K,)."""
    total = torch.digamma(sticks.on + sticks.off)
    return torch.digamma(sticks.on) - total, torch.digamma(sticks.off) - total


def expected_log_weights(sticks: StickBreaking) -> Tensor:
    """Return E[log pi_k] = E[log v_k] + sum over l < k of E[log(1 - v_l)], (K,)."""
    log_on, log_off = expected_log_sticks(sticks)
    return log_on + log_off.cumsum(-1) - log_off


def mean_weights(sticks: StickBreaking) -> Tensor:
    """Return E[pi_k], (K,). They sum to less than one: the rest is kept for clusters not seen yet."""
    on = sticks.on / (sticks.on + sticks.off)
    left = torch.cumprod(1 - on, 0)
    return on * torch.cat([torch.ones_like(left[:1]), left[:-1]])


def log_beta_function(a: Tensor, b: Tensor) -> Tensor:
    """Return log B(a, b) = log Gamma(a) + log Gamma(b) - log Gamma(a + b)."""
    return torch.lgamma(a) + torch.lgamma(b) - torch.lgamma(a + b)


def kl_to_prior(sticks: StickBreaking, concentration: float) -> Tensor:
    """Return KL(Beta(on_k, off_k) || Beta(1, concentration)) for each stick, (K,)."""
    log_on, log_off = expected_log_sticks(sticks)
    one = torch.ones_like(sticks.on)
    prior = log_beta_function(one, one * concentration)
    own = log_beta_function(sticks.on, sticks.off)
    return prior - own + (sticks.on - 1) * log_on + (sticks.off - concentration) * log_off
