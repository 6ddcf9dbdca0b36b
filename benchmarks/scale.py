"""Arrivals larger than memory: rare clusters, quality in blocks, memory, and what workers bring.

    python benchmarks/scale.py [--only rare mnist memory workers] [--rows 1000000 4000000 16000000]

Rare: 100 rows of a kind among 1,000,000. MNIST: the scenario batch-mnist in blocks, of which a sample is
learned, and as one array, scored on the images held out (needs DBULL_DATA). Memory: peak of a process that
learns files of 50 columns, by length. Workers: rows per second of the same lap by 1, 2 and 4 processes,
with how busy the machine was; the same bits from all of them.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import pickle
import resource
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter, process_time

import joblib
import numpy as np

from dbull import DBULL, Source
from dbull.data.scenarios import scenario
from dbull.lifelong.blocks import Added, Lap
from dbull.lifelong.sketches import summed
from dbull.methods.block_work import AddUp, slim_model
from dbull.methods.dbull_choices import choose_again
from dbull.methods.engine import over_blocks
from dbull.metrics import clustering_scores

WORKERS = (1, 2, 4)
MOST_BYTES = 2e9
LEAST_SPEEDUP = 1.7
SCORES = ("nmi_geometric", "ari", "accuracy_hungarian")


def rows_of(n_rows: int, n_columns: int, seed: int, n_clusters: int = 10) -> np.ndarray:
    """Return rows of as many kinds, shuffled."""
    centres = 5 * np.random.default_rng(0).normal(size=(n_clusters, n_columns))
    rng = np.random.default_rng(seed)
    kinds = rng.integers(n_clusters, size=n_rows)
    return (rng.normal(size=(n_rows, n_columns)) + centres[kinds]).astype(np.float32)


def written(folder: Path, n_rows: int, n_columns: int, per_file: int = 1_000_000) -> list[str]:
    """Write rows to .npy files, and return their names."""
    paths = []
    for i, start in enumerate(range(0, n_rows, per_file)):
        path = folder / f"{i:03}.npy"
        np.save(path, rows_of(min(per_file, n_rows - start), n_columns, seed=1 + i))
        paths.append(str(path))
    return paths


def rare() -> bool:
    """Hide 100 rows of a kind among a million, and see whether they are found."""
    found = []
    for n_columns, n_rows in ((10, 1_000_000), (50, 1_000_000)):
        rows = rows_of(n_rows, n_columns, seed=1)
        rows[::10_000] = 12.0 + 0.5 * np.random.default_rng(2).normal(size=(len(rows[::10_000]), n_columns))
        started = perf_counter()
        model = DBULL(random_state=0, epochs="auto" if n_columns == 10 else 10).fit(Source(rows))
        ids, counts = np.unique(model.predict(rows[::10_000]), return_counts=True)
        alone = model.report_.rows[int(ids[0])] if len(ids) == 1 else 0
        print(
            f"{n_columns} columns: {model.n_clusters_} clusters (11 are there), the rare one has {alone} "
            f"rows (100), {perf_counter() - started:.0f} s"
        )
        found.append(len(ids) == 1 and alone == counts[0] == 100 and model.n_clusters_ == 11)
    return all(found)


def mnist(seeds: list[int]) -> bool:
    """Learn MNIST in blocks and as an array; say how both do on held-out images."""
    means: dict[str, list[dict[str, float]]] = {"blocks": [], "array": []}
    for seed in seeds:
        stream = scenario("batch-mnist", seed)
        rows, held_out = stream.arrivals[0].x, stream.held_out[0]
        for name, given in (("blocks", Source(rows, block_rows=10_000)), ("array", rows)):
            started = perf_counter()
            model = DBULL(image_shape=(28, 28), random_state=seed).fit(given)
            scores = clustering_scores(held_out.y_true, model.predict(held_out.x))
            means[name].append(scores)
            shown = ", ".join(f"{part} {100 * scores[part]:.1f}" for part in SCORES)
            taken = perf_counter() - started
            print(f"seed {seed}, {name}: {shown}, K {model.n_clusters_}, {taken:.0f} s", flush=True)
    blocks, array = ({part: np.mean([one[part] for one in of]) for part in SCORES} for of in means.values())
    print(
        "blocks minus array:",
        ", ".join(f"{part} {100 * (blocks[part] - array[part]):+.2f}" for part in SCORES),
    )
    return all(blocks[part] >= array[part] - 0.005 for part in SCORES)


def memory(lengths: list[int]) -> bool:
    """Learn ever longer sources, each in a process of its own, and say how much memory that takes."""
    small = []
    for n_rows in lengths:
        with tempfile.TemporaryDirectory() as folder:
            paths = written(Path(folder), n_rows, 50)
            call = [sys.executable, __file__, "--only", "one", "--files", *paths]
            done = subprocess.run(call, check=True, capture_output=True, text=True)
        told = json.loads(done.stdout)
        sys.stdout.flush()
        small.append(told["bytes"] < MOST_BYTES)
        print(
            f"{n_rows:,} rows x 50: {told['bytes'] / 1e9:.2f} GB, {told['seconds']:.0f} s, "
            f"{told['clusters']} clusters (10 are there), laps at {told['rate']:,.0f} rows/s"
        )
    return all(small)


def one(paths: list[str]) -> None:
    """Learn files, and print what it took as JSON."""
    started = perf_counter()
    model = DBULL(random_state=0, epochs=10).fit(Source(paths))
    rates = [step.rows_per_second for step in model.history_ if step.stage.startswith("lap")]
    told = {
        "bytes": 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss,
        "seconds": perf_counter() - started,
        "clusters": model.n_clusters_,
        "rate": rates[-1],
        "state": fingerprint(model),
    }
    print(json.dumps(told))


def workers(n_rows: int, n_rounds: int) -> bool:
    """Time the same lap by several processes, in turn and several times; the best of each counts."""
    best: dict[int, tuple[float, float]] = {}
    seen = set()
    with tempfile.TemporaryDirectory() as folder:
        source = Source(written(Path(folder), n_rows, 50), block_rows=25_000)
        model = DBULL(random_state=0, epochs=2).fit(source)
        lap = Lap(model.state_, model.state_, choose_again(model, model.state_, n_rows)[0], n_rows)
        work, blocks = AddUp(slim_model(model, None), lap, 0), source.blocks()
        print(
            f"{n_rows:,} rows x 50 in {len(blocks)} blocks; sent once: {len(pickle.dumps(work)) / 1e6:.2f} MB"
        )
        size = len(pickle.dumps(summed(over_blocks(work, blocks[:1]))))
        print(f"each block gives back {size / 1e6:.2f} MB")
        for n_jobs in WORKERS * n_rounds:
            with joblib.parallel_config(backend="loky", n_jobs=n_jobs):
                list(over_blocks(work, blocks[: 2 * n_jobs]))  # who is asleep wakes up
                before, started, own = _machine(), perf_counter(), process_time()
                told = list(over_blocks(joblib.wrap_non_picklable_objects(Timed(work)), blocks))
                seconds, own = perf_counter() - started, process_time() - own
            total, inside = summed(added for added, _ in told), sum(taken for _, taken in told)
            own -= inside if n_jobs == 1 else 0.0
            busy = (_machine() - before) / (seconds * (os.cpu_count() or 1))
            rate = n_rows / seconds
            print(
                f"{n_jobs} workers: {rate:,.0f} rows/s while the machine was {busy:.0%} busy; processor "
                f"seconds {inside:.2f} in blocks, {own:.2f} beside",
                flush=True,
            )
            best[n_jobs] = max(best.get(n_jobs, (0.0, 0.0)), (rate, busy))
            seen.add(b"".join(part.numpy().tobytes() for part in total.stats.parts))
    print(f"{len(seen)} different results")
    for n_jobs, (rate, _) in best.items():
        print(f"{n_jobs} workers at best: {rate:,.0f} rows/s, {rate / best[1][0]:.2f} times as fast as 1")
    return best[2][0] >= LEAST_SPEEDUP * best[1][0] and len(seen) == 1


@dataclass(frozen=True)
class Timed:
    """Work on a block, and the processor seconds that it took."""

    work: AddUp

    def __call__(self, number: int, block: object, told: None) -> tuple[Added | None, float]:
        """Return what the block adds, and the seconds."""
        started = process_time()
        return self.work(number, block, told), process_time() - started


def _machine() -> float:
    """Return the seconds of processor time that everybody used so far."""
    ticks = [int(part) for part in Path("/proc/stat").read_text().splitlines()[0].split()[1:]]
    return (sum(ticks) - ticks[3] - ticks[4]) / float(os.sysconf("SC_CLK_TCK"))


def fingerprint(model: DBULL) -> str:
    """Return a hash of the statistics and the clusters of a model."""
    digest = hashlib.sha256(repr(model.report_.rows).encode())
    for part in model.state_.memory.overall.parts:
        digest.update(part.numpy().tobytes())
    return digest.hexdigest()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", default=["rare", "mnist", "memory", "workers"])
    parser.add_argument("--rows", nargs="+", type=int, default=[1_000_000, 4_000_000, 16_000_000])
    parser.add_argument("--seeds", nargs="+", type=int, default=[10, 11, 12])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--files", nargs="+", help=argparse.SUPPRESS)
    given = parser.parse_args()
    parts = {
        "rare": rare,
        "mnist": lambda: mnist(given.seeds),
        "memory": lambda: memory(given.rows),
        "workers": lambda: workers(min(given.rows), given.rounds),
    }
    if given.only == ["one"]:
        one(given.files)
        return
    missed = [name for name in given.only if not parts[name]()]
    sys.exit(f"missed: {', '.join(missed)}" if missed else 0)


if __name__ == "__main__":
    main()
