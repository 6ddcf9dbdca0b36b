"""A whole `DBULL.fit` of many rows by its stages: seconds, CPU seconds and memory; and what the index misses.

    python benchmarks/index.py [--rows 100000 1000000] [--threads 2] [--graph-index auto]

Rows: 100 clusters in 64 columns, bent and of 2 to 8 dimensions each, the largest with 15 % of the rows, the
smallest with 0.05 %. Labels are used for the scores at the end only. CPU seconds are those of all threads; on
a machine that is busy with other work they say more than the clock.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import time

import numpy as np
import torch
from sklearn.metrics import adjusted_rand_score, normalized_mutual_info_score

from dbull import DBULL
from dbull.lifelong.index import EXACT, index_for, indexed_neighbours
from dbull.lifelong.training import Progress

N_CLUSTERS, N_COLUMNS, SEED = 100, 64, 10
LOOKED_UP = 1000  # rows whose neighbours are compared with those among all pairs


def bent_clusters(n_rows: int) -> tuple[np.ndarray, np.ndarray]:
    """Return rows and the cluster of each."""
    rng = np.random.default_rng(SEED)
    share = rng.pareto(1.2, N_CLUSTERS) + 0.05
    share = np.minimum(share / share.sum(), 0.15) + 0.0005
    y = rng.choice(N_CLUSTERS, n_rows, p=share / share.sum())
    means = rng.normal(scale=1.6, size=(N_CLUSTERS, N_COLUMNS))
    x = np.empty((n_rows, N_COLUMNS), np.float32)
    for cluster in range(N_CLUSTERS):
        rows = np.flatnonzero(y == cluster)
        n_dims = int(rng.integers(2, 9))
        z = rng.normal(size=(len(rows), n_dims)) * rng.uniform(0.5, 1.5, n_dims)
        waves, plane = rng.normal(size=(2, n_dims, N_COLUMNS))
        bent = means[cluster] + z @ (plane / np.sqrt(n_dims)) + 0.5 * np.sin(z @ waves)
        x[rows] = bent + 0.3 * rng.normal(size=bent.shape)
    return x, y


def cpu_seconds() -> float:
    return sum(os.times()[:2])


def peak_gigabytes() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


class Stages:
    """Prints how long each stage took."""

    def __init__(self) -> None:
        self.begun, self.begun_cpu = time.perf_counter(), cpu_seconds()

    def __call__(self, progress: Progress | None) -> None:
        """Tell of what has just ended."""
        now, now_cpu = time.perf_counter(), cpu_seconds()
        stage = "rest" if progress is None else progress.stage
        print(
            f"  {stage:12s}{now - self.begun:9.1f} s{now_cpu - self.begun_cpu:9.1f} CPU s"
            f"{peak_gigabytes():7.2f} GB at most",
            flush=True,
        )
        self.begun, self.begun_cpu = now, now_cpu


def missed(x: np.ndarray, n_neighbours: int = 30) -> None:
    """Print the share of neighbours that the index finds, of some rows."""
    if index_for("auto", 10**9) == EXACT:
        print("faiss is not installed: pip install 'dbull[scale]'")
        return
    import faiss

    rows = torch.from_numpy(x)
    some = np.random.default_rng(SEED).choice(len(x), LOOKED_UP, replace=False)
    begun = cpu_seconds()
    found = indexed_neighbours(rows, n_neighbours)[1].numpy()[some]
    spent = cpu_seconds() - begun
    exact = faiss.knn(x[some], x, n_neighbours + 1)[1]
    shared = [len(set(one) & set(other)) / n_neighbours for one, other in zip(found, exact, strict=True)]
    print(f"  index: {100 * np.mean(shared):.2f} % of the {n_neighbours} nearest found, {spent:.1f} CPU s")


def one(n_rows: int, threads: int, graph_index: str) -> None:
    x, y = bent_clusters(n_rows)
    print(f"{n_rows:,} x {N_COLUMNS}, {threads} threads", flush=True)
    begun, begun_cpu, stages = time.perf_counter(), cpu_seconds(), Stages()
    model = DBULL(random_state=SEED, threads=threads, graph_index=graph_index, callback=stages).fit(x)
    stages(None)
    scores = normalized_mutual_info_score(y, model.labels_), adjusted_rand_score(y, model.labels_)
    print(
        f"  all         {time.perf_counter() - begun:9.1f} s{cpu_seconds() - begun_cpu:9.1f} CPU s"
        f"{peak_gigabytes():7.2f} GB at most; graph: {model.report_.graph_index}; "
        f"{model.n_clusters_} clusters, NMI {scores[0]:.3f}, ARI {scores[1]:.3f}",
        flush=True,
    )
    missed(x)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    options.add_argument("--rows", type=int, nargs="+", default=[100_000, 1_000_000])
    options.add_argument("--threads", type=int, default=2)
    options.add_argument("--graph-index", default="auto")
    given = options.parse_args()
    if len(given.rows) == 1:
        one(given.rows[0], given.threads, given.graph_index)
        return
    for n_rows in given.rows:  # each in a process of its own, for its peak of memory
        command = [sys.executable, __file__, "--rows", str(n_rows), "--threads", str(given.threads)]
        subprocess.run([*command, "--graph-index", given.graph_index], check=True)


if __name__ == "__main__":
    main()
