"""Mixtures drawn from a seed: Gaussian, skewed, and drifting. Ground truth is known, no file is needed."""

from dataclasses import dataclass

import numpy as np

from dbull.data.dataset import Samples
from dbull.errors import DataError

_MAX_TRIES = 10_000
_SKEW = 0.98  # share of the half-normal part in a skew-normal coordinate; skewness about 0.9


@dataclass(frozen=True)
class MixtureSettings:
    """What to draw.

    Attributes
    ----------
    n_rows, n_clusters, n_features : int
    separation : float
        Least distance between two cluster means, in standard deviations of the widest coordinate.
    drift : float
        Distance that each mean travels from the first row to the last; used by the drifting mixture only.
    """

    n_rows: int = 10_000
    n_clusters: int = 5
    n_features: int = 10
    separation: float = 6.0
    drift: float = 12.0

    def __post_init__(self) -> None:
        for name in ("n_rows", "n_clusters", "n_features"):
            if getattr(self, name) < 1:
                raise DataError(f"{name} must be at least 1, got {getattr(self, name)}")


def gaussian_mixture(seed: int, settings: MixtureSettings | None = None) -> Samples:
    """Draw a mixture of Gaussians with diagonal covariance, clusters equally likely, rows in random order."""
    settings = settings or MixtureSettings()
    random = _generator(seed, "gaussian")
    y_true, means, scales = _clusters(random, settings)
    noise = random.standard_normal((settings.n_rows, settings.n_features))
    return _samples(means[y_true] + scales[y_true] * noise, y_true, settings)


def skewed_mixture(seed: int, settings: MixtureSettings | None = None) -> Samples:
    """Draw a mixture of skew-normal clusters (Azzalini 1985), which a Gaussian fits badly on purpose.

    Each coordinate is s (d |u| + sqrt(1 - d^2) v) with standard normal u, v, shifted and scaled to
    mean 0 and standard deviation 1; the sign s of the tail is drawn per cluster and coordinate.
    """
    settings = settings or MixtureSettings()
    random = _generator(seed, "skewed")
    y_true, means, scales = _clusters(random, settings)
    u, v = random.standard_normal((2, settings.n_rows, settings.n_features))
    skewed = _SKEW * np.abs(u) + np.sqrt(1 - _SKEW**2) * v
    mean = _SKEW * np.sqrt(2 / np.pi)
    noise = (skewed - mean) / np.sqrt(1 - mean**2)
    tail = random.choice([-1.0, 1.0], size=(settings.n_clusters, settings.n_features))
    return _samples(means[y_true] + scales[y_true] * tail[y_true] * noise, y_true, settings)


def drifting_mixture(seed: int, settings: MixtureSettings | None = None) -> Samples:
    """Draw a Gaussian mixture whose means travel in straight lines; row order is time."""
    settings = settings or MixtureSettings()
    random = _generator(seed, "drifting")
    y_true, means, scales = _clusters(random, settings)
    direction = random.standard_normal(means.shape)
    direction /= np.sqrt((direction**2).sum(axis=1, keepdims=True))
    time = np.linspace(0, 1, settings.n_rows)[:, None]
    noise = random.standard_normal((settings.n_rows, settings.n_features))
    x = means[y_true] + settings.drift * time * direction[y_true] + scales[y_true] * noise
    return _samples(x, y_true, settings)


def _generator(seed: int, purpose: str) -> np.random.Generator:
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence([seed, *purpose.encode()])))


def _clusters(
    random: np.random.Generator, settings: MixtureSettings
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the cluster of each row, (N,), means and scales, (K, D); scales lie in [0.5, 1]."""
    means: list[np.ndarray] = []
    spread = settings.separation
    for _ in range(_MAX_TRIES):
        if len(means) == settings.n_clusters:
            break
        candidate = spread * random.standard_normal(settings.n_features)
        if all(((candidate - mean) ** 2).sum() >= settings.separation**2 for mean in means):
            means.append(candidate)
        else:
            spread *= 1.01  # too crowded: look further out, so that any number of clusters fits in the end
    else:
        raise DataError(
            f"could not place {settings.n_clusters} means {settings.separation} apart; ask for fewer"
        )
    scales = random.uniform(0.5, 1.0, size=(settings.n_clusters, settings.n_features))
    y_true = random.integers(settings.n_clusters, size=settings.n_rows)
    return y_true, np.array(means), scales


def _samples(x: np.ndarray, y_true: np.ndarray, settings: MixtureSettings) -> Samples:
    names = tuple(str(cluster) for cluster in range(settings.n_clusters))
    return Samples(x.astype(np.float32), y_true.astype(np.int64), names, (settings.n_features,))
