"""The words that set a cluster apart, from bounded counts that add up over a stream.

Each cluster keeps at most `most_words` words. When there are more, the count of the first that does not fit
is taken from all (Misra and Gries 1982; merged as in Agarwal et al. 2012): no count is too high, and none is
too low by more than what was taken in all, at most total / (most_words + 1).
"""

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dbull.documents import check_fields, fail, list_of, object_of, value_that, whole
from dbull.errors import SettingsError, check_known
from dbull.tables.words import words_of

VERSION = 1
PRIOR_WORDS = 500.0  # weight of the prior, in words


@dataclass
class _Words:
    """Counts of one cluster, each too low by at most `taken`."""

    counts: Counter[str] = field(default_factory=Counter)
    total: int = 0  # of all words, also of those that are counted no more
    taken: int = 0

    def add(self, counts: Counter[str], total: int, taken: int, most_words: int) -> None:
        self.counts.update(counts)
        self.total, self.taken = self.total + total, self.taken + taken
        if len(self.counts) > most_words:
            least = sorted(self.counts.values(), reverse=True)[most_words]
            self.counts = Counter({word: n - least for word, n in self.counts.items() if n > least})
            self.taken += least


class WordCounts:
    """Words of each cluster, each counted once per text, so that no long text speaks for its cluster."""

    def __init__(self, most_words: int = 2000):
        if most_words < 1:
            raise SettingsError(f"most_words must be at least 1, got {most_words}")
        self.most_words = most_words
        self._clusters: dict[int, _Words] = {}

    @property
    def clusters(self) -> tuple[int, ...]:
        """The clusters that have words."""
        return tuple(self._clusters)

    def add(self, texts: Iterable[str], clusters: Iterable[int]) -> None:
        """Count the words of texts, each in the cluster of its text."""
        found: dict[int, Counter[str]] = {}
        for text, cluster in zip(texts, clusters, strict=True):
            found.setdefault(int(cluster), Counter()).update(set(words_of(text)))
        for cluster, counts in found.items():
            self.add_counts(cluster, counts)

    def add_counts(self, cluster: int, counts: Counter[str]) -> None:
        """Add how many texts of a cluster have each word."""
        self._words(cluster).add(counts, counts.total(), 0, self.most_words)

    def counts(self, cluster: int) -> Counter[str]:
        """Return in how many texts of a cluster each word was found, none too high."""
        return Counter(self._clusters[cluster].counts)

    def only(self, clusters: Iterable[int]) -> "WordCounts":
        """Return the counts of some clusters."""
        found = WordCounts(self.most_words)
        found._clusters = {cluster: self._clusters[cluster] for cluster in clusters}
        return found

    def merge(self, other: "WordCounts") -> None:
        """Add what another has counted."""
        for cluster, words in other._clusters.items():
            self._words(cluster).add(words.counts, words.total, words.taken, self.most_words)

    def join(self, cluster: int, into: int) -> None:
        """Count the words of a cluster as those of another, as when the two were merged."""
        words = self._clusters.pop(cluster, _Words())
        self._words(into).add(words.counts, words.total, words.taken, self.most_words)

    def top_words(self, cluster: int, n_words: int = 5) -> list[tuple[str, float]]:
        """Return the words that set a cluster apart from the rest, best first, with their z-scores.

        The score is the log-odds ratio with an informative Dirichlet prior over its standard deviation:
        Monroe, Colaresi and Quinn (2008), "Fightin' words". The prior is the words of all clusters.
        """
        check_known("cluster", str(cluster), [str(known) for known in self._clusters])
        mine = self._clusters[cluster]
        everything = sum((words.counts for words in self._clusters.values()), Counter[str]())
        n_all = sum(words.total for words in self._clusters.values())
        scores = []
        if mine.total == n_all:  # there is no rest
            return []
        for word, count in mine.counts.items():
            rest, prior = everything[word] - count, PRIOR_WORDS * everything[word] / n_all
            mine_odds = _log_odds(count + prior, mine.total + PRIOR_WORDS)
            rest_odds = _log_odds(rest + prior, n_all - mine.total + PRIOR_WORDS)
            spread = math.sqrt(1 / (count + prior) + 1 / (rest + prior))
            scores.append(((mine_odds - rest_odds) / spread, word))
        best = sorted((pair for pair in scores if pair[0] > 0), key=lambda pair: (-pair[0], pair[1]))
        return [(word, score) for score, word in best[:n_words]]

    def to_document(self) -> dict[str, Any]:
        """Return plain values."""
        clusters = []
        for cluster, words in self._clusters.items():
            listed = [[word, n] for word, n in sorted(words.counts.items())]
            clusters.append({"cluster": cluster, "total": words.total, "taken": words.taken, "words": listed})
        return {"version": VERSION, "most_words": self.most_words, "clusters": clusters}

    @classmethod
    def from_document(cls, document: object, where: str = "word counts") -> "WordCounts":
        """Return what `to_document` was given; anything else is a ModelFileError."""
        values = check_fields(document, where, _DOCUMENT)
        if values["version"] != VERSION or values["most_words"] < 1:
            fail(where, f"version {values['version']} with {values['most_words']} words is not known here")
        found = cls(values["most_words"])
        for part in values["clusters"]:
            words = _Words(Counter(dict(part["words"])), part["total"], part["taken"])
            too_many = len(words.counts) > found.most_words or words.counts.total() > words.total
            if too_many or len(words.counts) < len(part["words"]) or part["cluster"] in found._clusters:
                fail(where, f"the words of cluster {part['cluster']} contradict each other")
            found._clusters[part["cluster"]] = words
        return found

    def _words(self, cluster: int) -> _Words:
        return self._clusters.setdefault(cluster, _Words())


def _log_odds(count: float, total: float) -> float:
    """Return the log of the odds; of a cluster that has only this word they are large, not infinite."""
    return float(np.log(count) - np.log(max(total - count, 0.5)))


def _is_count(value: Any) -> bool:
    """Tell whether a value is a word and how often it occurs, at least once."""
    is_pair = isinstance(value, list) and len(value) == 2
    return is_pair and isinstance(value[0], str) and type(value[1]) is int and value[1] > 0


_COUNTS = list_of(value_that(_is_count, "a word and how often it occurs"))
_CLUSTER = object_of({"cluster": whole, "total": whole, "taken": whole, "words": _COUNTS})
_DOCUMENT = {"version": whole, "most_words": whole, "clusters": list_of(_CLUSTER)}
