"""What the events of a ledger say about the course of a stream: arrivals, lanes, sentences."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from dbull.ledger import Event
from dbull.report.data import ArrivalPoint, Happening, Lane


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
        novel = told.get("novel_share") if event.arrival > 0 else None
        brought = {int(cluster): int(n) for cluster, n in told.get("rows_per_cluster", {}).items()}
        known = event.arrival, event.rows, event.time, told.get("n_clusters")
        points.append(ArrivalPoint(*known, fit, novel, brought))
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


def happenings_of(events: Sequence[Event]) -> tuple[Happening, ...]:
    """Return all events but arrivals as sentences."""
    return tuple(
        Happening(event.kind, event.arrival, event.clusters, _sentence(event))
        for event in events
        if event.kind != "arrival"
    )


def _sentence(event: Event) -> str:
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
    return f"{event.kind.capitalize()}: cluster {', '.join(map(str, ids))}."


def _why(told: Mapping[str, Any]) -> str:
    """Say what spoke for a birth: how much better the bound is, and how apart from what was known."""
    parts = []
    gain, nearest, mixing = told.get("elbo_gain"), told.get("nearest"), told.get("mixing")
    if gain:
        parts.append(f"the bound is {gain:,.0f} nats better than without it")
    if nearest is not None and mixing:
        parts.append(f"{mixing:.0%} mixed with cluster {nearest}, the closest known")
    elif nearest is not None:
        parts.append("no contact with any known cluster")
    said = "; ".join(parts)
    return f" {said[:1].upper()}{said[1:]}." if said else ""
