"""Cluster ids that are never reused or silently moved; lineage; births, merges and the rest as events.

An id is a promise to everyone who stored it. So ids only go up, a merge keeps the older id and lets the other
be resolved to it, and every change leaves an event with its evidence. Nothing here reads a clock.
"""

from dbull.ledger.ledger import NO_CLUSTER, Ledger
from dbull.ledger.records import KINDS as EVENT_KINDS
from dbull.ledger.records import ArrivalReport, ClusterRecord, Event, Newborn, spread_of

__all__ = [
    "EVENT_KINDS",
    "NO_CLUSTER",
    "ArrivalReport",
    "ClusterRecord",
    "Event",
    "Ledger",
    "Newborn",
    "spread_of",
]
