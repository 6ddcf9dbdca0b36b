"""A folder from a stranger reaches nothing outside of itself, and costs no more than it is worth."""

import json
import os
import shutil
import signal

import pytest

from dbull.documents import parse_document
from dbull.errors import ConflictError, ModelFileError
from dbull.store import Checkpoint, ModelFolder
from dbull.store.manifest import wrap_manifest


@pytest.fixture
def in_time():
    """End a test that would hang; no test here takes a second."""
    signal.signal(signal.SIGALRM, lambda *_: pytest.fail("it hangs"))
    signal.alarm(60)
    yield
    signal.alarm(0)


def forge(folder, number, **changes):
    place = folder.folder(number)
    data = json.dumps({**json.loads((place / "manifest.json").read_text()), **changes}).encode()
    (place / "manifest.json").write_bytes(data)
    (place / "manifest.sha256").write_bytes(wrap_manifest(data))


def plant(path, kind, victim):
    path.unlink(missing_ok=True)
    if kind == "symbolic link":
        path.symlink_to(victim)
    elif kind == "dangling symbolic link":
        path.symlink_to(victim.parent / "not there")
    elif kind == "hard link":
        os.link(victim, path)
    else:
        os.mkfifo(path)


KINDS = ("symbolic link", "dangling symbolic link", "hard link", "special file")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("write", ["commit", "rollback", "prune"])
def test_no_write_goes_through_the_log(three, checkpoint, tmp_path, kind, write, in_time):
    victim = tmp_path / "startup"
    victim.write_text("echo hello\n")
    whole = (three.path / "events.jsonl").read_bytes()
    plant(three.path / "events.jsonl", kind, victim)
    (problem,) = three.check().problems
    assert kind.removeprefix("dangling ") in problem.text
    assert len(three.events()) == 6, "events are read from the generations"
    if write == "commit":
        three.commit(checkpoint(4), 3)
    elif write == "rollback":
        three.rollback(1)
    else:
        three.prune(1)
    assert victim.read_text() == "echo hello\n"
    assert not (tmp_path / "not there").exists()
    log = three.path / "events.jsonl"
    assert not log.is_symlink()
    assert log.read_bytes().startswith(whole)
    assert three.check().ok


@pytest.mark.parametrize("kind", KINDS)
def test_links_beside_the_generations_are_named(three, tmp_path, kind, in_time):
    victim = tmp_path / "startup"
    victim.write_text("x")
    plant(three.path / "README.md", kind, victim)
    (note,) = three.check().notes
    assert kind.removeprefix("dangling ") in note.text
    plant(three.folder(2) / "clusters.json", kind, victim)
    (problem,) = three.check().problems
    assert kind.removeprefix("dangling ") in problem.text
    assert problem.generation == 2


def test_nothing_is_written_through_the_folder_of_writers(three, checkpoint, tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "precious").touch()
    shutil.rmtree(three.path / ".writing")
    (three.path / ".writing").symlink_to(outside)
    assert "symbolic link" in three.check().problems[0].text
    for write in (lambda: three.commit(checkpoint(4), 3), lambda: three.rollback(1)):
        with pytest.raises(ModelFileError, match=r"\.writing: is a symbolic link"):
            write()
    assert os.listdir(outside) == ["precious"]
    assert three.latest() == 3


def test_pruning_removes_nothing_through_a_link(three, checkpoint, tmp_path):
    three.commit(checkpoint(4), 3)
    shutil.move(three.folder(1), tmp_path / "outside")
    three.folder(1).symlink_to(tmp_path / "outside")
    three.prune(1)
    assert (tmp_path / "outside" / "networks.safetensors").exists()
    assert not (three.folder(2) / "networks.safetensors").exists()


def test_another_model_of_the_same_length_is_not_written_over(three, checkpoint, tmp_path):
    other = ModelFolder(tmp_path / "other")
    for number in (1, 2, 3):
        other.commit(checkpoint(number, note="other"), number - 1 or None)
    loaded = three.load()
    shutil.rmtree(three.path)
    shutil.copytree(other.path, three.path)
    with pytest.raises(ConflictError, match="another model"):
        three.commit(checkpoint(4), loaded.manifest)
    assert three.latest() == 3
    three.commit(checkpoint(4), three.load().manifest)
    assert three.check().ok


@pytest.mark.parametrize("offset", [2**40, 2**62, 2**63, 10**30])
def test_a_forged_place_in_the_log_costs_nothing(three, checkpoint, offset, in_time):
    forge(three, 3, log_offset=offset)
    assert three.commit(checkpoint(4), 3).generation == 4
    assert three.rollback(1).generation == 5
    assert os.stat(three.path / "events.jsonl").st_size < 10_000
    assert not three.check().ok
    assert [event["number"] for event in three.events(4) if event["kind"] == "arrival"] == [1, 2, 3, 4]


def test_what_is_committed_is_told_though_the_past_is_gone(three, checkpoint):
    shutil.rmtree(three.folder(2))
    (three.path / "events.jsonl").write_text("{}\n")
    manifest = three.commit(checkpoint(4, learned_inputs=()), 3)
    assert three.load().manifest == manifest
    texts = [finding.text for finding in three.check().problems]
    assert any("missing" in text for text in texts)


def test_a_log_that_was_changed_anywhere_is_noticed_and_made_anew(three, checkpoint):
    log = three.path / "events.jsonl"
    whole = log.read_bytes()
    events, learned = three.events(), three.learned()
    for damage in (whole.replace(b"day-1", b"day-7"), whole[:30], b"", whole.replace(b"[1]", b"[9]")):
        from dbull.store.learned import _KNOWN

        _KNOWN.clear()
        log.write_bytes(damage)
        assert (three.events(), three.learned()) == (events, learned)
        _KNOWN.clear()
        number = three.latest() + 1
        three.commit(checkpoint(number), number - 1)
        assert log.read_bytes().startswith(whole)
        assert three.check().ok
        events, learned, whole = three.events(), three.learned(), log.read_bytes()


def test_a_generation_of_a_very_high_number(three, in_time):
    three.folder(99_999_999).mkdir()
    three.folder(10**15).mkdir()
    report = three.check()
    assert any("99999998 are missing" in finding.text for finding in report.problems)
    with pytest.raises(ModelFileError):
        three.load()
    three.rollback(3)
    assert three.load().manifest.restores == 3


@pytest.mark.parametrize("text", [b'"' + b'\\"' * 10**6, b'"\\' * 10**6, b"\\" * 10**6, b'["' + b"[" * 10**6])
def test_escapes_take_no_longer_than_other_bytes(text, in_time):
    with pytest.raises(ModelFileError):
        parse_document(text * 4, "x")


def test_a_generation_without_events_or_inputs_has_no_file_of_them(tmp_path):
    folder = ModelFolder(tmp_path)
    folder.commit(Checkpoint(documents={"d": 1}), None)
    folder.commit(Checkpoint(documents={"d": 1}), 1)
    assert sorted(os.listdir(folder.folder(2))) == ["manifest.json", "manifest.sha256"]
    assert folder.check().ok
