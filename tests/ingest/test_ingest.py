"""Files into arrivals from Python, as docs/ingest.md tells it; tests/cli has what the commands do with it."""

import os

import numpy as np
import pytest

import dbull
from dbull.errors import AlreadyLearnedError, ConflictError, DataError, SettingsError
from dbull.ingest import Inbox, Input, Learner, Reading
from dbull.ingest.sources import open_source
from dbull.store import ModelFolder
from pages import run_page
from synthetic import gaussian_clusters

X, Y = gaussian_clusters(np.random.default_rng(3), (60, 50, 40), 3, distance=14.0)


def test_the_page(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    learner = run_page("docs/ingest.md")["learner"]
    said = capsys.readouterr().out.splitlines()
    assert said[0].startswith("generation 1: 1-monday.csv, 120 rows, 2 clusters, new: 0 1, ")
    assert len(said) == 2
    assert ModelFolder("model").generations() == [1, 2, 3, 4]
    rows = np.full((1, 3), 20.0)
    assert learner.model.predict(rows) == dbull.load("model").predict(rows)
    assert list(Learner("model").learn_folder("inbox")) == []


def test_a_report_is_that_of_the_model(tmp_path):
    np.save(tmp_path / "a.npy", X)
    learner = Learner(tmp_path / "m", {"arrival_rows": 70})
    first, second = learner.learn(str(tmp_path / "a.npy"))
    assert second.report is learner.model.report_
    assert (first.first, second.first) == (True, False)
    assert [one.report.n_rows for one in (first, second)] == [70, 80]
    with pytest.raises(AlreadyLearnedError):
        list(learner.learn(tmp_path / "a.npy"))


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"epochz": 3}, "did you mean 'epochs'"),
        ({"callback": print}, "unknown setting 'callback'"),
        ({"key": "a", "columns": ["a", "b"]}, "take it out of columns"),
        ({"arrival_rows": None}, "arrival_rows must be a whole number"),
        ({"kind": "pictures"}, "kind"),
    ],
)
def test_wrong_settings_are_refused(tmp_path, settings, words):
    np.save(tmp_path / "a.npy", X)
    with pytest.raises(SettingsError, match=words):
        list(Learner(tmp_path / "m", settings).learn(tmp_path / "a.npy"))
    assert not (tmp_path / "m").exists()


def test_an_inbox_tells_files_once_until_they_change(tmp_path):
    for name in ("b.npy", "a.csv", ".hidden.csv", "note.txt"):
        (tmp_path / name).write_text("1")
    (tmp_path / "folder.csv").mkdir()
    inbox = Inbox(tmp_path)
    assert [path.name for path in inbox.arrived()] == ["a.csv", "b.npy"]
    assert list(inbox.arrived()) == []
    (tmp_path / "b.npy").write_text("12")
    assert [path.name for path in inbox.arrived()] == ["b.npy"]
    (tmp_path / "c.csv").touch()
    assert list(Inbox(tmp_path, settle=600).arrived()) == []
    for path in tmp_path.iterdir():
        os.utime(path, (0, 0))
    assert len(list(Inbox(tmp_path, settle=600).arrived())) == 3
    with pytest.raises(SettingsError, match="is not a folder"):
        Inbox(tmp_path / "none")


def test_two_commands_that_begin_a_model_at_the_same_time(tmp_path):
    """Both find an empty folder; the one that is done second is told of the first, whenever that was."""
    for name, rows in (("a", X[Y < 2]), ("b", X[Y > 0])):
        np.save(tmp_path / f"{name}.npy", rows)
    first, second = (Learner(tmp_path / "m") for _ in range(2))
    list(first.learn(tmp_path / "a.npy"))
    with pytest.raises(ConflictError):
        list(second.learn(tmp_path / "b.npy"))
    assert ModelFolder(tmp_path / "m").generations() == [1]


@pytest.mark.parametrize("save", [np.save, lambda path, x: np.savetxt(path, x, delimiter=",")])
def test_a_file_longer_than_any_buffer_that_is_rewritten_is_stopped_at(tmp_path, save):
    values = np.random.default_rng(0).normal(size=(300, 200))
    path = tmp_path / ("t.npy" if save is np.save else "t.csv")
    save(path, values)
    pieces = open_source(Input(path, None, Reading(arrival_rows=30)), {}, False).pieces()
    read = [next(pieces).rows]
    save(path, values + 1.0)
    with pytest.raises(DataError, match="changed while it was read"):
        read.extend(piece.rows for piece in pieces)
    read = np.concatenate(read)
    np.testing.assert_array_equal(read, values[: len(read)].astype(np.float32))
