"""A small mixture with nothing special about it, in the package's records and in plain arrays."""

from dataclasses import dataclass

import numpy as np
import torch

from dbull.mixture.prior import MixturePrior
from dbull.mixture.updates import Points, summarize


@dataclass(frozen=True)
class Case:
    """Points with responsibilities and a prior."""

    z: np.ndarray
    var: np.ndarray  # zeros where the points have no variance
    r: np.ndarray
    prior: MixturePrior
    points: Points

    @property
    def plain_prior(self):
        p = self.prior
        return p.concentration, p.mean.numpy(), p.mean_precision, p.dof, p.scale_inv.numpy()

    @property
    def stats(self):
        return summarize(torch.tensor(np.log(self.r)), self.points)


def make_case(seed=0, n_rows=10, n_dims=2, n_components=3, with_variance=True, offset=0.0):
    """Ten points by default; responsibilities and prior at random."""
    rng = np.random.default_rng(seed)
    z = rng.normal(size=(n_rows, n_dims)) * 2 + offset
    var = rng.uniform(0.1, 1.0, z.shape) if with_variance else np.zeros_like(z)
    r = rng.dirichlet(np.full(n_components, 0.6), n_rows).clip(1e-12)
    r /= r.sum(1, keepdims=True)
    root = rng.normal(size=(n_dims, n_dims + 1))
    prior = MixturePrior(
        float(rng.uniform(0.5, 3.0)),
        torch.tensor(rng.normal(size=n_dims)),
        float(rng.uniform(0.1, 1.0)),
        n_dims + float(rng.uniform(0.5, 3.0)),
        torch.tensor(root @ root.T + 0.1 * np.eye(n_dims)),
    )
    points = Points.from_rows(torch.tensor(z), torch.tensor(var) if with_variance else None)
    return Case(z, var, r, prior, points)
