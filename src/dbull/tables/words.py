"""Texts as sparse rows: hashed words, weighted by how few texts have them, each row of length 1.

Definition, which no version of a library changes: a word is a run of letters and digits (apostrophes inside)
of the text in NFKC form and casefolded, of at least two characters, not all digits. Its bucket is the CRC-32
of its UTF-8 bytes modulo the number of buckets, without a sign, so that rows are non-negative. A bucket that
has t of a text's words weighs (1 + log t) idf, where idf = 1 + log((1 + N) / (1 + n)) for the n of N texts
that have a word in it. Words that most texts have (stop words of any language) weigh 0.
"""

import re
import unicodedata
import zlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import scipy
from numpy.typing import NDArray

from dbull.documents import check_fields, fail, whole
from dbull.errors import SettingsError

STOP_SHARE = 0.5  # of the texts, from which a word is a stop word; most function words, few topics
FEWEST_FOR_STOPS = 20  # texts; among fewer, every word is in a large share of them
MOST_BUCKETS = 1 << 24
_WORD = re.compile(r"[^\W_]+(?:['’][^\W_]+)*")


def words_of(text: str) -> list[str]:
    """Return the words of a text, in order."""
    found = _WORD.findall(unicodedata.normalize("NFKC", text).casefold())
    return [word for word in found if len(word) > 1 and not word.isdigit()]


def bucket_of(word: str, n_buckets: int) -> int:
    """Return the bucket of a word."""
    return zlib.crc32(word.encode("utf-8", "surrogatepass")) % n_buckets


@dataclass(frozen=True, eq=False)
class WordHasher:
    """Makes rows of texts; never changes: `learned` and `+` return another that has seen more texts."""

    n_buckets: int = 4096
    n_texts: int = 0
    text_counts: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))  # of each bucket

    def __post_init__(self) -> None:
        if not 0 < self.n_buckets <= MOST_BUCKETS:
            raise SettingsError(f"n_buckets must be between 1 and {MOST_BUCKETS:,}, got {self.n_buckets}")
        if self.n_texts == 0 and not len(self.text_counts):
            object.__setattr__(self, "text_counts", np.zeros(self.n_buckets, np.int64))

    def learned(self, texts: Sequence[str]) -> "WordHasher":
        """Return a hasher that has also seen these texts."""
        in_texts = np.bincount(self.counts(texts).indices, minlength=self.n_buckets)
        return WordHasher(self.n_buckets, self.n_texts + len(texts), self.text_counts + in_texts)

    def __add__(self, other: "WordHasher") -> "WordHasher":
        """Return the hasher that has seen the texts of both."""
        if other.n_buckets != self.n_buckets:
            raise SettingsError(f"{self.n_buckets} and {other.n_buckets} buckets cannot be added")
        counts = self.text_counts + other.text_counts
        return WordHasher(self.n_buckets, self.n_texts + other.n_texts, counts)

    @property
    def weights(self) -> NDArray[np.float64]:
        """The idf of each bucket, 0 for stop words."""
        idf: NDArray[np.float64] = 1 + np.log((1 + self.n_texts) / (1 + self.text_counts))
        if self.n_texts >= FEWEST_FOR_STOPS:
            idf[self.text_counts > STOP_SHARE * self.n_texts] = 0.0
        return idf

    def counts(self, texts: Iterable[str]) -> Any:
        """Return how many words of each text are in each bucket, (N, n_buckets) float64 CSR."""
        buckets: dict[str, int] = {}
        data: list[int] = []
        indices: list[int] = []
        ends = [0]
        for text in texts:
            words = words_of(text)
            for word in words:
                if word not in buckets:
                    buckets[word] = bucket_of(word, self.n_buckets)
            found = sorted(Counter(buckets[word] for word in words).items())
            indices += [bucket for bucket, _ in found]
            data += [n for _, n in found]
            ends.append(len(indices))
        shape = len(ends) - 1, self.n_buckets
        return scipy.sparse.csr_matrix((np.array(data, np.float64), indices, ends), shape=shape)

    def rows(self, texts: Iterable[str], weights: NDArray[np.float64] | None = None) -> Any:
        """Return texts as rows of length 1, (N, n_buckets) float64 CSR; zeros if no word has a weight."""
        rows, weights = self.counts(texts), self.weights if weights is None else weights
        rows.data = (1 + np.log(rows.data)) * weights[rows.indices]
        rows.eliminate_zeros()
        length = np.sqrt(np.asarray(rows.multiply(rows).sum(1)).ravel())
        rows.data /= np.repeat(length, np.diff(rows.indptr))
        return rows

    def to_document(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Return plain values and named arrays."""
        values = {"n_buckets": self.n_buckets, "n_texts": self.n_texts}
        return values, {"text_counts": self.text_counts.astype(np.float64)}

    @classmethod
    def from_document(
        cls, document: object, arrays: Mapping[str, NDArray[Any]], where: str = "words"
    ) -> "WordHasher":
        """Return what `to_document` was given; anything else is a ModelFileError."""
        values = check_fields(document, where, {"n_buckets": whole, "n_texts": whole})
        counts, n_texts = np.asarray(arrays.get("text_counts", ())), values["n_texts"]
        fits = counts.dtype == np.float64 and counts.shape == (values["n_buckets"],) and counts.size
        if not (fits and counts.min() >= 0 and counts.max() <= n_texts and (counts % 1 == 0).all()):
            fail(where, f"text_counts are not those of {n_texts} texts in {values['n_buckets']} buckets")
        return cls(values["n_buckets"], n_texts, counts.astype(np.int64))
