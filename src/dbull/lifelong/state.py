"""Everything that a learner knows: what a checkpoint must hold, in one place."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from dbull.lifelong.inference import CHUNK_ROWS, padded
from dbull.mixture.memory import StatsMemory
from dbull.mixture.posterior import MixturePosterior
from dbull.mixture.prior import MixturePrior
from dbull.mixture.updates import Points, local_step, log_joint, log_predictive
from dbull.nets.inputs import InputView
from dbull.nets.vae import VAE

__all__ = ["LearnerState"]


@dataclass
class LearnerState:
    """A learner between two data sets."""

    view: InputView
    vae: VAE
    memory: StatsMemory
    prior: MixturePrior
    posterior: MixturePosterior
    cluster_of: Tensor  # (K,) cluster of each component
    seed: int
    n_data_sets: int = 0
    n_rows: int = 0

    @property
    def n_clusters(self) -> int:
        """Number of clusters; each is one component or several."""
        return int(self.cluster_of.max()) + 1

    def log_proba(self, codes: Tensor) -> Tensor:
        """Return the log probability of each cluster, (N, n_clusters), for latent means (N, D)."""
        of_components = self._by_chunks(local_step, codes)
        members = [of_components[:, self.cluster_of == c] for c in range(self.n_clusters)]
        return torch.stack([torch.logsumexp(part, dim=1) for part in members], dim=1)

    def log_density(self, codes: Tensor) -> Tensor:
        """Return the log predictive density of each code, (N,)."""
        return self._by_chunks(log_predictive, codes)

    def code_bounds(self, codes: Tensor) -> Tensor:
        """Return what each code adds to the evidence lower bound of the mixture, (N,)."""
        return torch.logsumexp(self._by_chunks(log_joint, codes), dim=1)

    def _by_chunks(self, answer: Callable[[MixturePosterior, Points], Tensor], codes: Tensor) -> Tensor:
        """Ask the mixture in chunks of one size, so that no row's answer depends on the rows beside it."""
        return torch.cat(
            [
                answer(self.posterior, Points.from_rows(padded(chunk)))[: len(chunk)]
                for chunk in codes.split(CHUNK_ROWS)
            ]
        )
