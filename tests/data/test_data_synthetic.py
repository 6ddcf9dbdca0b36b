import numpy as np
import pytest
from scipy import stats

from dbull.data import synthetic
from dbull.data.synthetic import drifting_mixture, gaussian_mixture, skewed_mixture

MIXTURES = [gaussian_mixture, skewed_mixture, drifting_mixture]


@pytest.mark.parametrize("draw", MIXTURES)
def test_the_seed_and_nothing_else_decides(draw):
    np.random.seed(1)  # noqa: NPY002  the global state must not matter
    first = draw(5)
    np.random.seed(2)  # noqa: NPY002
    again, other = draw(5), draw(6)
    assert first.x.tobytes() == again.x.tobytes()
    assert first.y_true.tobytes() == again.y_true.tobytes()
    assert not np.array_equal(first.x, other.x)


@pytest.fixture
def ask(monkeypatch):
    """Ask for other sizes than the usual ones."""

    def asked(**sizes):
        for name, value in sizes.items():
            monkeypatch.setattr(synthetic, name, value)

    return asked


def cluster_moments(samples):
    clusters = [samples.x[samples.y_true == k].astype(float) for k in range(len(samples.label_names))]
    return np.array([c.mean(axis=0) for c in clusters]), np.array([c.std(axis=0) for c in clusters]), clusters


@pytest.mark.parametrize("draw", [gaussian_mixture, skewed_mixture])
@pytest.mark.parametrize("n_clusters", [1, 12])
def test_means_keep_their_distance_and_scales_their_range(draw, n_clusters, ask):
    ask(N_ROWS=40_000, N_CLUSTERS=n_clusters, N_FEATURES=3, SEPARATION=5)
    means, stds, _ = cluster_moments(draw(1))
    distances = np.linalg.norm(means[:, None] - means[None], axis=2)[np.triu_indices(n_clusters, 1)]
    assert (distances > 4.8).all()
    assert stds.min() > 0.45
    assert stds.max() < 1.05


def test_gaussian_clusters_are_not_skewed_and_skewed_ones_are(ask):
    ask(N_ROWS=30_000, N_CLUSTERS=3, N_FEATURES=4)
    _, _, gaussian = cluster_moments(gaussian_mixture(2))
    _, _, skewed = cluster_moments(skewed_mixture(2))
    error = 6 * np.sqrt(6 / 9_000)  # six standard errors of the skewness of a normal sample
    assert max(np.abs(stats.skew(c)).max() for c in gaussian) < error
    # Azzalini's formula for the skewness of a skew-normal variable.
    mean = 0.98 * np.sqrt(2 / np.pi)
    exact = (4 - np.pi) / 2 * mean**3 / (1 - mean**2) ** 1.5
    for cluster in skewed:
        np.testing.assert_allclose(np.abs(stats.skew(cluster)), exact, atol=0.15)


def test_drifting_means_travel_the_whole_way_in_row_order(ask):
    ask(N_ROWS=40_000, N_CLUSTERS=2, N_FEATURES=5, DRIFT=10)
    samples = drifting_mixture(3)
    tenth = len(samples.x) // 10
    for cluster in range(2):
        rows = np.flatnonzero(samples.y_true == cluster)
        early = samples.x[rows[rows < tenth]].mean(axis=0)
        late = samples.x[rows[rows >= 9 * tenth]].mean(axis=0)
        assert np.linalg.norm(late - early) == pytest.approx(9, abs=0.3)  # from 5 % to 95 % of the way
