"""Speed of the mixture, side by side with scikit-learn in one run, as ratios.

    python benchmarks/speed.py [--only fit lap memory] [--rows 1000000]

Fits: MNIST embedded in 10 dimensions (70,000 rows; needs DBULL_DATA, and the `umap` extra for the first
embedding) and a synthetic mixture of 20 clusters (1,000,000 rows), against
BayesianGaussianMixture(n_components=30, max_iter=200). One seventh of the rows is held out; the log
likelihood of both models is computed by the same plug-in formula. Laps: local step, statistics and global
step against the bare matrix products and softmax. Memory: peak above the data at 50 components.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import time
import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from scipy.special import logsumexp
from sklearn.decomposition import PCA
from sklearn.metrics import adjusted_rand_score, normalized_mutual_info_score
from sklearn.mixture import BayesianGaussianMixture

from dbull import DPMixture
from dbull.errors import DataError
from dbull.mixture import updates
from dbull.mixture.posterior import global_step
from dbull.mixture.prior import adapted_prior

HELD_OUT = 7  # one row in so many


def log_likelihood(weights: np.ndarray, means: np.ndarray, covs: np.ndarray, x: np.ndarray) -> float:
    """Mean log density of the rows under a Gaussian mixture with these parameters."""
    parts = np.empty((len(weights), len(x)))
    for k, (weight, mean, cov) in enumerate(zip(weights, means, covs, strict=True)):
        root = np.linalg.cholesky(cov)
        white = np.linalg.solve(root, (x - mean).T)
        parts[k] = np.log(weight + 1e-300) - 0.5 * (white**2).sum(0) - np.log(np.diag(root)).sum()
    return float(logsumexp(parts, axis=0).mean() - 0.5 * x.shape[1] * np.log(2 * np.pi))


def synthetic(n_rows: int, n_clusters: int = 20) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    means = rng.normal(scale=4.0, size=(n_clusters, 10))
    roots = rng.normal(size=(n_clusters, 10, 10)) / np.sqrt(10)
    y = rng.choice(n_clusters, n_rows, p=rng.dirichlet(np.full(n_clusters, 5.0)))
    x = rng.normal(size=(n_rows, 10))
    for k in range(n_clusters):
        x[y == k] = x[y == k] @ roots[k].T + means[k]
    return x, y


def embeddings(n_rows: int) -> Iterator[tuple[str, np.ndarray, np.ndarray, list[object]]]:
    """Yield name, rows, labels (for the agreement column only) and values of max_evidence to show."""
    try:
        from dbull import data

        mnist = data.load("mnist")
    except DataError as missing:
        print(f"no MNIST, real embeddings left out: {missing}")
    else:
        reduced = PCA(50, random_state=0).fit_transform(mnist.x)
        try:
            from umap import UMAP
        except ImportError:
            print("umap-learn is not installed, its embedding is left out: pip install 'dbull[umap]'")
        else:
            mapped = UMAP(n_components=10, n_neighbors=10, min_dist=0.0, random_state=0).fit_transform(
                reduced
            )
            yield "MNIST, UMAP to 10", mapped.astype(float), mnist.y_true, ["auto"]
        yield "MNIST, PCA to 10", reduced[:, :10].astype(float), mnist.y_true, ["auto", 10_000]
    yield f"synthetic, {n_rows:,} x 10", *synthetic(n_rows), ["auto"]


def fits(n_rows: int) -> None:
    print(
        f"{'data':28s}{'model':38s}{'seconds':>9s}{'ratio':>7s}{'held-out':>10s}{'K':>5s}{'NMI':>7s}{'ARI':>7s}"
    )
    for name, x, y, evidences in embeddings(n_rows):
        held = np.arange(len(x)) % HELD_OUT == 0
        started = time.perf_counter()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # it says that it has not converged
            peer = BayesianGaussianMixture(n_components=30, max_iter=200, random_state=0).fit(x[~held])
        peer_seconds = time.perf_counter() - started
        found = peer.predict(x[held])
        score = log_likelihood(peer.weights_, peer.means_, peer.covariances_, x[held])
        report(
            name, f"BayesianGaussianMixture ({peer.n_iter_} its)", peer_seconds, 1.0, score, found, y[held]
        )
        for evidence in evidences:
            started = time.perf_counter()
            ours = DPMixture(max_evidence=evidence, random_state=0).fit(x[~held])
            seconds = time.perf_counter() - started
            score = log_likelihood(ours.weights_, ours.means_, ours.covariances_, x[held])
            label = f"DPMixture(max_evidence={evidence!r})"
            report("", label, seconds, peer_seconds / seconds, score, ours.predict(x[held]), y[held])


def report(
    data: str, model: str, seconds: float, ratio: float, score: float, found: np.ndarray, y: np.ndarray
) -> None:
    nmi, ari = normalized_mutual_info_score(y, found), adjusted_rand_score(y, found)
    print(
        f"{data:28s}{model:38s}{seconds:9.1f}{ratio:6.1f}x{score:10.3f}{len(np.unique(found)):5d}{nmi:7.3f}{ari:7.3f}",
        flush=True,
    )


def laps() -> None:
    print(f"\n{'one lap':34s}{'ms':>8s}{'bare ms':>9s}{'ratio':>7s}")
    for n_rows, n_dims, n_components in (
        (70_000, 10, 15),
        (70_000, 10, 50),
        (300_000, 2, 20),
        (100_000, 20, 20),
    ):
        rng = torch.Generator().manual_seed(0)
        z = torch.randn(n_rows, n_dims, generator=rng, dtype=torch.float64)
        points = updates.Points.from_rows(z)
        labels = torch.randint(n_components, (n_rows,), generator=rng)
        resp = torch.nn.functional.one_hot(labels, n_components).T.to(torch.float64)
        stats = updates.summary_of(resp, points)
        prior = adapted_prior(stats)
        posterior = global_step(prior, stats)
        n_features = updates.n_features(n_dims)
        size = updates.CHUNK_NUMBERS // (n_features + n_components)
        phi = torch.randn(n_features, size, generator=rng, dtype=torch.float64)
        theta = torch.randn(n_components, n_features, generator=rng, dtype=torch.float64)

        def lap(posterior=posterior, points=points, prior=prior) -> None:
            global_step(prior, updates.local_summary(posterior, points))

        def bare(theta=theta, phi=phi, n_chunks=-(-n_rows // size)) -> None:
            for _ in range(n_chunks):
                torch.softmax(theta @ phi, dim=0) @ phi.T

        # Interleaved, best of several: the machine may be busy with something else now and then.
        ours, floor = (
            min(times) for times in zip(*[(timed(lap), timed(bare)) for _ in range(9)], strict=True)
        )
        shape = f"{n_rows:,} x {n_dims}, K = {n_components}"
        print(f"{shape:34s}{1e3 * ours:8.1f}{1e3 * floor:9.1f}{ours / floor:7.2f}", flush=True)


def timed(work) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def memory(n_rows: int) -> None:
    """Measure in a process of its own, so that nothing else has been there."""
    command = [sys.executable, __file__, "--rows", str(n_rows), "--only", "peak"]
    answer = subprocess.run(command, capture_output=True, text=True, check=True, env=os.environ)
    print(f"\npeak memory of a fit above the data, {n_rows:,} x 10: {answer.stdout.strip()}")


def peak(n_rows: int) -> None:
    DPMixture(random_state=0).fit(synthetic(20_000, n_clusters=50)[0])  # everything imported and warm
    # Resident now, not the highest so far: what the warm-up gave back may be used again.
    before = int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize() / 1024
    x, _ = synthetic(n_rows, n_clusters=50)
    started = time.perf_counter()
    mixture = DPMixture(random_state=0).fit(x)
    seconds = time.perf_counter() - started
    highest = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    above = (highest - before) / 1024 - x.nbytes / 2**20
    print(f"{above:.0f} MB ({mixture.n_clusters_} clusters found of 50, {seconds:.0f} s)")


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    options.add_argument("--only", nargs="+", choices=("fit", "lap", "memory", "peak"))
    options.add_argument("--rows", type=int, default=1_000_000)
    given = options.parse_args()
    chosen = given.only or ["fit", "lap", "memory"]
    if "peak" in chosen:
        peak(given.rows)
        return
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads")
    if "fit" in chosen:
        fits(given.rows)
    if "lap" in chosen:
        laps()
    if "memory" in chosen:
        memory(given.rows)


if __name__ == "__main__":
    main()
