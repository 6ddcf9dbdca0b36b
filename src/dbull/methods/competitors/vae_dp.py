"""`VAEDP`: a plain variational autoencoder, then a Dirichlet process mixture of its codes."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from dbull.codec.networks import Tensors
from dbull.documents import fail
from dbull.lifelong.objective import FrozenMixture
from dbull.lifelong.training import Clock, Progress, Trainer
from dbull.methods.base import Capabilities
from dbull.methods.competitors.autoencoder import AutoencoderMethod, by_size, in_chunks
from dbull.methods.dp_mixture import DOCUMENT, DPMixture


def standard_normal(n_dims: int, device: torch.device | str = "cpu") -> FrozenMixture:
    """Return N(0, I) as a mixture of one fixed component: the prior of a plain variational autoencoder."""
    return FrozenMixture(
        root=torch.eye(n_dims, device=device),
        offset=torch.zeros(1, n_dims, device=device),
        precision_diagonal=torch.ones(1, n_dims, device=device),
        constant=torch.full((1,), -0.5 * n_dims * math.log(2 * math.pi), device=device),
    )


@dataclass(kw_only=True, eq=False, repr=False)
class VAEDP(AutoencoderMethod):
    """A plain variational autoencoder, trained to its end, then `DPMixture` on the means of its codes.

    The networks never hear of the clusters: what `DBULL` gains over this comes of learning both together.

    Parameters
    ----------
    concentration, max_evidence, max_clusters
        Of the mixture, as in `DPMixture`.
    others
        As in `DBULL`; `front_end` is off, and no layer wider than 16 times the columns, unless asked for.

    Attributes
    ----------
    n_clusters_ : int
        Number of clusters found.
    labels_ : ndarray of shape (n_samples,)
        Cluster of each row learned, the largest being 0.
    mixture_ : DPMixture
        The mixture of the codes; its own ids are in the order in which clusters were born.
    history_ : list of Progress
        What happened while learning.
    """

    stored_as = "vae-dp"
    _stored_facts = DOCUMENT
    _joint_epochs = 0
    capabilities = Capabilities(learns_representation=True, learns_k=True, expands=True, remembers=False)

    concentration: float = 1.0
    max_evidence: str | float | None = "auto"
    max_clusters: int = 1000

    def _unfitted(self, seed: int) -> DPMixture:
        shared = ("concentration", "max_evidence", "max_clusters")
        return DPMixture(**{name: getattr(self, name) for name in shared}, random_state=seed)

    def _prior(self, trainer: Trainer) -> FrozenMixture:
        return standard_normal(trainer.vae.shape.latent_dim, trainer.device)

    def _learn_clusters(self, trainer: Trainer, clock: Clock) -> Iterator[Progress]:
        codes = trainer.encode()[0]
        self.mixture_ = self._unfitted(self._seed).fit(codes.numpy())
        self.n_clusters_ = self.mixture_.n_clusters_
        self._order = torch.arange(self.n_clusters_)
        self._order = by_size(in_chunks(self._log_proba, codes))
        yield from ()

    def _log_proba(self, codes: Tensor) -> Tensor:
        return torch.from_numpy(self.mixture_.predict_proba(codes.numpy())).log()[:, self._order]

    def _pack_clusters(self) -> tuple[Tensors, dict[str, Any]]:
        mixture = self.mixture_._pack()
        return {**mixture.tensors, "clusters": {"order": self._order}}, mixture.documents["learner"]

    def _unpack_clusters(self, tensors: Tensors, told: dict[str, Any], where: str) -> None:
        self.mixture_ = self._unfitted(told["seed"])
        self.mixture_.n_features_in_ = self.mixture_._unpack(tensors, told, 0, where)
        self.n_clusters_, self._order = self.mixture_.n_clusters_, tensors["clusters"]["order"]
        if self._order.dtype != torch.int64 or sorted(self._order.tolist()) != list(range(self.n_clusters_)):
            fail(where, f"the order of {self.n_clusters_} clusters is {self._order.tolist()!r:.60}")
        if self.mixture_.n_features_in_ != self._vae.shape.latent_dim:
            fail(where, "the mixture is not one of the networks' codes")
