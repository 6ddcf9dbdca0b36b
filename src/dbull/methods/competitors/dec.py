"""`DEC`: deep embedded clustering (Xie, Girshick & Farhadi 2016)."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar

import torch
from sklearn.cluster import KMeans
from torch import Tensor
from torch.nn import functional as F

from dbull.codec.networks import Tensors
from dbull.documents import fail
from dbull.lifelong.training import Clock, Progress, Trainer
from dbull.methods.base import Capabilities, check_number
from dbull.methods.competitors.autoencoder import AutoencoderMethod, by_size, descend, in_chunks
from dbull.methods.parameters import Check

MAX_EPOCHS_BETWEEN = 5  # of small data, whose epochs are shorter than the interval between targets
MOMENTUM = 0.9


def log_soft_assignment(codes: Tensor, centres: Tensor, dof: float = 1.0) -> Tensor:
    """Return log q (N, K), the similarity of codes (N, D) to centres (K, D) by a Student-t kernel.

    q_nk is proportional to (1 + |z_n - c_k|^2 / a)^(-(a + 1) / 2) with a degrees of freedom; equation 1.
    """
    squares = (codes[:, None] - centres).square().sum(2)
    return torch.log_softmax(-0.5 * (dof + 1) * torch.log1p(squares / dof), dim=1)


def target_distribution(assignment: Tensor) -> Tensor:
    """Return p (N, K), sharper than the soft assignment q and fair to small clusters.

    p_nk is proportional to q_nk^2 / f_k, f_k = sum_n q_nk; equation 3.
    """
    weight = assignment.square() / assignment.sum(0)
    return weight / weight.sum(1, keepdim=True)


@dataclass(kw_only=True, eq=False, repr=False)
class DEC(AutoencoderMethod):
    """Deep embedded clustering: an encoder and K centres, sharpened by their own confident assignments.

    An autoencoder is trained, k-means places the centres among its codes, then encoder and centres
    follow a target distribution made from their present assignments, KL(P || Q), until hardly a row changes.

    Parameters
    ----------
    n_clusters : int, default=8
        Number of clusters.
    dof : float, default=1.0
        Degrees of freedom of the Student-t kernel.
    n_init : int, default=20
        Starts of k-means.
    update_interval : int, default=140
        Gradient steps between new targets; on small data at most five epochs.
    tolerance : float, default=1e-3
        Learning stops when at most this share of rows changes cluster between targets.
    joint_epochs : "auto" or int, default="auto"
        Epochs of this second stage, at most; "auto": 100.
    joint_learning_rate : float, default=0.01
        Of stochastic gradient descent with momentum 0.9 in the second stage.
    others
        As in `DBULL`; `front_end` is off, and no layer wider than 16 times the columns, unless asked for.

    Attributes
    ----------
    n_clusters_ : int
        Number of clusters.
    labels_ : ndarray of shape (n_samples,)
        Cluster of each row learned, the largest being 0.
    centres_ : ndarray of shape (n_clusters, latent_dim)
        Centres among the codes.
    history_ : list of Progress
        What happened while learning.
    """

    stored_as = "dec"
    told_true_k_as = "n_clusters"
    _joint_epochs = 100
    _allowed: ClassVar[dict[str, Check]] = {"joint_learning_rate": partial(check_number, above=0)}
    capabilities = Capabilities(learns_representation=True, learns_k=False, expands=False, remembers=False)

    n_clusters: int = field(default=8, kw_only=False)
    dof: float = 1.0
    n_init: int = 20
    update_interval: int = 140
    tolerance: float = 1e-3
    joint_epochs: str | int = "auto"
    joint_learning_rate: float = 0.01

    def _learn_clusters(self, trainer: Trainer, clock: Clock) -> Iterator[Progress]:
        codes, seed = trainer.encode()[0].numpy(), self._seed % 2**32
        kmeans = KMeans(self.n_clusters, n_init=self.n_init, random_state=seed).fit(codes)
        centres = torch.from_numpy(kmeans.cluster_centers_).to(trainer.device, torch.float32)
        centres.requires_grad_(True)
        clock.n_components = len(centres)
        yield from self._sharpen(trainer, centres, clock)
        self._centres = centres.detach().cpu().to(torch.float64)
        order = by_size(in_chunks(self._log_proba, trainer.encode()[0]))
        self._publish(self._centres[order])

    def _sharpen(self, trainer: Trainer, centres: Tensor, clock: Clock) -> Iterator[Progress]:
        """Train encoder and centres towards the target distribution, which is renewed now and then."""
        vae, s = trainer.vae, trainer.settings
        parameters = [*vae.trunk.parameters(), *vae.mean_head.parameters(), centres]
        optimiser = torch.optim.SGD(parameters, lr=s.joint_learning_rate, momentum=MOMENTUM)
        interval = min(self.update_interval, MAX_EPOCHS_BETWEEN * trainer.n_steps)
        target, labels = torch.zeros(0), torch.full((len(trainer.rows.values),), -1)
        step = 0
        for epoch in range(s.joint_epochs):
            changed = 0.0
            for rows in trainer.batches():
                if step % interval == 0:
                    log_q = self._assignment_now(trainer, centres)
                    target, before, labels = target_distribution(log_q.exp()), labels, log_q.argmax(1)
                    changed = float((labels != before).double().mean())
                    if changed <= self.tolerance:
                        return
                inputs = trainer.rows.inputs[rows].to(trainer.device)
                log_q = log_soft_assignment(vae.encode_mean(inputs), centres, self.dof)
                loss = F.kl_div(log_q, target[rows].to(log_q), reduction="batchmean")
                descend(optimiser, loss, "the clusters")
                step += 1
            yield clock.now("joint", epoch, s.joint_epochs, changed_share=changed)

    def _assignment_now(self, trainer: Trainer, centres: Tensor) -> Tensor:
        codes = trainer.encode()[0]
        where = centres.detach().cpu().to(codes.dtype)
        return in_chunks(lambda some: log_soft_assignment(some, where, self.dof), codes)

    def _log_proba(self, codes: Tensor) -> Tensor:
        return log_soft_assignment(codes, self._centres, float(self.dof))

    def _publish(self, centres: Tensor) -> None:
        self._centres = centres
        self.centres_ = centres.numpy()
        self.n_clusters_ = len(centres)

    def _pack_clusters(self) -> tuple[Tensors, dict[str, Any]]:
        return {"clusters": {"centres": self._centres}}, {}

    def _unpack_clusters(self, tensors: Tensors, told: dict[str, Any], where: str) -> None:
        centres = tensors["clusters"]["centres"]
        if centres.dtype != torch.float64 or centres.shape[1:] != (self._vae.shape.latent_dim,):
            fail(where, f"centres are {centres.dtype} {tuple(centres.shape)}")
        self._publish(centres)
