"""The command line in a process of its own: imports, exit codes as the caller sees them, kills."""

import contextlib
import json
import os
import pty
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from forked import forked_command
from typer.testing import CliRunner

from dbull.cli import app

TOYS = Path(__file__).parent.parent / "experiments"


def environment(**more):
    kept = {key: value for key, value in os.environ.items() if key not in {"DBULL_DATA", "XDG_CACHE_HOME"}}
    return {
        **kept,
        "PYTHONPATH": os.pathsep.join([str(TOYS), *filter(None, [os.environ.get("PYTHONPATH")])]),
        "OMP_NUM_THREADS": "1",
        "NO_COLOR": "1",
        "COLUMNS": "200",
        **more,
    }


def dbull(*arguments, cwd=None, **variables):
    return subprocess.run(
        [*forked_command(), *map(str, arguments)],
        capture_output=True,
        text=True,
        cwd=cwd,
        env=environment(**variables),
        timeout=600,
        check=False,
    )


def start(command, *arguments, **variables):
    return subprocess.Popen(
        [*command, *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(**variables),
    )


def wait_for_lines(path: Path, n_lines: int, process) -> None:
    while process.poll() is None:
        if path.exists() and path.read_bytes().count(b"\n") >= n_lines:
            return
        time.sleep(0.01)
    raise AssertionError(f"{path} never had {n_lines} lines; exit code {process.poll()}")


HEAVY = ("torch", "sklearn", "scipy.sparse", "matplotlib", "pandas", "polars", "pyarrow", "PIL", "jinja2")


@pytest.mark.parametrize(
    ("arguments", "words", "needless"),
    [(["--help"], "bench", (*HEAVY, "numpy", "scipy")), (["bench", "--list"], "split-digits", HEAVY)],
)
def test_short_answers_import_nothing_heavy(arguments, words, needless):
    """What takes the time of a start is imports."""
    code = (
        f"import sys; sys.argv = ['dbull', *{arguments}]; import dbull.cli\ntry: dbull.cli.main()\n"
        f"finally: print([m for m in {needless} if m in sys.modules])"
    )
    said = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=environment(), check=True
    ).stdout
    assert said.rstrip().endswith("[]")
    assert words in said


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["bench", "split-digits", "kmeans", "--no-such"], 2, "--no-such"),
        (["bench", "split-mnist", "kmeans"], 3, "dbull data get mnist"),
    ],
)
def test_exit_codes_reach_the_caller(arguments, code, words, tmp_path):
    """The others (0, 1, 5, 130, 143) are seen in the tests below."""
    done = dbull(*arguments, cwd=tmp_path, XDG_CACHE_HOME=str(tmp_path / "cache"))
    assert done.returncode == code, done.stderr
    assert words in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


def test_terminal_gets_a_bar_and_the_pipe_only_the_result(tmp_path):
    command = [*forked_command(), "bench", "split-digits", "kmeans", "--out", str(tmp_path)]
    controller, terminal = pty.openpty()
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=terminal, env=environment(TERM="xterm")
    ) as process:
        os.close(terminal)
        shown = b""
        with contextlib.suppress(OSError):  # a terminal whose other end is gone
            while block := os.read(controller, 4096):
                shown += block
        stdout = process.stdout.read().decode()
    os.close(controller)
    assert process.returncode == 0
    assert "━" in shown.decode()
    assert "seed 0: done in" in shown.decode()
    assert stdout.startswith("split-digits: scores in percent")
    assert "done in" not in stdout


def test_terminal_shows_epochs(tmp_path):
    command = [*forked_command(), "bench", "batch-digits", "--method-path", "toy_methods:Epochs"]
    line = re.compile(r"represent +━+\S* +2/4 1:01:05 ELBO -3\.50/row, 7 components, 1,200 rows/s")
    controller, terminal = pty.openpty()
    with subprocess.Popen(
        [*command, "--out", str(tmp_path)],
        stdout=subprocess.PIPE,
        stderr=terminal,
        env=environment(TERM="xterm", TOY_SEEN=str(tmp_path / "seen")),
    ) as process:
        os.close(terminal)
        shown = b""
        with contextlib.suppress(OSError):  # a terminal whose other end is gone
            while block := os.read(controller, 4096):
                shown += block
                text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown.decode(errors="replace"))
                # The fit goes on when the line was seen; without it, when another has been drawn often.
                if line.search(text) or len(shown) > 50_000:
                    (tmp_path / "seen").touch()
        stdout = process.stdout.read().decode()
    os.close(controller)
    assert process.returncode == 0
    assert line.search(text), text
    assert "represent" not in stdout


SLOW = ("bench", "split-digits", "--method-path", "toy_methods:Slow", "--out")


@pytest.fixture(scope="module")
def straight(tmp_path_factory):
    """The folder of a run that nothing interrupted."""
    out = tmp_path_factory.mktemp("straight")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(TOYS))
        done = CliRunner().invoke(app, [*SLOW, str(out)])
    assert done.exit_code == 0, done.stderr
    return out / "split-digits" / "Slow" / "seed-0"


@pytest.mark.parametrize(
    ("number", "code"),
    [(signal.SIGKILL, -9), (signal.SIGINT, 130), (signal.SIGTERM, 143)],
    ids=lambda v: str(v),
)
def test_killed_run_turns_others_away_and_resumes_to_the_same_result(
    tmp_path, monkeypatch, straight, number, code
):
    folder = tmp_path / "split-digits" / "Slow" / "seed-0"
    # Nothing tells of a SIGKILL, not even a client its server.
    command = [sys.executable, "-m", "dbull.cli"] if number == signal.SIGKILL else forked_command()
    process = start(command, *SLOW, tmp_path, TOY_HOLDS="yes")
    monkeypatch.syspath_prepend(str(TOYS))
    try:
        wait_for_lines(folder / "steps.jsonl", 3, process)
        second_writer = CliRunner().invoke(app, [*SLOW, str(tmp_path)])
        process.send_signal(number)
        _, stderr = process.communicate(timeout=600)
    finally:
        process.kill()
    assert process.returncode == code, stderr
    assert "Traceback" not in stderr
    assert not (folder / "final.json").exists()
    assert second_writer.exit_code == 5
    assert "another run is writing" in second_writer.stderr
    table = CliRunner().invoke(app, ["bench", "--table", str(tmp_path)])
    assert "not complete, left out" in table.stderr
    resumed = CliRunner().invoke(app, [*SLOW, str(tmp_path)])
    assert resumed.exit_code == 0, resumed.output
    for name in ("settings.json", "steps.jsonl"):
        assert (folder / name).read_bytes() == (straight / name).read_bytes()
    finals = [json.loads((each / "final.json").read_text()) for each in (folder, straight)]
    assert finals[0].pop("cost")["starts"] == 2
    assert finals[1].pop("cost")["starts"] == 1
    assert finals[0] == finals[1]


def test_unexpected_fault_keeps_its_traceback(tmp_path):
    done = dbull("bench", "split-digits", "--method-path", "toy_methods:Writing", "--out", tmp_path)
    assert done.returncode == 1
    assert "Traceback" in done.stderr
    assert "read-only" in done.stderr
