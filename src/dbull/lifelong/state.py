"""Everything that a learner knows: what a checkpoint must hold, in one place."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor

from dbull.errors import NumericalError
from dbull.ledger import Ledger, spread_of
from dbull.lifelong.few_rows import FewRows
from dbull.lifelong.groups import Join, hierarchy
from dbull.lifelong.index import EXACT
from dbull.lifelong.inference import CHUNK_ROWS, padded
from dbull.lifelong.novelty import Calibration
from dbull.lifelong.past import IMPRINT_RANK, Imprint, encoder_fingerprint, imprints_of_stats
from dbull.mixture.memory import StatsMemory
from dbull.mixture.posterior import MixturePosterior, global_step, mean_weights
from dbull.mixture.prior import MixturePrior, paper_prior
from dbull.mixture.stats import SufficientStats
from dbull.mixture.updates import Points, local_step, log_joint, log_predictive
from dbull.nets.inputs import InputView
from dbull.nets.vae import VAE
from dbull.threads import mapped

__all__ = ["LearnerState"]
PIECES = 64  # chunks of rows that are assigned at once


@dataclass
class LearnerState:
    """A learner between two data sets. Its size depends on the number of components, not of rows seen."""

    kind: str  # of data, as it was guessed or given
    view: InputView
    vae: VAE
    memory: StatsMemory
    prior: MixturePrior
    posterior: MixturePosterior
    owner: dict[int, int]  # id of component -> id of its cluster
    seed: int
    n_data_sets: int = 0
    n_rows: int = 0
    n_pretrain_rows: int = 0  # unlabelled rows of the domain that the networks saw beforehand
    imprints: dict[int, Imprint] = field(default_factory=dict)  # by id of component
    calibrations: dict[int, Calibration] = field(default_factory=dict)  # by cluster
    ledger: Ledger = field(default_factory=Ledger)  # every cluster that has ever been, and what happened
    fingerprint: str = ""  # of the encoder that the statistics belong to
    alone_usually: float = 0.0  # share of known rows that keep to themselves among replayed ones
    graph_index: str = EXACT  # by which the neighbours of the latest data set were found
    beginning: FewRows | None = None  # all rows of a stream that is young
    waiting: FewRows | None = None  # rows that fit no cluster, and are too few to found one
    # Largest root mean square that each value had in any data set, (d,); empty where nothing is known.
    column_rms: Tensor = field(default_factory=lambda: torch.zeros(0, dtype=torch.float64))

    @classmethod
    def fresh(cls, kind: str, view: InputView, vae: VAE, seed: int) -> LearnerState:
        """Return a learner that has seen nothing."""
        n_dims = vae.shape.latent_dim
        prior = paper_prior(n_dims)
        nothing = global_step(prior, SufficientStats.zeros(0, n_dims))
        return cls(kind, view, vae, StatsMemory.empty(n_dims), prior, nothing, {}, seed)

    @property
    def cluster_of(self) -> Tensor:
        """Id of the cluster of each component, (K,)."""
        return torch.tensor([self.owner[i] for i in self.memory.ids], dtype=torch.int64)

    @property
    def cluster_ids(self) -> tuple[int, ...]:
        """Ids of the clusters that rows can belong to, oldest first; a merge leaves gaps."""
        return tuple(sorted(set(self.owner.values())))

    @property
    def n_clusters(self) -> int:
        """Number of clusters; each is one component or several."""
        return len(self.cluster_ids)

    @property
    def weights(self) -> Tensor:
        """Expected weight of each cluster, (n_clusters,), in the order of `cluster_ids`."""
        places = torch.searchsorted(torch.tensor(self.cluster_ids, dtype=torch.int64), self.cluster_of)
        weights = mean_weights(self.posterior)
        return torch.zeros(self.n_clusters, dtype=weights.dtype).index_add_(0, places, weights)

    def copy(self) -> LearnerState:
        """Return a learner that shares nothing that learning changes."""
        return copy.deepcopy(self)

    def new_generator(self) -> torch.Generator:
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
        return [
            self.imprints[i] for i, owner in self.owner.items() if owner == cluster and i in self.imprints
        ]

    def imprint_inputs(self) -> None:
        """Make the imprints that follow from the statistics, where codes are the inputs themselves."""
        self.imprints = dict(
            zip(self.memory.ids, imprints_of_stats(self.memory.overall, IMPRINT_RANK), strict=True)
        )

    def log_proba(self, codes: Tensor) -> Tensor:
        """Return the log probability of each of `cluster_ids`, (N, n_clusters), for latent means (N, D)."""
        of_components = self.by_chunks(local_step, codes)
        cluster_of = self.cluster_of
        members = [of_components[:, cluster_of == c] for c in self.cluster_ids]
        return torch.stack([torch.logsumexp(part, dim=1) for part in members], dim=1)

    def assign(self, codes: Tensor) -> Tensor:
        """Return the id of the most probable cluster of each code, (N,)."""
        # Piece by piece: as many probabilities as all rows have clusters are not needed at once.
        best = torch.cat([self.log_proba(piece).argmax(1) for piece in codes.split(PIECES * CHUNK_ROWS)])
        ids: Tensor = torch.tensor(self.cluster_ids, dtype=torch.int64)[best]
        return ids

    def hierarchy(self) -> tuple[Join, ...]:
        """Return how the clusters would be joined at coarser resolutions."""
        members = [self.cluster_of == cluster for cluster in self.cluster_ids]
        total = self.memory.total.each(lambda part: torch.stack([part[mine].sum(0) for mine in members]))
        return hierarchy(self.cluster_ids, total)

    def spread(self, cluster: int) -> float:
        """Return the root mean square distance of a cluster's codes from their mean."""
        total = self.memory.total.select((self.cluster_of == cluster).nonzero()[:, 0])
        return spread_of(total.counts, total.sum_z, total.sum_zz)

    def merge(self, older: int, newer: int) -> None:
        """Make one cluster of two: the components of the newer one belong to the older from now on."""
        self.ledger.merged(older, newer)
        self.beginning = None  # what a person has decided is not decided again
        sizes = {c: sum(imprint.n_rows for imprint in self.imprints_of(c)) for c in (older, newer)}
        self.owner = {i: older if owner == newer else owner for i, owner in self.owner.items()}
        if newer in self.calibrations and not self.imprints:  # bounds know no shares
            self.calibrations[older] += self.calibrations.pop(newer)
        elif newer in self.calibrations:
            # In the larger cluster each part has its share of the density.
            total = sum(sizes.values())
            self.calibrations[older] = self.calibrations[older].shifted(math.log(sizes[older] / total))
            self.calibrations[older] += self.calibrations.pop(newer).shifted(math.log(sizes[newer] / total))

    def log_density(self, codes: Tensor) -> Tensor:
        """Return the log predictive density of each code, (N,)."""
        return self.by_chunks(log_predictive, codes)

    def code_bounds(self, codes: Tensor) -> Tensor:
        """Return what each code adds to the evidence lower bound of the mixture, (N,)."""
        return torch.logsumexp(self.by_chunks(log_joint, codes), dim=1)

    def by_chunks(self, answer: Callable[[MixturePosterior, Points], Tensor], codes: Tensor) -> Tensor:
        """Ask the mixture in chunks of one size, so that no row's answer depends on the rows beside it."""

        def ask(chunk: Tensor) -> Tensor:
            return answer(self.posterior, Points.from_rows(padded(chunk)))[: len(chunk)]

        return torch.cat(mapped(ask, codes.split(CHUNK_ROWS)))
