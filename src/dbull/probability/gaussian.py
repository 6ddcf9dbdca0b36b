"""Diagonal Gaussians: log-densities, and what one expects of another.

Functions broadcast over leading dimensions; the last one is the latent dimension D, over which they sum.
"""

import math

import torch
from torch import Tensor

LOG_2PI = math.log(2 * math.pi)


def log_density(z: Tensor, mean: Tensor, log_var: Tensor) -> Tensor:
    """Return log N(z | mean, diag(exp(log_var)))."""
    return -0.5 * (LOG_2PI + log_var + (z - mean).square() * torch.exp(-log_var)).sum(-1)


def expected_log_density(q_mean: Tensor, q_log_var: Tensor, mean: Tensor, log_var: Tensor) -> Tensor:
    """Return E_q[log N(z | mean, diag(exp(log_var)))] for a diagonal Gaussian q."""
    spread = torch.exp(q_log_var) + (q_mean - mean).square()
    return -0.5 * (LOG_2PI + log_var + spread * torch.exp(-log_var)).sum(-1)


def kl(q_mean: Tensor, q_log_var: Tensor, mean: Tensor, log_var: Tensor) -> Tensor:
    """Return KL(q || N(mean, diag(exp(log_var)))) for a diagonal Gaussian q."""
    spread = torch.exp(q_log_var) + (q_mean - mean).square()
    return 0.5 * (log_var - q_log_var + spread * torch.exp(-log_var) - 1).sum(-1)
