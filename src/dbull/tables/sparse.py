"""Sparse rows as few dense numbers: a projection that the first rows fix.

Rows are brought to length 1 and projected to their leading singular vectors. These keep what groups of rows
share; random directions, as many, mostly keep noise (docs/log.md). A later row may have columns that no row
had at first. Singular vectors know nothing of them, so they are hashed, with signs, into a few numbers more
(Weinberger et al. 2009): 0 at first, and what is new with them is new to the clusters too.

Counts, which are whole and not negative, are weighted first: log(1 + count), times the inverse document
frequency in the first rows, so that columns that every row has do not drown the others. Then each column is
divided by the root of its size (its root mean square), half way between columns as they are, where few rule,
and columns of one size, where rare ones rule; very small ones, and those that no row has yet, by the root of
half the mean size.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

N_DIRECTIONS = 128
N_HASHED = 32
MOST_ROWS = 20_000  # from which the directions are found
BLOCK_ROWS = 16_384  # that are weighted at once

Floats = NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class SparseProjection:
    """A fixed map from sparse rows to dense ones."""

    directions: Floats  # (n_columns, k); columns that no row had are 0
    weights: Floats  # (n_columns,)
    counts: bool  # whether values are counts

    @classmethod
    def fit(cls, rows: Any, seed: int = 0) -> "SparseProjection":
        """Return the projection for a matrix (N, n_columns) in the format CSR, of finite numbers."""
        from sklearn.utils.extmath import randomized_svd  # slow to import

        some = rows
        if rows.shape[0] > MOST_ROWS:
            drawn = np.random.default_rng(seed).permutation(rows.shape[0])[:MOST_ROWS]
            some = rows[np.sort(drawn)]
        n_rows, n_columns = some.shape
        counts = bool((some.data >= 0).all() and (some.data == np.floor(some.data)).all())
        weights = np.ones(n_columns, dtype=np.float32)
        if counts:
            having = np.bincount(some.indices[some.data != 0], minlength=n_columns)
            weights = (np.log((1 + n_rows) / (1 + having)) + 1).astype(np.float32)
        weights = _half_way(weights, cls._unprojected(weights, counts)._weighted(some))
        weighted = cls._unprojected(weights, counts)._weighted(some)
        width = min(N_DIRECTIONS, *some.shape)
        _, values, directions = randomized_svd(weighted, width, n_iter=4, random_state=seed)
        kept = directions[values > 1e-6 * max(values[0], 1e-30)]
        seen = np.bincount(some.indices[some.data != 0], minlength=n_columns) > 0
        # Rounding leaves traces in columns that no row had.
        return cls(np.ascontiguousarray(np.where(seen, kept, 0).T, dtype=np.float32), weights, counts)

    @classmethod
    def _unprojected(cls, weights: Floats, counts: bool) -> "SparseProjection":
        return cls(np.zeros((len(weights), 0), dtype=np.float32), weights, counts)

    @property
    def n_columns(self) -> int:
        """Columns of a sparse row."""
        return len(self.weights)

    @property
    def n_values(self) -> int:
        """Numbers of a projected row."""
        return int(self.directions.shape[1]) + N_HASHED

    def project(self, rows: Any) -> Floats:
        """Return rows (N, n_columns) in the format CSR as dense ones, (N, n_values)."""
        found = np.empty((rows.shape[0], self.n_values), dtype=np.float32)
        for start in range(0, rows.shape[0], BLOCK_ROWS):
            weighted = self._weighted(rows[start : start + BLOCK_ROWS])
            block = found[start : start + weighted.shape[0]]
            block[:, :-N_HASHED] = weighted @ self.directions
            block[:, -N_HASHED:] = (weighted @ self._hashed).toarray()
        return found

    def _weighted(self, rows: Any) -> Any:
        """Return rows as they are projected: weighted, and of length 1; empty ones stay empty."""
        weighted = rows.astype(np.float32, copy=True)
        if self.counts:
            np.log1p(np.maximum(weighted.data, 0), out=weighted.data)  # later rows may be anything
        weighted.data *= self.weights[weighted.indices]
        row_of = np.repeat(np.arange(weighted.shape[0]), np.diff(weighted.indptr))
        # In units of the largest value, so that no square leaves the range of float32.
        largest = np.abs(weighted.data).max(initial=0.0) or 1.0
        squares = np.square(weighted.data / largest, dtype=np.float64)
        lengths = largest * np.sqrt(np.bincount(row_of, squares, weighted.shape[0]))
        weighted.data /= np.maximum(lengths, np.finfo(np.float32).tiny)[row_of].astype(np.float32)
        return weighted

    @cached_property
    def _hashed(self) -> Any:
        """The map from columns that no row had at first, (n_columns, N_HASHED)."""
        from scipy.sparse import csr_matrix

        unseen = np.flatnonzero(~self.directions.any(1))
        mixed = unseen.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)  # Fibonacci hashing, modulo 2^64
        mixed ^= mixed >> np.uint64(29)
        signs = np.where(mixed >> np.uint64(63), 1.0, -1.0).astype(np.float32)
        places = unseen, (mixed >> np.uint64(20)) % np.uint64(N_HASHED)
        return csr_matrix((signs, places), shape=(self.n_columns, N_HASHED))


def _half_way(weights: Floats, rows: Any) -> Floats:
    """Return weights of columns divided by the root of the size that weighted rows have in each."""
    size = np.sqrt(np.asarray(rows.multiply(rows).mean(0), dtype=np.float64).ravel())
    floor = 0.5 * size[size > 0].mean() if size.any() else 1.0
    scaled: Floats = (weights / np.sqrt(np.maximum(size, floor))).astype(np.float32)
    return scaled


def column_blocks(rows: Any, groups: NDArray[np.int64]) -> Iterator[tuple[int, NDArray[np.int64]]]:
    """Yield for each group of rows how many of them have each column, (n_columns,)."""
    for group in np.unique(groups).tolist():
        part = rows[np.flatnonzero(groups == group)]
        yield group, np.bincount(part.indices[part.data != 0], minlength=rows.shape[1])
