"""The book of all clusters that have ever been."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dbull.documents import Reader, check_fields, fail, list_of, whole
from dbull.errors import SettingsError
from dbull.ledger.records import ArrivalReport, ClusterRecord, EarlierEvents, Event

NO_CLUSTER = -1  # what an estimator answers for a row that belongs nowhere; resolves to itself


class Ledger:
    """Every cluster, its rows and what happened to it.

    `record` each data set that was learned; the other operations are changes by hand. Rows are never lost:
    those of a merged cluster move to the older one.
    """

    def __init__(self) -> None:
        self._records: dict[int, ClusterRecord] = {}
        self._earlier = EarlierEvents()
        self._events: list[Event] = []  # since the ledger was made or read
        self.ids_given = 0  # ids below this one are taken for ever; the next birth gets it
        self.n_arrivals = 0  # data sets that were learned

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Ledger) and self.to_json() == other.to_json()

    def __deepcopy__(self, memo: object) -> Ledger:
        # Records and events never change, so that sharing them is safe however many there are.
        other = Ledger()
        other.__dict__.update(vars(self), _records=dict(self._records), _events=list(self._events))
        return other

    def __getstate__(self) -> dict[str, Any]:
        # Earlier events may lie in a folder that is not there where this is read again.
        return {**vars(self), "_earlier": EarlierEvents(self._earlier.n_events, self._earlier.read())}

    def __getitem__(self, cluster: int) -> ClusterRecord:
        if cluster not in self._records:
            raise SettingsError(f"no cluster has the id {cluster!r}; there are {list(self.living_ids)}")
        return self._records[cluster]

    def __contains__(self, cluster: object) -> bool:
        return cluster in self._records

    @property
    def events(self) -> tuple[Event, ...]:
        """Events in the order in which they happened, from number `n_unread_events` on."""
        return (*self._earlier.read(), *self._events)

    def since(self, number: int) -> tuple[Event, ...]:
        """Return the events from a number on."""
        first = number - self._earlier.n_events
        return tuple(self._events[first:]) if first >= 0 else self.events[number - self.n_unread_events :]

    @property
    def n_unread_events(self) -> int:
        """Events that happened before the first of `events`, and are kept elsewhere."""
        return self._earlier.n_events - len(self._earlier.read())

    @property
    def n_events(self) -> int:
        """All events that ever happened."""
        return self._earlier.n_events + len(self._events)

    @property
    def living_ids(self) -> tuple[int, ...]:
        """Ids of the clusters that rows can belong to: the active and the retired, oldest first."""
        return tuple(r.id for r in self._records.values() if r.living)

    def record(self, report: ArrivalReport) -> None:
        """Enter a data set that was learned: rows and weight of each cluster, and what happened."""
        now = self.n_arrivals + 1
        expected = {*self.living_ids, *range(self.ids_given, self.ids_given + len(report.born))}
        assert set(report.rows) == expected, "born clusters have the next ids, and no cluster is lost"
        for cluster, n_rows in report.rows.items():
            weight = report.weights[cluster]
            if cluster in report.born:
                self._put(ClusterRecord(cluster, None, n_rows, weight, now, now))
            else:
                record = self._records[cluster]
                last = now if n_rows else record.last_seen
                self._put(replace(record, rows=record.rows + n_rows, weight=weight, last_seen=last))
        self.ids_given += len(report.born)
        self.n_arrivals = now
        self._events += report.events(now)

    def redistribute(self, rows: Mapping[int, int], parents: Mapping[int, tuple[int, ...]]) -> None:
        """Say how many rows each living cluster has, and from which ones some of them came.

        For a data set with which clusters were sought anew in all rows so far.
        """
        for cluster, n_rows in rows.items():
            record = self._living(cluster)
            self._put(replace(record, rows=n_rows, parents=parents.get(cluster, record.parents)))

    def explain_births(self, reasons: Mapping[int, str]) -> None:
        """Add to the births of the latest data set what sets the newborn clusters apart."""
        for i, event in enumerate(self._events):
            if event.kind == "birth" and event.arrival == self.n_arrivals and reasons[event.clusters[0]]:
                evidence = {**event.evidence, "because": reasons[event.clusters[0]]}
                self._events[i] = replace(event, evidence=evidence)

    def merged(self, older: int, newer: int) -> None:
        """Let `newer` live on in `older`, which keeps its id, and its name if it has one.

        What came of a retired and an active cluster is active: somebody wants its rows.
        """
        keeps, goes = self._living(older), self._living(newer)
        if keeps.id >= goes.id:
            raise SettingsError(
                f"merge keeps the older id: cluster {keeps.id} is not older than {goes.id}; swap them"
            )
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
        self._put(kept)
        self._happened("merge", (keeps.id, goes.id), goes.rows)

    def rename(self, cluster: int, name: str | None) -> None:
        """Give a cluster a name, or take it away with None."""
        record = self._living(cluster)
        if name is not None:
            if not isinstance(name, str) or not name.strip():
                raise SettingsError(f"a cluster's name must be a text that is not empty, got {name!r}")
            for r in self._records.values():
                if r.living and r.name == name and r.id != record.id:
                    raise SettingsError(f"cluster {r.id} has the name {name!r}; choose another or merge them")
        self._put(replace(record, name=name))
        self._happened("rename", (record.id,), record.rows, before=record.name, after=name)

    def retire(self, cluster: int) -> None:
        """Mark a cluster as no longer wanted. It keeps its id and rows, and may still receive rows."""
        record = self._living(cluster)
        if record.status == "retired":
            raise SettingsError(f"cluster {record.id} is retired already")
        self._put(replace(record, status="retired"))
        self._happened("retirement", (record.id,), record.rows)

    def reserve(self, ids_given: int) -> None:
        """Never give ids below this one: they were given by generations that a rollback left behind."""
        self.ids_given = max(self.ids_given, ids_given)

    def resolve(self, ids: ArrayLike) -> NDArray[np.int64]:
        """Return the present id of each old one, in the shape given.

        Merged ids become the id they live on under, through any number of merges. Others stay, as does
        `NO_CLUSTER`. Resolving twice changes nothing more.
        """
        asked = np.asarray(ids)
        if asked.size and asked.dtype.kind not in "iu":
            raise SettingsError(f"ids must be whole numbers, got {asked.dtype}; convert them first")
        asked = asked.astype(np.int64)
        # A merge leads to an older id, so ascending order finds the end of every chain in one pass.
        present = {NO_CLUSTER: NO_CLUSTER}
        for record in self._records.values():
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
        return [record.row() for record in self._records.values()]

    def to_json(self, since: int | None = None) -> dict[str, Any]:
        """Return the whole ledger as a JSON document.

        With `since`, events before that number are left out (they are in the event log of the model folder),
        so that the document grows with clusters and not with time.
        """
        first = self.n_unread_events if since is None else since
        return {
            "ids_given": self.ids_given,
            "n_arrivals": self.n_arrivals,
            "clusters": [record.to_json() for record in self._records.values()],
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

        Or a function that returns them, called when they are asked for. A ModelFileError names the field that
        is unknown, missing, of the wrong type, or contradicts another.
        """
        fields = check_fields(document, where, _DOCUMENT)
        ledger = cls()
        ledger._earlier = EarlierEvents(fields["n_earlier_events"], earlier or (), where)
        if not callable(earlier):
            ledger._earlier.read()
        ledger.ids_given, ledger.n_arrivals = fields["ids_given"], fields["n_arrivals"]
        ledger._records = {record.id: record for record in fields["clusters"]}
        ledger._events = fields["events"]
        ids = [record.id for record in fields["clusters"]]
        if ids != sorted(set(ids)):
            fail(f"{where}.clusters", "ids are not unique and ascending")
        for i, record in enumerate(fields["clusters"]):
            place, others = f"{where}.clusters[{i}]", record.relatives
            if record.id >= ledger.ids_given:
                fail(place, f"id {record.id} was never given: ids_given is {ledger.ids_given}")
            if record.last_seen > ledger.n_arrivals:
                fail(place, f"last_seen {record.last_seen - 1}, but there were {ledger.n_arrivals} arrivals")
            if not all(other in ledger for other in others):
                fail(place, f"parents or merged_into name clusters that are not there: {list(others)}")
        for i, event in enumerate(fields["events"]):
            if event.arrival > ledger.n_arrivals or max(event.clusters, default=-1) >= ledger.ids_given:
                fail(f"{where}.events[{i}]", "names an arrival or a cluster that does not exist")
        return ledger

    def _put(self, record: ClusterRecord) -> None:
        self._records[record.id] = record

    def _happened(self, kind: str, clusters: tuple[int, ...], rows: int, **evidence: str | None) -> None:
        self._events.append(Event(kind, self.n_arrivals, None, clusters, rows, evidence))

    def _living(self, cluster: int) -> ClusterRecord:
        record = self[cluster]
        if not record.living:
            into = int(self.resolve([record.id])[0])
            there = list(self.living_ids)
            raise SettingsError(f"cluster {record.id} was merged into {into}; there are {there}")
        return record


_DOCUMENT: dict[str, Reader] = {
    **dict.fromkeys(("ids_given", "n_arrivals", "n_earlier_events"), whole),
    "clusters": list_of(ClusterRecord.from_json),
    "events": list_of(Event.from_json),
}
