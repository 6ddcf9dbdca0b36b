"""A cluster is a group of one or more mixture components, joined where the neighbour graph runs through them.

Real clusters are not Gaussian: a mixture that describes them well needs several components for one of them.
Two pieces of one cluster share many edges of the neighbour graph, two clusters share few.
"""

import torch
from torch import Tensor

__all__ = ["join_components", "mixing", "number_clusters", "place_newborns", "shared_edges"]


def shared_edges(weights: Tensor) -> Tensor:
    """Return for each pair its edge weight over the total of the one with less, (K, K); 0 on the diagonal."""
    volume = weights.sum(1)
    smaller = torch.minimum(volume[:, None], volume[None, :]).clamp(min=torch.finfo(weights.dtype).tiny)
    shared = weights / smaller
    return shared.fill_diagonal_(0.0)


def mixing(edges: Tensor, sizes: Tensor) -> Tensor:
    """Return how much the rows of one set lie among those of another, (K, K); 0 on the diagonal.

    With edges E_ab from rows of a to neighbours in b, and n_a rows in a: E_ab / (E_aa + E_ab), over the share
    n_b / (n_a + n_b) that it would be if neighbours were chosen without regard to the set. 0: no contact;
    1: as one, whatever the sizes. The few rows of a small set cannot be neighbours of each other alone.
    """
    tiny = torch.finfo(edges.dtype).tiny
    share = edges / (edges.diagonal()[:, None] + edges).clamp_min(tiny)
    sizes = sizes.to(edges.dtype)
    expected = sizes[None, :] / (sizes[:, None] + sizes[None, :]).clamp_min(1)
    return (share / expected.clamp_min(tiny)).fill_diagonal_(0.0)


def place_newborns(weights: Tensor, contact: Tensor, n_old: int, threshold: float, mixed: float) -> Tensor:
    """Decide which newborn components belong to old clusters, which are new ones together.

    Old clusters are never joined with each other. A newborn joins an old one only if the two are mixed: an
    old cluster is replayed in all its parts, so its own rows lie among replayed ones, and a new cluster that
    only touches it stays apart. Newborns are joined as pieces of one cluster are.

    Parameters
    ----------
    weights
        Symmetric edge weights between old clusters (the first `n_old`) and newborns, (n, n).
    contact
        Mixing of each with each old cluster, (n, n_old).
    threshold, mixed
        Share from which newborns join each other, and mixing from which they may join an old cluster.

    Returns the group of each, (n,), numbered so that old clusters keep their places.
    """
    n = len(weights)
    old = torch.arange(n) < n_old
    apart = old[:, None] & old[None, :]
    strange = torch.zeros(n, n, dtype=torch.bool)
    strange[:, :n_old] = contact < mixed
    return join_components(weights, threshold, apart | strange | strange.T)


def number_clusters(group: Tensor, labels: Tensor, n_old: int) -> Tensor:
    """Return the cluster of each component, (K,): old ones keep theirs, new ones follow, largest first.

    Parameters
    ----------
    group
        Of each component, (K,); below `n_old` it is that old cluster.
    labels
        Component of each row, (N,).
    """
    sizes = torch.bincount(group[labels], minlength=int(group.max()) + 1)
    founded = sorted((g for g in group.unique().tolist() if g >= n_old), key=lambda g: -int(sizes[g]))
    number = {g: n_old + i for i, g in enumerate(founded)}
    return torch.tensor([number.get(g, g) for g in group.tolist()])


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
