"""`DPMixture`: a Dirichlet process Gaussian mixture that finds its clusters and goes on learning."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClusterMixin, DensityMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from ..errors import DataError
from ..mixture.fit import FitSettings, Fitted, fit_data_set
from ..mixture.memory import StatsMemory
from ..mixture.posterior import MixturePosterior, mean_weights
from ..mixture.prior import MixturePrior, paper_prior
from ..mixture.search import FitProgress, SearchSettings
from ..mixture.updates import Points, local_step, log_predictive, most_probable
from ..probability.normal_wishart import expected_covariance
from .base import check_number, check_rows

__all__ = ["DPMixture"]

FAR = 1e6  # in standard deviations; rows farther out are treated as this far, so that nothing overflows


class DPMixture(ClusterMixin, DensityMixin, BaseEstimator):
    """Dirichlet process mixture of Gaussians, learned by memoized variational inference.

    Starts from one cluster; births add clusters and merges remove redundant ones while the evidence lower
    bound rises. `fit` learns one data set; each `partial_fit` learns the next data set of a stream (several
    passes over it), of which only sufficient statistics are kept. Clusters keep their ids: an id once given
    is never reused, and clusters of earlier data sets are never merged with each other.

    Parameters
    ----------
    concentration : float, default=1.0
        Concentration of the Dirichlet process. A larger value expects more clusters.
    prior : {"data", "paper"}, default="data"
        "data": in the units of the data, so that shifting or rescaling the data changes nothing. "paper":
        mean 0, mean precision 0.2, D + 2 degrees of freedom, identity scale, on the data as they are.
    max_evidence : "auto", float or None, default="auto"
        How many observations may speak when the number of clusters is decided. Real clusters are not
        Gaussian: with all the evidence of a large data set, splitting always pays. "auto" grows with the
        number of columns and of clusters (about 1,300 for 10 columns and 10 clusters). None lets every
        observation speak, which fits the density best and splits clusters that are not Gaussian.
    fresh_sizes : tuple of int, default=(2, 3, 5, 10)
        Numbers of fresh components that a birth tries; the paper has 10.
    max_clusters : int, default=1000
        Births stop there.
    random_state : int, RandomState instance or None, default=None
        With an int, the same data give the same result.

    Attributes
    ----------
    n_clusters_ : int
        Number of clusters.
    cluster_ids_ : ndarray of shape (n_clusters_,)
        Ids in ascending order; rows of `means_` and columns of `predict_proba` are in this order.
    labels_ : ndarray of shape (n_samples,)
        Cluster ids of the rows of the *last* data set learned.
    weights_, means_, covariances_ : ndarray
        Posterior expectation of weight (n_clusters_,), mean (n_clusters_, n_features) and covariance
        (n_clusters_, n_features, n_features) of each cluster.
    counts_ : ndarray of shape (n_clusters_,)
        Rows that each cluster has learned from so far (fractional).
    elbo_ : float
        Evidence lower bound of everything learned so far.
    history_ : list of FitProgress
        What happened while the last data set was learned.
    n_features_in_ : int
        Number of columns.
    n_rows_seen_, n_data_sets_ : int
        How much has been learned.

    Examples
    --------
    >>> import numpy as np
    >>> from dbull import DPMixture
    >>> rng = np.random.default_rng(0)
    >>> monday = np.concatenate([rng.normal(0, 1, (300, 2)), rng.normal(9, 1, (200, 2))])
    >>> tuesday = np.concatenate([rng.normal(0, 1, (300, 2)), rng.normal((-9, 9), 1, (100, 2))])
    >>> mixture = DPMixture(random_state=0).partial_fit(monday)
    >>> mixture.n_clusters_
    2
    >>> mixture.partial_fit(tuesday).n_clusters_
    3
    >>> mixture.predict([[0.0, 0.0], [9.0, 9.0], [-9.0, 9.0]]).tolist()
    [0, 1, 2]
    """

    def __init__(
        self,
        *,
        concentration: float = 1.0,
        prior: str = "data",
        max_evidence: str | float | None = "auto",
        fresh_sizes: tuple[int, ...] = (2, 3, 5, 10),
        max_clusters: int = 1000,
        random_state: Any = None,
    ):
        self.concentration = concentration
        self.prior = prior
        self.max_evidence = max_evidence
        self.fresh_sizes = fresh_sizes
        self.max_clusters = max_clusters
        self.random_state = random_state

    def fit(self, X: ArrayLike, y: object = None) -> DPMixture:
        """Forget everything, then learn the data set X. `y` is ignored."""
        rows = check_rows(self, X, reset=True, min_rows=2)
        self._start(rows)
        return self._learn(rows)

    def partial_fit(self, X: ArrayLike, y: object = None) -> DPMixture:
        """Learn the next data set of a stream, in several passes over it. `y` is ignored.

        What earlier data sets taught is kept as sufficient statistics; their rows are not needed again.
        """
        first = not hasattr(self, "memory_")
        rows = check_rows(self, X, reset=first, min_rows=2 if first else 1)
        if first:
            self._start(rows)
        return self._learn(rows)

    def fit_predict(self, X: ArrayLike, y: object = None, **kwargs: Any) -> NDArray[np.int64]:
        """Learn X and return the cluster id of each row."""
        labels: NDArray[np.int64] = self.fit(X).labels_
        return labels

    def predict(self, X: ArrayLike) -> NDArray[np.int64]:
        """Return the id of the most probable cluster of each row."""
        check_is_fitted(self)
        points = self._points(check_rows(self, X, reset=False))
        return self._nearest_ids(points)

    def predict_proba(self, X: ArrayLike) -> NDArray[np.float64]:
        """Return the probability of each cluster for each row; columns as in `cluster_ids_`."""
        check_is_fitted(self)
        points = self._points(check_rows(self, X, reset=False))
        proba: NDArray[np.float64] = local_step(self._posterior, points).exp_().numpy()
        return proba[:, self._order]

    def score_samples(self, X: ArrayLike) -> NDArray[np.float64]:
        """Return the log predictive density of each row, parameters integrated out."""
        check_is_fitted(self)
        points = self._points(check_rows(self, X, reset=False))
        log_density: NDArray[np.float64] = log_predictive(self._posterior, points).numpy()
        log_density -= np.log(self._scale).sum()
        return log_density

    def score(self, X: ArrayLike, y: object = None) -> float:
        """Return the mean log predictive density of the rows."""
        return float(self.score_samples(X).mean())

    def sample(self, n_samples: int = 1) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """Draw rows and their cluster ids from the posterior expectation of the mixture."""
        check_is_fitted(self)
        check_number("n_samples", n_samples, at_least=1, whole=True)
        rng = check_random_state(self.random_state)
        which = rng.choice(self.n_clusters_, size=n_samples, p=self.weights_)
        noise = rng.standard_normal((n_samples, self.n_features_in_))
        components = self._posterior.components
        roots = np.linalg.cholesky(expected_covariance(components).numpy())[self._order]
        centres = components.mean.numpy()[self._order]
        inner = centres[which] + np.einsum("nij,nj->ni", roots[which], noise)
        return inner * self._scale + self._shift, self.cluster_ids_[which]

    # What follows turns arrays into points and the engine's state into fitted attributes.

    def _start(self, rows: NDArray[np.float64]) -> None:
        """Fix the coordinates in which statistics are kept, and empty the memory."""
        if self.prior not in ("data", "paper"):
            raise ValueError(f"prior must be 'data' or 'paper', got {self.prior!r}.")
        n_columns = rows.shape[1]
        self._shift, self._scale = np.zeros(n_columns), np.ones(n_columns)
        if self.prior == "data":
            with np.errstate(over="ignore", invalid="ignore"):
                self._shift, spread = rows.mean(0), rows.std(0)
            if not np.isfinite(spread).all():
                column = int(np.flatnonzero(~np.isfinite(spread))[0])
                raise DataError(
                    f"the values of column {column} are too large to square in float64; scale them down."
                )
            # A column is constant when its spread is no more than rounding of its values.
            constant = spread <= 8 * np.finfo(float).eps * np.abs(rows).max(0)
            self._scale = np.where(constant, 1.0, spread)
        self.memory_ = StatsMemory.empty(n_columns)
        self.n_rows_seen_ = 0
        self.n_data_sets_ = 0
        seed = self.random_state
        self._seed = seed if isinstance(seed, int) else check_random_state(seed).randint(2**31 - 1)

    def _settings(self, n_columns: int) -> FitSettings:
        """Check the parameters and turn them into settings of the engine."""
        check_number("concentration", self.concentration, above=0)
        check_number("max_clusters", self.max_clusters, at_least=1, whole=True)
        for size in self.fresh_sizes:
            check_number("each of fresh_sizes", size, at_least=2, whole=True)
        max_evidence: float | None = None
        if self.max_evidence is None:
            max_evidence = math.inf
        elif self.max_evidence != "auto":
            check_number("max_evidence", self.max_evidence, above=0, also="'auto' or None")
            max_evidence = float(self.max_evidence)
        fixed: MixturePrior | None = None
        if self.prior == "paper":
            fixed = paper_prior(n_columns, float(self.concentration))
        search = SearchSettings(fresh_sizes=tuple(self.fresh_sizes), max_components=self.max_clusters)
        return FitSettings(fixed, float(self.concentration), max_evidence, search=search)

    def _points(self, rows: NDArray[np.float64]) -> Points:
        """Return rows in the coordinates in which statistics are kept."""
        if self.prior == "paper":
            return Points.from_rows(torch.from_numpy(rows))
        inner = rows - self._shift
        inner /= self._scale
        np.clip(inner, -FAR, FAR, out=inner)
        return Points.from_rows(torch.from_numpy(inner))

    def _learn(self, rows: NDArray[np.float64]) -> DPMixture:
        """Learn one data set and fold it into the memory."""
        settings = self._settings(rows.shape[1])
        points = self._points(rows)
        state = np.random.SeedSequence([self._seed, self.n_data_sets_]).generate_state(1, np.uint64)
        generator = torch.Generator().manual_seed(int(state[0] >> np.uint64(1)))
        history: list[FitProgress] = []
        memory = replace(self.memory_)  # the old memory stays whole if learning is interrupted
        fitting = fit_data_set(memory, points, settings, generator)
        while True:
            try:
                history.append(next(fitting))
            except StopIteration as end:
                fitted: Fitted = end.value
                break
        memory.fold()
        self.memory_ = memory
        self.history_ = history
        self.elbo_ = fitted.elbo
        self.n_rows_seen_ += len(rows)
        self.n_data_sets_ += 1
        self._publish(fitted)
        self.labels_ = self._nearest_ids(points)
        return self

    def _publish(self, fitted: Fitted) -> None:
        """Set the fitted attributes, clusters in the order of their ids."""
        ids = np.array(self.memory_.ids, dtype=np.int64)
        order = np.argsort(ids)
        self.cluster_ids_ = ids[order]
        self.n_clusters_ = len(ids)
        # The posterior stays in the order of size, on which its sticks depend; what is shown follows the ids.
        self._order = order
        self._posterior: MixturePosterior = fitted.posterior
        self.weights_ = mean_weights(self._posterior).numpy()[order]
        self.counts_ = self.memory_.total.counts.numpy()[order]
        components = self._posterior.components
        self.means_ = components.mean.numpy()[order] * self._scale + self._shift
        outer = self._scale[:, None] * self._scale
        self.covariances_ = expected_covariance(components).numpy()[order] * outer

    def _nearest_ids(self, points: Points) -> NDArray[np.int64]:
        """Return the id of the most probable cluster of each point, (N,)."""
        ids = np.array(self.memory_.ids, dtype=np.int64)
        nearest: NDArray[np.int64] = ids[most_probable(self._posterior, points).numpy()]
        return nearest
