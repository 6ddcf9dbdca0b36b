"""Kill `dbull learn` and `dbull watch` with SIGKILL at random moments: nothing damaged, lost or doubled.

    python benchmarks/learn_kills.py                 # 200 kills

Each process is the command line itself, forked from one that has imported everything, so that kills fall into
learning and writing and not into imports. It goes on from what earlier ones left. When a file is learned,
another is put there. At the end the folder must equal, byte for byte, that of a run without kills.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import sys
import tempfile
from pathlib import Path
from time import perf_counter, sleep

import numpy as np

import dbull.data.readers
import dbull.ingest
import dbull.methods.dbull  # noqa: F401
from dbull.cli import app
from dbull.store import ModelFolder
from kills import contents
from writers import findings

ROWS, ARRIVAL_ROWS = 150, 50
NETWORKS = ("encoder='mlp'", "hidden_dims=[8]", "latent_dim=2", "epochs=2", "joint_epochs=1")
FINISHED = 0


def command(mode: str, model: Path, inbox: Path) -> list[str]:
    """Return the arguments of a process that learns all that is in the inbox."""
    settings = [part for text in NETWORKS for part in ("--set", text)]
    settings += ["--arrival-rows", str(ARRIVAL_ROWS), "-q"]
    if mode == "watch":
        return ["watch", str(model), str(inbox), "--once", *settings]
    return ["learn", str(model), *map(str, pending(model, inbox)), *settings]


def pending(model: Path, inbox: Path) -> list[Path]:
    """Return the files that are not learned to their end."""
    known = ModelFolder(model).learned() if ModelFolder(model).generations() else {}
    whole = {record.name for record in known.values() if record.rows == ROWS}
    return [path for path in sorted(inbox.iterdir()) if path.name not in whole]


def start(arguments: list[str]) -> int:
    """Run the command line in a process of its own and return its number."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            app(arguments)
        except SystemExit as stop:
            code = stop.code if isinstance(stop.code, int) else 1
        finally:
            os._exit(code)
    return child


def put_file(inbox: Path, number: int) -> None:
    """Let another file arrive: rows of clusters that come and come again."""
    draw = np.random.default_rng(number)
    centres = 15.0 * np.eye(12)[[number % 5, (number + 1) % 5, 7]]
    np.save(inbox / f"{number:05d}.npy", centres[draw.integers(3, size=ROWS)] + draw.normal(size=(ROWS, 12)))


def run(kills: int, seed: int, place: Path) -> list[str]:
    """Kill many processes, look at the folder after each, and return what was wrong."""
    inbox, model = place / "inbox", place / "model"
    inbox.mkdir()
    put_file(inbox, 0)
    draw, wrong, n_files, done = random.Random(seed), [], 1, 0
    started = perf_counter()
    finish(command("learn", model, inbox), wrong)
    spread = 1.5 * (perf_counter() - started)
    while done < kills:
        put_file(inbox, n_files)
        n_files += 1
        while pending(model, inbox):
            before = ModelFolder(model).latest() or 0
            mode = draw.choice(("learn", "watch"))
            child = start(command(mode, model, inbox))
            sleep(draw.uniform(0, spread))
            os.kill(child, signal.SIGKILL)
            status = os.waitpid(child, 0)[1]
            if not os.WIFSIGNALED(status):
                if os.waitstatus_to_exitcode(status) != FINISHED:
                    wrong.append(f"{mode} ended with {os.waitstatus_to_exitcode(status)}")
                break
            done += 1
            latest = ModelFolder(model).latest() or 0
            if latest < before:
                wrong.append(f"generation {before} was lost")
            for number in range(before + 1, latest + 1):
                ModelFolder(model).load(number)
    finish(command("watch", model, inbox), wrong)
    wrong += aftermath(place, n_files)
    print(f"{done} kills, {n_files} files, {ModelFolder(model).latest()} generations")
    return wrong


def finish(arguments: list[str], wrong: list[str]) -> None:
    """Run a command to its end."""
    code = os.waitstatus_to_exitcode(os.waitpid(start(arguments), 0)[1])
    if code != FINISHED:
        wrong.append(f"{arguments[0]} without a kill ended with {code}")


def aftermath(place: Path, n_files: int) -> list[str]:
    """Return what is wrong with the folder, beside one that was written without any kill."""
    wrong: list[str] = []
    folder = ModelFolder(place / "model")
    wrong += findings(folder)
    arrivals = [event["rows"] for event in folder.events() if event["kind"] == "arrival"]
    if arrivals != [ARRIVAL_ROWS] * (n_files * ROWS // ARRIVAL_ROWS):
        wrong.append(f"{len(arrivals)} arrivals of {sum(arrivals)} rows for {n_files} files of {ROWS}")
    if any(record.times != 1 for record in folder.learned().values()):
        wrong.append("an input was learned twice")
    finish(command("watch", place / "straight", place / "inbox"), wrong)
    if contents(place / "straight") != contents(place / "model"):
        wrong.append("the folder is not that of a straight run")
    return wrong


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    os.environ["SOURCE_DATE_EPOCH"] = "1700000000"  # so that two runs can be compared to the byte
    started = perf_counter()
    with tempfile.TemporaryDirectory() as place:
        wrong = run(arguments.kills, arguments.seed, Path(place))
    seconds = perf_counter() - started
    print(f"{seconds:.0f} s; damaged, lost, doubled or other than in a straight run: {len(wrong)}")
    for line in wrong[:20]:
        print("  " + line)
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
