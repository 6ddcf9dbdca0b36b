"""What learning a data set did: the one account that events, previews and progress are made from."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from dbull.ledger.records import Event


@dataclass(frozen=True)
class Newborn:
    """New components that founded a cluster, or that an old one took in."""

    n_rows: int
    elbo_gain: float | None  # nats that are lost if the largest of them is pooled with its best partner
    nearest: int | None  # old cluster
    mixing: float  # with the nearest; 1: as one
    n_components: int
    copies: bool = False  # usual rows, each many times; the graph cannot tell how mixed they are

    @property
    def evidence(self) -> dict[str, Any]:
        """What speaks for it, as an event tells it."""
        known = {name: getattr(self, name) for name in ("elbo_gain", "nearest", "mixing", "n_components")}
        return {**known, "copies": True} if self.copies else known


@dataclass(frozen=True)
class ArrivalReport:
    """What learning a data set did. Rows are told to clusters as `predict` tells them."""

    rows: dict[int, int]  # of each cluster that rows can belong to, by ascending id
    weights: dict[int, float]  # expected share of each cluster
    born: dict[int, Newborn] = field(default_factory=dict)
    grown: dict[int, Newborn] = field(default_factory=dict)
    novel_share: float | None = None  # rows that the clusters of the past find strange, if they can say
    n_outliers: int = 0  # rows that were answered but did not count
    elbo: float = math.nan  # evidence lower bound of all rows but outliers set aside, in the data's units
    changed_columns: tuple[str, ...] = ()  # of another scale than in all data sets before
    seconds: float = math.nan

    @property
    def n_rows(self) -> int:
        """Rows of the data set."""
        return sum(self.rows.values())

    @property
    def n_clusters(self) -> int:
        """Clusters that rows can belong to."""
        return len(self.rows)

    def events(self, arrival: int) -> Iterator[Event]:
        """Yield the events of the data set, which is number `arrival` of the stream."""
        evidence = {
            "n_rows": self.n_rows,
            "novel_share": self.novel_share,
            "n_outliers": self.n_outliers,
            "n_clusters": self.n_clusters,
            "rows_per_cluster": {str(cluster): n for cluster, n in self.rows.items() if n},
            "elbo": self.elbo if math.isfinite(self.elbo) else None,
        }
        yield Event("arrival", arrival, None, (), self.n_rows, evidence)
        if self.changed_columns:
            columns = {"columns": list(self.changed_columns)}
            yield Event("scale", arrival, None, (), self.n_rows, columns)
        for cluster, n_rows in self.rows.items():
            if cluster in self.born:
                yield Event("birth", arrival, None, (cluster,), n_rows, self.born[cluster].evidence)
            elif cluster in self.grown:
                grown = self.grown[cluster]
                yield Event("growth", arrival, None, (cluster,), grown.n_rows, grown.evidence)
