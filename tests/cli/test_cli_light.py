"""Commands that only list, or that only say what is missing, answer without the libraries that learn."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import dbull
from dbull import DBULL
from dbull.cli import app
from dbull.errors import ModelFileError
from dbull.methods.listing import list_clusters, told_events
from dbull.store import ModelFolder

REFERENCE = Path(__file__).parent.parent / "reference"
HEAVY = ("torch", "sklearn", "pandas", "pyarrow")
# One process for all commands; what the first imports the last would have to answer for.
SCRIPT = """
import contextlib, io, json, sys
from dbull.cli import app
told = []
for words in json.load(sys.stdin):
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = app(words, standalone_mode=False)
    imported = [name for name in sys.argv[1:] if name in sys.modules]
    told.append([code or 0, out.getvalue(), err.getvalue(), imported])
print(json.dumps(told))
"""


def run_light(*commands):
    """Return code, output, errors and heavy imports of each command."""
    words = [[str(word) for word in command] for command in commands]
    run = [sys.executable, "-c", SCRIPT, *HEAVY]
    done = subprocess.run(run, input=json.dumps(words), capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def model():
    rows = np.random.default_rng(0).normal(size=(90, 2)) + np.repeat([[0, 0], [30, 0], [0, 30]], 30, axis=0)
    return dbull.DBULL(encoder="identity", random_state=0).partial_fit(rows)


def test_listing_and_naming_need_no_torch(model, tmp_path):
    path = tmp_path / "model"
    model.save(path)
    commands = [
        ("clusters", path, "--json"),
        ("clusters", path, "--all"),  # with an id it explains, which needs the model
        ("events", path),
        ("history", path),
        ("rename", path, 1, "heels"),
        ("retire", path, 2),
        ("clusters", path, "--json"),
        ("diff", path, 1, 3),
    ]
    told = run_light(*commands)
    for command, (code, _, err, imported) in zip(commands, told, strict=True):
        assert (code, err, imported) == (0, "", []), command
    assert json.loads(told[0][1]) == [{**row, "parents": []} for row in dbull.load(path, 1).clusters_]
    loaded = dbull.load(path)
    assert json.loads(told[6][1]) == [{**row, "parents": []} for row in loaded.clusters_]
    assert [(row["name"], row["status"]) for row in loaded.clusters_][1:] == [
        ("heels", "active"),
        (None, "retired"),
    ]
    assert told[7][1].splitlines() == ["  cluster 1: named heels", "  cluster 2: retired"]
    assert [event.kind for event in loaded.events_][-2:] == ["rename", "retirement"]
    assert ModelFolder(path).check().ok
    model_again = dbull.load(path).partial_fit(np.eye(2))
    assert model_again.save(path).events_[-1].kind == "arrival", "the model goes on learning"


def test_what_is_missing_is_told_without_torch(model, tmp_path):
    path, nothing = tmp_path / "model", tmp_path / "nothing"
    model.save(path)
    data = tmp_path / "rows.csv"
    data.write_text("a,b\n1,2\n3,4\n")
    for (code, out, err, imported), expected in zip(
        run_light(
            ("learn", path, data, nothing),
            ("learn", path, data, "--config", nothing),
            ("learn", path, data, "--set", f"epochs={nothing} ["),
            ("predict", path, nothing),
            ("preview", path, nothing),
            ("watch", path, nothing, "--once"),
            ("predict", nothing, data),
            ("report", nothing),
            ("clusters", nothing),
            ("merge", nothing, 1, 2),
        ),
        (3, 2, 2, 3, 3, 2, 4, 4, 4, 4),
        strict=True,
    ):
        assert (code, out, imported) == (expected, "", [])
        assert str(nothing) in err
    assert ModelFolder(path).latest() == 1, "nothing is learned before the missing file is found"


@pytest.mark.parametrize(("words", "expected"), [("dbull ren", "rename"), ("dbull clusters --tr", "--tree")])
def test_the_shell_completes(words, expected):
    asked = {"COMP_WORDS": words, "COMP_CWORD": str(words.count(" "))}
    asked["_DBULL_COMPLETE"] = "complete_bash"
    done = CliRunner().invoke(app, [], prog_name="dbull", env=asked)
    assert done.stdout.split() == [expected]


@pytest.mark.parametrize("name", ["model-format-1", "model-format-2"])
def test_old_models_are_listed_as_they_load(name):
    folder = ModelFolder(REFERENCE / name / "model")
    loaded = dbull.load(folder.path)
    assert list_clusters(folder) == loaded.clusters_
    assert {event["arrival"] for event in told_events(folder)} == set(range(1, loaded.n_data_sets_ + 1))
    assert [event.arrival for event in loaded.events_] == [e["arrival"] for e in told_events(folder)]
    births = {event.clusters[0]: event.arrival for event in loaded.events_ if event.kind == "birth"}
    assert {row["id"]: row["first_seen"] for row in loaded.clusters_} == births
    assert min(births.values()) == 1, "they count from 1, whatever their files say"


@pytest.mark.parametrize("wrong", [[0, 1, 1], [0, 1, 2, 2], None, "components"])
def test_documents_that_contradict_each_other_are_refused(model, tmp_path, wrong):
    folder, forged = ModelFolder(tmp_path / "model"), ModelFolder(tmp_path / "forged")
    model.save(folder.path)
    content = folder.load().checkpoint
    learner = dict(content.documents["learner"])
    learner["components"] = wrong if wrong == "components" else {**learner["components"], "clusters": wrong}
    documents = {**content.documents, "learner": learner}
    forged.commit(replace(content, documents=documents, events=()), None)
    with pytest.raises(ModelFileError, match=r"learner\.json"):
        list_clusters(forged)


def test_words_and_exemplars_are_listed_as_the_model_tells_them(tmp_path, quick_module):
    def told(rows):
        return [{name: row[name] for name in ("id", "words", "exemplars")} for row in rows]

    topics = [f"{a} {b} orbit rocket" for a in "abcdefgh" for b in ("moon", "mars", "star")]
    others = [f"{a} {b} puck goalie" for a in "abcdefgh" for b in ("team", "season", "ice")]
    texts = DBULL(kind="text", random_state=0, epochs=3, joint_epochs=1).fit(topics + others)
    texts.save(tmp_path / "texts")
    listed = told(list_clusters(ModelFolder(tmp_path / "texts")))
    assert listed == told(texts.clusters_)
    assert listed[0]["words"] or listed[0]["exemplars"]
    if texts.n_clusters_ > 1:
        texts.merge_clusters(texts.cluster_ids_.tolist()[:2]).save(tmp_path / "texts")
        assert told(list_clusters(ModelFolder(tmp_path / "texts"))) == told(texts.clusters_)
