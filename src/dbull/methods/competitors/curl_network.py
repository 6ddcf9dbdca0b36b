"""The networks of CURL: one encoder with a head for each component, and one decoder.

q(y | x)      softmax of a linear head over the components in use
q(z | x, y)   diagonal Gaussian from a linear head of its own for each component
p(z | y)      diagonal Gaussian, learned; p(y) uniform over the components in use
p(x | z)      the decoder, which does not see y
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from dbull.nets.linear import linear, through
from dbull.nets.vae import MAX_LOG_VAR, MIN_LOG_VAR, VAE
from dbull.probability.gaussian import kl

# Components below it are left out of a row's sum. What is left, scaled to sum to 1, is itself a q(y | x), so
# the bound stays a bound, and the decoder runs a few times per row instead of once per component.
LEAST_RESPONSIBILITY = 1e-3
PAIRS = 32  # rows and components are decoded in multiples of it


@dataclass(frozen=True)
class Posterior:
    """q(y, z | x) of N rows over the n components in use."""

    log_q: Tensor  # (N, n)
    mean: Tensor  # (N, n, D)
    log_var: Tensor  # (N, n, D)


class CurlNetwork(nn.Module):
    """Room for `n_max` components, of which the first `n_active` are in use.

    Every component starts with the heads of `vae` for the code, and as p(z | y) with its row of `means` and
    `log_vars`, (n_active, D).
    """

    counts: Tensor

    def __init__(self, vae: VAE, n_max: int, means: Tensor, log_vars: Tensor, seed: int) -> None:
        super().__init__()
        self.vae = vae
        self.n_active = len(means)
        n_dims = vae.shape.latent_dim
        mean_head, log_var_head = vae.mean_head, vae.log_var_head
        assert isinstance(mean_head, nn.Linear)
        # Initial weights come from torch's global stream; it is put back as it was.
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.class_head = nn.Linear(mean_head.in_features, n_max)
        self.mean_weight = nn.Parameter(mean_head.weight.detach().repeat(n_max, 1))  # (n_max * D, hidden)
        self.mean_bias = nn.Parameter(mean_head.bias.detach().repeat(n_max))
        self.log_var_weight = nn.Parameter(log_var_head.weight.detach().repeat(n_max, 1))
        self.log_var_bias = nn.Parameter(log_var_head.bias.detach().repeat(n_max))
        self.prior_means = nn.Parameter(torch.zeros(n_max, n_dims))
        self.prior_log_vars = nn.Parameter(torch.zeros(n_max, n_dims))
        self.prior_means.data[: self.n_active] = means
        self.prior_log_vars.data[: self.n_active] = log_vars.clamp(MIN_LOG_VAR, MAX_LOG_VAR)
        self.register_buffer("counts", torch.zeros(n_max, dtype=torch.float64))  # rows learned, by component
        self.to(mean_head.weight.device)

    @classmethod
    def of_components(cls, vae: VAE, n_active: int, components: Mapping[str, Tensor]) -> CurlNetwork:
        """Return the network with such components, as `components` of another gave them."""
        n_max, n_dims = components["prior_means"].shape
        if not 1 <= n_active <= n_max or n_dims != vae.shape.latent_dim:
            raise ValueError(f"{n_active} of {n_max} components of {n_dims} dimensions")
        start = torch.zeros(n_active, n_dims)
        network = cls(vae, n_max, start, start, seed=0)
        for name, tensor in network.components().items():
            if components[name].dtype != tensor.dtype or components[name].shape != tensor.shape:
                raise ValueError(f"{name} is {components[name].dtype} {tuple(components[name].shape)}")
            tensor.copy_(components[name])
        return network.eval()

    def components(self) -> dict[str, Tensor]:
        """Return all tensors that are not of the autoencoder."""
        return {name: part for name, part in self.state_dict().items() if not name.startswith("vae.")}

    @property
    def n_max(self) -> int:
        """Components that there is room for."""
        return len(self.prior_means)

    def head_parameters(self) -> list[nn.Parameter]:
        """Return what belongs to components: all but encoder trunk and decoder."""
        return [p for name, p in self.named_parameters() if not name.startswith("vae.")]

    def trained_parameters(self) -> list[nn.Parameter]:
        """Return all that a gradient reaches; the heads of the autoencoder are behind the components' own."""
        vae = self.vae
        inner = [*vae.trunk.parameters(), *vae.decoder.parameters(), *vae.likelihood.parameters()]
        return [*inner, *self.head_parameters()]

    def posterior(self, inputs: Tensor) -> Posterior:
        """Return q(y, z | x)."""
        n, n_dims = self.n_active, self.prior_means.shape[1]
        hidden = through(self.vae.trunk, inputs.to(self.prior_means.device))
        log_q = torch.log_softmax(self.class_head(hidden)[:, :n], dim=1)
        some = slice(n * n_dims)
        mean = linear(hidden, self.mean_weight[some], self.mean_bias[some])
        log_var = linear(hidden, self.log_var_weight[some], self.log_var_bias[some])
        shape = (n, n_dims)
        return Posterior(
            log_q, mean.unflatten(1, shape), log_var.clamp(MIN_LOG_VAR, MAX_LOG_VAR).unflatten(1, shape)
        )

    def divergence(self, posterior: Posterior) -> Tensor:
        """Return KL(q(z | x, y) || p(z | y)), (N, n)."""
        n = self.n_active
        return kl(posterior.mean, posterior.log_var, self.prior_means[:n], self.prior_log_vars[:n])

    def bounds(
        self,
        values: Tensor,
        inputs: Tensor,
        noise: Tensor,
        least: float = LEAST_RESPONSIBILITY,
        most: int | None = None,
    ) -> Tensor:
        """Return each row's evidence lower bound, (N,), with one draw of z per component; noise (N, n, D).

        sum_y q(y | x) [log p(x | z_y) - KL(q(z | x, y) || p(z | y))] - KL(q(y | x) || p(y))

        Components with less than `least` of a row, and all but the `most` probable ones, are left out; those
        that are exactly as probable as the last of them stay.
        """
        q = self.posterior(inputs)
        log_share = q.log_q.detach()
        nth = log_share.topk(min(most or self.n_active, self.n_active), dim=1).values
        # The most probable component always stays.
        kept = (log_share >= nth[:, :1]) | ((log_share.exp() >= least) & (log_share >= nth[:, -1:]))
        log_q = torch.log_softmax(q.log_q.masked_fill(~kept, -torch.inf), dim=1)
        row, component = kept.nonzero(as_tuple=True)
        z = q.mean[row, component] + torch.exp(0.5 * q.log_var[row, component]) * noise[row, component]
        # Few different numbers of rows: oneDNN keeps a program for each, and takes time to make it.
        filler = (0, -len(row) % PAIRS)
        decoded = through(self.vae.decoder, nn.functional.pad(z, (0, 0, *filler)))
        described = values[nn.functional.pad(row, filler)]
        reconstruction = self.vae.likelihood.log_prob(decoded, described)[: len(row)]
        gain = reconstruction - self.divergence(q)[row, component] - log_q[row, component]
        weighted = log_q[row, component].exp() * gain
        return values.new_zeros(len(values)).index_add(0, row, weighted) - math.log(self.n_active)

    def bounds_of(self, component: int, values: Tensor, inputs: Tensor, noise: Tensor) -> Tensor:
        """Return each row's bound if it is of one component, plus the log of q for it; noise (N, D)."""
        q = self.posterior(inputs)
        z = q.mean[:, component] + torch.exp(0.5 * q.log_var[:, component]) * noise
        reconstruction = self.vae.likelihood.log_prob(through(self.vae.decoder, z), values)
        return reconstruction - self.divergence(q)[:, component] + q.log_q[:, component]

    @torch.no_grad()
    def expand(self, inputs: Tensor) -> int:
        """Put one more component into use, a copy of the one that holds most of these rows; return it."""
        best = int(self.posterior(inputs).log_q.exp().sum(0).argmax())
        new = self.n_active
        for parameter in self.head_parameters():
            by_component = parameter.view(self.n_max, -1)
            by_component[new] = by_component[best]
        self.n_active += 1
        return new

    @torch.no_grad()
    def reorder(self, order: Tensor) -> None:
        """Give the components in use another order."""
        n = self.n_active
        for tensor in (*self.head_parameters(), self.counts):
            by_component = tensor.view(self.n_max, -1)
            by_component[:n] = by_component[order.to(tensor.device)]

    @torch.no_grad()
    def generate(self, n_rows: int, generator: torch.Generator) -> Tensor:
        """Draw components by the rows they have learned, codes from p(z | y), and return expected values."""
        device = self.prior_means.device
        which = torch.multinomial(self.counts[: self.n_active].cpu(), n_rows, True, generator=generator)
        noise = torch.randn(n_rows, self.prior_means.shape[1], generator=generator).to(device)
        which = which.to(device)
        z = self.prior_means[which] + torch.exp(0.5 * self.prior_log_vars[which]) * noise
        return self.vae.likelihood.mean(through(self.vae.decoder, z))
