"""Methods of others in the shape of ours, so that every number has company.

Each has ``fit`` or ``partial_fit``, and ``predict``. A class that must be told the true number of classes
says so by ``told_true_k_as``, the name of the parameter that takes it; no other method ever receives it.
"""

from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.cluster import HDBSCAN, KMeans, MiniBatchKMeans
from sklearn.decomposition import PCA
from sklearn.neighbors import KNeighborsClassifier
from sklearn.utils.metaestimators import available_if
from threadpoolctl import threadpool_limits

from dbull.errors import SettingsError
from dbull.methods.dp_mixture import DPMixture

Array = NDArray[Any]
WIDE = 30  # columns from which rows that are nowhere negative are compared by angle

# UMAP's compiler sets the thread numbers of the whole process, PyTorch's included. They are put back: what
# runs after it in the same process would take other times and might round otherwise.
_threads_kept = partial(threadpool_limits, limits=1, user_api="openmp")


@dataclass(eq=False, repr=False)
class KMeansTrueK(BaseEstimator):
    """k-means that is told the true number of classes of the whole stream.

    A batch is clustered by full k-means. A stream is learnt by mini-batch k-means, one update of the running
    centres per arrival: refitting k-means on each arrival alone would name other clusters each time,
    and all K centres are placed in the first arrival, long before most classes are seen. Read its
    numbers on streams with that in mind.
    """

    told_true_k_as = "n_clusters"

    n_clusters: int = 8
    n_init: int = 10
    random_state: int | None = None

    def fit(self, X: Array) -> "KMeansTrueK":
        """Cluster one batch from scratch."""
        self.model_ = KMeans(self.n_clusters, n_init=self.n_init, random_state=self.random_state).fit(X)
        return self

    def partial_fit(self, X: Array) -> "KMeansTrueK":
        """Move the running centres by one arrival."""
        if not hasattr(self, "model_"):
            self.model_ = MiniBatchKMeans(self.n_clusters, n_init=self.n_init, random_state=self.random_state)
        self.model_.partial_fit(X)
        return self

    def predict(self, X: Array) -> Array:
        """Return the nearest centre of each row, (N,)."""
        return np.asarray(self.model_.predict(X))


@dataclass(eq=False, repr=False)
class _OnUmap(BaseEstimator):
    """Clusters of UMAP's embedding; needs the extra ``dbull[umap]``. New rows are placed by its transform."""

    n_dims: int = 10
    n_neighbors: int = 30
    min_dist: float = 0.0
    random_state: int | None = None

    def _metric(self, X: Array) -> str:
        """Return how rows are compared: of words, pixels and rectified features the angle, as is usual.

        By distance a few short texts are far from everything, and UMAP shows nothing else.
        """
        return "cosine" if X.shape[1] > WIDE and X.min() >= 0 else "euclidean"

    def _embed(self, X: Array) -> Array:
        """Learn the embedding of one set of rows from scratch, and return it."""
        try:
            from umap import UMAP
        except ImportError as error:
            raise SettingsError("this method needs umap-learn: pip install 'dbull[umap]'") from error
        umap = UMAP(
            n_components=self.n_dims,
            n_neighbors=min(self.n_neighbors, len(X) - 1),
            min_dist=self.min_dist,
            metric=self._metric(X),
            random_state=self.random_state,
            n_jobs=1,  # UMAP is repeatable only in one thread
        )
        with _threads_kept():
            self.umap_ = umap.fit(X)
        return np.asarray(self.umap_.embedding_)

    def _place(self, X: Array) -> Array:
        with _threads_kept():
            return np.asarray(self.umap_.transform(X))


@dataclass(eq=False, repr=False)
class UmapHdbscan(_OnUmap):
    """UMAP to a few dimensions, then HDBSCAN.

    New rows take the cluster of the nearest clustered training row. Training rows that HDBSCAN calls noise
    lend their id to nobody, so no row is ever answered "noise".
    """

    min_cluster_size: int = 30

    def fit(self, X: Array) -> "UmapHdbscan":
        """Learn embedding and clusters of one set of rows from scratch."""
        embedding = self._embed(X)
        labels = HDBSCAN(min_cluster_size=self.min_cluster_size, copy=True).fit_predict(embedding)
        clustered = labels >= 0
        if not clustered.any():  # all noise: the one thing that can be said is "one cluster"
            labels, clustered = np.zeros_like(labels), np.ones_like(clustered)
        self.n_clusters_ = len(np.unique(labels[clustered]))
        self.nearest_ = KNeighborsClassifier(n_neighbors=1).fit(embedding[clustered], labels[clustered])
        return self

    def predict(self, X: Array) -> Array:
        """Return the cluster of the nearest clustered training row, (N,)."""
        return np.asarray(self.nearest_.predict(self._place(X)))


@dataclass(eq=False, repr=False)
class UmapDPMixture(_OnUmap):
    """UMAP to five dimensions with its own defaults, then `DPMixture` with its own."""

    n_dims: int = 5
    n_neighbors: int = 15
    min_dist: float = 0.1

    def fit(self, X: Array) -> "UmapDPMixture":
        """Learn embedding and clusters of one set of rows from scratch."""
        self.mixture_ = DPMixture(random_state=self.random_state).fit(self._embed(X).astype(np.float64))
        self.n_clusters_ = self.mixture_.n_clusters_
        return self

    def predict(self, X: Array) -> Array:
        """Return the cluster of each row where UMAP places it, (N,)."""
        return self.mixture_.predict(self._place(X).astype(np.float64))


def _learner_has(name: str) -> Any:
    return available_if(lambda wrapper: hasattr(wrapper.learner, name))


@dataclass(eq=False)
class FirstArrivalPCA:
    """A learner behind a projection that is learnt from the first arrival only and then stands still.

    Vectors keep their meaning over the whole stream, which a projection refitted on every arrival would not
    give. Columns are centred, not scaled: pixels that never vary must not be blown up.
    """

    learner: Any  # any method on vectors
    n_dims: int  # dimensions kept, at most as many as the first arrival allows
    random_state: int  # of PCA's randomised solver
    _pca: PCA | None = field(default=None, init=False)

    def _project(self, X: Array, *, anew: bool = False) -> Array:
        if anew:
            self._pca = PCA(min(self.n_dims, *X.shape), random_state=self.random_state).fit(X)
        assert self._pca is not None
        # float64: the mixtures behind this add up squares of thousands of rows
        return np.asarray(self._pca.transform(X), dtype=np.float64)

    @_learner_has("fit")
    def fit(self, X: Array) -> "FirstArrivalPCA":
        """Learn projection and clusters from one set of rows, from scratch."""
        self.learner.fit(self._project(X, anew=True))
        return self

    @_learner_has("partial_fit")
    def partial_fit(self, X: Array) -> "FirstArrivalPCA":
        """Learn one arrival; the first also fixes the projection."""
        self.learner.partial_fit(self._project(X, anew=self._pca is None))
        return self

    def predict(self, X: Array) -> Array:
        """Return the learner's ids of projected rows, (N,)."""
        return np.asarray(self.learner.predict(self._project(X)))

    @_learner_has("resolve")
    def resolve(self, ids: Array) -> Array:
        """Translate old ids to present ones by the learner's own lineage."""
        return np.asarray(self.learner.resolve(ids))

    @property
    def n_clusters_(self) -> int | None:
        """Clusters the learner itself says it has, None if it does not say."""
        return getattr(self.learner, "n_clusters_", None)
