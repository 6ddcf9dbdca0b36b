"""What a report says, as plain values: filled from an estimator, read by the page."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Feature:
    """A column in which a cluster differs from the average of the model."""

    name: str
    value: float  # in the prototype, in the units of the data
    deviation: float  # from the average, in standard deviations


@dataclass(frozen=True)
class Cluster:
    """A cluster that rows can belong to."""

    id: int
    name: str | None
    status: str
    rows: int
    weight: float
    first_seen: int  # arrival, counted from 0
    last_seen: int
    spread: float
    parents: tuple[int, ...]
    absorbed: tuple[int, ...]  # ids that live on in it
    rows_per_arrival: tuple[int, ...]  # those of absorbed clusters included
    prototype: NDArray[np.uint8] | None  # (height, width) or (height, width, 3)
    samples: tuple[NDArray[np.uint8], ...]  # pictures like the prototype; drawn, not kept rows
    features: tuple[Feature, ...]  # largest deviation first; empty for images
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

    number: int  # counted from 0
    rows: int
    time: str | None = None
    n_clusters: int | None = None
    elbo_per_row: float | None = None
    novel_share: float | None = None
    rows_per_cluster: Mapping[int, int] = field(default_factory=dict)  # ids as they were then


@dataclass(frozen=True)
class Happening:
    """An event as a sentence."""

    kind: str
    arrival: int
    clusters: tuple[int, ...]
    text: str


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
    happenings: tuple[Happening, ...]  # all but arrivals, oldest first
    code_map: CodeMap
    settings: Mapping[str, str]  # given by the user
    defaults: Mapping[str, str]  # all other settings
    facts: Mapping[str, str]  # about the model
    versions: Mapping[str, str]
    written: str | None = None  # when the page was made, if known
