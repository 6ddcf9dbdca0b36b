"""`VaDE`: variational deep embedding (Jiang, Zheng, Tan, Tang & Zhou 2017)."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn import config_context
from sklearn.cluster import KMeans
from sklearn.mixture import GaussianMixture
from torch import Tensor, nn

from dbull.codec.networks import Tensors, check_kind
from dbull.lifelong.objective import RowTerms, entropy
from dbull.lifelong.training import Clock, Progress, Trainer, together
from dbull.methods.base import Capabilities
from dbull.methods.competitors.autoencoder import AutoencoderMethod, by_size, descend, in_chunks
from dbull.nets.adam import Adam
from dbull.nets.vae import VAE
from dbull.probability.gaussian import expected_log_density, log_density

LEAST_SHARE = 1e-12  # of the mean square of the codes, where they do not vary
LEAST_VAR = 1e-6  # of a component at the start, as a share of the mean variance of the codes


class DiagonalMixture(nn.Module):
    """A mixture of diagonal Gaussians whose weights, means and variances are learned by gradients."""

    def __init__(self, weights: NDArray[Any], means: NDArray[Any], variances: NDArray[Any]) -> None:
        super().__init__()

        def parameter(values: NDArray[Any]) -> nn.Parameter:
            return nn.Parameter(torch.tensor(np.asarray(values), dtype=torch.float32))

        self.logits = parameter(np.log(np.clip(weights, np.finfo(np.float32).tiny, None)))  # (K,)
        self.means = parameter(means)  # (K, D)
        self.log_vars = parameter(np.log(variances))  # (K, D)

    @property
    def log_weights(self) -> Tensor:
        """Log of the weights, which sum to 1, (K,)."""
        return torch.log_softmax(self.logits, dim=0)

    def log_joint(self, z: Tensor) -> Tensor:
        """Return log pi_k + log N(z | k), (N, K)."""
        return self.log_weights + log_density(z[:, None], self.means, self.log_vars)

    def expected_log_joint(self, mean: Tensor, log_var: Tensor) -> Tensor:
        """Return log pi_k + E[log N(z | k)] over N(mean, diag(exp(log_var))), (N, K)."""
        return self.log_weights + expected_log_density(
            mean[:, None], log_var[:, None], self.means, self.log_vars
        )


def vade_terms(vae: VAE, mixture: DiagonalMixture, values: Tensor, inputs: Tensor, noise: Tensor) -> RowTerms:
    """Return the terms of the bound with one draw of z.

    log_prior is sum_k g_k (log pi_k + E[log N(z | k)] - log g_k) with g_k = p(k | z) of the drawn z, through
    which gradients flow; equations 9, 12 and 16.
    """
    mean, log_var = vae.encode(inputs)
    z = mean + torch.exp(0.5 * log_var) * noise
    log_g = torch.log_softmax(mixture.log_joint(z), dim=1)
    log_prior = (log_g.exp() * (mixture.expected_log_joint(mean, log_var) - log_g)).sum(1)
    return RowTerms(vae.likelihood.log_prob(vae.decode(z), values), log_prior, entropy(log_var))


@dataclass(kw_only=True, eq=False, repr=False)
class VaDE(AutoencoderMethod):
    """Variational deep embedding: a variational autoencoder whose prior is a mixture of K diagonal Gaussians.

    An autoencoder is trained, a Gaussian mixture fitted to its codes, then networks and mixture are learned
    together by gradients of the evidence lower bound.

    Parameters
    ----------
    n_clusters : int, default=8
        Number of clusters.
    n_init : int, default=20
        Starts of k-means on the codes, from whose clusters the Gaussian mixture begins.
    joint_epochs : "auto" or int, default="auto"
        Epochs of networks and mixture together; "auto": as many as before.
    joint_learning_rate : "auto" or float, default="auto"
        Of Adam in this second stage; "auto": 3/10 of `learning_rate`.
    others
        As in `DBULL`; `front_end` is off, and no layer wider than 16 times the columns, unless asked for.

    Attributes
    ----------
    n_clusters_ : int
        Number of clusters.
    labels_ : ndarray of shape (n_samples,)
        Cluster of each row learned, the largest being 0.
    weights_, means_, variances_ : ndarray
        Of the mixture: (n_clusters,), (n_clusters, latent_dim) twice.
    history_ : list of Progress
        What happened while learning.
    """

    stored_as = "vade"
    told_true_k_as = "n_clusters"
    _joint_rate = 0.3
    capabilities = Capabilities(learns_representation=True, learns_k=False, expands=False, remembers=False)

    n_clusters: int = field(default=8, kw_only=False)
    n_init: int = 20
    joint_epochs: str | int = "auto"
    joint_learning_rate: str | float = "auto"

    def _learn_clusters(self, trainer: Trainer, clock: Clock) -> Iterator[Progress]:
        vae, mixture = trainer.vae, self._start(trainer.encode()[0]).to(trainer.device)
        clock.n_components = self.n_clusters

        def step(optimiser: Adam, values: Tensor, inputs: Tensor) -> Tensor:
            noise = trainer.noise(len(values), vae.shape.latent_dim)
            terms = vade_terms(vae, mixture, values, inputs, noise)
            means = torch.stack([terms.reconstruction.mean(), terms.log_prior.mean(), terms.entropy.mean()])
            descend(optimiser, -means.sum(), "networks and mixture")
            return means.detach().cpu() * len(values)

        vae.train()
        yield from together(trainer, [*vae.parameters(), *mixture.parameters()], step, clock)
        vae.eval()
        self._mixture = mixture.cpu().to(torch.float64).requires_grad_(False)
        order = by_size(in_chunks(self._log_proba, trainer.encode()[0]))
        for parameter in mixture.parameters():
            parameter.data = parameter.data[order]
        self._publish(mixture)

    def _start(self, codes: Tensor) -> DiagonalMixture:
        """Fit a mixture to the codes by expectation-maximisation from the best of several runs of k-means.

        The best of several mixtures by their likelihood is sometimes worse: likelihoods of good and poor
        clusterings differ by a hundredth of a nat.
        """
        least = LEAST_VAR * float(codes.var(0, correction=0).mean()) + np.finfo(np.float32).tiny
        least = max(least, LEAST_SHARE * float(codes.square().mean()))
        rows, random = codes.numpy(), self._seed % 2**32
        kmeans = KMeans(self.n_clusters, n_init=self.n_init, random_state=random).fit(rows)
        # Of copies there may be fewer kinds than clusters; a cluster without rows gets the spread of all.
        members = [rows[kmeans.labels_ == k] for k in range(self.n_clusters)]
        sizes = np.array([max(1, len(some)) for some in members])
        found = GaussianMixture(
            self.n_clusters,
            covariance_type="diag",
            reg_covar=least,
            weights_init=sizes / sizes.sum(),
            means_init=kmeans.cluster_centers_,
            precisions_init=[1 / ((some if len(some) else rows).var(0) + least) for some in members],
            random_state=random,
        )
        # With the dispatch on it refuses to start from k-means; codes are numpy arrays in any case.
        with config_context(array_api_dispatch=False):
            found.fit(rows)
        return DiagonalMixture(found.weights_, found.means_, found.covariances_)

    def _log_proba(self, codes: Tensor) -> Tensor:
        return torch.log_softmax(self._mixture.log_joint(codes), dim=1)

    def _publish(self, mixture: DiagonalMixture) -> None:
        self._mixture = mixture
        self.weights_ = mixture.log_weights.exp().numpy()
        self.means_ = mixture.means.numpy()
        self.variances_ = mixture.log_vars.exp().numpy()
        self.n_clusters_ = len(mixture.means)

    def _pack_clusters(self) -> tuple[Tensors, dict[str, Any]]:
        return {"clusters": dict(self._mixture.state_dict())}, {}

    def _unpack_clusters(self, tensors: Tensors, told: dict[str, Any], where: str) -> None:
        check_kind(tensors, "clusters", torch.float64, where)
        parts = tensors["clusters"]
        n_clusters, latent_dim = len(parts["logits"]), self._vae.shape.latent_dim
        ones = np.ones((n_clusters, latent_dim))
        mixture = DiagonalMixture(np.ones(n_clusters), ones, ones).to(torch.float64).requires_grad_(False)
        mixture.load_state_dict(dict(parts))
        self._publish(mixture)
