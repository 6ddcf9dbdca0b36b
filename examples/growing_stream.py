"""Clusters that come, stay and come back: a stream of small data sets learned one after another.

Each piece is seen once and thrown away; the mixture keeps only sufficient statistics. Nobody says how many
clusters there are. Prints what happens and draws `demo/growing_stream.png`.

    python examples/growing_stream.py [FOLDER]
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.patches import Ellipse
from rich.console import Console
from rich.table import Table
from sklearn.metrics import adjusted_rand_score

from dbull import DPMixture

# Sources of the stream: centre, long and short axis (standard deviations), angle in degrees.
SOURCES = {
    "a": ((0.0, 0.0), (1.3, 0.5), 30),
    "b": ((7.0, 2.0), (0.8, 0.8), 0),
    "c": ((1.5, 7.0), (1.6, 0.4), -25),
    "d": ((8.5, 9.0), (0.6, 1.2), 20),
    "e": ((-6.0, 5.0), (0.9, 0.5), 70),
    "f": ((-4.5, -4.5), (1.5, 0.4), 10),
}
PIECES = [
    ("Mon", {"a": 300, "b": 200}),
    ("Tue", {"a": 200, "b": 200, "c": 250}),
    ("Wed", {"c": 300, "d": 150, "e": 100}),
    ("Thu", {"d": 250, "e": 150}),
    ("Fri", {"f": 200, "e": 100}),
    ("Sat", {"a": 200, "b": 150, "f": 100}),
]


def draw(rng: np.random.Generator, source: str, n_rows: int) -> np.ndarray:
    centre, axes, degrees = SOURCES[source]
    turn = np.deg2rad(degrees)
    rotation = np.array([[np.cos(turn), -np.sin(turn)], [np.sin(turn), np.cos(turn)]])
    return rng.normal(size=(n_rows, 2)) * axes @ rotation.T + centre


def main(folder: Path) -> None:
    console, rng = Console(), np.random.default_rng(7)
    mixture = DPMixture(random_state=0)
    table = Table(title="A stream learned piece by piece (no labels, no number of clusters, no old rows)")
    for column in (
        "piece",
        "rows",
        "clusters",
        "new ids",
        "ids in this piece",
        "agrees with truth",
        "seconds",
    ):
        table.add_column(column, justify="left" if column in ("piece", "new ids") else "right")
    figure, panels = plt.subplots(2, 3, figsize=(12, 8), sharex=True, sharey=True, layout="constrained")
    known: set[int] = set()
    for (name, parts), panel in zip(PIECES, panels.flat, strict=True):
        x = np.concatenate([draw(rng, source, n) for source, n in parts.items()])
        truth = np.repeat(list(parts), list(parts.values()))
        started = time.perf_counter()
        mixture.partial_fit(x)
        seconds = time.perf_counter() - started
        ids = {int(i) for i in mixture.cluster_ids_}
        table.add_row(
            name,
            str(len(x)),
            str(mixture.n_clusters_),
            ", ".join(map(str, sorted(ids - known))) or "–",
            ", ".join(map(str, np.unique(mixture.labels_))),
            f"{adjusted_rand_score(truth, mixture.labels_):.3f}",
            f"{seconds:.2f}",
        )
        picture(panel, mixture, x, ids - known, f"{name}: {mixture.n_clusters_} clusters")
        known = ids
    console.print(table)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "growing_stream.png"
    figure.suptitle("Each panel: the rows of one piece, and every cluster known so far (new ones drawn bold)")
    figure.savefig(path, dpi=110)
    n_numbers = mixture.means_.size + mixture.covariances_.size + 2 * mixture.n_clusters_
    console.print(
        f"{mixture.n_rows_seen_} rows seen, none kept: the past is {n_numbers} numbers. Picture: {path}"
    )


def picture(panel: plt.Axes, mixture: DPMixture, x: np.ndarray, new: set[int], title: str) -> None:
    """Draw rows coloured by cluster id and each cluster as its two-standard-deviation ellipse."""
    colours = plt.get_cmap("tab10")
    panel.scatter(*x.T, s=6, alpha=0.5, c=[colours(i % 10) for i in mixture.labels_], linewidths=0)
    for cluster, mean, cov in zip(mixture.cluster_ids_, mixture.means_, mixture.covariances_, strict=True):
        values, vectors = np.linalg.eigh(cov)
        angle = float(np.rad2deg(np.arctan2(vectors[1, 1], vectors[0, 1])))
        is_new = int(cluster) in new
        panel.add_patch(
            Ellipse(
                tuple(mean),
                4 * np.sqrt(values[1]),
                4 * np.sqrt(values[0]),
                angle=angle,
                fill=False,
                edgecolor=colours(cluster % 10),
                linewidth=2.8 if is_new else 1.1,
                linestyle="-" if is_new else "--",
            )
        )
        panel.annotate(str(cluster), tuple(mean), ha="center", va="center", weight="bold", fontsize=11)
    panel.set_title(title)


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path("demo"))
