"""How a model folder grows: its size, what a commit costs, and how long history and load take.

    python benchmarks/growth.py

Size: 1,000 arrivals of 20 rows of 5 columns, learned by `DBULL` and saved one by one, nothing pruned. Cost:
commits of small tensors at 10, 1,000 and 10,000 generations, each with an input learned. Times: CPU
time of `dbull history` as a process, and of `dbull.load` in one that has imported everything, at 4,000.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median
from time import perf_counter, process_time

import numpy as np
import torch

import dbull
from dbull import DBULL
from dbull.methods.storage import Provenance, save
from dbull.store import Checkpoint, LearnedInput, Manifest, ModelFolder
from dbull.store.layout import hash_bytes

MOST_BYTES = 10 * 10**6
MOST_SECONDS = {"history": 2.0, "load": 0.2}
TIMED = 30  # commits around each count


def checkpoint(number: int, like: Checkpoint) -> Checkpoint:
    """Return what a small arrival would change of a model."""
    learner = {**like.documents["learner"], "n_rows": number}
    mixture = {name: part + torch.tensor(number) for name, part in like.tensors["mixture"].items()}
    return Checkpoint(
        tensors={**like.tensors, "mixture": mixture},
        documents={**like.documents, "learner": learner},
        events=[event for event in like.events if event["kind"] == "arrival"],
        settings=like.settings,
        learned_inputs=[LearnedInput(hash_bytes(b"%d" % number), f"file-{number}.csv", 20, 1000)],
        ids_given=like.ids_given,
    )


def learn(path: Path, arrivals: int) -> DBULL:
    """Learn small arrivals into a folder, one generation each."""
    draw = np.random.default_rng(0)
    centres = 10.0 * draw.normal(size=(4, 5))
    model = DBULL(random_state=0)
    for number in range(arrivals):
        model.partial_fit(centres[draw.integers(4, size=20)] + draw.normal(size=(20, 5)))
        learned = [LearnedInput(hash_bytes(b"%d" % number), f"file-{number}.csv", 20, 1000)]
        save(model, path, f"file-{number}.csv", Provenance(learned))
    return model


def size_of(path: Path) -> tuple[int, int, int]:
    """Return the bytes of all files of a folder, how many there are, and the bytes of their blocks."""
    found = [p.lstat() for p in path.rglob("*") if p.is_file()]
    return sum(f.st_size for f in found), len(found), 512 * sum(f.st_blocks for f in found)


def commits(folder: ModelFolder, like: Checkpoint, counts: list[int]) -> dict[int, float]:
    """Write generations, and return the median seconds of a commit around each count."""
    parent: Manifest | None = None
    seconds: dict[int, float] = {}
    for count in counts:
        times: list[float] = []
        while len(times) < TIMED:
            number = 1 if parent is None else parent.generation + 1
            content, started = checkpoint(number, like), perf_counter()
            parent = folder.commit(content, parent)
            if number > count - TIMED // 2:
                times.append(perf_counter() - started)
        seconds[count] = median(times)
    return seconds


def times_at(path: Path, model: DBULL, generations: int) -> dict[str, float]:
    """Return the seconds of history and load of a model of many generations."""
    for _ in range(generations - (ModelFolder(path).latest() or 0)):
        save(model, path)
    dbull.load(path)
    started = process_time()
    dbull.load(path)
    load = process_time() - started
    before = os.times()
    command = [sys.executable, "-m", "dbull.cli", "history", str(path)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    after = os.times()
    spent = after.children_user + after.children_system - before.children_user - before.children_system
    return {"history": spent, "load": load}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--arrivals", type=int, default=1000)
    parser.add_argument("--counts", type=int, nargs="+", default=[10, 1000, 10_000])
    parser.add_argument("--generations", type=int, default=4000)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        model = learn(Path(place) / "model", arguments.arrivals)
        size, n_files, blocks = size_of(Path(place) / "model")
        print(
            f"{arguments.arrivals} arrivals of 20 x 5: {size / 1e6:.2f} MB in {n_files} files "
            f"({n_files / arguments.arrivals:.1f} each), {blocks / 1e6:.1f} MB of disk blocks"
        )
        like = ModelFolder(Path(place) / "model").load().checkpoint
        costs = commits(ModelFolder(Path(place) / "commits"), like, arguments.counts)
        for count, seconds in costs.items():
            print(f"a commit at {count} generations: {1e3 * seconds:.2f} ms")
        times = times_at(Path(place) / "model", model, arguments.generations)
        for name, seconds in times.items():
            print(f"{name} at {arguments.generations} generations: {seconds:.3f} s")
    slow = [name for name, limit in MOST_SECONDS.items() if times[name] > limit]
    return bool(slow) or size > MOST_BYTES * arguments.arrivals / 1000


if __name__ == "__main__":
    sys.exit(main())
