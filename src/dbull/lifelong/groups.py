"""A cluster is a group of one or more mixture components, joined where the neighbour graph runs through them.

Real clusters are not Gaussian: a mixture that describes them well needs several components for one of them.
Two pieces of one cluster share many edges of the neighbour graph, two clusters share few.
"""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["join_components", "shared_edges"]


def shared_edges(weights: Tensor) -> Tensor:
    """Return for each pair its edge weight over the total of the one with less, (K, K); 0 on the diagonal."""
    volume = weights.sum(1)
    smaller = torch.minimum(volume[:, None], volume[None, :]).clamp(min=torch.finfo(weights.dtype).tiny)
    shared = weights / smaller
    return shared.fill_diagonal_(0.0)


def join_components(weights: Tensor, threshold: float, apart: Tensor | None = None) -> Tensor:
    """Return the group of each component, (K,), numbered from 0 in the order of their first members.

    Joins the pair that shares most edges, and goes on with the joined ones as one, while the share is at
    least `threshold`.

    Parameters
    ----------
    weights
        Symmetric edge weights between components, (K, K), as `neighbourhood.affinity` gives them.
    apart
        Pairs that must not be joined, (K, K) bool.
    """
    weights = weights.clone()
    n = len(weights)
    group = torch.arange(n)
    forbidden = torch.zeros(n, n, dtype=torch.bool) if apart is None else apart | apart.T
    for _ in range(n - 1):
        shared = shared_edges(weights).masked_fill(forbidden, 0.0)
        best = int(shared.argmax())
        a, b = sorted((best // n, best % n))
        if float(shared[a, b]) < threshold or a == b:
            break
        weights[a] += weights[b]
        weights[:, a] += weights[:, b]
        weights[b] = weights[:, b] = 0.0
        forbidden[a] |= forbidden[b]
        forbidden[:, a] |= forbidden[:, b]
        group[group == b] = a
    numbered: Tensor = torch.unique(group, return_inverse=True)[1]
    return numbered
