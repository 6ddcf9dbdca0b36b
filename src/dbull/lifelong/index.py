"""Nearest neighbours by an index, where all pairs of rows would be too many.

An inverted file (faiss): k-means cuts the rows into lists of about `LIST_ROWS`, and each row is compared with
those of the `LISTS_READ` lists nearest to it. Of the 30 nearest it misses about one in 500, or in 10,000
where clusters are clear, and rows of small clusters no more than others; a navigable graph (HNSW) takes
three times as long and loses its way to small clusters (docs/graph-index.md).
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from dbull.errors import SettingsError
from dbull.threads import threads_here

INDEXES = ("auto", "exact", "faiss")
MANY_ROWS = 60_000  # beyond which an index is faster than all pairs
SLOW_ROWS = 200_000  # from which all pairs take so long that somebody should know why
LIST_ROWS, LISTS_READ = 200, 16
TRAINING_ROWS, TRAINING_ROUNDS = 32, 5  # of k-means: rows per list
PIECE_ROWS = 16_384  # looked up at once
EXACT = "exact"

_log = logging.getLogger(__name__)


def index_for(asked: str, n_rows: int) -> str:
    """Return how neighbours of so many rows are found: "exact", or the index and its version."""
    if asked == "exact" or (asked == "auto" and n_rows <= MANY_ROWS):
        return EXACT
    try:
        import faiss
    except ImportError as error:
        if asked != "auto":
            raise SettingsError(
                f"graph_index={asked!r} needs faiss-cpu: pip install 'dbull[scale]', or give 'exact'"
            ) from error
        if n_rows >= SLOW_ROWS:
            _log.warning(
                "all pairs of %d rows are looked at, which takes hours from a million on; an index needs "
                "faiss-cpu: pip install 'dbull[scale]'",
                n_rows,
            )
        return EXACT
    return f"faiss {faiss.__version__} ivf"


def indexed_neighbours(rows: Tensor, n_neighbours: int) -> tuple[Tensor, Tensor]:
    """Return squared distances and indices (N, n_neighbours) of the nearest other rows that the index finds.

    A row whose lists hold too few is compared with all.
    """
    import faiss

    given, (n_rows, n_dims) = rows.contiguous().numpy(), rows.shape
    centres = faiss.IndexFlatL2(n_dims)
    index = faiss.IndexIVFFlat(centres, n_dims, max(1, n_rows // LIST_ROWS))
    index.nprobe, index.cp.niter = LISTS_READ, TRAINING_ROUNDS
    index.cp.min_points_per_centroid, index.cp.max_points_per_centroid = 1, TRAINING_ROWS
    squared = torch.empty(n_rows, n_neighbours)
    found = torch.empty(n_rows, n_neighbours, dtype=torch.int64)

    def take(at: Tensor, near: tuple[Any, Any]) -> None:
        squared[at], found[at] = _others(at, *map(torch.from_numpy, near))

    with _threads_of(faiss, 1):  # sums of k-means may be rounded by their number
        index.train(given)
    with _threads_of(faiss, threads_here(n_rows // PIECE_ROWS)):
        index.add(given)
        for at in torch.arange(n_rows).split(PIECE_ROWS):
            take(at, index.search(given[at[0] : at[-1] + 1], n_neighbours + 1))
        lost = (found < 0).any(1).nonzero()[:, 0]
        if len(lost):
            take(lost, faiss.knn(given[lost.numpy()], given, n_neighbours + 1))
    return squared.clamp_(min=0), found


def _others(rows: Tensor, squared: Tensor, found: Tensor) -> tuple[Tensor, Tensor]:
    """Leave out each row itself (n,), or the last of what was found, (n, k + 1), where it is not among it."""
    own = found == rows[:, None]
    own[:, -1] |= ~own.any(1)
    return squared[~own].view(len(rows), -1), found[~own].view(len(rows), -1)


@contextmanager
def _threads_of(faiss: Any, n_threads: int) -> Iterator[None]:
    """Let faiss work on so many threads; then as before."""
    before = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(n_threads)
    try:
        yield
    finally:
        faiss.omp_set_num_threads(before)
