"""Everything that a learner knows: what a checkpoint must hold, in one place."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor

from dbull.errors import NumericalError
from dbull.lifelong.drift import encoder_fingerprint
from dbull.lifelong.events import ClusterEvent
from dbull.lifelong.imprint import Imprint
from dbull.lifelong.inference import CHUNK_ROWS, padded
from dbull.lifelong.novelty import Calibration
from dbull.mixture.memory import StatsMemory
from dbull.mixture.posterior import MixturePosterior, global_step
from dbull.mixture.prior import MixturePrior, paper_prior
from dbull.mixture.stats import SufficientStats
from dbull.mixture.updates import Points, local_step, log_joint, log_predictive
from dbull.nets.inputs import InputView
from dbull.nets.vae import VAE

__all__ = ["LearnerState"]


@dataclass
class LearnerState:
    """A learner between two data sets. Its size depends on the number of components, not of rows seen."""

    kind: str  # of data, as it was guessed or given
    view: InputView
    vae: VAE
    memory: StatsMemory
    prior: MixturePrior
    posterior: MixturePosterior
    owner: dict[int, int]  # id of component -> cluster
    seed: int
    n_data_sets: int = 0
    n_rows: int = 0
    n_pretrain_rows: int = 0  # unlabelled rows of the domain that the networks saw beforehand
    imprints: dict[int, Imprint] = field(default_factory=dict)  # by id of component
    calibrations: dict[int, Calibration] = field(default_factory=dict)  # by cluster
    events: list[ClusterEvent] = field(default_factory=list)
    fingerprint: str = ""  # of the encoder that the statistics belong to

    @classmethod
    def fresh(cls, kind: str, view: InputView, vae: VAE, seed: int) -> LearnerState:
        """Return a learner that has seen nothing."""
        n_dims = vae.shape.latent_dim
        prior = paper_prior(n_dims)
        nothing = global_step(prior, SufficientStats.zeros(0, n_dims))
        return cls(kind, view, vae, StatsMemory.empty(n_dims), prior, nothing, {}, seed)

    @property
    def cluster_of(self) -> Tensor:
        """Cluster of each component, (K,)."""
        return torch.tensor([self.owner[i] for i in self.memory.ids], dtype=torch.int64)

    @property
    def n_clusters(self) -> int:
        """Number of clusters; each is one component or several."""
        return max(self.owner.values(), default=-1) + 1

    def copy(self) -> LearnerState:
        """Return a learner that shares nothing that learning changes."""
        return copy.deepcopy(self)

    def random_stream(self) -> torch.Generator:
        """Return the random stream of the next data set, a function of the seed and the number before it."""
        return torch.Generator().manual_seed((self.seed + 1_000_003 * self.n_data_sets) % 2**63)

    def check_coordinates(self) -> None:
        """Refuse to add statistics of different encoders."""
        if self.n_data_sets and self.fingerprint != encoder_fingerprint(self.vae):
            raise NumericalError(
                "the encoder is not the one that the statistics were made with, so new ones cannot be added "
                "to them. Go on from the state as it was saved."
            )

    def imprints_of(self, cluster: int) -> list[Imprint]:
        """Return the imprints of a cluster's components."""
        return [self.imprints[i] for i, owner in self.owner.items() if owner == cluster]

    def log_proba(self, codes: Tensor) -> Tensor:
        """Return the log probability of each cluster, (N, n_clusters), for latent means (N, D)."""
        of_components = self._by_chunks(local_step, codes)
        cluster_of = self.cluster_of
        members = [of_components[:, cluster_of == c] for c in range(self.n_clusters)]
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
