"""`VAEDP`: a plain variational autoencoder, then a Dirichlet process mixture of its codes."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from dbull.codec.networks import Tensors
from dbull.documents import fail
from dbull.lifelong.learn import Progress
from dbull.lifelong.objective import FrozenMixture
from dbull.methods.base import Capabilities
from dbull.methods.competitors.autoencoder import AutoencoderMethod, Clock, by_size, in_chunks, prepare
from dbull.methods.dp_mixture import DOCUMENT, DPMixture
from dbull.nets.augment import Augmentation

__all__ = ["VAEDP", "standard_normal"]


def standard_normal(n_dims: int, device: torch.device | str = "cpu") -> FrozenMixture:
    """Return N(0, I) as a mixture of one fixed component: the prior of a plain variational autoencoder."""
    return FrozenMixture(
        root=torch.eye(n_dims, device=device),
        offset=torch.zeros(1, n_dims, device=device),
        precision_diagonal=torch.ones(1, n_dims, device=device),
        constant=torch.full((1,), -0.5 * n_dims * math.log(2 * math.pi), device=device),
    )


class VAEDP(AutoencoderMethod):
    """A plain variational autoencoder, trained to its end, then `DPMixture` on the means of its codes.

    The networks never hear of the clusters: what `DBULL` gains over this comes of learning both together.

    Parameters
    ----------
    concentration, max_evidence, max_clusters
        Of the mixture, as in `DPMixture`.
    kind, image_shape, latent_dim, hidden_dims, likelihood, front_end, augment, pretraining, epochs
        Of the autoencoder, as in `DBULL`; `front_end` is off unless asked for. No layer is wider than 16
        times the number of columns unless asked for.
    batch_size, learning_rate, random_state, device, callback
        As in `DBULL`.

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
    capabilities = Capabilities(learns_representation=True, learns_k=True, expands=True, remembers=False)

    def __init__(
        self,
        *,
        concentration: float = 1.0,
        max_evidence: str | float | None = "auto",
        max_clusters: int = 1000,
        kind: str = "auto",
        image_shape: tuple[int, ...] | None = None,
        latent_dim: str | int = "auto",
        hidden_dims: str | tuple[int, ...] = "auto",
        likelihood: str = "auto",
        front_end: bool = False,
        augment: str | Augmentation | None = "auto",
        pretraining: str = "end-to-end",
        epochs: str | int = "auto",
        batch_size: str | int = "auto",
        learning_rate: str | float = "auto",
        random_state: Any = None,
        device: str = "cpu",
        callback: Callable[[Progress], object] | None = None,
    ):
        self.concentration = concentration
        self.max_evidence = max_evidence
        self.max_clusters = max_clusters
        self.kind = kind
        self.image_shape = image_shape
        self.latent_dim = latent_dim
        self.hidden_dims = hidden_dims
        self.likelihood = likelihood
        self.front_end = front_end
        self.augment = augment
        self.pretraining = pretraining
        self.epochs = epochs
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.random_state = random_state
        self.device = device
        self.callback = callback

    def _unfitted(self, seed: int) -> DPMixture:
        return DPMixture(
            concentration=self.concentration,
            max_evidence=self.max_evidence,
            max_clusters=self.max_clusters,
            random_state=seed,
        )

    def _min_rows(self) -> int:
        self._unfitted(0).check_parameters()
        return 2

    def _learn(self, rows: Tensor, seed: int) -> Iterator[Progress]:
        bench = prepare(self, rows, seed)
        clock = Clock(bench.n_epochs)
        prior = standard_normal(bench.vae.shape.latent_dim, bench.trainer.device)
        yield from bench.train(clock, prior)
        codes = bench.trainer.encode()[0]
        self.mixture_ = self._unfitted(seed).fit(codes.numpy())
        self._view, self._vae = bench.view, bench.vae
        self.n_clusters_ = self.mixture_.n_clusters_
        self._order = torch.arange(self.n_clusters_)
        self._order = by_size(in_chunks(self._log_proba, codes))
        yield clock.done(self.n_clusters_)

    def _log_proba(self, codes: Tensor) -> Tensor:
        return torch.from_numpy(self.mixture_.predict_proba(codes.numpy())).log()[:, self._order]

    def _pack_clusters(self) -> tuple[dict[str, dict[str, Tensor]], dict[str, Any]]:
        tensors, mixture = self.mixture_._pack()
        return {**tensors, "clusters": {"order": self._order}}, mixture

    def _unpack_clusters(self, tensors: Tensors, told: dict[str, Any], where: str) -> None:
        self.mixture_ = self._unfitted(told["seed"])
        self.mixture_.n_features_in_ = self.mixture_._unpack(tensors, told, 0, where)
        self.n_clusters_, self._order = self.mixture_.n_clusters_, tensors["clusters"]["order"]
        if self._order.dtype != torch.int64 or sorted(self._order.tolist()) != list(range(self.n_clusters_)):
            fail(where, f"the order of {self.n_clusters_} clusters is {self._order.tolist()!r:.60}")
        if self.mixture_.n_features_in_ != self._vae.shape.latent_dim:
            fail(where, "the mixture is not one of the networks' codes")
