"""Topics of the first texts of a column: a fixed projection of hashed words to few numbers.

They are the leading singular vectors of the first texts. Random directions would keep all words alike but, in
50 numbers, mostly as noise; topics keep what groups of texts share. What they cannot keep are words that came
later, so a column of texts also tells how much of a text lies outside of all topics.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from dbull.tables.cells import count_values
from dbull.tables.words import WordHasher, bucket_of, words_of

N_TOPICS = 50


def fit_topics(texts: Sequence[str]) -> tuple[WordHasher, NDArray[np.float32], tuple[str, ...]]:
    """Return a hasher that has seen the texts, topics (n_buckets, n_topics), and a label for each."""
    hasher = WordHasher().learned(texts)
    rows = hasher.rows(texts)
    topics = np.zeros((hasher.n_buckets, 0), dtype=np.float32)
    if rows.nnz:
        from sklearn.utils.extmath import randomized_svd  # slow to import, and few tables have texts

        _, weights, directions = randomized_svd(rows, min(N_TOPICS, len(texts)), random_state=0)
        topics = np.ascontiguousarray(directions[weights > 1e-6 * weights[0]].T, dtype=np.float32)
    return hasher, topics, _labels(topics, texts)


def _labels(topics: NDArray[np.float32], texts: Sequence[str]) -> tuple[str, ...]:
    """Name each topic by the most frequent word in each of its three heaviest buckets."""
    counts, _ = count_values(word for text in texts for word in words_of(text))
    word_in: dict[int, str] = {}
    for word, _ in counts.most_common():
        word_in.setdefault(bucket_of(word, len(topics)), word)
    heaviest = np.argsort(-np.abs(topics), axis=0, kind="stable")[:3].T
    return tuple(
        f"topic {i + 1}: " + ", ".join(word_in[b] for b in buckets.tolist() if b in word_in)
        for i, buckets in enumerate(heaviest)
    )
