"""Saving again and again, loading what a stranger made, and events that are read when they are asked for."""

import copy
import pickle
import shutil

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

import dbull
from dbull import DBULL
from dbull.cli import app
from dbull.errors import ConflictError, ModelFileError, SettingsError
from dbull.store import ModelFolder, folder
from forgery import forge
from synthetic import gaussian_clusters

X, Y = gaussian_clusters(np.random.default_rng(3), (60, 50, 40), 3, distance=14.0)


@pytest.fixture(scope="module")
def begun():
    return DBULL(random_state=0).partial_fit(X[Y < 2])


@pytest.fixture
def model(begun):
    return copy.deepcopy(begun)


@pytest.fixture
def reads(monkeypatch):
    """Count the manifests that are read."""
    seen, real = [], folder.read_manifest

    def read(*arguments):
        seen.append(arguments[1])
        return real(*arguments)

    monkeypatch.setattr(folder, "read_manifest", read)
    return seen


def test_events_are_read_when_they_are_asked_for(model, tmp_path, monkeypatch):
    for name in "abcdef":
        model.rename(0, name).save(tmp_path / "m")
    asked, real = [], ModelFolder.events
    monkeypatch.setattr(ModelFolder, "events", lambda *a, **k: (asked.append(1), real(*a, **k))[1])
    loaded = dbull.load(tmp_path / "m")
    loaded.partial_fit(X[Y == 2]).rename(1, "x").save(tmp_path / "m")
    loaded.preview(X)
    assert asked == []
    assert [e.evidence for e in loaded.events_][: len(model.events_)] == [e.evidence for e in model.events_]
    assert copy.deepcopy(loaded).events_ == loaded.events_
    assert asked == [1], "once, for all copies"
    again = dbull.load(tmp_path / "m")
    kept = pickle.dumps(again)
    shutil.rmtree(tmp_path / "m")
    came_back = [event.evidence for event in pickle.loads(kept).events_]
    assert came_back == [event.evidence for event in loaded.events_], "a pickle needs no folder"
    with pytest.raises(ModelFileError):
        dbull.load(tmp_path / "m")


def test_events_outlive_a_pruning(model, tmp_path):
    for name in "abcdef":
        model.rename(0, name).save(tmp_path / "m")
    loaded = dbull.load(tmp_path / "m")
    ModelFolder(tmp_path / "m").prune(1)
    assert [e.kind for e in loaded.events_] == [e.kind for e in model.events_]
    assert dbull.load(tmp_path / "m").events_ == loaded.events_
    with pytest.raises(ConflictError):
        loaded.rename(0, "g").save(tmp_path / "m")


def test_a_load_reads_one_manifest_however_many_there_are(model, tmp_path, reads):
    for name in "abcdef":
        model.rename(0, name).save(tmp_path / "m")
    reads.clear()
    dbull.load(tmp_path / "m")
    assert reads == [6]


def test_a_folder_that_became_another_model_is_a_conflict(model, tmp_path):
    model.save(tmp_path / "m")
    shutil.rmtree(tmp_path / "m")
    other = DBULL(random_state=1).partial_fit(X).save(tmp_path / "m")
    with pytest.raises(ConflictError, match="another model"):
        model.rename(0, "a").save(tmp_path / "m")
    assert dbull.load(tmp_path / "m").clusters_ == other.clusters_


def test_only_the_newest_numbers_are_left(model, tmp_path):
    """With one generation kept there is nothing to subtract from anything."""
    model.save(tmp_path / "m").partial_fit(X[Y == 2]).save(tmp_path / "m")
    ModelFolder(tmp_path / "m").prune(1)
    newest = ModelFolder(tmp_path / "m").manifest()
    there = {p for p in (tmp_path / "m").glob("gen-*/*") if not p.name.startswith(("manifest", "events"))}
    assert there == {newest.path(tmp_path / "m", name) for name in newest.files}
    assert dbull.load(tmp_path / "m").n_data_sets_ == 2


def networks(document):
    return document["networks"]


FORGERIES = {
    "very many layers": ("learner", lambda d: networks(d).update(encoder="mlp", hidden_dims=[1] * 100_000)),
    "text as a bound": ("settings", lambda d: d.update(elbo="high")),
    "a list as a bound": ("settings", lambda d: d.update(elbo=[1.0])),
    "a list as reading": ("settings", lambda d: d.update(reading=[1])),
    "text as reading": ("settings", lambda d: d.update(reading="x")),
}


@pytest.mark.parametrize("name", FORGERIES)
@pytest.mark.parametrize("command", ["load", "clusters", "clusters --tree", "check", "predict"])
def test_forged_documents_are_refused(model, tmp_path, name, command):
    model.save(tmp_path / "m")
    forge(tmp_path / "m", *FORGERIES[name])
    if command == "clusters" and FORGERIES[name][0] == "learner":
        pytest.skip("makes no networks")
    if command == "load":
        with pytest.raises(ModelFileError):
            dbull.load(tmp_path / "m")
        return
    np.save(tmp_path / "x.npy", X)
    command, *more = command.split()
    more += [str(tmp_path / "x.npy"), "-o", str(tmp_path / "o.csv")] if command == "predict" else []
    result = CliRunner().invoke(app, [command, str(tmp_path / "m"), *more])
    assert result.exit_code == 4, result.output


@pytest.mark.parametrize(
    "event", [{}, {"kind": 3}, {"kind": "birth"}, {"kind": "arrival", "clusters": 1, "evidence": []}]
)
def test_forged_events_are_refused(model, tmp_path, event):
    from dataclasses import replace

    model.save(tmp_path / "m")
    content = replace(ModelFolder(tmp_path / "m").load().checkpoint, events=[event])
    shutil.rmtree(tmp_path / "m")
    ModelFolder(tmp_path / "m").commit(content, None)
    run = CliRunner().invoke
    for arguments in (["events"], ["events", "--json"], ["clusters", "0"], ["report", "-o", "r.html"]):
        command = [arguments[0], str(tmp_path / "m"), *arguments[1:]]
        if command[-1] == "r.html":
            command[-1] = str(tmp_path / "r.html")
        result = run(app, command)
        assert result.exit_code == 4, (command, result.output, result.exception)


def test_very_many_ids_cost_nothing(model, tmp_path):
    model.save(tmp_path / "m")
    forge(tmp_path / "m", "clusters", lambda d: d.update(ids_given=10**15))
    loaded = dbull.load(tmp_path / "m")
    assert loaded.resolve([0, -1, 1]).tolist() == [0, -1, 1]
    with pytest.raises(SettingsError, match=r"\[7\]"):
        loaded.resolve(np.array([[0, 7]]))


def test_an_empty_tensor_of_an_impossible_shape(model, tmp_path):
    import json

    model.save(tmp_path / "m")
    forge(tmp_path / "m", "view", lambda t: t.update(odd=torch.zeros(0, 3)))
    from dbull.store.layout import hash_bytes
    from dbull.store.manifest import wrap_manifest

    place = tmp_path / "m" / "gen-00000001"
    data = (place / "view.safetensors").read_bytes().replace(b"[0,3]", b"[0,9223372036854775808]")
    n = int.from_bytes(data[:8], "little") + len("9223372036854775808") - 1
    data = n.to_bytes(8, "little") + data[8:]
    (place / "view.safetensors").write_bytes(data)
    told = json.loads((place / "manifest.json").read_text())
    told["files"]["view.safetensors"] |= {"bytes": len(data), "sha256": hash_bytes(data)}
    (place / "manifest.json").write_text(json.dumps(told))
    (place / "manifest.sha256").write_bytes(wrap_manifest((place / "manifest.json").read_bytes()))
    with pytest.raises(ModelFileError, match=r"view\.safetensors"):
        dbull.load(tmp_path / "m")


def test_the_command_line_prunes(model, tmp_path):
    place = str(tmp_path / "m")
    for name in "abcd":
        model.rename(0, name).save(place)
    run = CliRunner().invoke
    before = run(app, ["events", place, "--json"]).output
    result = run(app, ["prune", place, "--keep", "2"])
    assert (result.exit_code, "from 4 on" in result.output) == (0, True), result.output
    assert run(app, ["events", place, "--json"]).output == before
    assert "prune to 2" in run(app, ["history", place]).output
    assert run(app, ["check", place]).exit_code == 0
    for command in (
        ["rollback", place, "1"],
        ["diff", place, "1", "5"],
        ["clusters", place, "--generation", "1"],
    ):
        result = run(app, command)
        assert (result.exit_code, "was pruned" in result.output) == (2, True), result.output
    assert run(app, ["prune", place, "--keep", "0"]).exit_code == 2
    assert "2 of 2 generations are sound; of 3" in run(app, ["check", place]).stdout


def test_learning_keeps_as_many_generations_as_are_asked_for(tmp_path):
    files = []
    for number in range(5):
        files.append(str(tmp_path / f"{number}.npy"))
        np.save(files[-1], X[number::5])
    place = str(tmp_path / "m")
    result = CliRunner().invoke(app, ["learn", place, *files, "-q", "--set", "keep_generations=2"])
    assert result.exit_code == 0, result.output
    kept = ModelFolder(place)
    assert (kept.latest(), kept.manifest().oldest) == (5, 4)
    assert sum(record.rows > 0 for record in kept.learned().values()) == 5
    assert not list((tmp_path / "m").glob("gen-0000000[123]/mixture*"))
    assert kept.check().ok
    assert "keep_generations" not in kept.manifest().settings["reading"]
    bad = CliRunner().invoke(app, ["learn", place, *files, "--set", "keep_generations=0"])
    assert bad.exit_code == 2
