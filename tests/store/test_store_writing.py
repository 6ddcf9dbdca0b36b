"""Writers that are killed, refused, too many or out of space leave a whole model, and the next goes on."""

import errno
import importlib.util
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from dbull.errors import ConflictError, DbullError, ModelWriteError
from dbull.store import Checkpoint, ModelFolder, writing

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


def script(name):
    spec = importlib.util.spec_from_file_location(name, BENCHMARKS / f"{name}.py")
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def files_of(folder):
    return {str(p.relative_to(folder.path)): p.read_bytes() for p in folder.path.rglob("*") if p.is_file()}


def in_a_child(action) -> int:
    """Run an action in a process of its own and return how it ended, as `os.waitstatus_to_exitcode` tells."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            action()
            code = 0
        except DbullError:
            code = 7
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


class Interceptor:
    """Does something at the n-th step of a commit that asks the system to change something."""

    def __init__(self, monkeypatch, act, at):
        self.count, self.at, self.act = 0, at, act
        self.real = {name: getattr(os, name) for name in ("fsync", "rename", "write", "open")}
        for name in self.real:
            monkeypatch.setattr(os, name, self.wrap(name))
        self.real_write = writing._write
        monkeypatch.setattr(writing, "_write", self.write_half)

    def step(self):
        self.count += 1
        if self.count == self.at:
            self.act()

    def wrap(self, name):
        def call(*arguments, **named):
            if name != "open" or arguments[1] & (os.O_WRONLY | os.O_RDWR):  # reading changes nothing
                self.step()
            return self.real[name](*arguments, **named)

        return call

    def write_half(self, path, data):
        self.count += 1
        if self.count == self.at:
            path.write_bytes(data[: len(data) // 2])
            self.act()
        self.real_write(path, data)


def steps_of_a_commit(three, checkpoint) -> int:
    with pytest.MonkeyPatch.context() as patch:
        seen = Interceptor(patch, lambda: None, at=-1)
        three.commit(checkpoint(4), 3)
    return seen.count


def no_space():
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_full_disk_at_any_step_leaves_the_model_as_it_was(three, checkpoint, tmp_path, same):
    rehearsal = ModelFolder(tmp_path / "rehearsal")
    rehearsal.commit(checkpoint(1), None)
    rehearsal.commit(checkpoint(2), 1)
    rehearsal.commit(checkpoint(3), 2)
    n_steps = steps_of_a_commit(rehearsal, checkpoint)
    assert n_steps > 16
    refused, newest = 0, checkpoint(3)
    for at in range(1, n_steps + 1):
        before, parent = files_of(three), three.latest()
        said = ""
        with pytest.MonkeyPatch.context() as patch:
            Interceptor(patch, no_space, at)
            try:
                three.commit(checkpoint(3 + at), parent)
            except ModelWriteError as error:
                said = str(error)
        if three.latest() == parent:
            refused += 1
            assert "the model is as it was: free some space" in said, f"step {at}"
            assert files_of(three) == before, f"step {at}"
        else:
            assert not said or "is written" in said, f"step {at}: {said}"
            newest = checkpoint(3 + at)
        assert not list((three.path / ".writing").iterdir()), f"step {at}"
        same(three.load().checkpoint, newest)
    assert refused > 12
    three.commit(checkpoint(4 + n_steps), three.latest())
    assert three.check().ok
    assert three.check().notes == ()


def test_a_kill_at_any_step_leaves_a_whole_model(three, checkpoint, tmp_path):
    rehearsal = ModelFolder(tmp_path / "rehearsal")
    for number in (1, 2, 3):
        rehearsal.commit(checkpoint(number), number - 1 or None)
    n_steps = steps_of_a_commit(rehearsal, checkpoint)
    left = written = 0
    for at in range(1, n_steps + 1):
        parent = three.latest()

        def die(at=at, parent=parent):
            with pytest.MonkeyPatch.context() as patch:
                Interceptor(patch, lambda: os.kill(os.getpid(), signal.SIGKILL), at)
                three.commit(checkpoint(3 + at), parent)

        assert in_a_child(die) == -signal.SIGKILL
        left += len(list((three.path / ".writing").iterdir()))
        written += three.latest() == parent + 1
        assert three.latest() in (parent, parent + 1)
        report = three.check()
        assert report.problems == (), f"step {at}"
    assert left > 10
    assert written > 0
    three.commit(checkpoint(4 + n_steps), three.latest())
    report = three.check()
    assert report.ok
    assert report.notes == (), "the next writer removes what the killed ones left, and mends the log"


def test_a_limit_on_file_sizes_is_a_clear_error(three, checkpoint):
    """The system itself refuses in the middle of a write."""
    before = files_of(three)

    def write():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
        three.commit(checkpoint(4, documents={"clusters": "x" * 5000}), 3)

    assert in_a_child(write) == 7
    assert files_of(three) == before


@pytest.fixture
def open_to_all():
    """A folder that other users can enter, which pytest's own are not."""
    with tempfile.TemporaryDirectory() as path:
        os.chmod(path, 0o755)
        yield Path(path)


def test_a_folder_that_is_not_writable_is_a_clear_error(open_to_all, checkpoint):
    folder = ModelFolder(open_to_all / "model")
    folder.commit(checkpoint(1), None)
    before = files_of(folder)
    said = open_to_all / "said"
    said.touch()
    said.chmod(0o666)
    folder.path.chmod(0o555)

    def write():
        if os.getuid() == 0:  # root may write everywhere
            os.setuid(65534)
        assert folder.load().generation == 1
        try:
            folder.commit(checkpoint(2), 1)
        except ModelWriteError as error:
            said.write_text(str(error))
            raise

    assert in_a_child(write) == 7
    folder.path.chmod(0o755)
    assert "the model is as it was: make the folder writable" in said.read_text()
    assert files_of(folder) == before


def fill(folder, checkpoint):
    for number in range(1, 50):
        folder.commit(checkpoint(number), number - 1 or None)


def test_a_real_full_disk(tmp_path, checkpoint):
    place = tmp_path / "small"
    place.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", place], capture_output=True)
    if mounted.returncode:
        pytest.skip("a small file system can only be mounted by root")
    try:
        folder = ModelFolder(place / "model")
        with pytest.raises(ModelWriteError, match="free some space"):
            fill(folder, checkpoint)
        count = folder.latest()
        assert 2 < count < 49
        report = folder.check()
        assert report.ok
        assert report.sound == tuple(range(1, count + 1))
        assert not list((folder.path / ".writing").iterdir())
        subprocess.run(["mount", "-o", "remount,size=4m", place], check=True)
        folder.commit(checkpoint(count + 1), count)
        subprocess.run(["mount", "-o", "remount,ro", place], check=True)
        with pytest.raises(ModelWriteError, match="read-only"):
            folder.commit(checkpoint(count + 2), count + 1)
        assert folder.check().ok
    finally:
        subprocess.run(["umount", place], check=True)


def test_the_name_decides_between_two_writers(three, checkpoint, monkeypatch):
    """The other writer comes in at the last moment, when this one has written everything but the name."""
    other = ModelFolder(three.path)
    claim = writing._claim

    def late(temp, target):
        monkeypatch.setattr(writing, "_claim", claim)
        other.commit(checkpoint(5), 3)
        claim(temp, target)

    monkeypatch.setattr(writing, "_claim", late)
    with pytest.raises(ConflictError, match="load the model again"):
        three.commit(checkpoint(4), 3)
    assert three.load().checkpoint.note == "day 5"
    assert not list((three.path / ".writing").iterdir())
    assert three.check().ok


@pytest.mark.parametrize("there", ["file", "folder"])
def test_whatever_has_the_name_is_never_replaced(three, checkpoint, monkeypatch, there):
    claim = writing._claim

    def late(temp, target):
        if there == "file":
            target.write_text("precious")
        else:
            target.mkdir()
            (target / "precious").touch()
        claim(temp, target)

    monkeypatch.setattr(writing, "_claim", late)
    with pytest.raises(ConflictError):
        three.commit(checkpoint(4), 3)
    target = three.folder(4)
    assert target.read_text() == "precious" if there == "file" else (target / "precious").exists()


def own_name(pid, start):
    """The name that a process of this machine gives to what it writes."""
    boot, namespace, _, _, end = writing.owner_name().split(".")
    return f"{boot}.{namespace}.{pid}.{start}.{end}"


def test_leftovers_of_the_living_and_of_others_stay(three, checkpoint):
    finished = subprocess.Popen([sys.executable, "-c", ""])
    finished.wait()
    parent, boot = os.getppid(), writing.owner_name().split(".")[0]
    start = writing._start(parent)
    names = {
        "dead": own_name(finished.pid, 5),
        "alive": own_name(parent, start),
        "number given again": own_name(parent, int(start) + 1),
        "another boot": own_name(finished.pid, 5).replace(boot, boot[::-1]),
        "no /proc": "unknown.0123456789abcdef",
        "half removed": "gone-0123456789abcdef",
        "not ours": "something",
    }
    for name in names.values():
        (three.path / ".writing" / name).mkdir()
        (three.path / ".writing" / name / "manifest.json").touch()
        os.utime(three.path / ".writing" / name, (0, 0))  # age is no proof
    told = {finding.path.name: finding.text for finding in three.check().notes}
    assert "writer that is gone" in told[names["dead"]]
    assert "being written" in told[names["alive"]]
    assert "prune --leftovers" in told[names["another boot"]]
    three.commit(checkpoint(4), 3)
    left = {what for what, name in names.items() if (three.path / ".writing" / name).exists()}
    assert left == {"alive", "another boot", "no /proc", "not ours"}
    three.prune(4, leftovers=True)
    left = {what for what, name in names.items() if (three.path / ".writing" / name).exists()}
    assert left == {"alive"}


@pytest.mark.parametrize("what", ["the folder", "a file"])
def test_a_writer_whose_folder_was_taken_away_publishes_nothing(three, checkpoint, monkeypatch, what):
    sync = writing.sync_folder

    def taken(path):
        monkeypatch.setattr(writing, "sync_folder", sync)
        if what == "the folder":
            shutil.rmtree(path)
        else:
            (path / "clusters.json").unlink()

    before = files_of(three)
    monkeypatch.setattr(writing, "sync_folder", taken)
    with pytest.raises(ModelWriteError, match="the model is as it was"):
        three.commit(checkpoint(4), 3)
    assert files_of(three) == before


def test_a_folder_is_renamed_before_it_is_emptied(three, monkeypatch):
    """So that an owner who lives after all cannot give its name to what is left of it."""
    name = own_name(2**22 + 1, 5)
    (three.path / ".writing" / name).mkdir()
    seen = []
    monkeypatch.setattr(shutil, "rmtree", lambda path, **_: seen.append(path.name))
    writing.remove_leftovers(three.path)
    assert seen[0].startswith("gone-")
    assert not (three.path / ".writing" / name).exists()


def test_every_new_folder_is_flushed_in_its_parent(tmp_path, checkpoint, monkeypatch):
    flushed, sync = [], writing.sync_folder
    monkeypatch.setattr(writing, "sync_folder", lambda path: (flushed.append(path), sync(path)))
    ModelFolder(tmp_path / "a" / "b" / "model").commit(checkpoint(1), None)
    assert {tmp_path, tmp_path / "a", tmp_path / "a" / "b", tmp_path / "a" / "b" / "model"} <= set(flushed)


def log_is_whole(folder):
    parts = [(folder.folder(n) / "events.jsonl").read_bytes() for n in folder.generations()]
    return (folder.path / "events.jsonl").read_bytes() == b"".join(parts)


def test_the_log_is_made_up_from_the_generations(three, checkpoint):
    log = three.path / "events.jsonl"
    whole = log.read_bytes()
    assert log_is_whole(three)
    for number, damage in enumerate((b"", whole[:10], whole[:-1], whole[:-3] + b"\0\0\0", None), start=4):
        if damage is None:
            log.unlink()
        else:
            log.write_bytes(damage)
        report = three.check()
        assert len(report.notes) + len(report.problems) == 1
        three.commit(checkpoint(number), number - 1)
        assert log_is_whole(three)
        assert three.check().ok
        whole = log.read_bytes()


def test_the_log_is_written_at_its_place_whoever_comes_first(three, checkpoint, monkeypatch):
    """One writer gets its generation but not its log; the other writes both; then the first goes on."""
    from dbull.store import folder as folder_module
    from dbull.store.eventlog import sync_log

    monkeypatch.setattr(folder_module, "sync_log", lambda *_, **__: None)
    three.commit(checkpoint(4), 3)
    monkeypatch.setattr(folder_module, "sync_log", sync_log)
    assert three.check().notes[0].text == "lacks the events of generations [4]; the next write adds them"
    three.commit(checkpoint(5), 4)
    assert log_is_whole(three)
    sync_log(three.path, three.manifest(4))
    assert log_is_whole(three)


def test_generations_without_events_need_no_log_line(tmp_path):
    folder = ModelFolder(tmp_path)
    for number in range(1, 4):
        folder.commit(Checkpoint(events=[{"kind": "x"}] if number == 2 else []), number - 1 or None)
    assert (tmp_path / "events.jsonl").read_text() == '{"generation": 2, "kind": "x"}\n'
    assert folder.check().ok


def test_a_log_that_cannot_be_written_does_not_undo_a_commit(three, checkpoint):
    (three.path / "events.jsonl").unlink()
    (three.path / "events.jsonl").mkdir()
    three.commit(checkpoint(4), 3)
    assert three.load().generation == 4


def test_pairs_of_writers(tmp_path):
    """The script that does it fifty times, with fewer."""
    ends, wrong = script("writers").run(6, tmp_path)
    assert wrong == []
    assert ends == {"narrow": 3, "wide": 3}


def test_random_kills(tmp_path):
    """The script that does it two hundred times, with fewer."""
    outcome = script("kills").run(8, seed=3, place=tmp_path)
    assert outcome.wrong == []
