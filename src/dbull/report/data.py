"""What a report says, as plain values; arrivals, lanes and sentences come from the events of a ledger."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dbull.ledger import Event
from dbull.methods.traits import Trait


@dataclass(frozen=True)
class Cluster:
    """A cluster that rows can belong to."""

    id: int
    name: str | None
    status: str
    rows: int
    weight: float
    first_seen: int  # arrival, counted from 1
    last_seen: int
    spread: float
    exemplars: Sequence[str]  # keys of the rows nearest to its centre
    words: Sequence[str]  # of its texts, if there are any beside what its traits tell
    parents: tuple[int, ...]
    absorbed: tuple[int, ...]  # ids that live on in it
    rows_per_arrival: tuple[int, ...]  # those of absorbed clusters included
    prototype: NDArray[np.uint8] | None  # (height, width) or (height, width, 3)
    samples: tuple[NDArray[np.uint8], ...]  # pictures like the prototype; drawn, not kept rows
    traits: tuple[Trait, ...]  # in what it differs from all other rows, strongest first; empty for images
    neighbours: tuple[tuple[int, float], ...]  # id, distance of the centres over the sum of both spreads

    @property
    def label(self) -> str:
        """Its name, or what it is called without one."""
        return self.name if self.name is not None else f"Cluster {self.id}"


@dataclass(frozen=True)
class FormerCluster:
    """A cluster that lives on in another."""

    id: int
    name: str | None
    first_seen: int
    successor: int


@dataclass(frozen=True)
class Lane:
    """The life of one id, former ones included: when it came, how many rows each arrival brought, its end."""

    id: int
    label: str
    first_seen: int
    end: int | None  # arrival of the merge
    into: int | None  # the id it was merged into
    rows: Mapping[int, int]  # arrival -> rows


@dataclass(frozen=True)
class ArrivalPoint:
    """One data set of the stream; values that are not known are None."""

    number: int  # counted from 1
    rows: int
    time: str | None = None
    n_clusters: int | None = None
    elbo_per_row: float | None = None
    novel_share: float | None = None
    rows_per_cluster: Mapping[int, int] = field(default_factory=dict)  # ids as they were then
    n_outliers: int = 0


@dataclass(frozen=True)
class CodeMap:
    """Codes drawn from each cluster, seen in the plane in which they spread most."""

    points: Mapping[int, NDArray[np.float64]]  # id -> (n, 2)
    shown_share: float  # of their variance


@dataclass(frozen=True)
class ReportData:
    """Everything on the page."""

    title: str
    n_rows: int
    n_clusters: int
    clusters: tuple[Cluster, ...]  # largest first; the largest only if there are very many
    former: tuple[FormerCluster, ...]
    lanes: tuple[Lane, ...]  # oldest first
    arrivals: tuple[ArrivalPoint, ...]
    happenings: tuple[Event, ...]  # all but arrivals, oldest first
    code_map: CodeMap
    settings: Mapping[str, str]  # given by the user
    defaults: Mapping[str, str]  # all other settings
    facts: Mapping[str, str]  # about the model
    versions: Mapping[str, str]
    written: str | None = None  # when the page was made, if known


def arrivals_of(events: Sequence[Event]) -> tuple[ArrivalPoint, ...]:
    """Return the arrivals among events."""
    points = []
    for event in events:
        if event.kind != "arrival":
            continue
        told = event.evidence
        elbo = told.get("elbo")
        fit = elbo / event.rows if elbo is not None and event.rows else None
        # The first data set is new by definition; that says nothing about it.
        novel = told.get("novel_share") if event.arrival > 1 else None
        brought = {int(cluster): int(n) for cluster, n in told.get("rows_per_cluster", {}).items()}
        known = event.arrival, event.rows, event.time, told.get("n_clusters")
        points.append(ArrivalPoint(*known, fit, novel, brought, int(told.get("n_outliers", 0))))
    return tuple(points)


def rows_per_arrival(
    arrivals: Sequence[ArrivalPoint], resolve: Callable[[int], int]
) -> dict[int, tuple[int, ...]]:
    """Return how many rows each arrival brought to each present cluster; ids of then become ids of now."""
    sums: dict[int, list[int]] = {}
    for i, arrival in enumerate(arrivals):
        for cluster, n in arrival.rows_per_cluster.items():
            sums.setdefault(resolve(cluster), [0] * len(arrivals))[i] += n
    return {cluster: tuple(counts) for cluster, counts in sums.items()}


def lanes_of(
    table: Sequence[Mapping[str, Any]], events: Sequence[Event], arrivals: Sequence[ArrivalPoint]
) -> tuple[Lane, ...]:
    """Return the life of every id, oldest first."""
    ends = {
        event.clusters[1]: (event.arrival, event.clusters[0]) for event in events if event.kind == "merge"
    }
    lanes = []
    for record in table:
        cluster = record["id"]
        end, into = ends.get(cluster, (None, None))
        brought = {a.number: a.rows_per_cluster[cluster] for a in arrivals if cluster in a.rows_per_cluster}
        label = record["name"] or f"Cluster {cluster}"
        lanes.append(Lane(cluster, label, record["first_seen"], end, into, brought))
    return tuple(lanes)


def sentence(event: Event) -> str:
    """Say what happened; an arrival is told otherwise."""
    ids, told = event.clusters, event.evidence
    rows = f"{event.rows:,} row{'' if event.rows == 1 else 's'}"
    if event.kind == "birth":
        return f"Cluster {ids[0]} is born with {rows}.{_why(told)}"
    if event.kind == "growth":
        return f"Cluster {ids[0]} takes in a new group of {rows}.{_why(told)}"
    if event.kind == "merge":
        return f"Cluster {ids[1]} with {rows} becomes part of cluster {ids[0]}."
    if event.kind == "rename":
        after, before = told.get("after"), told.get("before")
        was = f" (before: “{before}”)" if before else ""
        named = f"is called “{after}” from now on" if after else "has no name any more"
        return f"Cluster {ids[0]} {named}{was}."
    if event.kind == "retirement":
        return f"Cluster {ids[0]} is retired; it keeps its id and its {rows}."
    columns = ", ".join(told.get("columns", ()))  # the only event left: "scale"
    return f"Columns with another scale than ever before, a hundredfold, in {rows}: {columns}."


def _why(told: Mapping[str, Any]) -> str:
    """Say what spoke for a birth: how much better the bound is, and how apart from what was known."""
    parts = [f"set apart by {told['because']}"] if told.get("because") else []
    gain, nearest, mixing = told.get("elbo_gain"), told.get("nearest"), told.get("mixing")
    if gain:
        parts.append(f"the bound is {gain:,.0f} nats better than without it")
    if nearest is not None and mixing:
        parts.append(f"{mixing:.0%} mixed with cluster {nearest}, the closest known")
    elif nearest is not None:
        parts.append("no contact with any known cluster")
    said = "; ".join(parts)
    return f" {said[:1].upper()}{said[1:]}." if said else ""
