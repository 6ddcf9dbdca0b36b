"""Does `DPMixture` find the true number of clusters, starting from one?

Random Gaussian mixtures: 2 to 20 dimensions, 2 to 20 clusters, 1,000 to 20,000 rows, unequal sizes and
covariances, any two clusters at least `--separation` standard deviations of both apart along the line
between their means. Then class-incremental streams with two new clusters per data set.

    python benchmarks/recovery.py [--cases 100] [--streams 10] [--separation 4] [--first-seed 0]
"""

from __future__ import annotations

import argparse
import time

import numpy as np
from sklearn.metrics import adjusted_rand_score

from dbull import DPMixture


def random_covariance(rng: np.random.Generator, n_dims: int) -> np.ndarray:
    """Draw a covariance with axes up to e^2 = 7.4 times as long as others, and sizes up to 4 times."""
    axes, _ = np.linalg.qr(rng.normal(size=(n_dims, n_dims)))
    lengths = np.exp(rng.uniform(-1, 1, n_dims)) * np.exp(rng.uniform(-0.7, 0.7))
    return (axes * lengths**2) @ axes.T


def separated_means(
    rng: np.random.Generator, covariances: list[np.ndarray], separation: float
) -> list[np.ndarray]:
    """Place means at random, in a box that grows until all are far enough apart."""
    n_dims, half_width, means = len(covariances[0]), 2.0, []
    while len(means) < len(covariances):
        for _ in range(200):
            mean = rng.uniform(-half_width, half_width, n_dims)
            own = covariances[len(means)]
            if all(
                far_enough(mean - m, own, c, separation) for m, c in zip(means, covariances, strict=False)
            ):
                means.append(mean)
                break
        else:
            half_width *= 1.1
    return means


def far_enough(line: np.ndarray, a: np.ndarray, b: np.ndarray, separation: float) -> bool:
    distance = np.linalg.norm(line)
    unit = line / distance
    return distance >= separation * (np.sqrt(unit @ a @ unit) + np.sqrt(unit @ b @ unit))


def random_mixture(seed: int, separation: float) -> tuple[np.ndarray, np.ndarray]:
    """Draw one case; the smallest weight is about 0.3 of the average."""
    rng = np.random.default_rng(seed)
    n_dims, n_clusters = int(rng.integers(2, 21)), int(rng.integers(2, 21))
    n_rows = int(np.exp(rng.uniform(np.log(1_000), np.log(20_000))))
    weights = np.maximum(rng.dirichlet(np.full(n_clusters, 5.0)), 0.3 / n_clusters)
    covariances = [random_covariance(rng, n_dims) for _ in range(n_clusters)]
    means = separated_means(rng, covariances, separation)
    y = rng.choice(n_clusters, n_rows, p=weights / weights.sum())
    x = np.empty((n_rows, n_dims))
    for k in range(n_clusters):
        x[y == k] = rng.multivariate_normal(means[k], covariances[k], size=int((y == k).sum()))
    return x, y


def new_generator(seed: int, separation: float, n_tasks: int = 5) -> list[tuple[np.ndarray, np.ndarray]]:
    """Draw data sets of 1,000 rows, each with two clusters that were not there before."""
    rng = np.random.default_rng(seed)
    n_dims = int(rng.integers(2, 21))
    covariances = [random_covariance(rng, n_dims) for _ in range(2 * n_tasks)]
    means = separated_means(rng, covariances, separation)
    tasks = []
    for task in range(n_tasks):
        y = rng.permutation(np.repeat([2 * task, 2 * task + 1], 500))
        x = np.stack([rng.multivariate_normal(means[k], covariances[k]) for k in y])
        tasks.append((x, y))
    return tasks


def count_exact_batches(seeds: range, separation: float) -> int:
    n_exact = 0
    for seed in seeds:
        x, y = random_mixture(seed, separation)
        started = time.perf_counter()
        mixture = DPMixture(random_state=seed).fit(x)
        truth = len(np.unique(y))
        n_exact += mixture.n_clusters_ == truth
        if mixture.n_clusters_ != truth:
            print(
                f"  seed {seed}: {x.shape[1]} dimensions, {len(x)} rows, {truth} clusters, found "
                f"{mixture.n_clusters_}, ARI {adjusted_rand_score(y, mixture.labels_):.3f}, "
                f"{time.perf_counter() - started:.1f} s",
                flush=True,
            )
    return n_exact


def count_exact_streams(seeds: range, separation: float) -> int:
    n_exact = 0
    for seed in seeds:
        mixture, found = DPMixture(random_state=seed), []
        tasks = new_generator(seed, separation)
        for x, _ in tasks:
            found.append(mixture.partial_fit(x).n_clusters_)
        truth = [2 * (i + 1) for i in range(len(tasks))]
        n_exact += found == truth
        if found != truth:
            print(f"  seed {seed}: {tasks[0][0].shape[1]} dimensions, found {found}", flush=True)
    return n_exact


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    options.add_argument("--cases", type=int, default=100)
    options.add_argument("--streams", type=int, default=10)
    options.add_argument("--separation", type=float, default=4.0)
    options.add_argument("--first-seed", type=int, default=0)
    given = options.parse_args()
    started = time.perf_counter()
    batches = range(given.first_seed, given.first_seed + given.cases)
    exact = count_exact_batches(batches, given.separation)
    print(f"one data set: exact K in {exact} of {given.cases} cases, {time.perf_counter() - started:.0f} s")
    started = time.perf_counter()
    streams = range(given.first_seed, given.first_seed + given.streams)
    exact = count_exact_streams(streams, given.separation)
    print(
        f"stream: exact growing K in {exact} of {given.streams} seeds, {time.perf_counter() - started:.0f} s"
    )


if __name__ == "__main__":
    main()
