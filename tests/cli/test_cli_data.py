"""``dbull data``: what is listed, fetched, verified and refused."""

import json

import pytest
from typer.testing import CliRunner

from dbull.cli import app


def dbull(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def test_list_shows_what_is_here(tmp_path):
    done = dbull("data", "list", "--data", tmp_path)
    assert done.exit_code == 0, done.stderr
    lines = {line.split()[0]: line for line in done.stdout.splitlines()[1:]}
    assert "built in" in lines["digits"]
    assert "to get, 11.1 MiB" in lines["mnist"]
    assert "not here" in lines["reuters10k"]
    entries = {entry["name"]: entry for entry in json.loads(dbull("data", "list", "--json").stdout)}
    assert set(entries) == set(lines)
    assert entries["digits"]["found"] is True


@pytest.mark.parametrize("verb", ["get", "verify"])
def test_a_set_without_files(verb):
    done = dbull("data", verb, "digits")
    assert (done.exit_code, done.stdout) == (0, "")
    assert "needs no files" in done.stderr


def test_wrong_file_is_named_and_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "mnist"
    folder.mkdir()
    for part in ("train-images-idx3", "train-labels-idx1", "t10k-images-idx3", "t10k-labels-idx1"):
        (folder / f"{part}-ubyte.gz").write_text("<!doctype html><title>Sign in</title>")
    for command in (
        ("data", "verify", "mnist"),
        ("data", "get", "mnist"),
        ("bench", "batch-mnist", "kmeans"),
    ):
        done = dbull(*command, "--data", tmp_path)
        assert done.exit_code == 3, done.stderr
        assert "ubyte.gz" in done.stderr
