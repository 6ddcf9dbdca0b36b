"""Commands on models in a process of their own: exit codes as the caller sees them, signals, outputs."""

import os
import signal
import subprocess
import sys

import numpy as np
import pytest
from forked import forked_command
from typer.testing import CliRunner

from dbull.cli import app
from dbull.store import ModelFolder


def start(*arguments):
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "NO_COLOR": "1"}
    return subprocess.Popen(
        [*forked_command(), *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    )


def run(*arguments):
    process = start(*arguments)
    out, err = process.communicate(timeout=600)
    return process.returncode, out, err


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("process")
    random = np.random.default_rng(0)
    for name, centres in {"a": (0, 20), "b": (20, 40)}.items():
        np.save(folder / f"{name}.npy", np.concatenate([random.normal(size=(40, 3)) + c for c in centres]))
    done = CliRunner().invoke(app, ["learn", str(folder / "model"), str(folder / "a.npy")])
    assert done.stdout.startswith("generation 1: a.npy, 80 rows, 2 clusters"), done.output
    return folder


def test_condition_and_refusal(place):
    code, out, err = run("learn", place / "model", place / "b.npy", "--fail-on", "new-cluster", "-q")
    assert (code, err) == (6, "")
    assert "new: 2" in out
    code, out, err = run("learn", place / "model", place / "b.npy", "-q")
    assert (code, out) == (3, "")
    assert err.count("\n") == 1, "one line and no traceback"


@pytest.mark.parametrize(
    ("arguments", "code"),
    [(["history", "nothing-here"], 4), (["events"], 2), (["events", "x", "--kind", "bith"], 2)],
)
def test_codes_without_a_model(arguments, code):
    assert run(*arguments)[0] == code


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_watch_that_is_stopped(place, number, code):
    (place / "inbox").mkdir(exist_ok=True)
    process = start("watch", place / "model", place / "inbox")
    try:
        assert "watching" in process.stderr.readline()
        process.send_signal(number)
        _, err = process.communicate(timeout=600)
    finally:
        process.kill()
    assert process.returncode == code
    assert "Traceback" not in err
    assert ModelFolder(place / "model").check().ok


def test_an_interrupt_inside_an_exec_of_text(tmp_path):
    """`python -m` ends by SIGINT if a plain KeyboardInterrupt passed through an `exec`, caught or not."""
    (tmp_path / "command.py").write_text(
        "import os, signal, time, typer\n"
        "from dbull.cli.exits import exit_codes\n"
        "def command():\n"
        "    with exit_codes():\n"
        "        exec('os.kill(os.getpid(), signal.SIGINT); time.sleep(600)')\n"
        "typer.run(command)\n"
    )
    ended = subprocess.run(
        [sys.executable, "-m", "command"], capture_output=True, text=True, timeout=600, cwd=tmp_path
    )
    assert (ended.returncode, ended.stderr.startswith("interrupted:")) == (130, True), ended.stderr
