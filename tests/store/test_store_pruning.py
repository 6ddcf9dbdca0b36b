"""What is stored once, what is shared, and what is removed when old generations are pruned."""

import os
import shutil
from pathlib import Path

import pytest

from dbull.errors import AlreadyLearnedError, ConflictError, ModelFileError, SettingsError
from dbull.store import LearnedInput, ModelFolder, contents, folder, learned

FORMAT_1 = Path(__file__).parents[1] / "reference" / "store-format-1"


def own_files(model, number):
    return set(os.listdir(model.folder(number))) - {"manifest.json", "manifest.sha256"}


def test_a_file_that_the_parent_has_is_not_written_again(three, checkpoint, same):
    later = checkpoint(4, tensors=checkpoint(3).tensors)
    three.commit(later, 3)
    three.commit(checkpoint(5, tensors=later.tensors), 4)
    assert own_files(three, 5) == {"events.jsonl", "clusters.json"}
    assert three.manifest().files["networks.safetensors"].generation == 3
    same(three.load().checkpoint, checkpoint(5, tensors=later.tensors))
    assert three.check().ok
    path = three.folder(3) / "networks.safetensors"
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    with pytest.raises(ModelFileError, match=r"gen-00000003/networks\.safetensors"):
        three.load(5)
    assert three.check().sound == (1, 2)


def test_a_file_of_the_parent_that_was_damaged_meanwhile_is_written_again(three, checkpoint):
    (three.folder(3) / "networks.safetensors").write_bytes(b"x")
    three.commit(checkpoint(4, tensors=checkpoint(3).tensors), 3)
    assert three.load().generation == 4


def test_a_rollback_copies_nothing(three, checkpoint):
    three.rollback(1)
    assert own_files(three, 4) == {"events.jsonl"}
    three.rollback(2)
    three.rollback(4)
    assert three.diff(1, 6).equal
    assert [record.name for record in three.learned().values()] == ["day-1.csv"]


def test_size_is_linear_in_inputs(tmp_path, checkpoint):
    def size(count):
        model, parent = ModelFolder(tmp_path / str(count)), None
        for number in range(count):
            inputs = [LearnedInput(f"{number:064d}", "day")]
            parent = model.commit(checkpoint(1, learned_inputs=inputs), parent)
        return sum(p.stat().st_size for p in model.path.rglob("*") if p.is_file())

    first, second, third = size(20), size(40), size(60)
    assert abs((third - second) - (second - first)) < 500


def test_a_commit_lists_no_folder_and_reads_no_other_generation(three, checkpoint, monkeypatch):
    """So its cost is the same however many there are."""
    parent = three.commit(checkpoint(4), three.manifest())
    opened, real = [], os.open
    listed, listdir = [], os.listdir
    monkeypatch.setattr(os, "open", lambda path, *rest: (opened.append(Path(path)), real(path, *rest))[1])
    monkeypatch.setattr(os, "listdir", lambda path: (listed.append(Path(path)), listdir(path))[1])
    three.commit(checkpoint(5), parent)
    monkeypatch.undo()
    assert not {path.parent.name for path in opened} & {"gen-00000001", "gen-00000002", "gen-00000003"}
    assert three.path not in listed


def test_inputs_of_many_generations_come_from_one_file(three, monkeypatch):
    expected = three.learned()
    learned._KNOWN.clear()
    read = []
    real = folder.read_manifest
    monkeypatch.setattr(folder, "read_manifest", lambda *a: (read.append(a), real(*a))[1])
    assert three.learned() == expected
    assert len(read) == 1


def test_what_was_given_away_does_not_change(three, checkpoint):
    before = three.learned()
    names = [record.name for record in before.values()]
    three.commit(checkpoint(4), three.manifest())
    assert [record.name for record in before.values()] == names
    assert len(three.learned()) == 4
    assert len(three.learned(2)) == 2


@pytest.fixture
def old(tmp_path):
    shutil.copytree(FORMAT_1, tmp_path / "old")
    return ModelFolder(tmp_path / "old")


def test_a_model_of_format_1_goes_on(old, checkpoint, same):
    monday = next(iter(old.learned()))
    with pytest.raises(AlreadyLearnedError):
        old.commit(checkpoint(4, learned_inputs=[LearnedInput(monday, "again.csv")]), 3)
    old.commit(checkpoint(4), 3)
    old.commit(checkpoint(5), 4)
    same(old.load().checkpoint, checkpoint(5))
    assert [record.name for record in old.learned().values()] == ["monday.csv", "day-4.csv", "day-5.csv"]
    assert [event["generation"] for event in old.events()] == [1, 4, 4, 5, 5]
    old.rollback(2)
    assert old.diff(2, 6).equal
    assert [record.name for record in old.learned().values()] == ["monday.csv"]
    assert [event["generation"] for event in old.events()] == [1, 2]
    old.commit(checkpoint(7), 6)
    assert [record.name for record in old.learned().values()] == ["monday.csv", "day-7.csv"]
    learned._KNOWN.clear()
    (old.path / "events.jsonl").unlink()
    assert [record.name for record in old.learned().values()] == ["monday.csv", "day-7.csv"]
    assert [event["generation"] for event in old.events()] == [1, 2, 7, 7]
    assert old.check().ok
    old.prune(1)
    learned._KNOWN.clear()
    assert [record.name for record in old.learned().values()] == ["monday.csv", "day-7.csv"]
    assert not list(old.path.glob("gen-0000000[1-6]/*.safetensors"))
    assert old.check().ok


def test_pruning_keeps_history_events_and_inputs(three, checkpoint, same):
    three.commit(checkpoint(4, tensors=checkpoint(3).tensors), 3)
    said = three.events(), three.learned(), three.events(abandoned=True)
    times = [entry.manifest.note for entry in three.history()]
    assert three.prune(2, note="pruned") == 7
    learned._KNOWN.clear()
    assert (three.events(), three.learned(), three.events(abandoned=True)) == said
    assert [entry.manifest.note for entry in three.history()] == [*times, "pruned"]
    same(three.load(4).checkpoint, checkpoint(4, tensors=checkpoint(3).tensors))
    assert three.diff(4, 5).equal
    assert (three.manifest().generation, three.manifest().oldest) == (5, 4)
    for number in (1, 2):
        assert own_files(three, number) == {"events.jsonl"}
    assert own_files(three, 3) == {"events.jsonl", "mixture.safetensors", "networks.safetensors"}
    report = three.check()
    assert (report.ok, report.notes, report.sound) == (True, (), (4, 5))
    three.commit(checkpoint(6), 5)
    assert three.check().ok


def test_a_pruned_generation_says_so(three):
    three.prune(1)
    for use in (three.load, three.rollback, lambda number: three.diff(number, 4)):
        with pytest.raises(SettingsError, match="generation 1 was pruned"):
            use(1)
    assert three.prune(1) == 0
    assert three.latest() == 4, "once is enough"
    with pytest.raises(SettingsError, match="at least 1"):
        three.prune(0)
    assert [number for number in three.generations() if number >= three.manifest().oldest] == [4]
    assert three.check().sound == (4,)


def test_commits_that_keep_a_number_of_generations(tmp_path, checkpoint):
    model, parent = ModelFolder(tmp_path / "model"), None
    for number in range(1, 13):
        tensors = checkpoint(number // 5 + 1).tensors  # change now and then
        parent = model.commit(checkpoint(number, tensors=tensors), parent, keep=3)
        files = {p for p in model.path.glob("gen-*/*") if p.suffix == ".safetensors" or p.stem == "clusters"}
        kept = [model.manifest(n) for n in range(max(1, number - 2), number + 1)]
        needed = {m.path(model.path, name) for m in kept for name in m.files if name != "events.jsonl"}
        assert files == needed
    assert len(model.learned()) == 12
    assert model.check().ok
    assert model.check().notes == ()
    assert model.load(10).generation == 10


@pytest.mark.parametrize("at", range(1, 8))
def test_a_pruning_that_was_stopped_is_finished_by_the_next(three, checkpoint, monkeypatch, at):
    three.commit(checkpoint(4), 3)
    real, count = os.unlink, 0

    def stop(path, **named):
        nonlocal count
        count += 1
        if count == at:
            raise KeyboardInterrupt
        real(path, **named)

    with monkeypatch.context() as patch:
        patch.setattr(contents.os, "unlink", stop)
        with pytest.raises(KeyboardInterrupt):
            three.prune(1)
    assert three.check().ok
    assert "next prune" in three.check().notes[0].text
    assert three.load().generation == 5
    three.commit(checkpoint(6), 5, keep=3)
    assert three.check().notes == ()
    assert not list(three.path.glob("gen-0000000[123]/*.safetensors"))


def test_a_rollback_beside_a_pruning_is_in_conflict(three, checkpoint, monkeypatch):
    """It has looked at its target, and then the target is pruned."""
    real = ModelFolder.history

    def late(self):
        entries = real(self)
        monkeypatch.setattr(ModelFolder, "history", real)
        ModelFolder(three.path).prune(1)
        return entries

    monkeypatch.setattr(ModelFolder, "history", late)
    with pytest.raises(ConflictError):
        three.rollback(1)
    parent = three.manifest()
    three.prune(1)
    three.commit(checkpoint(5), three.manifest())
    with pytest.raises(ConflictError):
        three.commit(checkpoint(5), parent)
    assert three.check().ok
