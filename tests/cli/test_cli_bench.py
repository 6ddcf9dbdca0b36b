"""The command line as its users meet it: in a process of its own, by output and exit code."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

TOYS = Path(__file__).parent.parent / "experiments"


def environment(**more):
    kept = {key: value for key, value in os.environ.items() if key not in {"DBULL_DATA", "XDG_CACHE_HOME"}}
    return {
        **kept,
        "PYTHONPATH": str(TOYS),
        "OMP_NUM_THREADS": "1",
        "NO_COLOR": "1",
        "COLUMNS": "200",
        **more,
    }


def dbull(*arguments, cwd=None, **variables):
    command = [sys.executable, "-m", "dbull.cli", *map(str, arguments)]
    return subprocess.run(
        command,
        capture_output=True,
        text=True,
        cwd=cwd,
        env=environment(**variables),
        timeout=120,
        check=False,
    )


def start(*arguments, **variables):
    command = [sys.executable, "-m", "dbull.cli", *map(str, arguments)]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment(**variables)
    )


def wait_for_lines(path: Path, n_lines: int, process) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and process.poll() is None:
        if path.exists() and path.read_bytes().count(b"\n") >= n_lines:
            return
        time.sleep(0.02)
    raise AssertionError(f"{path} never had {n_lines} lines; exit code {process.poll()}")


def test_help_is_quick_and_imports_nothing_heavy():
    code = "import sys; sys.argv = ['dbull', '--help']; import dbull.cli\ntry: dbull.cli.main()\nfinally:\n"
    code += " print([m for m in ('torch', 'sklearn', 'scipy', 'numpy', 'matplotlib') if m in sys.modules])"
    seconds = []
    for _ in range(3):
        began = time.perf_counter()
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, env=environment(), check=True
        )
        seconds.append(time.perf_counter() - began)
    assert done.stdout.rstrip().endswith("[]")
    assert "bench" in done.stdout
    assert min(seconds) < 0.5


def test_version():
    done = dbull("--version")
    assert done.returncode == 0
    assert done.stdout.startswith("dbull ")


def test_run_then_table_then_figure(tmp_path):
    out = tmp_path / "r"
    done = dbull("bench", "split-digits", "kmeans", "--seeds", "0..1", "--out", out)
    assert done.returncode == 0, done.stderr
    assert "split-digits kmeans seed 1: done in" in done.stderr
    assert done.stdout.splitlines()[0].startswith("split-digits: scores in percent")
    for seed in (0, 1):
        folder = out / "split-digits" / "kmeans" / f"seed-{seed}"
        names = {path.name for path in folder.iterdir() if not path.name.startswith(".")}
        assert names == {"settings.json", "environment.json", "steps.jsonl", "timings.jsonl", "final.json"}
    again = dbull("bench", "split-digits", "kmeans", "--seeds", "0..1", "--out", out)
    assert again.returncode == 0
    assert again.stderr.count("left alone") == 2
    assert again.stdout == done.stdout

    table = dbull("bench", "--table", out, "--json", "--columns", "ari,n_clusters", "--figure", out / "f.png")
    assert table.returncode == 0, table.stderr
    (row,) = json.loads(table.stdout)
    finals = [
        json.loads((out / "split-digits" / "kmeans" / f"seed-{seed}" / "final.json").read_text())
        for seed in (0, 1)
    ]
    assert row["columns"]["ari"]["mean"] == pytest.approx(sum(final["scores"]["ari"] for final in finals) / 2)
    assert row["told_true_k"] is True
    assert (out / "f.png").read_bytes().startswith(b"\x89PNG")


def test_quiet_says_nothing_but_the_result(tmp_path):
    done = dbull("bench", "batch-digits", "kmeans", "--out", tmp_path, "--quiet", "--format", "markdown")
    assert done.stderr == ""
    assert done.stdout.startswith("| scenario | method |")


def test_config_runs_all_its_methods(tmp_path):
    config = tmp_path / "x.toml"
    config.write_text(
        'scenario = "batch-digits"\nseeds = [3]\n[[methods]]\nname = "kmeans"\n'
        '[[methods]]\nname = "kmeans"\nlabel = "kmeans-20"\nsettings = { n_clusters = 20 }\n'
    )
    done = dbull("bench", "--config", config, "--out", tmp_path / "r", "--json", "-q")
    assert done.returncode == 0, done.stderr
    first, second = json.loads(done.stdout)
    assert (first["method"], first["seeds"], first["told_true_k"]) == ("kmeans", [3], True)
    assert (second["method"], second["told_true_k"]) == ("kmeans-20", False)
    assert second["columns"]["n_clusters"]["mean"] == 20


def test_names_are_listed():
    done = dbull("bench", "--list")
    assert done.returncode == 0
    assert {"split-digits", "split-mnist", "kmeans", "dp-mixture"} <= set(done.stdout.split())


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["bench"], 2, "expected SCENARIO METHOD"),
        (["bench", "split-digits"], 2, "expected SCENARIO METHOD, got split-digits"),
        (["bench", "split-digit", "kmeans"], 2, "did you mean 'split-digits'"),
        (["bench", "split-digits", "kmens"], 2, "did you mean 'kmeans'"),
        (["bench", "split-digits", "kmeans", "--set", "n_cluster=3"], 2, "did you mean 'n_clusters'"),
        (["bench", "split-digits", "kmeans", "--set", "n_init=many"], 2, "words need quotes"),
        (["bench", "split-digits", "kmeans", "--seeds", "4..1"], 2, "runs backwards"),
        (["bench", "split-digits", "kmeans", "--format", "html"], 2, "unknown format 'html'"),
        (["bench", "split-digits", "kmeans", "--columns", "arri"], 2, "did you mean 'ari'"),
        (["bench", "split-digits", "kmeans", "--score", "arri"], 2, "did you mean 'ari'"),
        (["bench", "split-digits", "kmeans", "--figure", "f.gif"], 2, "f.gif"),
        (["bench", "split-digits", "kmeans", "--no-such"], 2, "--no-such"),
        (["bench", "split-digits", "--method-path", "toy_methods:Nothing"], 2, "no method"),
        (["bench", "--config", "none.toml"], 2, "none.toml"),
        (["bench", "--config", "none.toml", "--label", "x"], 2, "--config"),
        (["bench", "--table"], 2, "at least one folder"),
        (["bench", "--table", "none"], 2, "none: no such folder"),
        (["bench", "--table", "none", "--seeds", "1"], 2, "--table reads"),
        (["bench", "split-mnist", "kmeans"], 3, "dbull data get mnist"),
        (["bench", "split-digits", "--method-path", "toy_methods:WrongShape"], 1, "WrongShape: predict"),
        (["data", "get", "mnits"], 2, "did you mean 'mnist'"),
        (["data", "verify", "mnist"], 3, "mnist"),
        (["nonsense"], 2, "nonsense"),
    ],
)
def test_exit_code_and_message(arguments, code, words, tmp_path):
    done = dbull(*arguments, cwd=tmp_path, XDG_CACHE_HOME=str(tmp_path / "cache"))
    assert done.returncode == code, done.stderr
    assert words in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


def test_other_settings_in_the_same_folder(tmp_path):
    assert dbull("bench", "batch-digits", "kmeans", "--out", tmp_path).returncode == 0
    done = dbull("bench", "batch-digits", "kmeans", "--out", tmp_path, "--set", "n_init=2")
    assert done.returncode == 2
    assert "'n_init': 10" in done.stderr
    assert "--label" in done.stderr


def test_damaged_results_are_refused(tmp_path):
    assert dbull("bench", "batch-digits", "kmeans", "--out", tmp_path).returncode == 0
    (tmp_path / "batch-digits" / "kmeans" / "seed-0" / "final.json").write_text("{")
    done = dbull("bench", "--table", tmp_path)
    assert done.returncode == 3
    assert "final.json" in done.stderr


SLOW = ("bench", "split-digits", "--method-path", "toy_methods:Slow", "--out")


@pytest.mark.parametrize(
    ("number", "code"),
    [(signal.SIGKILL, -9), (signal.SIGINT, 130), (signal.SIGTERM, 143)],
    ids=lambda v: str(v),
)
def test_killed_run_resumes_to_the_same_result(tmp_path, number, code):
    whole = dbull(*SLOW, tmp_path / "whole")
    assert whole.returncode == 0, whole.stderr
    folder = tmp_path / "cut" / "split-digits" / "Slow" / "seed-0"
    process = start(*SLOW, tmp_path / "cut", TOY_SECONDS="0.3")
    wait_for_lines(folder / "steps.jsonl", 3, process)
    process.send_signal(number)
    _, stderr = process.communicate(timeout=60)
    assert process.returncode == code, stderr
    assert "Traceback" not in stderr
    assert not (folder / "final.json").exists()
    table = dbull("bench", "--table", tmp_path / "cut")
    assert "not complete, left out" in table.stderr

    resumed = dbull(*SLOW, tmp_path / "cut")
    assert resumed.returncode == 0, resumed.stderr
    straight = tmp_path / "whole" / "split-digits" / "Slow" / "seed-0"
    for name in ("settings.json", "steps.jsonl"):
        assert (folder / name).read_bytes() == (straight / name).read_bytes()
    finals = [json.loads((each / "final.json").read_text()) for each in (folder, straight)]
    assert finals[0].pop("cost")["starts"] == 2
    assert finals[1].pop("cost")["starts"] == 1
    assert finals[0] == finals[1]


def test_second_writer_is_turned_away(tmp_path):
    folder = tmp_path / "split-digits" / "Slow" / "seed-0"
    process = start(*SLOW, tmp_path, TOY_SECONDS="0.5")
    try:
        wait_for_lines(folder / "steps.jsonl", 1, process)
        second = dbull(*SLOW, tmp_path)
        assert second.returncode == 5
        assert "another run is writing" in second.stderr
    finally:
        process.kill()
        process.communicate()


def test_unexpected_fault_keeps_its_traceback(tmp_path):
    done = dbull("bench", "split-digits", "--method-path", "toy_methods:Writing", "--out", tmp_path)
    assert done.returncode == 1
    assert "Traceback" in done.stderr
    assert "read-only" in done.stderr
