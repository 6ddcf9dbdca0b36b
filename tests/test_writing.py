"""Answers as files: whole or not at all, through no link, whatever the name and whoever is beside."""

import os
import stat

import pytest

from dbull import writing
from dbull.errors import OutputError, SettingsError
from dbull.writing import check_place, replacing


def put(path, data=b"new"):
    with replacing(path) as handle:
        handle.write(data)


def test_the_file_is_there_at_the_end_and_nothing_else(tmp_path):
    target = tmp_path / "answers.csv"
    target.write_bytes(b"old")
    with replacing(target) as handle:
        handle.write(b"new")
        handle.flush()
        (unfinished,) = set(tmp_path.iterdir()) - {target}
        assert unfinished.name.startswith("."), "hidden from whoever takes files from here"
        assert target.read_bytes() == b"old"
    assert target.read_bytes() == b"new"
    assert list(tmp_path.iterdir()) == [target]


def test_a_failure_leaves_what_was_there(tmp_path):
    target = tmp_path / "answers.csv"
    target.write_bytes(b"old")

    def stop(error):
        with replacing(target) as handle:
            handle.write(b"half")
            raise error

    for error in (ValueError, KeyboardInterrupt):
        with pytest.raises(error):
            stop(error)
    assert [p.read_bytes() for p in tmp_path.iterdir()] == [b"old"]


def test_the_temporary_name_is_another_each_time_and_taken_by_nobody(tmp_path, monkeypatch):
    names = []
    for _ in range(2):
        with replacing(tmp_path / "x"):
            names += [p.name for p in tmp_path.iterdir() if p.name != "x"]
    assert len(set(names)) == 2
    (tmp_path / "victim").write_bytes(b"mine")
    monkeypatch.setattr(writing.secrets, "token_hex", lambda n: "guessed")
    (tmp_path / ".dbull-guessed").symlink_to(tmp_path / "victim")
    with pytest.raises(SettingsError):
        put(tmp_path / "x")
    assert (tmp_path / "victim").read_bytes() == b"mine"
    assert (tmp_path / ".dbull-guessed").is_symlink(), "what others put there is not ours to remove"


def test_names_as_long_as_the_file_system_has_them(tmp_path):
    target = tmp_path / ("n" * 251 + ".csv")
    put(target)
    assert target.read_bytes() == b"new"


def test_a_link_is_replaced_and_what_it_leads_to_stays(tmp_path):
    (tmp_path / "elsewhere").write_bytes(b"mine")
    for target in ("elsewhere", "nowhere"):
        link = tmp_path / f"link-to-{target}"
        link.symlink_to(tmp_path / target)
        put(link)
        assert not link.is_symlink()
        assert link.read_bytes() == b"new"
    assert (tmp_path / "elsewhere").read_bytes() == b"mine"


def test_what_is_no_file_is_refused_by_name(tmp_path):
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "link").symlink_to(tmp_path / "fifo")
    for target in (tmp_path / "fifo", tmp_path / "link", tmp_path, "/dev/null", "/dev/stdout"):
        with pytest.raises(SettingsError, match=str(target)):
            put(target)
    assert stat.S_ISFIFO(os.stat(tmp_path / "fifo").st_mode)
    check_place(tmp_path / "new")


def test_all_is_flushed_before_and_after_the_name_is_given(tmp_path, monkeypatch):
    done = []
    real_sync, real_replace = os.fsync, os.replace
    monkeypatch.setattr(
        os, "fsync", lambda fd: (done.append(stat.S_IFMT(os.fstat(fd).st_mode)), real_sync(fd))
    )
    monkeypatch.setattr(os, "replace", lambda a, b: (done.append("rename"), real_replace(a, b)))
    put(tmp_path / "x")
    assert done == [stat.S_IFREG, "rename", stat.S_IFDIR]


def test_a_full_disk_is_told_from_a_wrong_place(tmp_path, monkeypatch):
    with pytest.raises(SettingsError, match="name another file"):
        put(tmp_path / "no" / "such" / "folder")

    def full(fd):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OutputError, match="No space left"):
        put(tmp_path / "x")
    assert not list(tmp_path.iterdir())
