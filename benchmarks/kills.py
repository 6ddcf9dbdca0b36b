"""Kill a process that writes generations, at random moments: nothing damaged, lost or doubled.

    python benchmarks/kills.py                 # 200 kills with SIGKILL

Each process goes on from the newest generation, as `learn` does after a kill. A pipe tells which generations
it had been told were written. At the end the whole folder must equal, byte for byte, that of a run without
kills.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter, sleep

import torch

from dbull.store import Checkpoint, LearnedInput, ModelFolder
from dbull.store.layout import WRITING, hash_bytes

VALUES = 200_000  # 800 kB in float32: long enough a write for kills to fall into it


@dataclass
class Outcome:
    """What the kills met."""

    kills: int = 0
    generations: int = 0
    in_a_write: int = 0  # kills that left an unfinished generation behind
    before_told: int = 0  # kills between the generation's name and the answer to the caller
    log_behind: int = 0  # kills that left the event log behind the generations
    wrong: list[str] = field(default_factory=list)


def checkpoint(number: int, before: torch.Tensor | None) -> Checkpoint:
    """Return the checkpoint of a generation as a function of the one before, as learning would."""
    start = torch.zeros(VALUES) if before is None else before
    random_numbers = torch.Generator().manual_seed(number)
    return Checkpoint(
        tensors={"networks": {"weights": start + torch.randn(VALUES, generator=random_numbers)}},
        documents={"clusters": {"number": number}},
        events=[{"kind": "arrival", "number": number}, {"kind": "birth", "clusters": [number]}],
        learned_inputs=[LearnedInput(hash_bytes(b"%d" % number), f"file-{number}", 10)],
        ids_given=number,
    )


def write_on(folder: ModelFolder, tell: int | None = None, until: int | None = None) -> None:
    """Write generations from where the folder stands, and tell of each."""
    weights, parent = None, folder.latest()
    if parent is not None:
        weights = folder.load().checkpoint.tensors["networks"]["weights"]
    while until is None or (parent or 0) < until:
        following = checkpoint((parent or 0) + 1, weights)
        parent = folder.commit(following, parent).generation
        weights = following.tensors["networks"]["weights"]
        if tell is not None:
            os.write(tell, b"%d\n" % parent)


def kill_once(folder: ModelFolder, delay: float) -> int:
    """Let a process write, kill it, and return the last generation that it was told of."""
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(read_end)
        try:
            write_on(folder, write_end)
        finally:
            os._exit(1)  # only a fault gets here
    os.close(write_end)
    sleep(delay)
    os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    with os.fdopen(read_end) as pipe:
        told = pipe.read().split()
    if not os.WIFSIGNALED(status):
        raise RuntimeError("the writer ended by itself, so it met a fault")
    return int(told[-1]) if told else 0


def run(kills: int, seed: int, place: Path) -> Outcome:
    """Kill a writer many times and look at the folder after each."""
    folder = ModelFolder(place / "model")
    draw, outcome = random.Random(seed), Outcome(kills=kills)
    started = perf_counter()
    write_on(folder, until=3)
    spread = 2 * (perf_counter() - started)  # kills fall anywhere into the first six writes of a process
    newest = 3
    for _ in range(kills):
        told = kill_once(folder, draw.uniform(0, spread))
        latest = folder.latest() or 0
        outcome.in_a_write += any((folder.path / WRITING).iterdir())
        outcome.before_told += latest > max(told, newest)
        if latest < max(told, newest) or latest > max(told, newest) + 1:
            outcome.wrong.append(f"told of {told}, before {newest}, but the newest is {latest}")
        for number in range(newest + 1, latest + 1):
            loaded = folder.load(number).checkpoint
            if loaded.documents["clusters"]["number"] != number:
                outcome.wrong.append(f"generation {number} holds {loaded.documents}")
        told_log = sum((folder.folder(n) / "events.jsonl").stat().st_size for n in folder.generations())
        outcome.log_behind += (folder.path / "events.jsonl").stat().st_size < told_log
        newest = latest
    write_on(folder, until=newest + 1)
    outcome.generations = newest + 1
    outcome.wrong += aftermath(folder, place / "straight", newest + 1)
    return outcome


def aftermath(folder: ModelFolder, place: Path, count: int) -> list[str]:
    """Return what is wrong with the folder, beside one that was written without any kill."""
    report = folder.check()
    wrong = [f"check: {finding.path}: {finding.text}" for finding in (*report.problems, *report.notes)]
    if report.generations != tuple(range(1, count + 1)):
        wrong.append(f"generations are {report.generations}")
    learned = folder.learned().values()
    if [(r.generation, r.times) for r in learned] != [(n, 1) for n in range(1, count + 1)]:
        wrong.append("an input was learned twice or not at all")
    straight = ModelFolder(place)
    write_on(straight, until=count)
    if contents(straight.path) != contents(folder.path):
        wrong.append("the folder is not that of a straight run")
    return wrong


def contents(path: Path) -> dict[str, str]:
    """Return the hash of every file of a folder."""
    return {str(p.relative_to(path)): hash_bytes(p.read_bytes()) for p in path.rglob("*") if p.is_file()}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    started = perf_counter()
    with tempfile.TemporaryDirectory() as place:
        outcome = run(arguments.kills, arguments.seed, Path(place))
    print(f"{outcome.kills} kills in {perf_counter() - started:.0f} s, {outcome.generations} generations")
    print(f"{outcome.in_a_write} kills left an unfinished generation, all removed by the next writer")
    print(f"{outcome.before_told} generations were there though their writer was never told")
    print(f"{outcome.log_behind} kills left the event log behind, all made up by the next writer")
    print(f"anything damaged, lost, doubled or other than in a straight run: {len(outcome.wrong)}")
    for line in outcome.wrong[:20]:
        print("  " + line)
    return bool(outcome.wrong)


if __name__ == "__main__":
    sys.exit(main())
