"""Cluster ids that are never reused or silently moved; lineage; births, merges and the rest as events.

An id is a promise to everyone who stored it. So ids only go up, a merge keeps the older id and lets the other
be resolved to it, and every change leaves an event with its evidence. Nothing here reads a clock.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dbull.errors import SettingsError
from dbull.lifelong.past import Past
from dbull.lifelong.records import ClusterRecord, Event, Reader, check_fields, fail, list_of, plain, whole

__all__ = ["NO_CLUSTER", "ClusterRecord", "Event", "Ledger"]

NO_CLUSTER = -1  # what an estimator answers for a row that belongs nowhere; resolves to itself


class Ledger:
    """The book of all clusters that have ever been.

    Call `arrival` when a data set comes in, then the other operations as things happen. Rows are never lost:
    those of a merged cluster move to the older one, those of a dissolved one to the clusters that took them.
    """

    def __init__(self) -> None:
        self._records: dict[int, ClusterRecord] = {}
        self._past = Past()
        self._events: list[Event] = []  # since the ledger was made or read
        self._next_id = 0
        self._n_arrivals = 0

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Ledger) and self.to_json() == other.to_json()

    __hash__ = None  # type: ignore[assignment]

    def __deepcopy__(self, memo: object) -> Ledger:
        # Records and events never change, so that sharing them is safe however many there are.
        other = Ledger()
        other.__dict__.update(vars(self), _records=dict(self._records), _events=list(self._events))
        return other

    def __getstate__(self) -> dict[str, Any]:
        # The past may lie in a folder that is not there where this is read again.
        return {**vars(self), "_past": Past(self._past.n_events, self._past.events())}

    def __getitem__(self, cluster: int) -> ClusterRecord:
        return self._known(cluster)

    def __contains__(self, cluster: object) -> bool:
        return cluster in self._records

    @property
    def events(self) -> tuple[Event, ...]:
        """Events in the order in which they happened, from number `n_earlier_events` on."""
        return (*self._past.events(), *self._events)

    def since(self, number: int | None) -> tuple[Event, ...]:
        """Return the events from a number on; None for those since the ledger was made or read."""
        first = self._past.n_events if number is None else number
        if first < self._past.n_events:
            return self.events[first - self.n_earlier_events :]
        return tuple(self._events[first - self._past.n_events :])

    @property
    def n_earlier_events(self) -> int:
        """Events that happened before the first of `events`, and are kept elsewhere."""
        return self._past.n_events - len(self._past.events())

    @property
    def n_events(self) -> int:
        """All events that ever happened."""
        return self._past.n_events + len(self._events)

    @property
    def n_arrivals(self) -> int:
        """Data sets that have arrived; the present one has number ``n_arrivals - 1``."""
        return self._n_arrivals

    @property
    def ids_given(self) -> int:
        """Ids 0 to ``ids_given - 1`` are taken for ever; the next birth gets this one."""
        return self._next_id

    @property
    def active_ids(self) -> tuple[int, ...]:
        """Ids of the active clusters, oldest first."""
        return tuple(r.id for r in self._records.values() if r.status == "active")

    @property
    def living_ids(self) -> tuple[int, ...]:
        """Ids of the clusters that rows can belong to: the active and the retired, oldest first."""
        return tuple(r.id for r in self._records.values() if r.living)

    @property
    def n_rows(self) -> int:
        """Rows of all clusters together."""
        return sum(record.rows for record in self._records.values())

    def arrival(
        self, rows: int = 0, *, time: str | None = None, evidence: Mapping[str, Any] | None = None
    ) -> int:
        """Open the next arrival and return its number; what happens from now on belongs to it."""
        event = self._event("arrival", (), _count("rows", rows), time, evidence, at=self._n_arrivals)
        self._n_arrivals += 1
        self._events.append(event)
        return event.arrival

    def born(
        self,
        rows: int = 0,
        *,
        parents: Iterable[int] = (),
        weight: float | None = None,
        name: str | None = None,
        time: str | None = None,
        evidence: Mapping[str, Any] | None = None,
    ) -> int:
        """Give a new cluster the next id and return it; `parents` are the clusters it came out of, if any."""
        now, rows = self._now(), _count("rows", rows)
        lineage = tuple(self._known(parent).id for parent in parents)
        if name is not None:
            self._check_name(name)
        record = ClusterRecord(
            self._next_id, now, now, rows=rows, name=name, weight=_share(weight), parents=lineage
        )
        event = self._event("birth", (record.id, *lineage), rows, time, evidence)
        self._next_id += 1
        self._put(record, event)
        return record.id

    def seen(self, cluster: int, rows: int) -> None:
        """Add rows of the present arrival to a cluster. No event: every arrival does it."""
        record, rows = self._living(cluster), _count("rows", rows)
        last = self._now() if rows else record.last_seen
        self._put(replace(record, rows=record.rows + rows, last_seen=last))

    def grown(
        self,
        cluster: int,
        rows: int,
        evidence: Mapping[str, Any] | None = None,
        *,
        time: str | None = None,
    ) -> None:
        """Note that a cluster took in something new of the present arrival; `seen` counts its rows."""
        record = self._living(cluster)
        self._events.append(self._event("growth", (record.id,), _count("rows", rows), time, evidence))

    def scale_changed(self, rows: int, columns: Sequence[str], *, time: str | None = None) -> None:
        """Note that columns of the present arrival have another scale than all before: other units?"""
        evidence = {"columns": list(columns)}
        self._events.append(self._event("scale", (), _count("rows", rows), time, evidence))

    def weigh(self, weights: Mapping[int, float | None]) -> None:
        """Set the shares that the mixture gives to clusters. No event: every arrival does it."""
        for record in [replace(self._living(c), weight=_share(w)) for c, w in weights.items()]:
            self._put(record)

    def merged(
        self,
        older: int,
        newer: int,
        evidence: Mapping[str, Any] | None = None,
        *,
        time: str | None = None,
    ) -> None:
        """Let `newer` live on in `older`, which keeps its id, and its name if it has one.

        What came of a retired and an active cluster is active: somebody wants its rows.
        """
        keeps, goes = self._living(older), self._living(newer)
        if keeps.id >= goes.id:
            raise SettingsError(
                f"merge keeps the older id: cluster {keeps.id} is not older than {goes.id}; swap them"
            )
        event = self._event("merge", (keeps.id, goes.id), goes.rows, time, evidence)
        weight = None if keeps.weight is None or goes.weight is None else min(keeps.weight + goes.weight, 1.0)
        self._put(replace(goes, rows=0, weight=None, status="merged", merged_into=keeps.id))
        kept = replace(
            keeps,
            rows=keeps.rows + goes.rows,
            weight=weight,
            name=goes.name if keeps.name is None else keeps.name,
            last_seen=max(keeps.last_seen, goes.last_seen),
            status="active" if "active" in (keeps.status, goes.status) else keeps.status,
        )
        self._put(kept, event)

    def dissolved(
        self,
        cluster: int,
        into: Mapping[int, int] | None = None,
        evidence: Mapping[str, Any] | None = None,
        *,
        time: str | None = None,
    ) -> None:
        """End a cluster whose rows went to others; `into` says how many rows each of them took."""
        goes = self._living(cluster)
        takers = {self._living(c).id: _count(f"into[{c}]", n) for c, n in (into or {}).items()}
        if goes.id in takers or sum(takers.values()) != goes.rows:
            raise SettingsError(
                f"dissolving cluster {goes.id}: into must share its {goes.rows} rows among other clusters, "
                f"got {takers}"
            )
        event = self._event("dissolution", (goes.id, *takers), goes.rows, time, evidence)
        self._put(replace(goes, rows=0, weight=None, status="dissolved"))
        for taker, rows in takers.items():
            record = self._records[taker]
            last = max(record.last_seen, goes.last_seen) if rows else record.last_seen
            self._put(replace(record, rows=record.rows + rows, last_seen=last))
        self._events.append(event)

    def rename(
        self,
        cluster: int,
        name: str | None,
        *,
        time: str | None = None,
        evidence: Mapping[str, Any] | None = None,
    ) -> None:
        """Give a cluster a name, or take it away with None."""
        record = self._living(cluster)
        if name is not None:
            self._check_name(name, besides=record.id)
        said = {"before": record.name, "after": name, **(evidence or {})}
        self._put(replace(record, name=name), self._event("rename", (record.id,), record.rows, time, said))

    def retire(
        self, cluster: int, *, time: str | None = None, evidence: Mapping[str, Any] | None = None
    ) -> None:
        """Mark a cluster as no longer wanted. It keeps its id and rows, and may still receive rows."""
        record = self._living(cluster)
        if record.status == "retired":
            raise SettingsError(f"cluster {record.id} is retired already")
        event = self._event("retirement", (record.id,), record.rows, time, evidence)
        self._put(replace(record, status="retired"), event)

    def reserve(self, ids_given: int) -> None:
        """Never give ids below this one: they were given by generations that a rollback left behind."""
        self._next_id = max(self._next_id, _count("ids_given", ids_given))

    def resolve(self, ids: ArrayLike) -> NDArray[np.int64]:
        """Return the present id of each old one, in the shape given.

        Merged ids become the id they live on under, through any number of merges. Dissolved and retired ids
        have no successor and stay, as does `NO_CLUSTER`. Resolving twice changes nothing more.
        """
        asked = np.asarray(ids)
        if asked.size and asked.dtype.kind not in "iu":
            raise SettingsError(f"ids must be whole numbers, got {asked.dtype}; convert them first")
        asked = asked.astype(np.int64)
        # A merge leads to an older id, so ascending order finds the end of every chain in one pass.
        present = {NO_CLUSTER: NO_CLUSTER}
        for record in sorted(self._records.values(), key=lambda r: r.id):
            present[record.id] = record.id if record.merged_into is None else present[record.merged_into]
        # By the ids there are and not by those given, which a stranger's file may say to be very many.
        old = np.array(list(present), dtype=np.int64)
        at = np.minimum(np.searchsorted(old, asked), len(old) - 1)
        if (old[at] != asked).any():
            strangers = np.unique(asked[old[at] != asked])[:5].tolist()
            raise SettingsError(f"no cluster ever had the id {strangers}; `table()` lists all that did")
        found: NDArray[np.int64] = np.array(list(present.values()), dtype=np.int64)[at]
        return found

    def table(self) -> list[dict[str, Any]]:
        """Return every cluster that has ever been, as plain dicts, oldest first."""
        return [record.to_json() for record in self._records.values()]

    def to_json(self, since: int | None = None) -> dict[str, Any]:
        """Return the whole ledger as a JSON document.

        With `since`, events before that number are left out (they are in the event log of the model folder),
        so that the document grows with clusters and not with time.
        """
        first = self.n_earlier_events if since is None else since
        if first > self.n_events or (first < self._past.n_events and first < self.n_earlier_events):
            allowed = f"{self.n_earlier_events} and {self.n_events}"
            raise SettingsError(f"since must be between {allowed}, got {first}")
        return {
            "ids_given": self._next_id,
            "n_arrivals": self._n_arrivals,
            "clusters": self.table(),
            "n_earlier_events": first,
            "events": [event.to_json() for event in self.since(first)],
        }

    @classmethod
    def from_json(
        cls,
        document: object,
        *,
        earlier: Sequence[Event] | Callable[[], Sequence[Event]] | None = None,
        where: str = "clusters.json",
    ) -> Ledger:
        """Read what `to_json` gave; `earlier` are the events that it left out, or the latest of them.

        Or a function that returns them, called when they are asked for.

        Raises
        ------
        ModelFileError
            if a field is unknown, missing, of the wrong type, or contradicts another; the message names it
        """
        fields = check_fields(document, where, _DOCUMENT)
        ledger = cls()
        ledger._past = Past(fields["n_earlier_events"], earlier or (), where)
        if not callable(earlier):
            ledger._past.events()
        ledger._next_id, ledger._n_arrivals = fields["ids_given"], fields["n_arrivals"]
        ledger._records = {record.id: record for record in fields["clusters"]}
        ledger._events = fields["events"]
        ids = [record.id for record in fields["clusters"]]
        if ids != sorted(set(ids)):
            fail(f"{where}.clusters", "ids are not unique and ascending")
        for i, record in enumerate(fields["clusters"]):
            ledger._check_read_record(record, f"{where}.clusters[{i}]")
        for i, event in enumerate(fields["events"]):
            if event.arrival >= ledger._n_arrivals or max(event.clusters, default=-1) >= ledger._next_id:
                fail(f"{where}.events[{i}]", "names an arrival or a cluster that does not exist")
        return ledger

    def _check_read_record(self, record: ClusterRecord, where: str) -> None:
        if record.id >= self._next_id:
            fail(where, f"id {record.id} was never given: ids_given is {self._next_id}")
        if record.last_seen >= self._n_arrivals:
            fail(where, f"last_seen {record.last_seen}, but there were {self._n_arrivals} arrivals")
        if not all(other in self._records for other in record.relatives):
            fail(where, f"parents or merged_into name clusters that are not there: {list(record.relatives)}")

    def _put(self, record: ClusterRecord, event: Event | None = None) -> None:
        self._records[record.id] = record
        if event is not None:
            self._events.append(event)

    def _now(self) -> int:
        if not self._n_arrivals:
            raise SettingsError("nothing has arrived yet: call arrival() before clusters are born")
        return self._n_arrivals - 1

    def _known(self, cluster: int) -> ClusterRecord:
        if cluster not in self._records:
            raise SettingsError(f"no cluster has the id {cluster!r}; there are {list(self.living_ids)}")
        return self._records[cluster]

    def _living(self, cluster: int) -> ClusterRecord:
        record = self._known(cluster)
        if not record.living:
            where = f" into {int(self.resolve([record.id])[0])}" if record.status == "merged" else ""
            raise SettingsError(
                f"cluster {record.id} was {record.status}{where}; there are {list(self.living_ids)}"
            )
        return record

    def _check_name(self, name: str, besides: int | None = None) -> None:
        if not isinstance(name, str) or not name.strip():
            raise SettingsError(f"a cluster's name must be a text that is not empty, got {name!r}")
        for record in self._records.values():
            if record.living and record.name == name and record.id != besides:
                raise SettingsError(
                    f"cluster {record.id} has the name {name!r}; choose another or merge them"
                )

    def _event(
        self,
        kind: str,
        clusters: tuple[int, ...],
        rows: int,
        time: str | None,
        evidence: Mapping[str, Any] | None,
        at: int | None = None,
    ) -> Event:
        arrival = self._now() if at is None else at
        if time is not None and not isinstance(time, str):
            raise SettingsError(f"time must be a text such as 2024-05-17T08:00:00Z, or None; got {time!r}")
        return Event(kind, arrival, time, clusters, rows, plain(dict(evidence or {}), "evidence"))


def _count(name: str, value: int) -> int:
    if not isinstance(value, Integral) or isinstance(value, bool) or value < 0:
        raise SettingsError(f"{name} must be a whole number of at least 0, got {value!r}")
    return int(value)


def _share(value: float | None) -> float | None:
    if value is None:
        return None
    if not 0.0 <= value <= 1.0:
        raise SettingsError(f"weight must be from 0 to 1, got {value!r}")
    return float(value)


_DOCUMENT: dict[str, Reader] = {
    **dict.fromkeys(("ids_given", "n_arrivals", "n_earlier_events"), whole),
    "clusters": list_of(ClusterRecord.from_json),
    "events": list_of(Event.from_json),
}
