"""Quality on embeddings of real images, beside scikit-learn's BayesianGaussianMixture(n_components=30).

    DBULL_DATA=... python benchmarks/embeddings.py [--sets usps mnist] [--seeds 3] [--cache FOLDER]

Default settings everywhere; labels are used for the scores only. Needs the `umap` extra.
"""

from __future__ import annotations

import argparse
import time
import warnings
from pathlib import Path

import numpy as np
from sklearn.decomposition import PCA
from sklearn.metrics import adjusted_rand_score, normalized_mutual_info_score
from sklearn.mixture import BayesianGaussianMixture

from dbull import DPMixture, data

SETS = ("usps", "cifar10-features", "mnist", "fashion-mnist")
# name -> arguments of UMAP; None: the first ten principal components
EMBEDDINGS: dict[str, dict[str, float] | None] = {
    "pca-10": None,
    "umap-10-tight": {"n_components": 10, "n_neighbors": 10, "min_dist": 0.0},
    "umap-10": {"n_components": 10},
    "umap-2": {"n_components": 2},
}


def embed(name: str, embedding: str, cache: Path | None) -> tuple[np.ndarray, np.ndarray]:
    path = cache / f"{name}-{embedding}.npz" if cache else None
    if path is not None and path.exists():
        stored = np.load(path)
        return stored["x"], stored["y"]
    dataset = data.load(name)
    x = PCA(50, random_state=0).fit_transform(dataset.x)
    arguments = EMBEDDINGS[embedding]
    if arguments is None:
        x = x[:, :10]
    else:
        from umap import UMAP

        x = UMAP(random_state=0, **arguments).fit_transform(x)
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        np.savez(path, x=x, y=dataset.y_true)
    return x.astype(float), dataset.y_true


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    options.add_argument("--sets", nargs="+", default=SETS)
    options.add_argument("--embeddings", nargs="+", default=list(EMBEDDINGS), choices=list(EMBEDDINGS))
    options.add_argument("--seeds", type=int, default=3)
    options.add_argument("--cache", type=Path)
    given = options.parse_args()
    warnings.filterwarnings("ignore", message=".*did not converge.*")
    warnings.filterwarnings("ignore", message="n_jobs value")
    print(f"{'embedding':32s}{'model':10s}{'NMI':>7s}{'ARI':>7s}{'K':>6s}{'seconds':>9s}")
    for name in given.sets:
        for embedding in given.embeddings:
            x, y = embed(name, embedding, given.cache)
            for label in ("bgmm", "dbull"):
                rows = []
                for seed in range(given.seeds):
                    model = (
                        DPMixture(random_state=seed)
                        if label == "dbull"
                        else BayesianGaussianMixture(n_components=30, max_iter=200, random_state=seed)
                    )
                    started = time.perf_counter()
                    found = model.fit_predict(x)
                    seconds = time.perf_counter() - started
                    scores = normalized_mutual_info_score(y, found), adjusted_rand_score(y, found)
                    rows.append((*scores, len(np.unique(found)), seconds))
                nmi, ari, k, seconds = np.mean(rows, axis=0)
                shape = f"{name} {embedding} ({len(np.unique(y))})"
                print(f"{shape:32s}{label:10s}{nmi:7.3f}{ari:7.3f}{k:6.1f}{seconds:9.1f}", flush=True)


if __name__ == "__main__":
    main()
