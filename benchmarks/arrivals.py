"""How fast arrivals are learned, beside UMAP with HDBSCAN in the same run; run by `make bench`.

Tables of 16 columns and ten kinds in arrivals of 750, images (MNIST if DBULL_DATA has it, else digits) in
arrivals of 1,000, embeddings of 384 columns once all is known, single rows. CPU time of one thread.
"""

import statistics
from collections.abc import Iterable
from time import perf_counter, process_time

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.cluster import HDBSCAN
from sklearn.datasets import load_digits

import dbull.data
from dbull import DBULL
from dbull.errors import DbullError

Rows = NDArray[np.float32]
RNG = np.random.default_rng(0)


def kinds(n_kinds: int, n_columns: int, apart: float) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return centres and mixing matrices of clusters that are not round."""
    centres = apart * RNG.normal(size=(n_kinds, n_columns))
    return centres, RNG.normal(size=(n_kinds, n_columns, n_columns)) / np.sqrt(n_columns)


def drawn(of: tuple[NDArray[np.float64], NDArray[np.float64]], which: Iterable[int], n_rows: int) -> Rows:
    """Draw rows of some kinds."""
    kind = RNG.choice(list(which), n_rows)
    noise = np.einsum("nd,nde->ne", RNG.normal(size=(n_rows, of[0].shape[1])), of[1][kind])
    return (of[0][kind] + noise).astype(np.float32)


def timed(model: DBULL, arrivals: Iterable[Rows]) -> tuple[float, list[float]]:
    """Learn arrivals; return rows per second of CPU in all, and the seconds of each."""
    seconds, n_rows = [], 0
    for rows in arrivals:
        start = process_time()
        model.partial_fit(rows)
        seconds.append(process_time() - start)
        n_rows += len(rows)
    return n_rows / sum(seconds), seconds


def stream(name: str, model: DBULL, arrivals: list[Rows]) -> None:
    """Print the speed of a stream in which every second arrival is of the kinds of the one before."""
    speed, seconds = timed(model, arrivals)
    share = statistics.mean(seconds[1::2]) / statistics.mean(seconds[0::2])
    print(f"{name}: {speed:.0f} rows/s, a familiar arrival {share:.2f} of a new one", flush=True)


def images() -> list[Rows]:
    """Return images two classes at a time, twice 1,000 of each pair if there are as many."""
    try:
        found = dbull.data.load("mnist")
        x, y = np.asarray(found.x, dtype=np.float32).reshape(len(found.x), -1), np.asarray(found.y_true)
    except DbullError:
        x, y = load_digits(return_X_y=True)
    pairs = [x[np.isin(y, (c, c + 1))] for c in range(0, 10, 2)]
    return [part[:2000][half::2].astype(np.float32) for part in pairs for half in (0, 1)]


def beside_umap(rows: Rows) -> None:
    """Print the time of a first arrival as a ratio to UMAP and HDBSCAN on the same rows, warm."""
    from umap import UMAP

    UMAP(n_components=5, n_jobs=1, random_state=0).fit(rows[:500])
    ratios = []
    for seed in range(3):
        start = process_time()
        places = UMAP(n_components=5, n_neighbors=15, n_jobs=1, random_state=seed).fit_transform(rows)
        HDBSCAN(min_cluster_size=30, copy=True).fit(places)
        theirs = process_time() - start
        ratios.append(timed(DBULL(random_state=seed), [rows])[1][0] / theirs)
    print(
        f"first arrival of {len(rows)} x {rows.shape[1]}: {statistics.median(ratios):.2f} of UMAP + HDBSCAN"
    )


def main() -> None:
    """Print every figure."""
    torch.set_num_threads(1)
    table = kinds(10, 16, apart=1.0)
    pairs = [range(c, c + 2) for c in range(0, 10, 2)]
    stream("tables", DBULL(random_state=0), [drawn(table, pair, 750) for pair in pairs for _ in range(2)])
    shown = images()
    side = int(shown[0].shape[1] ** 0.5)
    stream("images", DBULL(random_state=0, image_shape=(side, side)), shown)

    embeddings = kinds(12, 384, apart=1.0)
    model = DBULL(random_state=0).partial_fit(drawn(embeddings, range(12), 2000))
    speed, _ = timed(model, [drawn(embeddings, range(12), 1000) for _ in range(3)])
    print(f"embeddings of 384 columns, all known: {speed:.0f} rows/s", flush=True)

    rows = drawn(table, range(10), 7500)
    model = DBULL(random_state=0).fit(rows[:2000])
    asked, learned = [], []
    for i in range(200):
        start = perf_counter()
        model.predict(rows[i : i + 1])
        asked.append(perf_counter() - start)
    for i in range(5):
        start = perf_counter()
        model.partial_fit(rows[2000 + i : 2001 + i])
        learned.append(perf_counter() - start)
    one = f"predict {1e3 * statistics.median(asked):.1f} ms, partial_fit {statistics.median(learned):.2f} s"
    print(f"one row: {one}", flush=True)
    beside_umap(rows)


if __name__ == "__main__":
    main()
