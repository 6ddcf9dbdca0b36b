"""``learn --whole`` and ``predict`` in parts: through files, once, by any number of workers."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest
from typer.testing import CliRunner

import dbull
from dbull.cli import app
from dbull.ingest.learner import LAPS
from dbull.store import ModelFolder
from pages import run_page

pandas, pyarrow = pytest.importorskip("pandas"), pytest.importorskip("pyarrow.parquet")
SIZES = ("--sample-rows", "400", "--block-rows", "500")


def test_the_page(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    run_page("docs/scale.md")
    said = capsys.readouterr().out
    assert "{0: 14940, 1: 15000, 2: 60}" in said
    assert "'cluster': array([2])" in said
    assert sorted(os.listdir("answers"))[0] == "_plan.json"


def run(*words):
    return CliRunner().invoke(app, [*map(str, words)])


@pytest.fixture
def days(tmp_path, monkeypatch):
    """Three files; the second has a few rows of another kind."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    for day in range(3):
        parts = [rng.normal(size=(600, 3)) + centre for centre in (0, 15)]
        rare = [0.3 * rng.normal(size=(25, 3)) + 60] if day == 1 else []
        rows = rng.permutation(np.concatenate(parts + rare))
        frame = pandas.DataFrame(rows, columns=list("abc")).assign(
            id=[f"{day}/{i}" for i in range(len(rows))]
        )
        frame.to_parquet(f"day-{day}.parquet", row_group_size=400)
    return tmp_path


def learned(*more):
    return run("learn", "model", "day-*.parquet", "--whole", "--key", "id", *SIZES, "--json", *more)


def test_all_files_are_one_arrival_learned_once(days):
    assert learned("--dry-run").exit_code == 0
    assert not (days / "model").exists()
    result = learned()
    assert result.exit_code == 0, result.stderr
    told = json.loads(result.stdout)
    assert (told["rows"], told["n_clusters"], told["generation"]) == (3625, 3, 1)
    assert told["name"] == "day-0.parquet and 2 more"
    assert sorted(told["rows_per_cluster"].values()) == [25, 1800, 1800]
    assert not (days / "model" / LAPS).exists()
    assert run("check", "model").exit_code == 0
    assert learned().exit_code == 3
    pandas.read_parquet("day-0.parquet").head(30).to_parquet("day-3.parquet")
    again = json.loads(learned().stdout)  # the others are left out
    assert (again["rows"], again["name"], again["generation"]) == (30, "day-3.parquet", 2)
    pandas.read_parquet("day-3.parquet").head(20).to_parquet("day-3.parquet")
    grown = learned()
    assert grown.exit_code == 3
    assert "without --whole" in grown.stderr
    assert run("learn", "model", "day-2.parquet", "--key", "id").exit_code == 3  # nor one by one
    assert dbull.load("model").exemplars_[0][0].key.count("/") == 1


def test_a_stop_goes_on_with_the_laps_and_workers_change_no_byte(days, monkeypatch):
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
    code = (
        "import os, signal, sys\n"
        "from dbull.methods.scale import _Arrival\n"
        "from dbull.cli import main\n"
        "_Arrival._finish = lambda *given: os.kill(os.getpid(), signal.SIGKILL)\n"
        "main()"
    )
    words = ["learn", "model", "day-*.parquet", "--whole", "--key", "id", *SIZES]
    stopped = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, check=False)
    assert stopped.returncode == -9, stopped.stderr
    assert ModelFolder("model").latest() is None
    assert (days / "model" / LAPS).is_dir()
    assert learned().exit_code == 0
    os.rename("model", "stopped")
    result = learned("--workers", "2")
    assert result.exit_code == 0, result.stderr
    assert ModelFolder("model").manifest(1).sha256 == ModelFolder("stopped").manifest(1).sha256


def test_parts_are_the_answers_of_one_process(days):
    assert learned().exit_code == 0
    assert run("predict", "model", "day-*.parquet", "-o", "one.parquet").exit_code == 0
    result = run("predict", "model", "day-*.parquet", "-o", "parts", "--workers", "2")
    assert result.exit_code == 0, result.stderr
    names = sorted(name for name in os.listdir("parts") if name.endswith(".parquet"))
    assert names == ["part-000000.parquet", "part-000001.parquet", "part-000002.parquet"]
    parts = pandas.concat([pandas.read_parquet(f"parts/{name}") for name in names], ignore_index=True)
    pandas.testing.assert_frame_equal(parts, pandas.read_parquet("one.parquet"))
    first = (days / "parts" / names[0]).read_bytes()
    os.unlink(f"parts/{names[0]}")
    again = run("predict", "model", "day-*.parquet", "-o", "parts")
    assert "1 parts, 2 were there" in again.stderr
    assert (days / "parts" / names[0]).read_bytes() == first
    other = run("predict", "model", "day-*.parquet", "-o", "parts", "--flag-outliers")
    assert other.exit_code == 2
    assert "name another folder" in " ".join(other.stderr.split())


def test_one_large_csv_file_is_answered_in_parts(days):
    assert learned().exit_code == 0
    pandas.read_parquet("day-0.parquet").sample(60_000, replace=True, random_state=0).to_csv("all.csv")
    assert run("predict", "model", "all.csv", "-o", "one.parquet", "--no-scores").exit_code == 0
    result = run("predict", "model", "all.csv", "-o", "parts", "--no-scores", "--workers", "2")
    assert result.exit_code == 0, result.stderr
    parts = [pandas.read_parquet(f"parts/part-{i:06}.parquet") for i in range(2)]
    assert [len(part) for part in parts] == [50_000, 10_000]
    joined = pandas.concat(parts, ignore_index=True)
    pandas.testing.assert_frame_equal(joined, pandas.read_parquet("one.parquet"))


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("learn", "model", "day-0.parquet", "--workers", "2"), "go with --whole"),
        (("predict", "model", "day-0.parquet", "--workers", "2"), "name one with -o"),
        (("predict", "model", "day-0.parquet", "-o", "parts", "--append"), "one file of answers"),
        (("learn", "m", "day-0.parquet", "--whole", "--sample-rows", "3"), "sample_rows must be"),
    ],
)
def test_options_that_do_not_go_together_are_refused(days, words, told):
    result = run(*words)
    assert result.exit_code == 2
    assert told in " ".join(result.stderr.split())


def test_a_scheduler_that_is_not_there_is_told(days):
    pytest.importorskip("dask.distributed")
    from dask import config

    with config.set({"distributed.comm.timeouts.connect": "1s"}):
        result = run("learn", "m", "day-0.parquet", "--whole", "--scheduler", "tcp://127.0.0.1:1")
    assert result.exit_code == 2
    assert "no scheduler of Dask" in " ".join(result.stderr.split())
