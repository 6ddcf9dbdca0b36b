"""What each command answers, and how it refuses: output, message and exit code."""

import json
import re
import shutil
from importlib import metadata
from pathlib import Path

import pytest
from typer.testing import CliRunner

from dbull.cli import app, progress
from dbull.errors import NumericalError
from dbull.experiments import environment

TOYS = Path(__file__).parent.parent / "experiments"


@pytest.fixture(autouse=True)
def fresh_place(tmp_path, monkeypatch):
    """Work in an empty folder, with no data folder and an empty cache."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(TOYS))
    monkeypatch.delenv("DBULL_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def dbull(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def test_run_then_table_then_figure(tmp_path):
    out = tmp_path / "r"
    done = dbull("bench", "split-digits", "kmeans", "--seeds", "0..1", "--out", out)
    assert done.exit_code == 0, done.stderr
    assert "split-digits kmeans seed 1: done in" in done.stderr
    assert done.stdout.splitlines()[0].startswith("split-digits: scores in percent")
    for seed in (0, 1):
        folder = out / "split-digits" / "kmeans" / f"seed-{seed}"
        names = {path.name for path in folder.iterdir() if not path.name.startswith(".")}
        assert names == {"settings.json", "environment.json", "steps.jsonl", "timings.jsonl", "final.json"}
    again = dbull("bench", "split-digits", "kmeans", "--seeds", "0..1", "--out", out)
    assert again.exit_code == 0
    assert again.stderr.count("left alone") == 2
    assert again.stdout == done.stdout

    table = dbull("bench", "--table", out, "--json", "--columns", "ari,n_clusters", "--figure", out / "f.png")
    assert table.exit_code == 0, table.stderr
    (row,) = json.loads(table.stdout)
    finals = [
        json.loads((out / "split-digits" / "kmeans" / f"seed-{seed}" / "final.json").read_text())
        for seed in (0, 1)
    ]
    assert row["columns"]["ari"]["mean"] == pytest.approx(sum(final["scores"]["ari"] for final in finals) / 2)
    assert row["told_true_k"] is True
    matrix = dbull("bench", "--table", out, "--matrix", "--score", "ari", "--json")
    last = json.loads(matrix.stdout)[-1]
    ends = [final["lifelong"]["ari"]["matrix"][-1][0] for final in finals]
    assert (last["after"], last["columns"]["task 1"]["mean"]) == ("task 5", pytest.approx(sum(ends) / 2))
    assert (out / "f.png").read_bytes().startswith(b"\x89PNG")


def test_quiet_says_nothing_but_the_result(tmp_path):
    done = dbull("bench", "batch-digits", "kmeans", "--out", tmp_path, "--quiet", "--format", "markdown")
    assert done.stderr == ""
    assert done.stdout.startswith("| scenario | method |")


SMALL_DBULL = (
    *("bench", "batch-digits", "--method-path", "dbull.methods.dbull:DBULL", "--set", "image_shape=[8,8]"),
    *("--set", "epochs=2", "--set", "joint_epochs=1", "--set", "hidden_dims=[16]"),
    *("--set", "latent_dim=2", "--set", "max_clusters=2", "--out"),  # a search through many takes long
)


def test_pictures_and_epochs(tmp_path, monkeypatch):
    """Pictures are beside the records, epochs on standard error, and neither changes what is recorded."""
    pytest.importorskip("matplotlib", reason="needs the extra dbull[plot]")
    monkeypatch.setattr(progress, "SECONDS_BETWEEN_EPOCHS", 0.0)
    done = dbull(*SMALL_DBULL, tmp_path / "a", "--pictures")
    assert done.exit_code == 0, done.stderr
    folder = tmp_path / "a" / "batch-digits" / "DBULL" / "seed-0"
    assert sorted(path.name for path in (folder / "pictures").iterdir()) == [
        *("map.png", "prototypes.png", "samples.png", "training.png")
    ]
    lines = done.stderr.splitlines()
    number, left, found = r"-?[\d.,]+", r"\d+:\d\d:\d\d left", r"\d+ components?"
    for n in (1, 2):
        pattern = rf"batch-digits DBULL seed 0: represent {n}/2, reconstruction {number}/row, {found}, "
        assert any(re.fullmatch(rf"{pattern}{number} rows/s, {left}", line) for line in lines), lines
    pattern = rf"batch-digits DBULL seed 0: joint 1/1, ELBO {number}/row, {found}, {number} rows/s, {left}"
    assert any(re.fullmatch(pattern, line) for line in lines), lines
    assert ", with pictures: " in lines[-1]
    assert "represent" not in done.stdout

    quiet = dbull(*SMALL_DBULL, tmp_path / "b", "--quiet")
    assert quiet.stderr == ""
    other = tmp_path / "b" / "batch-digits" / "DBULL" / "seed-0"
    assert not (other / "pictures").exists()
    for name in ("settings.json", "steps.jsonl"):
        assert (folder / name).read_bytes() == (other / name).read_bytes()
    again = dbull(*SMALL_DBULL, tmp_path / "b", "--pictures")
    assert "pictures are drawn of new runs only" in again.stderr
    assert not (other / "pictures").exists()


def test_a_quick_fit_says_little(tmp_path, monkeypatch):
    monkeypatch.setattr(progress, "SECONDS_BETWEEN_EPOCHS", 1e9)
    monkeypatch.setattr(progress, "SECONDS_BETWEEN_LINES", 1e9)
    done = dbull(*SMALL_DBULL, tmp_path)
    assert len(done.stderr.splitlines()) == 1


def test_pictures_without_matplotlib(tmp_path, monkeypatch):
    monkeypatch.setattr("dbull.experiments.figures.find_spec", lambda name: None)
    done = dbull(*SMALL_DBULL, tmp_path / "r", "--pictures")
    assert (done.exit_code, done.stdout) == (2, "")
    assert "pip install 'dbull[plot]'" in done.stderr
    assert not (tmp_path / "r").exists()


def test_config_runs_all_its_methods(tmp_path):
    config = tmp_path / "x.toml"
    config.write_text(
        'scenario = "batch-digits"\nseeds = [3]\n[[methods]]\nname = "kmeans"\n'
        '[[methods]]\nname = "kmeans"\nlabel = "kmeans-20"\nsettings = { n_clusters = 20 }\n'
    )
    done = dbull("bench", "--config", config, "--out", tmp_path / "r", "--json", "-q")
    assert done.exit_code == 0, done.stderr
    first, second = json.loads(done.stdout)
    prints = {
        json.loads(path.read_text())["scenario_fingerprint"]
        for path in (tmp_path / "r").rglob("settings.json")
    }
    assert len(prints) == 1, "both methods saw the same bytes"
    assert (first["method"], first["seeds"], first["told_true_k"]) == ("kmeans", [3], True)
    assert (second["method"], second["told_true_k"]) == ("kmeans-20", False)
    assert second["columns"]["n_clusters"]["mean"] == 20


def test_version():
    done = dbull("--version")
    assert (done.exit_code, done.stdout) == (0, f"dbull {metadata.version('dbull')}\n")


def test_names_are_listed():
    done = dbull("bench", "--list")
    assert done.exit_code == 0
    assert {"split-digits", "split-mnist", "kmeans", "dp-mixture"} <= set(done.stdout.split())


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["bench"], 2, "expected SCENARIO METHOD"),
        (["bench", "split-digits"], 2, "expected SCENARIO METHOD, got split-digits"),
        (["bench", "split-digit", "kmeans"], 2, "did you mean 'split-digits'"),
        (["bench", "split-digits", "kmens"], 2, "did you mean 'kmeans'"),
        (["bench", "split-digits", "kmeans", "--set", "n_cluster=3"], 2, "did you mean 'n_clusters'"),
        (["bench", "split-digits", "kmeans", "--set", "n_init=many"], 2, "n_init"),
        (["bench", "split-digits", "kmeans", "--seeds", "4..1"], 2, "runs backwards"),
        (["bench", "split-digits", "kmeans", "--seeds", "0..99999999999999"], 2, "more than 10000 seeds"),
        (["bench", "split-digits", "kmeans", "--format", "html"], 2, "unknown format 'html'"),
        (["bench", "split-digits", "kmeans", "--columns", "arri"], 2, "did you mean 'ari'"),
        (["bench", "split-digits", "kmeans", "--score", "arri"], 2, "did you mean 'ari'"),
        (["bench", "split-digits", "kmeans", "--figure", "f.gif"], 2, "f.gif"),
        (["bench", "split-digits", "kmeans", "--pictures"], 2, "no picture can be made of kmeans"),
        (["bench", "--table", "none", "--pictures"], 2, "--pictures do not go with it"),
        (["bench", "split-digits", "kmeans", "--matrix", "--columns", "ari"], 2, "--matrix"),
        (["bench", "split-digits", "kmeans", "--no-such"], 2, "--no-such"),
        (["bench", "split-digits", "--method-path", "toy_methods:Nothing"], 2, "no method"),
        (["bench", "--config", "none.toml"], 2, "none.toml"),
        (["bench", "--config", "none.toml", "--label", "x"], 2, "--config"),
        (["bench", "--table"], 2, "at least one folder"),
        (["bench", "--verify", "none"], 2, "none: no such folder"),
        (["bench", "--verify", "none", "--seeds", "1"], 2, "--verify runs"),
        (["bench", "--table", "none"], 2, "none: no such folder"),
        (["bench", "--table", "none", "--seeds", "1"], 2, "--table reads"),
        (["bench", "split-mnist", "kmeans"], 3, "dbull data get mnist"),
        (["bench", "split-digits", "--method-path", "toy_methods:WrongShape"], 1, "WrongShape: predict"),
        (["paper", "--only", "tabel4"], 2, "did you mean 'table4'"),
        (["paper", "--seeds", "4..1"], 2, "runs backwards"),
        (["data", "get", "mnits"], 2, "did you mean 'mnist'"),
        (["data", "verify", "mnist"], 3, "mnist"),
        (["nonsense"], 2, "nonsense"),
    ],
)
def test_exit_code_and_message(arguments, code, words):
    done = dbull(*arguments)
    assert done.exit_code == code, done.stderr
    assert words in done.stderr
    assert done.stdout == ""


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A folder with one complete run, to be copied or left alone."""
    out = tmp_path_factory.mktemp("finished")
    assert dbull("bench", "batch-digits", "kmeans", "--out", out).exit_code == 0
    return out


def test_other_settings_in_the_same_folder(finished):
    done = dbull("bench", "batch-digits", "kmeans", "--out", finished, "--set", "n_init=2")
    assert done.exit_code == 2
    assert "parameter n_init (10 there, 2 asked)." in done.stderr
    assert "n_clusters" not in done.stderr, "only what differs"
    assert "--label" in done.stderr


def test_folders_that_cannot_be_made(tmp_path):
    (tmp_path / "file").write_text("in the way")
    done = dbull("bench", "batch-digits", "kmeans", "--out", tmp_path / "file")
    assert (done.exit_code, "choose another --out" in done.stderr) == (2, True)
    done = dbull("bench", "batch-digits", "kmeans", "--figure", tmp_path / "file" / "f.png")
    assert (done.exit_code, "cannot be written" in done.stderr) == (2, True)


@pytest.mark.parametrize(
    ("file", "content", "words"),
    [
        ("final.json", "{", "cannot be read"),
        ("final.json", "{}", "'scores' is missing"),
        ("settings.json", "{}", "'scenario' is missing"),
        ("steps.jsonl", "", "changed or cut off"),
    ],
)
def test_damaged_results_are_refused(finished, tmp_path, file, content, words):
    damaged = tmp_path / "copy"
    shutil.copytree(finished, damaged)
    (damaged / "batch-digits" / "kmeans" / "seed-0" / file).write_text(content)
    done = dbull("bench", "--table", damaged, "--figure", tmp_path / "f.png")
    assert done.exit_code == 3
    assert f"{file}: " in done.stderr
    assert words in done.stderr


def test_finished_run_without_its_timings_is_named(finished, tmp_path):
    damaged = tmp_path / "copy"
    shutil.copytree(finished, damaged)
    (damaged / "batch-digits" / "kmeans" / "seed-0" / "timings.jsonl").unlink()
    done = dbull("bench", "batch-digits", "kmeans", "--out", damaged)
    assert (done.exit_code, "timings.jsonl: cannot be read" in done.stderr) == (3, True)


def test_verify_runs_a_result_again(finished, tmp_path):
    folder = finished / "batch-digits" / "kmeans" / "seed-0"
    done = dbull("bench", "--verify", folder, "-q")
    assert (done.exit_code, done.stderr) == (0, "")
    assert "the same, all scores of 1 arrivals" in done.stdout

    other = tmp_path / "other"
    assert dbull("bench", "batch-digits", "kmeans", "--set", "n_clusters=12", "--out", other).exit_code == 0
    other = other / "batch-digits" / "kmeans" / "seed-0"
    settings = json.loads((other / "settings.json").read_text())
    settings["parameters"]["n_clusters"] = 10
    (other / "settings.json").write_text(json.dumps(settings))
    done = dbull("bench", "--verify", other, "-q")
    assert (done.exit_code, done.stdout) == (3, "")
    assert "differs from arrival 1 of 1 on, by up to" in done.stderr

    settings["scenario_fingerprint"] = "0"
    (other / "settings.json").write_text(json.dumps(settings))
    done = dbull("bench", "--verify", other, "-q")
    assert (done.exit_code, "made from other data" in done.stderr) == (3, True)


def test_changed_code_is_refused_unless_allowed(tmp_path, monkeypatch):
    changed = environment.Source("a" * 40, ("src/dbull/x.py",))
    monkeypatch.setattr(environment, "source_of", lambda folder: changed)
    monkeypatch.delenv("DBULL_ALLOW_DIRTY")
    command = ("bench", "batch-digits", "kmeans", "--out", tmp_path / "r", "-q")
    done = dbull(*command)
    assert (done.exit_code, "src/dbull/x.py" in done.stderr) == (2, True)
    assert not (tmp_path / "r").exists()
    assert dbull(*command, "--allow-dirty").exit_code == 0
    (record,) = (tmp_path / "r").rglob("environment.json")
    told = json.loads(record.read_text())
    assert (told["commit"], told["source"]) == ("a" * 40, "changed since the commit: src/dbull/x.py")


def test_paper_lists_and_makes_what_is_asked_for(tmp_path):
    pytest.importorskip("matplotlib", reason="needs the extra dbull[plot]")
    listed = dbull("paper", "--list", "--json")
    assert listed.exit_code == 0, listed.stderr
    table4 = next(row for row in json.loads(listed.stdout) if row["name"] == "table4")
    assert (table4["there"], table4["runs"] % 5) == (0, 0)
    assert "stl10-features" in table4["needs"]
    command = ("paper", "--quick", "--only", "table6", "--runs", tmp_path / "r", "--out", tmp_path / "p")
    done = dbull(*command, "--no-run")
    assert done.exit_code == 0, done.stderr
    assert done.stdout.splitlines() == [
        str(tmp_path / "p" / n) for n in ("table6.tex", "table6.md", "index.html")
    ]
    assert not (tmp_path / "r").exists()


def test_paper_goes_on_when_a_run_fails_and_tells(tmp_path, monkeypatch):
    pytest.importorskip("matplotlib", reason="needs the extra dbull[plot]")

    def failing(*arguments, **more):
        raise NumericalError("the loss is not finite")

    monkeypatch.setattr("dbull.experiments.paper.plan.run", failing)
    done = dbull("paper", "--quick", "--only", "table6", "--runs", tmp_path / "r", "--out", tmp_path / "p")
    assert done.exit_code == 1
    assert done.stderr.count("the loss is not finite") >= 8
    assert (tmp_path / "p" / "index.html").exists()
