"""Commit and load, history, rollback, differences, events and learned inputs of a model folder."""

import json
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from dbull.errors import AlreadyLearnedError, ConflictError, ModelFileError, SettingsError
from dbull.ledger import ArrivalReport, Event, Ledger, Newborn
from dbull.store import Change, Checkpoint, LearnedInput, ModelFolder, hash_file


def files_of(folder: ModelFolder) -> dict[str, bytes]:
    return {str(p.relative_to(folder.path)): p.read_bytes() for p in folder.path.rglob("*") if p.is_file()}


def test_what_was_committed_is_loaded(three, checkpoint, same):
    for number in (1, 2, 3):
        loaded = three.load(number)
        same(loaded.checkpoint, checkpoint(number))
        assert loaded.generation == number
    same(three.load().checkpoint, checkpoint(3))
    assert three.latest() == 3
    assert three.check().ok


def test_tensors_of_every_kind_come_back_to_the_bit(tmp_path, same):
    base = torch.arange(24.0)
    group = {
        "transposed": base.reshape(4, 6).T,
        "slice": base[3:9:2],
        "same memory": base,
        "same memory again": base,
        "parameter": torch.nn.Parameter(torch.ones(2)),
        "scalar": torch.tensor(1.5),
        "empty": torch.empty(0, 3),
        "nan": torch.tensor([float("nan"), float("inf"), -0.0]),
        "channels last": torch.randn(1, 3, 4, 5).to(memory_format=torch.channels_last),
        **{str(kind): torch.tensor([0, 1, 1]).to(kind) for kind in (torch.bool, torch.uint8, torch.int8)},
        **{str(kind): torch.tensor([-3, 2]).to(kind) for kind in (torch.int16, torch.int32, torch.int64)},
        **{str(kind): torch.tensor([-3.5, 2e-5]).to(kind) for kind in (torch.float16, torch.bfloat16)},
        **{str(kind): torch.tensor([-3.5, 2e-5]).to(kind) for kind in (torch.float32, torch.float64)},
        "random state": torch.Generator().manual_seed(3).get_state(),
    }
    folder = ModelFolder(tmp_path)
    folder.commit(Checkpoint(tensors={"everything": group, "nothing": {}}), None)
    same(folder.load().checkpoint, Checkpoint(tensors={"everything": group, "nothing": {}}))
    loaded = folder.load().checkpoint.tensors["everything"]
    loaded["same memory"][0] = 7.0
    assert loaded["same memory again"][0] == 0.0, "loaded tensors are independent of each other"


@pytest.mark.parametrize(
    "bad",
    [
        torch.zeros(2, dtype=torch.complex64),
        torch.zeros(2, 2).to_sparse(),
        [1.0],
        torch.empty(2, device="meta"),
    ],
    ids=["complex", "sparse", "list", "meta"],
)
def test_what_cannot_be_stored_is_refused_before_anything_is_written(tmp_path, bad):
    folder = ModelFolder(tmp_path / "model")
    with pytest.raises(SettingsError, match="'odd'"):
        folder.commit(Checkpoint(tensors={"networks": {"odd": bad}}), None)
    assert not folder.path.exists()


@pytest.mark.parametrize(
    ("field", "bad"),
    [
        ("documents", {"clusters": float("nan")}),
        ("documents", {"clusters": {1: 2}}),
        ("documents", {"clusters": object()}),
        ("documents", {"clusters": {"a": torch.zeros(1)}}),
        ("settings", {"elbo": float("inf")}),
        ("settings", {"long": "x" * 3 * 2**20}),
        ("events", [{"kind": {1, 2}}]),
    ],
)
def test_documents_that_would_not_come_back_are_refused(tmp_path, field, bad):
    folder = ModelFolder(tmp_path / "model")
    with pytest.raises(SettingsError):
        folder.commit(Checkpoint(**{field: bad}), None)
    assert not folder.path.exists()


@pytest.mark.parametrize(
    "name", ["", "manifest", "events", "learned", "a/b", "..", "Net", "a.b", "x" * 62, "ä"]
)
def test_names_that_are_no_plain_file_names_are_refused(name):
    with pytest.raises(SettingsError, match="cannot name a file"):
        Checkpoint(documents={name: {}})
    with pytest.raises(SettingsError, match="cannot name a file"):
        Checkpoint(tensors={name: {}})


def test_the_same_checkpoints_give_the_same_bytes(three, tmp_path, checkpoint):
    other = ModelFolder(tmp_path / "other")
    for number in (1, 2):
        other.commit(checkpoint(number), number - 1 or None)
    again = ModelFolder(tmp_path / "other")
    again.commit(checkpoint(3), again.load().generation)
    assert files_of(other) == files_of(three)


def test_writing_what_was_loaded_gives_the_same_files(three, tmp_path, checkpoint):
    copy = ModelFolder(tmp_path / "copy")
    copy.commit(three.load(1).checkpoint, None)
    for name in ("networks.safetensors", "clusters.json", "manifest.json"):
        assert (copy.folder(1) / name).read_bytes() == (three.folder(1) / name).read_bytes()


def test_a_commit_on_an_old_generation_is_a_conflict(three, checkpoint):
    before = files_of(three)
    for parent in (None, 1, 2):
        with pytest.raises(ConflictError, match="generation 3"):
            three.commit(checkpoint(4), parent)
    assert files_of(three) == before
    with pytest.raises(ModelFileError, match="generation 4 is gone"):
        three.commit(checkpoint(5), 4)


def test_what_is_not_there_is_named(three, tmp_path):
    with pytest.raises(ModelFileError, match="no model here"):
        ModelFolder(tmp_path / "nowhere").load()
    (tmp_path / "file").write_text("x")
    with pytest.raises(ModelFileError, match="Not a directory"):
        ModelFolder(tmp_path / "file").load()
    for number in (4, 0, -1, 10**9):
        with pytest.raises(SettingsError, match=rf"no generation {number}; there are 1 to 3"):
            three.load(number)


def test_history_tells_each_generation_and_goes_on_over_damage(three):
    (three.folder(2) / "manifest.json").write_text("{}")
    entries = three.history()
    assert [entry.generation for entry in entries] == [1, 2, 3]
    assert [entry.manifest and entry.manifest.note for entry in entries] == ["day 1", None, "day 3"]
    assert "gen-00000002" in entries[1].problem


def test_rollback_is_a_new_generation_that_equals_the_old(three, checkpoint, same):
    before = files_of(three)
    manifest = three.rollback(1, note="two was bad")
    after = files_of(three)
    assert {name: after[name] for name in before if name != "events.jsonl"} == {
        name: data for name, data in before.items() if name != "events.jsonl"
    }
    assert after["events.jsonl"].startswith(before["events.jsonl"])
    assert (manifest.generation, manifest.parent, manifest.restores) == (4, 3, 1)
    old, new = three.load(1), three.load()
    same(replace(new.checkpoint, note="day 1", events=old.checkpoint.events, ids_given=1,
                 learned_inputs=old.checkpoint.learned_inputs), old.checkpoint)  # fmt: skip
    assert three.diff(1, 4).equal
    assert three.check().ok


def test_ids_are_not_given_again_after_a_rollback(tmp_path):
    """The ledger that comes back is the old one; the manifest knows what was given since."""
    folder, ledger = ModelFolder(tmp_path), Ledger()
    for born in range(3):
        rows = dict.fromkeys(range(born + 1), 5)
        ledger.record(ArrivalReport(rows, dict.fromkeys(rows, 0.1), {born: Newborn(5, None, None, 0.0, 1)}))
        document = ledger.to_json(since=ledger.n_events)
        new = [e.to_json() for e in ledger.events[-2:]]
        folder.commit(
            Checkpoint(documents={"clusters": document}, events=new, ids_given=ledger.ids_given),
            folder.latest(),
        )
    folder.rollback(1)
    loaded = folder.load()
    events = [{k: v for k, v in e.items() if k != "generation"} for e in folder.events()]
    back = Ledger.from_json(
        loaded.checkpoint.documents["clusters"], earlier=[Event.from_json(e, "events") for e in events]
    )
    back.reserve(loaded.checkpoint.ids_given)
    assert back.ids_given == 3
    rows = {0: 0, 3: 1}
    back.record(ArrivalReport(rows, dict.fromkeys(rows, 0.1), {3: Newborn(5, None, None, 0.0, 1)}))
    assert [e.kind for e in back.events] == ["arrival", "birth"] * 2
    folder.commit(Checkpoint(ids_given=1), 4)
    assert folder.manifest().ids_given == 3, "the mark never falls"


def test_rollback_over_a_rollback(three, checkpoint, same):
    three.rollback(1)
    three.commit(checkpoint(5), 4)
    three.rollback(3)
    assert [m.generation for m in three.lineage()] == [6, 3, 2, 1]
    assert [m.generation for m in three.lineage(5)] == [5, 4, 1]
    assert [e["number"] for e in three.events() if e["kind"] == "arrival"] == [1, 2, 3]
    assert [e["number"] for e in three.events(5) if e["kind"] == "arrival"] == [1, 5]
    kinds = [e["kind"] for e in three.events(abandoned=True)]
    assert kinds == ["birth", "arrival"] * 3 + ["rollback", "birth", "arrival", "rollback"]
    assert [r.name for r in three.learned().values()] == ["day-1.csv", "day-2.csv", "day-3.csv"]
    assert three.check().ok


def test_rollback_to_the_newest_or_nowhere_is_refused(three):
    with pytest.raises(SettingsError, match=r"newest already; earlier ones are 1 to 2"):
        three.rollback(3)
    with pytest.raises(SettingsError, match="no generation 9"):
        three.rollback(9)
    assert three.latest() == 3


def test_rollback_refuses_a_damaged_target(three):
    (three.folder(1) / "clusters.json").write_text("{}")
    with pytest.raises(ModelFileError, match=r"clusters\.json"):
        three.rollback(1)
    assert three.latest() == 3


@pytest.mark.parametrize("lost", ["manifest.json", "networks.safetensors", "everything"])
def test_rollback_goes_over_a_damaged_newest(three, lost, checkpoint):
    if lost == "everything":
        shutil.rmtree(three.folder(3))
        three.folder(3).mkdir()
    else:
        (three.folder(3) / lost).unlink()
    with pytest.raises(ModelFileError, match="missing"):
        three.load()
    with pytest.raises((ModelFileError, ConflictError)):
        three.commit(checkpoint(4), 2)
    three.rollback(2)
    assert three.load().checkpoint.documents == checkpoint(2).documents
    assert three.manifest().ids_given >= 3, "ids of the damaged generation are not given again"
    three.commit(checkpoint(5), 4)
    report = three.check()
    assert report.sound == (1, 2, 4, 5)
    assert report.ok, "the rollback mended it"
    assert {finding.generation for finding in report.notes} == {3}
    lines = [json.loads(line) for line in (three.path / "events.jsonl").read_text().splitlines()]
    assert [e["generation"] for e in lines] == [1, 1, 1, 2, 2, 2, 3, 3, 3, 4, 5, 5, 5]


def test_an_input_is_learned_once(three, checkpoint):
    known = checkpoint(2).learned_inputs[0]
    same_file = [LearnedInput(known.sha256, "renamed.csv", 10)]
    with pytest.raises(AlreadyLearnedError, match=r"renamed\.csv.*generation 2.*'day-2\.csv'"):
        three.commit(checkpoint(4, learned_inputs=same_file), 3)
    assert three.latest() == 3
    three.commit(checkpoint(4, learned_inputs=same_file), 3, again=True)
    record = three.learned()[known.sha256]
    assert (record.generation, record.name, record.times) == (4, "renamed.csv", 2)
    assert len(three.learned()) == 3
    twice = [LearnedInput("0" * 64, "a"), LearnedInput("0" * 64, "b")]
    with pytest.raises(AlreadyLearnedError):
        three.commit(checkpoint(5, learned_inputs=twice), 4)


def test_what_a_rollback_left_behind_may_be_learned_again(three, checkpoint):
    three.rollback(1)
    assert [r.name for r in three.learned().values()] == ["day-1.csv"]
    three.commit(checkpoint(2), 4)
    assert [r.generation for r in three.learned().values()] == [1, 5]


def test_offsets_stay_until_they_are_set_and_go_back_with_a_rollback(tmp_path, checkpoint):
    folder = ModelFolder(tmp_path / "model")
    given = [{"a": [3, 4]}, {}, {"b": (1,)}, {"a": [5, 4, 1]}]
    for number, offsets in enumerate(given, start=1):
        folder.commit(checkpoint(number, offsets=offsets), parent=number - 1 or None)
    folder.rollback(3)
    found = [folder.manifest(number).offsets for number in (1, 2, 3, 4, 5)]
    both = {"a": [3, 4], "b": [1]}
    assert found == [{"a": [3, 4]}, {"a": [3, 4]}, both, {"a": [5, 4, 1], "b": [1]}, both]


def test_a_content_hash_must_be_one(tmp_path):
    for bad in ("", "0" * 63, "G" * 64, "A" * 64, None):
        with pytest.raises(SettingsError, match="64 hexadecimal"):
            LearnedInput(bad)
    (tmp_path / "data.csv").write_bytes(b"a,b\n" * 10**6)
    expected = subprocess.run(
        ["sha256sum", tmp_path / "data.csv"], capture_output=True, text=True, check=True
    )
    assert hash_file(tmp_path / "data.csv") == expected.stdout.split()[0]


def test_size_does_not_grow_with_rows(tmp_path, checkpoint):
    sizes = []
    for name, rows in (("few", 10), ("many", 10**9)):
        folder = ModelFolder(tmp_path / name)
        for number in range(1, 4):
            learned = [LearnedInput(f"{number:064d}", "day", rows)]
            folder.commit(checkpoint(number, learned_inputs=learned), number - 1 or None)
        sizes.append(sum(len(data) for data in files_of(folder).values()))
    assert sizes[1] - sizes[0] <= 9 * 8 * 3


def test_differences_are_named(three, checkpoint):
    assert three.diff(2, 2).equal
    weights = checkpoint(1).tensors["networks"]["weight"], checkpoint(3).tensors["networks"]["weight"]
    got = three.diff(1, 3)
    assert got.settings == (Change("settings.rate", 0.1, 0.1 * 3),)
    assert got.data_schema == ()
    assert got.documents == (
        Change("clusters.clusters[1]", "(missing)", {"id": 1, "rows": 10}),
        Change("clusters.clusters[2]", "(missing)", {"id": 2, "rows": 20}),
    )
    counts, weight = got.tensors
    assert (counts.group, counts.name, counts.before, counts.after) == (
        "mixture", "counts", "float64 (1,)", "float64 (3,)"
    )  # fmt: skip
    assert (weight.name, weight.largest) == (
        "weight",
        pytest.approx(float((weights[1] - weights[0]).abs().max())),
    )
    assert got.learned == ("day-2.csv", "day-3.csv")
    assert got.unlearned == ()
    assert three.diff(3, 1).unlearned == ("day-2.csv", "day-3.csv")
    assert got.encoder_changed
    assert not got.equal


def test_a_difference_of_type_is_a_difference(tmp_path):
    folder = ModelFolder(tmp_path)
    folder.commit(Checkpoint(documents={"d": {"x": 1, "y": None}}), None)
    folder.commit(Checkpoint(documents={"d": {"x": True}}), 1)
    assert {c.place: (c.before, c.after) for c in folder.diff(1, 2).documents} == {
        "d.x": (1, True), "d.y": (None, "(missing)")
    }  # fmt: skip


def test_other_tools_can_verify_and_read_it(three):
    """sha256sum, json and safetensors alone are enough."""
    from safetensors.torch import load_file

    folder = three.folder(3)
    subprocess.run(["sha256sum", "--check", "--strict", "manifest.sha256"], cwd=folder, check=True)
    manifest = json.loads((folder / "manifest.json").read_text())
    sums = "".join(f"{record['sha256']}  {name}\n" for name, record in manifest["files"].items())
    subprocess.run(["sha256sum", "--check", "--strict"], input=sums, text=True, cwd=folder, check=True)
    assert torch.equal(
        load_file(folder / "networks.safetensors")["weight"],
        three.load().checkpoint.tensors["networks"]["weight"],
    )
    parent = json.loads((three.folder(2) / "manifest.json").read_text())
    assert manifest["parent"]["generation"] == parent["generation"]
    assert manifest["parent"]["manifest_sha256"] == hash_file(three.folder(2) / "manifest.json")


def test_the_example_of_the_documentation_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("monday.csv").write_text("x,y\n1,2\n")
    ledger = Ledger()
    ledger.record(ArrivalReport({0: 1}, {0: 1.0}, {0: Newborn(1, None, None, 0.0, 1)}))
    page = Path(__file__).parents[2] / "docs" / "model-folder.md"
    code = page.read_text().split("```python\n")[1].split("```")[0]
    given = {"weights": torch.ones(2), "ledger": ledger, "new_events": ledger.events, "changed": Checkpoint()}
    exec(code, given)
    folder = given["folder"]
    assert folder.manifest().restores == 1
    assert [record.rows for record in folder.learned().values()] == [5000]
    assert [event["kind"] for event in folder.events()] == ["arrival", "birth"]
    assert folder.check().ok


def test_nothing_in_the_files_names_a_class_or_is_a_pickle(three):
    for name, data in files_of(three).items():
        assert not data.startswith((b"PK", b"\x80")), name
        assert b"dbull." not in data, name
        assert b"torch." not in data, name


def test_the_room_imports_no_torch():
    code = (
        "import sys, dbull.store; sys.exit(any(m in sys.modules for m in ('torch', 'safetensors', 'numpy')))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
