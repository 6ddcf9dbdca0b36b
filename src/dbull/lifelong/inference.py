"""Answers about rows, in chunks of one fixed size.

Matrix products round differently for different numbers of rows. Padding every chunk to one size makes a row's
answer independent of the rows beside it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from dbull.lifelong.objective import FrozenMixture, row_terms
from dbull.mixture.elbo import elbo_terms
from dbull.nets.vae import VAE
from dbull.threads import mapped

if TYPE_CHECKING:
    from dbull.lifelong.state import LearnerState

CHUNK_ROWS = 1024
N_NOISE = 4  # draws of z per row in a row's bound, in pairs of opposite sign


@torch.no_grad()
def encode_rows(vae: VAE, inputs: Tensor) -> tuple[Tensor, Tensor]:
    """Return encoder mean and variance (N, D), float64 on the CPU."""
    if not vae.learns:
        mean, log_var = vae.encode(inputs)
        return mean.to(torch.float64), log_var.exp().to(torch.float64)
    device = next(vae.parameters()).device
    nothing = torch.zeros(0, vae.shape.latent_dim, device=device)

    def encode(chunk: Tensor) -> tuple[Tensor, Tensor]:
        mean, log_var = (part[: len(chunk)] for part in vae.encode(padded(chunk).to(device)))
        return mean, log_var.exp()

    parts = mapped(encode, inputs.split(CHUNK_ROWS) if len(inputs) else ())
    # Answers come back from a device all at once, and not all devices have float64.
    mean, var = (
        torch.cat(part).cpu().to(torch.float64) for part in zip((nothing, nothing), *parts, strict=True)
    )
    return mean, var


@torch.no_grad()
def replayed_codes(vae: VAE, inputs: Tensor) -> Tensor:
    """Return encoder means (N, D), float32 on the CPU, of rows that are drawn once: no chunk is padded."""
    device = next(vae.parameters()).device
    parts = mapped(lambda chunk: vae.encode_mean(chunk.to(device)), inputs.split(CHUNK_ROWS))
    return torch.cat(parts).to("cpu", torch.float32)


@torch.no_grad()
def decode_codes(vae: VAE, codes: Tensor, generator: torch.Generator | None = None) -> Tensor:
    """Return the expected values (N, d) at latent vectors (N, D), float32 on the CPU.

    With a generator values are drawn: what the decoder leaves open is filled in at random.
    """
    if not vae.learns:
        return codes.to(torch.float32)
    device = next(vae.parameters()).device

    def decode(chunk: Tensor) -> Tensor:
        decoded = vae.decode(padded(chunk.to(torch.float32)).to(device))[: len(chunk)]
        return (vae.likelihood.mean(decoded) if generator is None else decoded).cpu()

    values = torch.cat(mapped(decode, codes.split(CHUNK_ROWS)))
    return values if generator is None else vae.likelihood.sample(values, generator)


@torch.no_grad()
def row_bounds(vae: VAE, mixture: FrozenMixture, values: Tensor, inputs: Tensor, seed: int) -> Tensor:
    """Return each row's share of the evidence lower bound, (N,) float64.

    The expectation over z is that of a few fixed draws, the same for every row and call.
    """
    device = next(vae.parameters()).device
    generator = torch.Generator().manual_seed(seed)
    half = torch.randn(N_NOISE // 2, vae.shape.latent_dim, generator=generator)
    noises = torch.cat([half, -half]).to(device)

    def bound(chunk: tuple[Tensor, Tensor]) -> Tensor:
        shown, given = (padded(part).to(device) for part in chunk)
        encoded = vae.encode(given)
        draws = [
            row_terms(vae, mixture, shown, encoded, noise.expand_as(encoded[0])).elbo for noise in noises
        ]
        return torch.stack(draws).mean(0)[: len(chunk[0])].cpu().to(torch.float64)

    chunks = zip(values.split(CHUNK_ROWS), inputs.split(CHUNK_ROWS), strict=True)
    return torch.cat(mapped(bound, chunks))


def padded(chunk: Tensor) -> Tensor:
    """Return the chunk with rows of zeros up to CHUNK_ROWS."""
    if len(chunk) == CHUNK_ROWS:
        return chunk
    full = chunk.new_zeros(CHUNK_ROWS, chunk.shape[1])
    full[: len(chunk)] = chunk
    return full


def bounds_of(state: LearnerState, values: Tensor, inputs: Tensor) -> Tensor:
    """Return each row's bound, or its density if there are no networks, in the units of the data, (N,)."""
    if state.vae.learns:
        frozen = FrozenMixture.of(state.posterior, next(state.vae.parameters()).device)
        bounds = row_bounds(state.vae, frozen, values, inputs, state.seed)
    else:
        bounds = state.log_density(inputs.double())
    return bounds - log_volume(state, values)


def elbo_of(state: LearnerState, values: Tensor, inputs: Tensor, codes: Tensor, times: float = 1.0) -> float:
    """Return the evidence lower bound of a data set under the learner, in the units of the data.

    Each row stands for so many `times`, where they are a sample of a data set.
    """
    if state.vae.learns:
        total = float(bounds_of(state, values, inputs).sum())
    else:
        # A predictive density integrates the posterior out, so a sum of them is no bound.
        total = float((state.code_bounds(codes) - log_volume(state, values)).sum())
    divergence = elbo_terms(state.prior, state.posterior, state.memory.total)
    return times * total + divergence.minus_stick_divergence + divergence.minus_component_divergence


def log_volume(state: LearnerState, values: Tensor) -> Tensor:
    """Return the log of the units that densities of values (N, d) are divided by; probabilities have none."""
    if state.vae.shape.likelihood == "bernoulli":
        return values.new_zeros((), dtype=torch.float64)
    return state.view.log_volume(values)
