"""A cluster is a group of one or more mixture components, joined where the neighbour graph runs through them.

Real clusters are not Gaussian: a mixture that describes them well needs several components for one of them.
Rows of two pieces of one cluster lie among each other, those of two clusters do not.
"""

import torch
from torch import Tensor

__all__ = ["join_components", "mixing", "number_clusters"]


def mixing(edges: Tensor, sizes: Tensor) -> Tensor:
    """Return how much the rows of two sets lie among each other, symmetric (K, K); 0 on the diagonal.

    With edges from rows of one to neighbours in the other, and the sizes of both: the edges between the two,
    over those that would be there if neighbours within both were chosen without regard to the set. 0: no
    contact; 1: as one, whatever the sizes.
    """
    both, sizes = edges + edges.T, sizes.to(edges.dtype)
    inside = both.diagonal()
    total = inside[:, None] + inside[None, :] + 2 * both
    pairs = sizes[:, None] * sizes[None, :] / (sizes[:, None] + sizes[None, :]).clamp_min(1).square()
    return (both / (total * pairs).clamp_min(torch.finfo(edges.dtype).tiny)).fill_diagonal_(0.0)


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


def join_components(edges: Tensor, sizes: Tensor, threshold: float, n_old: int = 0) -> Tensor:
    """Return the group of each component, (K,), numbered from 0 in the order of their first members.

    Joins the pair that is mixed most, and goes on with the joined ones as one, while the mixing is at least
    `threshold`. The first `n_old` are old clusters, which are never joined with each other and keep their
    numbers. A new cluster that only touches an old one stays apart: an old cluster is replayed in all its
    parts, so its own rows lie among replayed ones.

    Parameters
    ----------
    edges
        Edge weights from rows of one component to neighbours of another, (K, K), as
        `neighbourhood.edge_weights` gives them.
    sizes
        Rows of each, (K,).
    """
    edges, sizes, n = edges.clone(), sizes.to(edges.dtype), len(edges)
    group = torch.arange(n)
    old = group < n_old
    forbidden = old[:, None] & old[None, :]
    for _ in range(n - 1):
        mixed = mixing(edges, sizes).masked_fill(forbidden, 0.0)
        best = int(mixed.argmax())
        a, b = sorted((best // n, best % n))
        if float(mixed[a, b]) < threshold or a == b:
            break
        edges[a] += edges[b]
        edges[:, a] += edges[:, b]
        edges[b] = edges[:, b] = 0.0
        sizes[a] += sizes[b]
        sizes[b] = 0.0
        forbidden[a] |= forbidden[b]
        forbidden[:, a] |= forbidden[:, b]
        group[group == b] = a
    numbered: Tensor = torch.unique(group, return_inverse=True)[1]
    return numbered
