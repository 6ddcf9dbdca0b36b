"""Reuters10k: 10,000 newswire documents of RCV1 with one of four root topics, tf-idf of 2,000 words.

The ready file and the recipe from raw word counts give the same bytes; whichever file is there is used.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import scipy  # its parts are imported when they are first used

from dbull.data.archives import read_arrays
from dbull.data.dataset import Samples
from dbull.data.files import files_of
from dbull.data.text import N_WORDS

(READY_FILE,), (COUNTS_FILE,) = files_of("reuters10k-ready"), files_of("reuters-rcv1")
# Documents drawn of CCAT, GCAT, MCAT, ECAT: the counts of the Reuters10k label file in common use.
_CLASS_SIZES = (4312, 2403, 2471, 814)
_DRAW_SEED = 1234


def reuters_tfidf(
    counts: scipy.sparse.csr_matrix, n_words: int = N_WORDS
) -> tuple[scipy.sparse.csr_matrix, np.ndarray]:
    """Turn raw word counts (N, V) into the features (N, n_words) of DEC and VaDE; also return which columns.

    The `n_words` words with the highest total count (ties: lower column first), sublinear tf, smoothed idf
    over all the documents given, rows scaled to length 1. DEC then multiplies by sqrt(n_words); that factor
    is left to the caller.
    """
    from sklearn.feature_extraction.text import TfidfTransformer  # slow to import, and few need it

    totals = np.asarray(counts.sum(axis=0), dtype=np.int64).ravel()
    columns = np.sort(np.argsort(-totals, kind="stable")[:n_words])
    kept = counts[:, columns].astype(np.float64)
    weights = TfidfTransformer(norm="l2", sublinear_tf=True).fit_transform(kept)
    return _sorted_csr(weights.astype(np.float32)), columns


def draw_10k(labels: np.ndarray) -> np.ndarray:
    """Return the rows of the 10,000 documents of Reuters10k among all with a single topic, in order."""
    random = np.random.RandomState(_DRAW_SEED)  # the draw was made with this generator
    rows = [
        random.choice(np.flatnonzero(labels == label), size, replace=False)
        for label, size in enumerate(_CLASS_SIZES)
    ]
    return random.permutation(np.concatenate(rows))


def read_counts(path: Path) -> tuple[scipy.sparse.csr_matrix, np.ndarray, tuple[str, ...]]:
    """Return the raw counts of the documents with one root topic, their labels, and the topics' names."""
    arrays = read_arrays(path, ("data", "indices", "indptr", "shape", "root", "root_names"))
    counts = _csr(arrays["data"].astype(np.int64), arrays)
    single = np.flatnonzero(arrays["root"].sum(axis=1) == 1)
    labels = arrays["root"][single].argmax(axis=1).astype(np.int64)
    return counts[single], labels, tuple(map(str, arrays["root_names"]))


def read_pool(paths: Mapping[str, Path]) -> Samples:
    """Return all 23,158 documents with one root topic, by the recipe from raw counts."""
    counts, labels, names = read_counts(paths[COUNTS_FILE.name])
    weights, _ = reuters_tfidf(counts)
    return Samples(weights, labels, names, (weights.shape[1],))


def read_reuters10k(paths: Mapping[str, Path]) -> Samples:
    """Return Reuters10k from the ready file, or by the recipe from the raw counts."""
    if READY_FILE.name not in paths:
        pool = read_pool(paths)
        assert pool.y_true is not None
        rows = draw_10k(pool.y_true)
        return Samples(_sorted_csr(pool.x[rows]), pool.y_true[rows], pool.label_names, pool.sample_shape)
    path = paths[READY_FILE.name]
    arrays = read_arrays(path, ("tfidf_data", "indices", "indptr", "shape", "label", "label_names"))
    x = _csr(arrays["tfidf_data"], arrays)
    names = tuple(map(str, arrays["label_names"]))
    return Samples(_sorted_csr(x), arrays["label"].astype(np.int64), names, (x.shape[1],))


def _csr(values: np.ndarray, arrays: Mapping[str, np.ndarray]) -> scipy.sparse.csr_matrix:
    places = (arrays["indices"].astype(np.int32), arrays["indptr"])
    return scipy.sparse.csr_matrix((values, *places), shape=tuple(arrays["shape"]))


def _sorted_csr(matrix: scipy.sparse.csr_matrix) -> scipy.sparse.csr_matrix:
    matrix = scipy.sparse.csr_matrix(matrix)
    matrix.sort_indices()
    return matrix
