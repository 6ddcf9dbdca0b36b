"""A cluster is a group of one or more mixture components, joined where the neighbour graph runs through them.

Real clusters are not Gaussian: a mixture that describes them well needs several components for one of them.
Rows of two pieces of one cluster lie among each other, those of two clusters do not.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from dbull.lifelong.settings import EVIDENCE_PER_CLUSTER
from dbull.mixture.posterior import log_evidence
from dbull.mixture.prior import MixturePrior, adapted_prior
from dbull.mixture.stats import SufficientStats

__all__ = ["Join", "hierarchy", "join_components", "lowered", "mixing", "number_clusters"]

TINY = torch.finfo(torch.float64).tiny  # sets without edges are in contact with nothing
AMONG_OLD = 2.0
CLEAR_GAP = 10.0  # times less mixed, from which what is joined next stands clearly apart
LOWERED, NO_CONTACT = 0.4, 0.01  # times the usual threshold: that where clusters stand apart; as good as none
FINEST, BISECTIONS = 1e6, 40  # the dial is searched from 1 / FINEST to FINEST


def mixing(edges: Tensor) -> Tensor:
    """Return how much the rows of two sets lie among each other, symmetric (K, K); 0 on the diagonal.

    With edges from rows of one to neighbours in the other: the edges between the two, over those that there
    would be if each edge of either led to one of the two by chance, given how many edges each has (the null
    model of modularity, for the pair alone). 0: no contact; 1: as one, whatever the sizes.
    """
    both = edges + edges.T
    volume = both.sum(1)
    chance = volume[:, None] * volume[None, :] / (volume[:, None] + volume[None, :]).clamp_min(TINY)
    return (both / chance.clamp_min(TINY)).fill_diagonal_(0.0)


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


def lowered(edges: Tensor, threshold: float, n_old: int = 0) -> float:
    """Return the mixing from which new components are one: a lower one where clusters stand clearly apart.

    Pieces of one cluster can be mixed as little as clusters that touch are elsewhere: a layout of a thousand
    rows of one Gaussian has lumps, mixed .03 to .15. But where joining goes on and the next pair is
    `CLEAR_GAP` times less mixed than any before, there is a level at which clusters stand apart, and what
    touches more than that is within them. Without such a gap, clusters are a matter of degree. Where all are
    in contact, what is joined last is what stands apart.
    """
    edges, n = edges.clone(), len(edges)
    heights = [threshold]
    for _ in range(n_old, n - 1):
        mixed = mixing(edges)
        mixed[:n_old] = mixed[:, :n_old] = 0.0
        best = int(mixed.argmax())
        heights.append(min(heights[-1], float(mixed.flatten()[best])))
        _join(edges, *sorted((best // n, best % n)))
    ends = torch.tensor([*heights, 0.0], dtype=torch.float64).clamp_min(NO_CONTACT * threshold)
    if not bool((ends[:-1] >= CLEAR_GAP * ends[1:]).any()):
        return threshold
    # Whether all of them are one is decided as ever: the least contact of all stays below the threshold.
    return min(threshold, max(LOWERED * threshold, math.nextafter(heights[-1], math.inf)))


def _join(edges: Tensor, a: int, b: int) -> None:
    """Let component `a` have the edges of `b`, in place."""
    edges[a] += edges[b]
    edges[:, a] += edges[:, b]
    edges[b] = edges[:, b] = 0.0


def join_components(
    edges: Tensor,
    sizes: Tensor,
    threshold: float,
    n_old: int = 0,
    n_least: int = 0,
    among_old: float | None = None,
) -> Tensor:
    """Return the group of each component, (K,), numbered from 0 in the order of their first members.

    Joins the pair that is mixed most, and goes on with the joined ones as one, while the mixing is at least
    `threshold`. New ones of fewer than `n_least` rows are too few to stand: they go with the new one that
    they touch most, if any. The first `n_old` are old clusters, which are never joined with each other and
    keep their numbers. A new cluster that only touches an old one stays apart: an old cluster is replayed in
    all its parts, so its own rows lie among replayed ones, mixed `among_old` at least (`AMONG_OLD` times the
    threshold, if nothing is said).

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
    times = AMONG_OLD if among_old is None else among_old / threshold
    for _ in range(n - 1):
        mixed = mixing(edges).masked_fill(forbidden, 0.0)
        mixed[:n_old] /= times
        mixed[:, :n_old] /= times
        if float(mixed.max()) < threshold:
            small = ~old & (sizes < n_least)
            mixed[old] = mixed[:, old] = 0.0
            mixed.masked_fill_(~(small[:, None] | small[None, :]), 0.0)
        best = int(mixed.argmax())
        a, b = sorted((best // n, best % n))
        if float(mixed[a, b]) <= 0.0:
            break
        _join(edges, a, b)
        sizes[a] += sizes[b]
        sizes[b] = 0.0
        group[group == b] = a
    numbered: Tensor = torch.unique(group, return_inverse=True)[1]
    return numbered


@dataclass(frozen=True)
class Join:
    """Two groups of clusters, and the `resolution` below which they would be one."""

    one: tuple[int, ...]  # ids
    other: tuple[int, ...]
    resolution: float


def hierarchy(ids: Sequence[int], stats: SufficientStats) -> tuple[Join, ...]:
    """Return how clusters would be joined as the resolution falls, the hardest to tell apart first.

    Two clusters are one where the evidence of their pooled statistics is higher than that of both, each
    counting as the search counts it: the decision of a merge, at every level. Between groups it is the
    geometric mean over their pairs. It needs nothing but what adds up over data sets, so it can be had for
    clusters whose rows are gone.
    """
    from scipy.cluster.hierarchy import average  # slow to import, and few ask

    groups: list[tuple[int, ...]] = [(int(i),) for i in ids]
    if len(groups) < 2:
        return ()
    a, b = torch.triu_indices(len(groups), len(groups), offset=1)
    levels = separation(adapted_prior(stats), stats.select(a), stats.select(b))
    joins = []
    for one, other, apart, _ in average((FINEST / levels).log().numpy()):
        joins.append(Join(groups[int(one)], groups[int(other)], FINEST * math.exp(-apart)))
        groups.append(tuple(sorted((*groups[int(one)], *groups[int(other)]))))
    return tuple(joins)


def separation(prior: MixturePrior, one: SufficientStats, other: SufficientStats) -> Tensor:
    """Return the resolution from which the clusters of each pair are two, (P,), by bisection of its log."""
    both = one + other
    rows = both.counts.clamp_min(torch.finfo(torch.float64).tiny)
    low = torch.full_like(rows, -math.log(FINEST))
    high = -low
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        weight = 2 * EVIDENCE_PER_CLUSTER * middle.exp() / rows
        parts = [_weighted(part, weight) for part in (both, one, other)]
        pooled, *apart = [log_evidence(prior, part) for part in parts]
        one_cluster = pooled > apart[0] + apart[1]
        low, high = torch.where(one_cluster, middle, low), torch.where(one_cluster, high, middle)
    return ((low + high) / 2).exp()


def _weighted(stats: SufficientStats, weight: Tensor) -> SufficientStats:
    return stats.each(lambda part: part * weight.reshape(-1, *[1] * (part.dim() - 1)))
