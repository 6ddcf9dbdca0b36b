"""`DPMixture`: a Dirichlet process Gaussian mixture that finds its clusters and goes on learning."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClusterMixin, DensityMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from dbull.codec.mixture import pack_memory, pack_posterior, unpack_memory, unpack_posterior
from dbull.codec.networks import Tensors
from dbull.documents import Reader, check_fields, fail, list_of, number, object_of, or_none, whole
from dbull.errors import DataError
from dbull.methods.base import check_number, check_rows, drained, draw_points, new_seed, unchanged_on_failure
from dbull.methods.storage import Stored
from dbull.mixture.memory import StatsMemory
from dbull.mixture.posterior import MixturePosterior, mean_weights
from dbull.mixture.prior import paper_prior
from dbull.mixture.search import fit_data_set
from dbull.mixture.settings import FitSettings, SearchSettings
from dbull.mixture.updates import Points, local_step, log_predictive, most_probable
from dbull.probability.normal_wishart import expected_covariance
from dbull.store import Checkpoint

FAR = 1e6  # in standard deviations of the first data set: how far out rows are told apart
LARGEST = 1e100  # the same for data taken as they are; squares stay in the range of float64
DOCUMENT: dict[str, Reader] = {  # plain values of a saved mixture
    "seed": whole,
    "n_data_sets": whole,
    "n_rows": whole,
    "elbo": or_none(number),
    "limit": number,
    "components": object_of({"ids": list_of(whole), "n_given": whole}),
}


@dataclass(frozen=True)
class _Coordinates:
    """The affine map from the user's columns to those in which statistics are kept."""

    shift: NDArray[np.float64]  # (D,)
    scale: NDArray[np.float64]  # (D,)
    limit: float

    def inner(self, rows: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return (rows - shift) / scale; infinite where that is beyond float64."""
        with np.errstate(over="ignore"):
            inner: NDArray[np.float64] = rows - self.shift
            inner /= self.scale
        return inner

    def learnable(self, rows: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the inner rows, or say which one is too far out to learn from."""
        inner = self.inner(rows)
        if max(float(inner.max()), -float(inner.min())) > self.limit:
            row, column = (int(i) for i in np.argwhere(np.abs(inner) > self.limit)[0])
            raise DataError(
                f"row {row} has {rows[row, column]:.3g} in column {column}, more than {self.limit:.0e} times "
                f"the spread ({self.scale[column]:.3g}) from the centre ({self.shift[column]:.3g}) of the "
                "first data set. Remove the row, or start with data in which the column varies more."
            )
        return inner


@dataclass(kw_only=True, eq=False, repr=False)
class DPMixture(Stored, ClusterMixin, DensityMixin, BaseEstimator):
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
        number of columns and of clusters (1,000 for up to 5 columns, 2,376 for 10). None lets every
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
        What happened while the last data set was learned; bounds are those of the standardised columns.
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

    stored_as = "dp-mixture"

    concentration: float = 1.0
    prior: str = "data"
    max_evidence: str | float | None = "auto"
    fresh_sizes: tuple[int, ...] = (2, 3, 5, 10)
    max_clusters: int = 1000
    random_state: Any = None

    def fit(self, X: ArrayLike, y: object = None) -> DPMixture:
        """Forget everything, then learn the data set X. `y` is ignored."""
        with unchanged_on_failure(self):
            return self._learn(check_rows(self, X, reset=True, min_rows=2), first=True)

    def partial_fit(self, X: ArrayLike, y: object = None) -> DPMixture:
        """Learn the next data set of a stream, in several passes over it. `y` is ignored.

        What earlier data sets taught is kept as sufficient statistics; their rows are not needed again.
        """
        first = not hasattr(self, "memory_")
        with unchanged_on_failure(self):
            return self._learn(check_rows(self, X, reset=first, min_rows=2 if first else 1), first)

    def predict(self, X: ArrayLike) -> NDArray[np.int64]:
        """Return the id of the most probable cluster of each row."""
        return self._nearest_ids(self._points(X))

    def predict_proba(self, X: ArrayLike) -> NDArray[np.float64]:
        """Return the probability of each cluster for each row; columns as in `cluster_ids_`."""
        points = self._points(X)
        proba: NDArray[np.float64] = local_step(self._posterior, points).exp_().numpy()
        return proba[:, self._order]

    def score_samples(self, X: ArrayLike) -> NDArray[np.float64]:
        """Return the log predictive density of each row, parameters integrated out."""
        points = self._points(X)
        return (log_predictive(self._posterior, points) - float(np.log(self._coords.scale).sum())).numpy()

    def score(self, X: ArrayLike, y: object = None) -> float:
        """Return the mean log predictive density of the rows."""
        return float(self.score_samples(X).mean())

    def sample(self, n_samples: int = 1) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """Draw rows and their cluster ids from the posterior expectation of the mixture."""
        check_is_fitted(self)
        check_number("n_samples", n_samples, at_least=1, whole=True)
        rng = check_random_state(self.random_state)
        which = rng.choice(self.n_clusters_, size=n_samples, p=self.weights_)
        inner = draw_points(self._posterior.components, self._order[which], rng)
        return inner * self._coords.scale + self._coords.shift, self.cluster_ids_[which]

    def __sklearn_is_fitted__(self) -> bool:
        """Return whether a data set has been learned to the end."""
        return hasattr(self, "memory_")

    # What follows turns arrays into points and the engine's state into fitted attributes.

    def _coordinates(self, rows: NDArray[np.float64]) -> _Coordinates:
        """Return the coordinates in which statistics are kept, from the first data set."""
        n_columns = rows.shape[1]
        if self.prior == "paper":
            return _Coordinates(np.zeros(n_columns), np.ones(n_columns), LARGEST)
        peak = np.abs(rows).max(0)
        unit = np.where(peak > 0, peak, 1.0)  # so that no sum of squares leaves the range of float64
        shift, spread = (rows / unit).mean(0) * unit, (rows / unit).std(0) * unit
        # A column is constant when its spread is no more than rounding of its values.
        constant = spread <= 8 * np.finfo(float).eps * peak
        with np.errstate(over="ignore", under="ignore"):
            bad = ~constant & ~((spread**2 >= np.finfo(float).tiny) & (peak**2 < np.inf))
        if bad.any():
            column = int(np.flatnonzero(bad)[0])
            what = "large" if peak[column] > 1 else "small"
            raise DataError(
                f"the values of column {column} are too {what} to square in float64 (largest "
                f"{peak[column]:.3g}, spread {spread[column]:.3g}); rescale them."
            )
        return _Coordinates(shift, np.where(constant, 1.0, spread), FAR)

    def _settings(self, n_columns: int) -> FitSettings:
        """Check the parameters and turn them into settings of the engine."""
        self.check_parameters()
        fixed = paper_prior(n_columns, float(self.concentration)) if self.prior == "paper" else None
        search = SearchSettings(fresh_sizes=tuple(self.fresh_sizes), max_clusters=self.max_clusters)
        return FitSettings(fixed, float(self.concentration), self.max_evidence, search=search)

    def _points(self, X: ArrayLike) -> Points:
        """Return rows in the coordinates in which statistics are kept; what is too far out stays in reach."""
        check_is_fitted(self)
        inner = self._coords.inner(check_rows(self, X, reset=False))
        np.clip(inner, -self._coords.limit, self._coords.limit, out=inner)
        return Points.from_rows(torch.from_numpy(inner))

    def _learn(self, rows: NDArray[np.float64], first: bool) -> DPMixture:
        """Learn one data set and fold it into the memory; within `unchanged_on_failure`."""
        settings = self._settings(rows.shape[1])
        if first:
            self.__dict__.pop("origin_", None)  # another model than the one that was saved
            self._coords, self._seed = self._coordinates(rows), new_seed(self.random_state)
            self.memory_ = StatsMemory.empty(rows.shape[1])
            self.n_rows_seen_ = self.n_data_sets_ = 0
        points = Points.from_rows(torch.from_numpy(self._coords.learnable(rows)))
        state = np.random.SeedSequence([self._seed, self.n_data_sets_]).generate_state(1, np.uint64)
        generator = torch.Generator().manual_seed(int(state[0] >> np.uint64(1)))
        self.memory_ = replace(self.memory_)  # what a failure gives back stays as it was
        fitted, self.history_ = drained(fit_data_set(self.memory_, points, settings, generator))
        self.memory_.fold()
        self.n_rows_seen_ += len(rows)
        # In the units of the user's columns, like score_samples.
        self.elbo_ = fitted.elbo - self.n_rows_seen_ * float(np.log(self._coords.scale).sum())
        self.n_data_sets_ += 1
        self._publish(fitted.posterior)
        self.labels_ = self._nearest_ids(points)
        return self

    def _publish(self, posterior: MixturePosterior) -> None:
        """Set the fitted attributes, clusters in the order of their ids."""
        ids = np.array(self.memory_.ids, dtype=np.int64)
        order = np.argsort(ids)
        self.cluster_ids_ = ids[order]
        self.n_clusters_ = len(ids)
        # The posterior stays in the order of size, on which its sticks depend; what is shown follows the ids.
        self._order, self._posterior, components = order, posterior, posterior.components
        self.weights_ = mean_weights(posterior).numpy()[order]
        self.counts_ = self.memory_.total.counts.numpy()[order]
        self.means_ = components.mean.numpy()[order] * self._coords.scale + self._coords.shift
        outer = self._coords.scale[:, None] * self._coords.scale
        self.covariances_ = expected_covariance(components).numpy()[order] * outer

    def _nearest_ids(self, points: Points) -> NDArray[np.int64]:
        """Return the id of the most probable cluster of each point, (N,)."""
        ids = np.array(self.memory_.ids, dtype=np.int64)
        return ids.take(most_probable(self._posterior, points).numpy())

    def _pack(self) -> Checkpoint:
        tensors = {**pack_memory(self.memory_), **pack_posterior(self._posterior)}
        coords = {name: torch.from_numpy(getattr(self._coords, name)) for name in ("shift", "scale")}
        document = {
            "seed": self._seed,
            "n_data_sets": self.n_data_sets_,
            "n_rows": self.n_rows_seen_,
            "elbo": self.elbo_ if math.isfinite(self.elbo_) else None,
            "limit": self._coords.limit,
            "components": {"ids": list(self.memory_.ids), "n_given": self.memory_.n_given},
        }
        return Checkpoint(
            {"mixture": tensors, "coordinates": coords}, {"learner": document}, ids_given=self.memory_.n_given
        )

    def _unpack(self, tensors: Tensors, document: object, ids_given: int, where: str) -> int:
        told = check_fields(document, where, DOCUMENT)
        shift, scale = (tensors["coordinates"][name].numpy() for name in ("shift", "scale"))
        if shift.shape != scale.shape or shift.ndim != 1 or {shift.dtype, scale.dtype} != {np.dtype(float)}:
            fail(where, f"coordinates are {shift.dtype} {shift.shape} and {scale.dtype} {scale.shape}")
        self._coords = _Coordinates(shift, scale, told["limit"])
        ids, mixture = told["components"]["ids"], tensors["mixture"]
        n_given = max(told["components"]["n_given"], ids_given)  # no id is given again after a rollback
        self.memory_ = unpack_memory(mixture, ids, n_given, n_given, len(shift), where)
        posterior = unpack_posterior(mixture, len(ids), len(shift), where)
        self._seed, self.n_data_sets_, self.n_rows_seen_ = told["seed"], told["n_data_sets"], told["n_rows"]
        self.elbo_ = math.nan if told["elbo"] is None else told["elbo"]
        self._publish(posterior)
        return len(shift)
