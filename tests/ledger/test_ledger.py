"""Ids that are never reused, lineage that resolves, rows that add up, documents that come back exactly."""

import copy
import json
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from dbull.errors import ModelFileError, SettingsError
from dbull.ledger import NO_CLUSTER, ArrivalReport, Event, Ledger, Newborn

NAMES = st.none() | st.text(min_size=1, max_size=3).filter(str.strip)
ROWS = st.integers(0, 1000)
PICK = st.integers(0, 10**6)
NEW = Newborn(5, 12.5, None, 0.0, 1)


def arrive(ledger, rows=None, born=(), weights=None, **told):
    """Record a data set: rows of old clusters by id, then rows of each new one."""
    first = ledger.ids_given
    rows = dict.fromkeys(ledger.living_ids, 0) | (rows or {}) | {first + i: n for i, n in enumerate(born)}
    new = {first + i: NEW for i in range(len(born))}
    ledger.record(ArrivalReport(rows, weights or dict.fromkeys(rows, 0.5), new, **told))
    return list(new)


class AnyLife(RuleBasedStateMachine):
    """A ledger beside the plainest bookkeeping: rows per id, and who went where."""

    @initialize()
    def start(self):
        self.ledger = Ledger()
        self.rows: dict[int, int] = {}
        self.successor: dict[int, int] = {}
        self.living: list[int] = []
        self.kinds: list[str] = []
        self.total = 0

    def pick(self, number):
        return self.living[number % len(self.living)]

    @rule(
        born=st.lists(ROWS, max_size=3),
        seen=st.lists(st.tuples(PICK, ROWS), max_size=3),
        grows=st.booleans(),
        columns=st.sampled_from([(), ("a", "b")]),
        elbo=st.floats(allow_infinity=True, allow_nan=True),
        novel=st.none() | st.floats(0, 1),
    )
    def arrive(self, born, seen, grows, columns, elbo, novel):
        seen = {self.pick(number): n for number, n in seen} if self.living else {}
        grown = dict.fromkeys(list(seen)[:1], NEW) if grows else {}
        new = arrive(
            self.ledger, seen, born, grown=grown, changed_columns=columns, elbo=elbo, novel_share=novel
        )
        assert not set(new) & set(self.rows), "an id was given twice"
        assert all(i > max(self.rows, default=-1) for i in new)
        self.kinds += ["arrival", *(["scale"] if columns else []), *(["growth"] * len(grown))]
        self.kinds += ["birth"] * len(new)
        for cluster, n in seen.items():
            self.rows[cluster] += n
            assert not n or self.ledger[cluster].last_seen == self.ledger.n_arrivals
        self.rows |= dict(zip(new, born, strict=True))
        self.living += new
        self.total += sum(born) + sum(seen.values())
        told = [e for e in self.ledger.events if e.kind == "arrival"][-1]
        assert told.rows == told.evidence["n_rows"] == sum(born) + sum(seen.values())
        assert told.evidence["n_clusters"] == len(self.living)

    @precondition(lambda self: len(self.living) > 1)
    @rule(a=PICK, b=PICK)
    def merge(self, a, b):
        older, newer = sorted((self.pick(a), self.pick(b)))
        if older == newer:
            with pytest.raises(SettingsError, match="not older"):
                self.ledger.merged(older, newer)
            return
        self.ledger.merged(older, newer)
        self.rows[older] += self.rows.pop(newer)
        self.rows[newer] = 0
        self.successor[newer] = older
        self.living.remove(newer)
        self.kinds.append("merge")

    @precondition(lambda self: self.living)
    @rule(number=PICK, name=NAMES)
    def rename(self, number, name):
        cluster = self.pick(number)
        taken = {self.ledger[c].name for c in self.living if c != cluster}
        if name is not None and name in taken:
            with pytest.raises(SettingsError, match="choose another"):
                self.ledger.rename(cluster, name)
            return
        self.ledger.rename(cluster, name)
        assert self.ledger[cluster].name == name
        self.kinds.append("rename")

    @precondition(lambda self: self.living)
    @rule(number=PICK)
    def retire(self, number):
        cluster = self.pick(number)
        if self.ledger[cluster].status == "retired":
            with pytest.raises(SettingsError, match="already"):
                self.ledger.retire(cluster)
            return
        self.ledger.retire(cluster)
        assert self.ledger[cluster].status == "retired"
        self.kinds.append("retirement")

    @rule(ahead=st.integers(0, 3))
    def reserve(self, ahead):
        before = self.ledger.ids_given
        self.ledger.reserve(max(0, before + ahead - 1))
        assert self.ledger.ids_given == max(before, before + ahead - 1)

    @rule()
    def save_and_load(self):
        text = json.dumps(self.ledger.to_json(), allow_nan=False)
        back = Ledger.from_json(json.loads(text))
        assert back == self.ledger
        assert json.dumps(back.to_json()) == text
        self.ledger = back

    @rule(cut=PICK)
    def save_and_load_with_events_apart(self, cut):
        """Earlier events may live in a log: together with it the document is the whole ledger again."""
        cut = cut % (self.ledger.n_events + 1)
        document = json.loads(json.dumps(self.ledger.to_json(since=cut)))
        earlier = [Event.from_json(e.to_json(), "log") for e in self.ledger.events[:cut]]
        assert Ledger.from_json(document, earlier=earlier) == self.ledger
        without = Ledger.from_json(document)
        assert (without.n_unread_events, without.n_events) == (cut, self.ledger.n_events)
        assert without.table() == self.ledger.table()

    @invariant()
    def rows_add_up(self):
        table = self.ledger.table()
        assert {row["id"]: row["rows"] for row in table} == self.rows
        assert sum(self.rows.values()) == self.total

    @invariant()
    def ids_are_unique_and_ascending(self):
        ids = [row["id"] for row in self.ledger.table()]
        assert ids == sorted(set(ids))
        assert all(i < self.ledger.ids_given for i in ids)

    @invariant()
    def ids_resolve(self):
        ids = np.array([*self.rows, NO_CLUSTER], dtype=np.int64)
        once = self.ledger.resolve(ids)
        np.testing.assert_array_equal(self.ledger.resolve(once), once)

        def follow(i):
            return follow(self.successor[i]) if i in self.successor else i

        assert once.tolist() == [follow(i) for i in ids.tolist()]

    @invariant()
    def every_change_left_its_event(self):
        assert [event.kind for event in self.ledger.events] == self.kinds
        arrivals = [event.arrival for event in self.ledger.events]
        assert arrivals == sorted(arrivals)


TestAnyLife = AnyLife.TestCase
TestAnyLife.settings = settings(max_examples=40, stateful_step_count=30)


@pytest.fixture
def small() -> Ledger:
    """Four births; 3 went into 1, then 1 into 0; 2 is named and retired."""
    ledger = Ledger()
    arrive(ledger, born=(10, 20, 30), weights={0: 0.1, 1: 0.2, 2: 0.3})
    arrive(ledger, born=(40,), weights={0: 0.1, 1: 0.2, 2: 0.3, 3: 0.4})
    ledger.merged(1, 3)
    ledger.merged(0, 1)
    ledger.rename(2, "heels")
    ledger.retire(2)
    return ledger


def test_a_merge_keeps_the_older_id_and_its_rows(small):
    assert small.resolve([0, 1, 2, 3]).tolist() == [0, 0, 2, 0]
    assert small[0].rows == 70
    assert small[0].last_seen == 2
    assert small[0].weight == pytest.approx(0.7)
    assert small[3].merged_into == 1
    merges = [e for e in small.events if e.kind == "merge"]
    assert [(e.clusters, e.rows, e.evidence) for e in merges] == [
        ((1, 3), 40, {}),
        ((0, 1), 60, {}),
    ]
    with pytest.raises(SettingsError, match="merged into 0"):
        small.rename(3, "boots")
    with pytest.raises(SettingsError, match="not older"):
        small.merged(2, 0)


def test_a_merge_keeps_a_name():
    ledger = Ledger()
    arrive(ledger, born=(1, 1, 1, 1))
    for cluster, name in enumerate((None, "shoes", "boots")):
        ledger.rename(cluster, name)
    ledger.merged(0, 1)
    assert ledger[0].name == "shoes"
    ledger.merged(0, 2)
    assert ledger[0].name == "shoes"
    ledger.rename(3, "boots")  # the name of a cluster that is gone is free again


def test_retired_clusters_still_count_rows(small):
    arrive(small, {2: 5})
    assert (small[2].rows, small[2].status, small[2].last_seen) == (35, "retired", 3)
    assert small[0].last_seen == 2


def test_what_learning_did_becomes_events():
    """The whole story of a data set, in one order: arrival, scale, then clusters by id."""
    ledger = Ledger()
    arrive(ledger, born=(3, 4))
    grown = Newborn(2, None, 0, 0.75, 2, copies=True)
    arrive(ledger, {0: 2}, (5,), grown={0: grown}, changed_columns=("x",), elbo=float("inf"), n_outliers=1)
    arrival, scale, growth, birth = ledger.since(3)
    assert arrival.evidence == {
        "n_rows": 7,
        "novel_share": None,
        "n_outliers": 1,
        "n_clusters": 3,
        "rows_per_cluster": {"0": 2, "2": 5},
        "elbo": None,
    }
    assert (scale.kind, scale.rows, scale.evidence) == ("scale", 7, {"columns": ["x"]})
    expected = {"elbo_gain": None, "nearest": 0, "mixing": 0.75, "n_components": 2, "copies": True}
    assert (growth.kind, growth.clusters, growth.rows, growth.evidence) == ("growth", (0,), 2, expected)
    assert (birth.kind, birth.clusters, birth.rows) == ("birth", (2,), 5)
    assert "copies" not in birth.evidence


def test_resolve_is_vectorised_over_any_shape(small):
    ids = np.array([[3, 2], [-1, 1]], dtype=np.int32)
    got = small.resolve(ids)
    assert got.dtype == np.int64
    assert got.tolist() == [[0, 2], [-1, 0]]
    assert ids.tolist() == [[3, 2], [-1, 1]]
    assert small.resolve([]).shape == (0,)
    many = np.arange(10**6) % 4
    np.testing.assert_array_equal(small.resolve(many), np.array([0, 0, 2, 0])[many])


@pytest.mark.parametrize("bad", [[4], [-2], [0, 99], [2**62]])
def test_resolve_refuses_an_id_that_never_was(small, bad):
    with pytest.raises(SettingsError, match=rf"\[{bad[-1]}\]"):
        small.resolve(bad)


def test_resolve_refuses_what_is_no_id(small):
    with pytest.raises(SettingsError, match="float64"):
        small.resolve([0.0])
    with pytest.raises(SettingsError, match="bool"):
        small.resolve([True])


def test_reserved_ids_are_neither_given_nor_resolved(small):
    small.reserve(9)
    with pytest.raises(SettingsError, match=r"\[7\]"):
        small.resolve([0, 7])
    assert arrive(small, born=(1,)) == [9]


def test_refused_operations_change_nothing(small):
    before = small.to_json()
    for refused in (
        lambda: small.merged(0, 1),
        lambda: small.merged(0, 0),
        lambda: small.merged(0, 99),
        lambda: small.rename(0, "  "),
        lambda: small.rename(0, "heels"),
        lambda: small.rename(99, "x"),
        lambda: small.retire(2),
    ):
        with pytest.raises(SettingsError):
            refused()
        assert small.to_json() == before
    with pytest.raises(AssertionError, match="no cluster is lost"):
        small.record(ArrivalReport({0: 1}, {0: 1.0}))
    assert small.to_json() == before


def at(document, path):
    for step in path:
        document = document[step]
    return document


PLACES = [
    ("ids_given",),
    ("n_arrivals",),
    ("clusters",),
    ("n_earlier_events",),
    ("events",),
    *(("clusters", 3, f) for f in ("id", "name", "rows", "weight", "first_seen", "last_seen")),
    *(("clusters", 3, f) for f in ("parents", "status", "merged_into")),
    *(("events", 5, f) for f in ("kind", "arrival", "time", "clusters", "rows", "evidence")),
]


@pytest.mark.parametrize("place", PLACES, ids=str)
def test_a_wrong_type_is_named(small, place):
    for wrong in (object, -1, 1.5, True, "?", [-1], {"x": float("nan")}):
        document = copy.deepcopy(small.to_json())
        *path, name = place
        allowed = {"name": ["?"], "time": ["?"], "evidence": []}.get(name, [])
        if wrong in allowed and wrong is not True:
            continue
        at(document, path)[name] = wrong
        with pytest.raises(ModelFileError, match=name):
            Ledger.from_json(document)


@pytest.mark.parametrize("place", [(), ("clusters", 2), ("events", 0)], ids=str)
def test_an_unknown_or_missing_field_is_named(small, place):
    document = copy.deepcopy(small.to_json())
    at(document, place)["nmae"] = 1
    with pytest.raises(ModelFileError, match="unknown field 'nmae'"):
        Ledger.from_json(document)
    for name in at(small.to_json(), place):
        document = copy.deepcopy(small.to_json())
        del at(document, place)[name]
        with pytest.raises(ModelFileError, match=f"'{name}' is missing"):
            Ledger.from_json(document, where="clusters.json")


@pytest.mark.parametrize(
    ("place", "value"),
    [
        (("ids_given",), 3),  # cluster 3 was never given
        (("n_arrivals",), 1),
        (("clusters", 1, "id"), 0),  # twice the same
        (("clusters", 1, "id"), 5),  # not ascending
        (("clusters", 0, "merged_into"), 0),  # into itself, and not merged
        (("clusters", 1, "merged_into"), None),
        (("clusters", 1, "merged_into"), 2),  # into a newer one
        (("clusters", 1, "status"), "active"),
        (("clusters", 1, "rows"), 1),
        (("clusters", 2, "parents"), [2]),
        (("clusters", 0, "first_seen"), 9),
        (("clusters", 0, "last_seen"), 9),
        (("events", 3, "clusters"), [4]),
        (("events", 3, "arrival"), 2),
    ],
    ids=str,
)
def test_contradictions_are_refused(small, place, value):
    document = copy.deepcopy(small.to_json())
    *path, name = place
    at(document, path)[name] = value
    with pytest.raises(ModelFileError, match=r"clusters\.json"):
        Ledger.from_json(document)


def test_an_id_that_occurs_twice_is_refused(small):
    document = small.to_json()
    document["clusters"].insert(0, dict(document["clusters"][0]))
    with pytest.raises(ModelFileError, match="not unique"):
        Ledger.from_json(document)


def test_more_earlier_events_than_were_left_out_are_refused(small):
    document = small.to_json(since=4)
    with pytest.raises(ModelFileError, match="4 expected, 5 found"):
        Ledger.from_json(document, earlier=small.events[:5])


def test_the_oldest_events_may_be_lost(small):
    read = Ledger.from_json(small.to_json(since=4), earlier=small.events[1:4])
    assert (read.n_unread_events, read.n_events, read.events) == (1, small.n_events, small.events[1:])


def test_the_ledger_needs_no_torch():
    code = "import sys, dbull.ledger; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
