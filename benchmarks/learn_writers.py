"""Two `dbull learn` at the same moment on one model, again and again: one wins, the other exits 5.

    python benchmarks/learn_writers.py               # 50 pairs

Each learns a file of its own. In half of the pairs both start together; in the other half each waits for the
other just before the one step that decides. The loser repeats its command, as its message says, and in the
end every file has been learned once.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
import tempfile
from collections import Counter
from pathlib import Path
from time import perf_counter

import numpy as np

import dbull.data.readers
import dbull.ingest
import dbull.methods.dbull  # noqa: F401
from dbull.cli import app
from dbull.store import ModelFolder
from writers import findings, meet_before_claim

ROWS = 60
NETWORKS = ("encoder='mlp'", "hidden_dims=[8]", "latent_dim=2", "epochs=2", "joint_epochs=1")
WON, LOST = 0, 5


def learn(model: Path, file: Path, barrier: object | None, narrow: bool) -> None:
    """Run the command line; leave with its exit code."""
    if barrier is not None:
        if narrow:
            meet_before_claim(barrier)
        barrier.wait(60)  # type: ignore[attr-defined]
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    app(["learn", str(model), str(file), "-q", *(part for text in NETWORKS for part in ("--set", text))])


def exit_code_of(*arguments: object) -> int | None:
    """Learn in a process of its own."""
    process = multiprocessing.get_context("fork").Process(target=learn, args=arguments)
    process.start()
    process.join()
    return process.exitcode


def put_file(place: Path, number: int) -> Path:
    """Write a file of two clusters."""
    draw = np.random.default_rng(number)
    path = place / f"{number:05d}.npy"
    np.save(
        path, 15.0 * np.eye(6)[[number % 3, 4]][draw.integers(2, size=ROWS)] + draw.normal(size=(ROWS, 6))
    )
    return path


def run(pairs: int, place: Path) -> tuple[Counter[str], list[str]]:
    """Let pairs of commands learn; return how they ended, and what was wrong."""
    model, processes = place / "model", multiprocessing.get_context("fork")
    ends: Counter[str] = Counter()
    wrong: list[str] = []
    exit_code_of(model, put_file(place, 0), None, False)
    for pair in range(pairs):
        files = [put_file(place, 2 * pair + which + 1) for which in (0, 1)]
        barrier, narrow = processes.Barrier(2), pair % 2 == 1
        both = [processes.Process(target=learn, args=(model, file, barrier, narrow)) for file in files]
        for process in both:
            process.start()
        for process in both:
            process.join()
        codes = [process.exitcode for process in both]
        if sorted(codes, key=str) == [WON, LOST]:
            ends["one won, the other exited 5"] += 1
            again = exit_code_of(model, files[codes.index(LOST)], None, False)
            if again != WON:
                wrong.append(f"pair {pair}: the loser's second try ended with {again}")
        elif codes == [WON, WON] and not narrow:
            ends["one after the other"] += 1  # the second began when the first was done
        else:
            wrong.append(f"pair {pair}: exit codes {codes}")
    folder = ModelFolder(model)
    wrong += findings(folder)
    records = folder.learned().values()
    whole = [record.name for record in records if record.rows]
    if sorted(whole) != sorted(path.name for path in place.glob("*.npy")):
        wrong.append("the inputs learned are not the files")
    if any(record.times != 1 for record in records):
        wrong.append("an input was learned twice")
    arrivals = sum(event["kind"] == "arrival" for event in folder.events())
    if arrivals != 2 * pairs + 1:
        wrong.append(f"{arrivals} arrivals for {2 * pairs + 1} files")
    return ends, wrong


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=50)
    arguments = parser.parse_args()
    started = perf_counter()
    with tempfile.TemporaryDirectory() as place:
        ends, wrong = run(arguments.pairs, Path(place))
    told = ", ".join(f"{end}: {n}" for end, n in ends.items())
    print(f"{arguments.pairs} pairs in {perf_counter() - started:.0f} s; {told}")
    print(f"lost, doubled or damaged: {len(wrong)}")
    for line in wrong[:20]:
        print("  " + line)
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
