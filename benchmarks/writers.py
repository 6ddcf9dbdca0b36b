"""Two processes write the next generation at the same moment, again and again: one wins, nothing is lost.

    python benchmarks/writers.py               # 50 pairs

In half of the pairs both start together. In the other half each waits for the other just before the one step
that decides, so that the race is as narrow as it can be.
"""

from __future__ import annotations

import argparse
import multiprocessing
import sys
import tempfile
from collections import Counter
from pathlib import Path
from time import perf_counter

import torch

from dbull.errors import ConflictError
from dbull.store import Checkpoint, LearnedInput, ModelFolder, writing
from dbull.store.layout import hash_bytes

WON, LOST, FAULT = 0, 5, 1


def checkpoint(pair: int, writer: int) -> Checkpoint:
    """Return what a writer writes; nobody else writes the same."""
    name = f"pair {pair}, writer {writer}"
    return Checkpoint(
        tensors={"networks": {"weights": torch.full((50, 1000), float(2 * pair + writer))}},
        documents={"clusters": {"by": name}},
        events=[{"kind": "arrival", "by": name}],
        learned_inputs=[LearnedInput(hash_bytes(name.encode()), name, 1)],
    )


def meet_before_claim(barrier: object) -> None:
    """Make this process wait for the other one just before the step that decides between them."""
    claim = writing._claim

    def claim_together(temp: Path, target: Path) -> None:
        barrier.wait(60)  # type: ignore[attr-defined]
        claim(temp, target)

    writing._claim = claim_together


def findings(folder: ModelFolder) -> list[str]:
    """Return what `check` has to say about a folder."""
    report = folder.check()
    return [f"check: {finding.path}: {finding.text}" for finding in (*report.problems, *report.notes)]


def write(path: Path, pair: int, writer: int, barrier: object, narrow: bool) -> None:
    """Write the next generation, and tell by the exit code whether that was won."""
    folder = ModelFolder(path)
    content = checkpoint(pair, writer)
    parent = folder.latest()
    if narrow:
        meet_before_claim(barrier)
    barrier.wait(60)  # type: ignore[attr-defined]
    try:
        folder.commit(content, parent)
    except ConflictError:
        sys.exit(LOST)
    except BaseException as error:
        print(f"{type(error).__name__}: {error}")
        sys.exit(FAULT)
    sys.exit(WON)


def run(pairs: int, place: Path) -> tuple[Counter[str], list[str]]:
    """Let pairs of processes write; return how they ended, and what was wrong."""
    path = place / "model"
    folder = ModelFolder(path)
    processes = multiprocessing.get_context("fork")
    ends: Counter[str] = Counter()
    wrong, names = [], []
    for pair in range(pairs):
        barrier = processes.Barrier(2)
        narrow = pair % 2 == 1
        both = [processes.Process(target=write, args=(path, pair, w, barrier, narrow)) for w in (0, 1)]
        for process in both:
            process.start()
        for process in both:
            process.join()
        codes = [process.exitcode for process in both]
        ends["narrow" if narrow else "wide"] += sorted(map(str, codes)) == ["0", "5"]
        if sorted(map(str, codes)) != ["0", "5"]:
            wrong.append(f"pair {pair}: exit codes {codes}")
            continue
        winner = codes.index(WON)
        names.append(f"pair {pair}, writer {winner}")
        loaded = folder.load()
        expected = checkpoint(pair, winner)
        if loaded.generation != pair + 1 or loaded.checkpoint.documents != expected.documents:
            wrong.append(f"pair {pair}: generation {loaded.generation} is not that of the winner")
        if not torch.equal(
            loaded.checkpoint.tensors["networks"]["weights"], expected.tensors["networks"]["weights"]
        ):
            wrong.append(f"pair {pair}: tensors are not those of the winner")
    wrong += aftermath(folder, names)
    return ends, wrong


def aftermath(folder: ModelFolder, names: list[str]) -> list[str]:
    """Return what is wrong with a folder in which exactly the named writers have won."""
    wrong = findings(folder)
    if [entry.name for entry in folder.learned().values()] != names:
        wrong.append("the inputs learned are not those of the winners")
    if [event["by"] for event in folder.events()] != names:
        wrong.append("the events are not those of the winners")
    log = (folder.path / "events.jsonl").read_bytes()
    parts = [(folder.folder(n) / "events.jsonl").read_bytes() for n in folder.generations()]
    if log != b"".join(parts):
        wrong.append("the event log is not the events of the generations")
    return wrong


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=50)
    arguments = parser.parse_args()
    started = perf_counter()
    with tempfile.TemporaryDirectory() as place:
        ends, wrong = run(arguments.pairs, Path(place))
    print(f"{arguments.pairs} pairs of writers in {perf_counter() - started:.0f} s")
    print(
        f"one won and the other was told (exit 5): {sum(ends.values())}; {ends['narrow']} in the narrow race"
    )
    print(f"anything wrong: {len(wrong)}")
    for line in wrong[:20]:
        print("  " + line)
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
