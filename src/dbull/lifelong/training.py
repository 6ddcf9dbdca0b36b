"""Gradient steps on the networks, epoch by epoch, with the mixture held fixed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter

import torch
from torch import Tensor

from dbull.errors import NumericalError
from dbull.lifelong.inference import encode_rows
from dbull.lifelong.neighbourhood import NeighbourGraph, neighbourhood_loss
from dbull.lifelong.objective import FrozenMixture, row_terms
from dbull.nets.augment import Augmentation
from dbull.nets.inputs import InputView
from dbull.nets.vae import VAE

__all__ = ["EpochTerms", "Trainer"]


@dataclass(frozen=True)
class EpochTerms:
    """Means per row over one epoch; terms that were not part of the loss are 0."""

    reconstruction: float
    log_prior: float = 0.0
    entropy: float = 0.0
    neighbourhood: float = 0.0  # a loss: smaller is better
    rows_per_second: float = 0.0

    @property
    def elbo(self) -> float:
        """The rows' share of the evidence lower bound."""
        return self.reconstruction + self.log_prior + self.entropy


class Trainer:
    """The networks, the data set in memory, and one optimiser.

    Parameters
    ----------
    values
        What the decoder describes, (N, d) float32.
    view, inputs
        Makes the encoder's inputs from values; those of the values as they are, (N, n_inputs).
    augment
        Changes each sample at each visit; None shows the samples as they are.
    graph, neighbourhood_weight
        The neighbour graph, and how many nats per row its loss counts; None leaves the term out.
    """

    def __init__(
        self,
        vae: VAE,
        view: InputView,
        values: Tensor,
        inputs: Tensor,
        augment: Augmentation | None,
        graph: NeighbourGraph | None,
        neighbourhood_weight: float,
        batch_rows: int,
        generator: torch.Generator,
    ):
        self.vae = vae
        self.view = view
        self.values = values
        self.augment = augment
        self.graph = graph
        self.neighbourhood_weight = neighbourhood_weight
        self.batch_rows = min(batch_rows, len(values))
        self.generator = generator
        self.device = next(vae.parameters()).device
        self.inputs = inputs
        self.n_steps = -(-len(values) // self.batch_rows)
        # One optimiser for the whole life of the data set in memory; fused: one pass over the weights.
        self.optimiser = torch.optim.Adam(vae.parameters(), lr=1e-3, fused=True)

    def encode(self) -> tuple[Tensor, Tensor]:
        """Return encoder mean and variance of the clean data set, float64 on the CPU."""
        mean, var = encode_rows(self.vae, self.inputs)
        # The loss is looked at before each step, so the last step of an epoch shows here first.
        if not bool(torch.isfinite(mean).all() & torch.isfinite(var).all()):
            raise NumericalError(
                "the encoder's codes are not finite. Lower learning_rate, or look for extreme values in the "
                "data."
            )
        return mean, var

    def epoch(
        self,
        learning_rate: Callable[[float], float],
        mixture: FrozenMixture | None = None,
        responsibilities: Tensor | None = None,
    ) -> EpochTerms:
        """Visit every row once.

        Parameters
        ----------
        learning_rate
            The rate as a function of how much of the epoch is done, 0 to 1.
        mixture
            The prior of the codes; None trains a plain autoencoder (no noise, no prior, no entropy).
        responsibilities
            Of the clean rows, (N, K); None takes those of the input as it is shown.
        """
        started = perf_counter()
        order = torch.randperm(len(self.values), generator=self.generator)
        sums = torch.zeros(4)
        self.vae.train()
        for step, rows in enumerate(order.split(self.batch_rows)):
            for group in self.optimiser.param_groups:
                group["lr"] = learning_rate(step / self.n_steps)
            terms = self._terms(rows, mixture, None if responsibilities is None else responsibilities[rows])
            elbo = terms[0] + terms[1] + terms[2]
            loss = self.neighbourhood_weight * terms[3] - elbo
            if not bool(torch.isfinite(loss)):
                raise NumericalError(self._complaint(terms.detach(), step))
            self.optimiser.zero_grad(set_to_none=True)
            loss.backward()
            self.optimiser.step()
            sums += terms.detach().cpu() * len(rows)
        self.vae.eval()
        reconstruction, log_prior, entropy, neighbourhood = (sums / len(self.values)).tolist()
        rows_per_second = len(self.values) / (perf_counter() - started)
        return EpochTerms(reconstruction, log_prior, entropy, neighbourhood, rows_per_second)

    def _terms(self, rows: Tensor, mixture: FrozenMixture | None, responsibilities: Tensor | None) -> Tensor:
        """Return the batch means of reconstruction, log prior, entropy and neighbourhood loss, (4,)."""
        n_rows, vae = len(rows), self.vae
        if self.augment is None:
            shown, inputs = self.values[rows], self.inputs[rows]
        else:
            shown = self.augment(self.values[rows], self.generator)
            inputs = self.view.inputs(shown)
        if self.graph is not None:
            inputs = torch.cat([inputs, self.inputs[self.graph.draw(rows, self.generator)]])
        shown, inputs = shown.to(self.device), inputs.to(self.device)
        if mixture is None:
            mean = vae.encode_mean(inputs)
            reconstruction = vae.likelihood.log_prob(vae.decode(mean[:n_rows]), shown).mean()
            terms = [reconstruction, reconstruction.new_zeros(()), reconstruction.new_zeros(())]
        else:
            mean, log_var = vae.encode(inputs)
            noise = torch.randn(n_rows, mean.shape[1], generator=self.generator).to(self.device)
            if responsibilities is not None:
                responsibilities = responsibilities.to(self.device)
            row = row_terms(vae, mixture, shown, mean[:n_rows], log_var[:n_rows], noise, responsibilities)
            terms = [row.reconstruction.mean(), row.log_prior.mean(), row.entropy.mean()]
        if self.graph is not None:
            terms.append(neighbourhood_loss(mean[:n_rows], mean[n_rows:]))
        else:
            terms.append(terms[0].new_zeros(()))
        return torch.stack(terms)

    def _complaint(self, terms: Tensor, step: int) -> str:
        """Say which term left the range of numbers."""
        names = ("reconstruction", "log_prior", "entropy", "neighbourhood")
        bad = [name for name, value in zip(names, terms, strict=True) if not bool(torch.isfinite(value))]
        return (
            f"the network loss is not finite ({', '.join(bad) or 'sum'} term, step {step} of the epoch). "
            "Lower learning_rate, or look for extreme values in the data."
        )
