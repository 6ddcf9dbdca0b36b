"""Synthetic data sets that several test rooms use."""

import numpy as np


def random_covariance(rng, n_dims):
    """A full covariance with eigenvalues between 0.3 and 2, turned at random."""
    turn, _ = np.linalg.qr(rng.normal(size=(n_dims, n_dims)))
    return turn @ np.diag(rng.uniform(0.3, 2.0, n_dims)) @ turn.T


def separated_centres(rng, n_clusters, n_dims, distance):
    """Centres that are pairwise at least `distance` apart, by rejection in a growing box."""
    centres, box = [], distance
    while len(centres) < n_clusters:
        candidate = rng.uniform(-box, box, n_dims)
        if all(np.linalg.norm(candidate - c) >= distance for c in centres):
            centres.append(candidate)
        else:
            box *= 1.05
    return np.array(centres)


def gaussian_clusters(rng, sizes, n_dims, distance=9.0):
    """Rows and true labels of well-separated Gaussian clusters with full covariances, shuffled."""
    centres = separated_centres(rng, len(sizes), n_dims, distance)
    rows = np.concatenate(
        [
            rng.multivariate_normal(c, random_covariance(rng, n_dims), n)
            for c, n in zip(centres, sizes, strict=True)
        ]
    )
    labels = np.repeat(np.arange(len(sizes)), sizes)
    order = rng.permutation(len(rows))
    return rows[order], labels[order]


def skewed_clusters(rng, sizes, n_dims, distance=9.0):
    """Clusters with log-normal factors: no mixture of as many Gaussians describes them."""
    centres = separated_centres(rng, len(sizes), n_dims, distance)
    rows = np.concatenate(
        [
            c + (np.exp(0.6 * rng.normal(size=(n, n_dims))) - 1.0) @ rng.normal(size=(n_dims, n_dims))
            for c, n in zip(centres, sizes, strict=True)
        ]
    )
    labels = np.repeat(np.arange(len(sizes)), sizes)
    order = rng.permutation(len(rows))
    return rows[order], labels[order]
