"""What is known of a cluster, what happened to it, and what learning a data set did, from which both follow.

Clusters and events with how they are written down and read back. Arrivals are counted from 1; documents have
them from 0, as those of the first models do.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from dbull import documents
from dbull.documents import Reader, check_fields, fail, list_of, mapping, one_of, or_none, text, whole
from dbull.errors import ModelFileError, SettingsError

KINDS = ("arrival", "birth", "growth", "merge", "rename", "retirement", "scale")
STATUSES = ("active", "merged", "retired")


@dataclass(frozen=True)
class ClusterRecord:
    """One cluster that has ever been, under an id that no other cluster gets.

    A merged cluster lives on in the older one `merged_into`; a retired one is only marked, and may still
    receive rows. `rows` are those that count for this cluster now, so they are 0 once it is merged. Fields
    are in the order in which a table shows them.
    """

    id: int
    name: str | None
    rows: int
    weight: float | None
    first_seen: int  # arrival of its birth, from 1
    last_seen: int  # last arrival that brought rows
    parents: tuple[int, ...] = ()
    status: str = "active"
    merged_into: int | None = None

    @property
    def living(self) -> bool:
        """Whether rows can belong to it."""
        return self.status != "merged"

    @property
    def relatives(self) -> tuple[int, ...]:
        """Every other cluster that this record names; all are older."""
        return self.parents if self.merged_into is None else (*self.parents, self.merged_into)

    def to_json(self) -> dict[str, Any]:
        """Return plain values, to be written down."""
        seen = {"first_seen": self.first_seen - 1, "last_seen": self.last_seen - 1}
        return {**self.row(), **seen}

    def row(self) -> dict[str, Any]:
        """Return plain values, to be shown."""
        return {**asdict(self), "parents": list(self.parents)}

    @classmethod
    def from_json(cls, value: object, where: str) -> ClusterRecord:
        """Read what `to_json` gave; `where` names the place in error messages."""
        record = cls(**check_fields(value, where, _RECORD))
        if (record.merged_into is not None) != (record.status == "merged"):
            fail(where, f"status {record.status!r} with merged_into {record.merged_into}")
        if not record.living and record.rows:
            fail(where, f"{record.rows} rows in a cluster that is {record.status}")
        if any(other >= record.id for other in record.relatives):
            fail(where, "parents and merged_into must be older than the cluster itself")
        if record.last_seen < record.first_seen:
            fail(where, "last_seen is before first_seen")
        return record


@dataclass(frozen=True)
class Event:
    """Something that happened to clusters: what, when, to which, how many rows it concerned, and why.

    A merge names the older id first. `time` is that of the save that wrote it down, or None: nothing here
    reads a clock, so that the same data give the same bytes.
    """

    kind: str
    arrival: int  # from 1
    time: str | None
    clusters: tuple[int, ...]
    rows: int = 0
    evidence: dict[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Return plain values, to be written down."""
        return {**vars(self), "arrival": self.arrival - 1, "clusters": list(self.clusters)}

    @classmethod
    def from_json(cls, value: object, where: str) -> Event:
        """Read what `to_json` gave; `where` names the place in error messages."""
        return cls(**check_fields(value, where, _EVENT))


class EarlierEvents:
    """The events before those of a ledger itself: how many there were, and the latest of them, read late."""

    def __init__(
        self,
        n_events: int = 0,
        events: Sequence[Event] | Callable[[], Sequence[Event]] = (),
        where: str = "clusters.json",
    ):
        self.n_events, self._events, self._where = n_events, events, where

    def read(self) -> tuple[Event, ...]:
        """Return the events, and keep them for all ledgers that share them."""
        if not isinstance(self._events, tuple):
            self._events = tuple(self._events() if callable(self._events) else self._events)
        if len(self._events) > self.n_events:
            fail(f"{self._where}.n_earlier_events", f"{self.n_events} expected, {len(self._events)} found")
        return self._events


@dataclass(frozen=True)
class Newborn:
    """New components that founded a cluster, or that an old one took in."""

    n_rows: int
    elbo_gain: float | None  # nats that are lost if the largest of them is pooled with its best partner
    nearest: int | None  # old cluster
    mixing: float  # with the nearest; 1: as one
    n_components: int
    copies: bool = False  # usual rows, each many times; the graph cannot tell how mixed they are
    because: str = ""  # what sets it apart, in the words of the data

    @property
    def evidence(self) -> dict[str, Any]:
        """What speaks for it, as an event tells it."""
        known = {name: getattr(self, name) for name in ("elbo_gain", "nearest", "mixing", "n_components")}
        return known | {name: getattr(self, name) for name in ("copies", "because") if getattr(self, name)}


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
    graph_index: str = ""  # by which neighbours were found: "exact" or index and version; "" without a graph
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
        evidence: dict[str, Any] = {
            "n_rows": self.n_rows,
            "novel_share": self.novel_share,
            "n_outliers": self.n_outliers,
            "n_clusters": self.n_clusters,
            "rows_per_cluster": {str(cluster): n for cluster, n in self.rows.items() if n},
            "elbo": self.elbo if math.isfinite(self.elbo) else None,
        }
        if self.graph_index not in ("", "exact"):
            evidence["graph_index"] = self.graph_index
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


def spread_of(counts: Any, sum_z: Any, sum_zz: Any) -> float:
    """Return the root mean square distance of a cluster's codes from their mean.

    From the statistics of its components, (K,), (K, D) and (K, D, D), as tensors or as arrays.
    """
    n_rows = max(float(counts.sum()), sys.float_info.min)
    mean = sum_z.sum(0) / n_rows
    square = sum_zz.sum(0).diagonal().sum() / n_rows
    return math.sqrt(max(float(square - (mean * mean).sum()), 0.0))


def _ids(value: object, where: str) -> tuple[int, ...]:
    return tuple(list_of(whole)(value, where))


def _arrival(value: object, where: str) -> int:
    return int(whole(value, where)) + 1


def _evidence(value: object, where: str) -> dict[str, Any]:
    try:
        read: dict[str, Any] = documents.plain(mapping(value, where), where)
    except SettingsError as error:
        raise ModelFileError(str(error)) from error
    return read


_share = documents.value_that(
    lambda value: isinstance(value, float) and 0 <= value <= 1, "a number from 0.0 to 1.0"
)
_RECORD: dict[str, Reader] = {
    "id": whole,
    "name": or_none(text),
    "rows": whole,
    "weight": or_none(_share),
    "first_seen": _arrival,
    "last_seen": _arrival,
    "parents": _ids,
    "status": one_of(STATUSES),
    "merged_into": or_none(whole),
}
_EVENT: dict[str, Reader] = {
    "kind": one_of(KINDS),
    "arrival": _arrival,
    "time": or_none(text),
    "clusters": _ids,
    "rows": whole,
    "evidence": _evidence,
}
