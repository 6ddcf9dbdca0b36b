"""How the decoder's output becomes a distribution of the data: Bernoulli or Gaussian.

Each likelihood says how many numbers the decoder must give per value of the data (`n_outputs`), the
log-density of the data under them, the expected data, and data drawn at random.
"""

import math
from abc import ABC, abstractmethod

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from dbull.errors import check_known
from dbull.probability.gaussian import LOG_2PI, log_density

LIKELIHOODS = ("bernoulli", "gaussian", "gaussian-fixed", "gaussian-learned")
# A decoder with a variance of its own makes it 0, and the density infinite, where the data are constant.
MIN_LOG_VAR, MAX_LOG_VAR = -6.0, 6.0
FIXED_VAR = 0.5  # squared error as the authors of the paper weigh it


class Likelihood(nn.Module, ABC):
    """p(x | decoder output) with independent values."""

    n_outputs = 1

    @abstractmethod
    def log_prob(self, output: Tensor, x: Tensor) -> Tensor:
        """Return the log-density of each row, (N,)."""

    @abstractmethod
    def mean(self, output: Tensor) -> Tensor:
        """Return the expected data, (N, d)."""

    @abstractmethod
    def sample(self, output: Tensor, generator: torch.Generator) -> Tensor:
        """Draw data, (N, d)."""

    @abstractmethod
    def log_prob_of_mean(self, x: Tensor) -> float:
        """Return the mean log-density of rows (N, d) if each were described by the mean of all rows."""


class _Bernoulli(Likelihood):
    """Values in [0, 1], each a probability; the output is its logit."""

    def log_prob(self, output: Tensor, x: Tensor) -> Tensor:
        return -F.binary_cross_entropy_with_logits(output, x, reduction="none").sum(1)

    def mean(self, output: Tensor) -> Tensor:
        return torch.sigmoid(output)

    def sample(self, output: Tensor, generator: torch.Generator) -> Tensor:
        return torch.bernoulli(self.mean(output), generator=generator)

    def log_prob_of_mean(self, x: Tensor) -> float:
        least = 0.5 / (len(x) + 1)  # a pixel that is always black is so in rows to come, but not for certain
        return float(self.log_prob(torch.logit(x.mean(0), eps=least).expand_as(x), x).mean())


class _Gaussian(Likelihood):
    """One variance for all values: fixed, or learned and no smaller than exp(MIN_LOG_VAR)."""

    def __init__(self, learned: bool) -> None:
        super().__init__()
        start = torch.tensor(0.0 if learned else math.log(FIXED_VAR))
        self.log_var = nn.Parameter(start, requires_grad=learned)

    def log_prob(self, output: Tensor, x: Tensor) -> Tensor:
        log_var = self.log_var.clamp(MIN_LOG_VAR, MAX_LOG_VAR)
        squares = (x - output).square().sum(1)
        return -0.5 * (x.shape[1] * (LOG_2PI + log_var) + squares * torch.exp(-log_var))

    def mean(self, output: Tensor) -> Tensor:
        return output

    def sample(self, output: Tensor, generator: torch.Generator) -> Tensor:
        std = torch.exp(0.5 * self.log_var.detach().clamp(MIN_LOG_VAR, MAX_LOG_VAR)).to(output.device)
        return torch.normal(output, std.expand_as(output), generator=generator)

    def log_prob_of_mean(self, x: Tensor) -> float:
        var = x.var(0, correction=0).mean()
        log_var = var.log().clamp(MIN_LOG_VAR, MAX_LOG_VAR) if self.log_var.requires_grad else self.log_var
        return float(-0.5 * x.shape[1] * (LOG_2PI + log_var + var * torch.exp(-log_var)))


class _GaussianLearned(Likelihood):
    """A variance for each value of each row, given by the decoder, as the paper writes it; clamped."""

    n_outputs = 2

    def log_prob(self, output: Tensor, x: Tensor) -> Tensor:
        mean, log_var = output.chunk(2, dim=1)
        return log_density(x, mean, log_var.clamp(MIN_LOG_VAR, MAX_LOG_VAR))

    def mean(self, output: Tensor) -> Tensor:
        return output.chunk(2, dim=1)[0]

    def sample(self, output: Tensor, generator: torch.Generator) -> Tensor:
        mean, log_var = output.chunk(2, dim=1)
        return torch.normal(
            mean, torch.exp(0.5 * log_var.clamp(MIN_LOG_VAR, MAX_LOG_VAR)), generator=generator
        )

    def log_prob_of_mean(self, x: Tensor) -> float:
        both = torch.cat([x.mean(0), x.var(0, correction=0).log()])
        return float(self.log_prob(both.expand(len(x), -1), x).mean())


def make_likelihood(name: str) -> Likelihood:
    """Make the likelihood of that name."""
    check_known("likelihood", name, LIKELIHOODS)
    if name == "bernoulli":
        return _Bernoulli()
    if name == "gaussian-learned":
        return _GaussianLearned()
    return _Gaussian(learned=name == "gaussian")


def choose_likelihood(images: bool) -> str:
    """Return Bernoulli for images, which are scaled to [0, 1], else a Gaussian with one learned variance."""
    return "bernoulli" if images else "gaussian"
