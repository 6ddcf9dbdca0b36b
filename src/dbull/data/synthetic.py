"""Mixtures drawn from a seed: Gaussian, skewed, and drifting. Ground truth is known, no file is needed."""

import numpy as np

from dbull.data.dataset import Samples

N_ROWS, N_CLUSTERS, N_FEATURES = 10_000, 5, 10
SEPARATION = 6.0  # least distance between two cluster means, in standard deviations of the widest coordinate
DRIFT = 12.0  # distance that each mean of the drifting mixture travels from the first row to the last
_SKEW = 0.98  # share of the half-normal part in a skew-normal coordinate; skewness about 0.9


def gaussian_mixture(seed: int) -> Samples:
    """Draw a mixture of Gaussians with diagonal covariance, clusters equally likely, rows in random order."""
    random, y_true, means, scales = _clusters(seed, "gaussian")
    noise = random.standard_normal((N_ROWS, N_FEATURES))
    return _samples(means[y_true] + scales[y_true] * noise, y_true)


def skewed_mixture(seed: int) -> Samples:
    """Draw a mixture of skew-normal clusters (Azzalini 1985), which a Gaussian fits badly on purpose.

    Each coordinate is s (d |u| + sqrt(1 - d^2) v) with standard normal u, v, shifted and scaled to
    mean 0 and standard deviation 1; the sign s of the tail is drawn per cluster and coordinate.
    """
    random, y_true, means, scales = _clusters(seed, "skewed")
    u, v = random.standard_normal((2, N_ROWS, N_FEATURES))
    skewed = _SKEW * np.abs(u) + np.sqrt(1 - _SKEW**2) * v
    mean = _SKEW * np.sqrt(2 / np.pi)
    noise = (skewed - mean) / np.sqrt(1 - mean**2)
    tail = random.choice([-1.0, 1.0], size=means.shape)
    return _samples(means[y_true] + scales[y_true] * tail[y_true] * noise, y_true)


def drifting_mixture(seed: int) -> Samples:
    """Draw a Gaussian mixture whose means travel in straight lines; row order is time."""
    random, y_true, means, scales = _clusters(seed, "drifting")
    direction = random.standard_normal(means.shape)
    direction /= np.sqrt((direction**2).sum(axis=1, keepdims=True))
    time = np.linspace(0, 1, N_ROWS)[:, None]
    noise = random.standard_normal((N_ROWS, N_FEATURES))
    return _samples(means[y_true] + DRIFT * time * direction[y_true] + scales[y_true] * noise, y_true)


def _clusters(seed: int, purpose: str) -> tuple[np.random.Generator, np.ndarray, np.ndarray, np.ndarray]:
    """Return a generator, the cluster of each row, (N,), means and scales, (K, D); scales lie in [0.5, 1]."""
    random = np.random.Generator(np.random.PCG64(np.random.SeedSequence([seed, *purpose.encode()])))
    means: list[np.ndarray] = []
    spread = SEPARATION
    while len(means) < N_CLUSTERS:
        candidate = spread * random.standard_normal(N_FEATURES)
        if all(((candidate - mean) ** 2).sum() >= SEPARATION**2 for mean in means):
            means.append(candidate)
        else:
            spread *= 1.01  # too crowded: look further out, so that any number of clusters fits in the end
    scales = random.uniform(0.5, 1.0, size=(N_CLUSTERS, N_FEATURES))
    return random, random.integers(N_CLUSTERS, size=N_ROWS), np.array(means), scales


def _samples(x: np.ndarray, y_true: np.ndarray) -> Samples:
    names = tuple(map(str, range(N_CLUSTERS)))
    return Samples(x.astype(np.float32), y_true.astype(np.int64), names, (N_FEATURES,))
