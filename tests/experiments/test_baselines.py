"""Baselines recover what they must on data with one obvious answer, and say what they were told."""

import sys
from types import SimpleNamespace

import numpy as np
import pytest
from sklearn.cluster import MiniBatchKMeans
from sklearn.decomposition import PCA

from dbull.experiments.baselines import FirstArrivalPCA, KMeansTrueK, UmapDPMixture, UmapHdbscan
from dbull.metrics import clustering_scores


def three_blobs(n_rows=60, seed=0, n_dims=5):
    rng = np.random.default_rng(seed)
    y = np.repeat(np.arange(3), n_rows)
    return (rng.normal(size=(len(y), n_dims)) + 20 * y[:, None]).astype(np.float32), y


def test_kmeans_on_a_batch():
    x, y = three_blobs()
    model = KMeansTrueK(3, random_state=0).fit(x)
    assert clustering_scores(y, model.predict(x))["ari"] == 1.0


def test_kmeans_on_a_stream_is_mini_batch_kmeans():
    x, _ = three_blobs()
    order = np.random.default_rng(1).permutation(len(x))
    ours, theirs = KMeansTrueK(3, random_state=0), MiniBatchKMeans(3, n_init=10, random_state=0)
    for rows in np.array_split(x[order], 4):
        ours.partial_fit(rows)
        theirs.partial_fit(rows)
    np.testing.assert_array_equal(ours.model_.cluster_centers_, theirs.cluster_centers_)


def test_projection_stands_still_after_the_first_arrival():
    seen = []

    class Spy:
        def partial_fit(self, X):
            seen.append(X)

        def predict(self, X):
            return np.zeros(len(X), dtype=int)

    first, _ = three_blobs(seed=0)
    second, _ = three_blobs(seed=5)
    method = FirstArrivalPCA(Spy(), n_dims=2, random_state=0)
    method.partial_fit(first).partial_fit(second * 3 + 1)
    expected = PCA(2, random_state=0).fit(first)
    np.testing.assert_allclose(seen[0], expected.transform(first), rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(seen[1], expected.transform(second * 3 + 1), rtol=1e-4, atol=1e-4)
    assert not hasattr(method, "fit")
    assert not hasattr(method, "resolve")


def test_projection_keeps_no_more_dimensions_than_there_are():
    class Spy:
        def fit(self, X):
            self.n_dims = X.shape[1]

        def predict(self, X):
            return np.zeros(len(X), dtype=int)

    for x, n_dims in ((np.eye(20, 3, dtype=np.float32), 3), (np.eye(4, 30, dtype=np.float32), 4)):
        assert FirstArrivalPCA(Spy(), n_dims=10, random_state=0).fit(x).learner.n_dims == n_dims


@pytest.mark.slow
@pytest.mark.parametrize("method", [UmapHdbscan, UmapDPMixture])
def test_clusters_of_umap(method):
    pytest.importorskip("umap", reason="needs the extra dbull[umap]")
    torch = pytest.importorskip("torch")
    n_threads = torch.get_num_threads()
    x, _ = three_blobs(n_rows=100)
    model = method(n_dims=2, n_neighbors=15, random_state=0).fit(x)
    new, new_y = three_blobs(n_rows=20, seed=9)
    assert clustering_scores(new_y, model.predict(new))["homogeneity"] == 1.0
    assert model.n_clusters_ >= 3
    again = method(n_dims=2, n_neighbors=15, random_state=0).fit(x)
    np.testing.assert_array_equal(again.predict(new), model.predict(new))
    assert torch.get_num_threads() == n_threads, "what runs next in this process runs as it would alone"


@pytest.mark.parametrize(
    ("columns", "least", "metric"), [(31, 0, "cosine"), (30, 0, "euclidean"), (31, -1, "euclidean")]
)
def test_wide_rows_without_negative_values_are_compared_by_angle(columns, least, metric, monkeypatch):
    asked = []

    class Umap:
        def __init__(self, **arguments):
            asked.append(arguments["metric"])

        def fit(self, x):
            self.embedding_ = x[:, :5]
            return self

    monkeypatch.setitem(sys.modules, "umap", SimpleNamespace(UMAP=Umap))
    rows = np.random.default_rng(0).uniform(least, 1, size=(60, columns))
    UmapDPMixture(random_state=0).fit(rows)
    assert asked == [metric]
