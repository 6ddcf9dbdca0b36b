"""What happened to clusters, with the evidence for it."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["ClusterEvent"]


@dataclass(frozen=True)
class ClusterEvent:
    """One change of the set of clusters.

    A "birth" is a new cluster. A "growth" is a component that an old cluster took in. "merge" and "dissolve"
    are components that came and went within one data set.
    """

    kind: str
    data_set: int  # counted from 1
    cluster: int | None
    n_rows: float
    elbo_gain: float  # nats by which the bound is better than without it; of the components involved
    nearest: int | None = None  # the old cluster most mixed with it on the neighbour graph
    mixing: float = 0.0  # 0: no contact, 1: as one
