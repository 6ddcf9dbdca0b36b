"""From raw text to tf-idf."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import scipy  # its parts are imported when they are first used

N_WORDS = 2000  # as in the Reuters10k of DEC, VaDE and the paper


def tfidf(documents: Sequence[str], n_words: int = N_WORDS) -> scipy.sparse.csr_matrix:
    """Return sublinear tf-idf of the most frequent words, rows of length 1, (N, n_words) float32 CSR.

    English stop words and tokens without a letter are left out; idf is smoothed and taken over
    all documents. A document with none of the words is a row of zeros.
    """
    from sklearn.feature_extraction.text import TfidfVectorizer  # slow to import, and few need it

    vectorizer = TfidfVectorizer(
        max_features=n_words,
        sublinear_tf=True,
        stop_words="english",
        token_pattern=r"(?u)\b[a-z][a-z']+\b",
        dtype=np.float32,
    )
    return scipy.sparse.csr_matrix(vectorizer.fit_transform(documents))
