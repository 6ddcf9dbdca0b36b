"""Words of clusters: of texts that are clustered, of columns of a mixed table, or beside embeddings.

What a model keeps of them are counts, by cluster and in a bounded way.
"""

from __future__ import annotations

import copy
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dbull.codec.networks import refusing_damage
from dbull.documents import check_fields, fail, list_of, mapping, text
from dbull.methods.listing import N_WORDS, VOCABULARY
from dbull.methods.traits import Trait
from dbull.tables import WordCounts
from dbull.tables.cells import read_labels, tidy


@dataclass(frozen=True, eq=False)
class Vocabulary:
    """Columns whose texts are counted, and those that are clustered in their place, if these were named."""

    columns: tuple[str, ...]
    embeddings: tuple[str, ...] = ()  # empty: what is clustered are all columns
    counts: WordCounts = field(default_factory=WordCounts)

    def texts(self, columns: Mapping[str, Any]) -> list[str]:
        """Return the text of each row of a table; of columns that it lacks there is none."""
        return texts_in(columns, [name for name in self.columns if name in columns])


def texts_in(columns: Mapping[str, Any], names: Sequence[str]) -> list[str]:
    """Return the texts of some columns, "" where there is none."""
    found = [read_labels(tidy(columns[name])) for name in names]
    return ["\n".join(part for part in parts if part) for parts in zip(*found, strict=True)]


def counted(counts: WordCounts, texts: Sequence[str], labels: Sequence[int]) -> WordCounts:
    """Return counts to which those of further texts were added."""
    more = copy.deepcopy(counts)
    more.add(texts, labels)
    return more


class ClusterWords:
    """The words of the clusters that there are; those of merged ones are with the one they live on in."""

    def __init__(self, model: Any):
        vocabulary: Vocabulary | None = getattr(model, "vocabulary_", None)
        self._ledger, stored = model.state_.ledger, vocabulary.counts if vocabulary else model.column_counts_
        self._counts = WordCounts(stored.most_words)
        self._counts.merge(stored)
        for cluster in stored.clusters:
            into = int(self._ledger.resolve([cluster])[0])
            if into != cluster:
                self._counts.join(cluster, into)
        self.alone = vocabulary is None or bool(vocabulary.embeddings)  # nothing else tells what rows are
        self.columns = () if vocabulary is None else vocabulary.columns

    @classmethod
    def of(cls, model: Any) -> ClusterWords | None:
        """Return the words of a model's clusters, None if it has learned no texts."""
        vocabulary = getattr(model, "vocabulary_", None)
        has_words = vocabulary.columns if vocabulary else hasattr(model, "text_reader_")
        return cls(model) if has_words and (vocabulary or hasattr(model, "column_counts_")) else None

    def words(self, cluster: int, n_words: int = N_WORDS) -> list[str]:
        """Return the words that set a cluster apart, best first."""
        return [trait.column for trait in self.traits(cluster, n_words, self._counts.clusters)]

    def traits(self, cluster: int, n_words: int, others: Collection[int]) -> tuple[Trait, ...]:
        """Return the words that set a cluster apart from others, with their shares."""
        if cluster not in self._counts.clusters:
            return ()
        among = [c for c in self._counts.clusters if c == cluster or c in others]
        counts = self._counts.only(among)
        n_here = max(self._ledger[cluster].rows, 1)
        n_others = max(sum(self._ledger[c].rows for c in among if c != cluster), 1)
        found = []
        for word, _ in counts.top_words(cluster, n_words):
            here = min(1.0, counts.counts(cluster)[word] / n_here)
            there = min(1.0, sum(counts.counts(c)[word] for c in among if c != cluster) / n_others)
            found.append(Trait(word, "", "share", here, there, here - there))
        return tuple(found)


def pack_vocabulary(model: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the words beside what is clustered as a document; nothing if a model has none."""
    vocabulary: Vocabulary | None = getattr(model, "vocabulary_", None)
    if vocabulary is None:
        return {}, {}
    names = {"columns": list(vocabulary.columns), "embeddings": list(vocabulary.embeddings)}
    return {}, {VOCABULARY: {**names, "counts": vocabulary.counts.to_document()}}


def unpack_vocabulary(documents: Mapping[str, Any], ledger: Any, where: str) -> Vocabulary | None:
    """Return what `pack_vocabulary` was given."""
    if VOCABULARY not in documents:
        return None
    readers = {"columns": list_of(text), "embeddings": list_of(text), "counts": mapping}
    with refusing_damage(where):
        values = check_fields(documents[VOCABULARY], where, readers)
        counts = WordCounts.from_document(values["counts"], f"{where}.counts")
        for cluster in counts.clusters:
            if cluster not in ledger:
                fail(where, f"words of cluster {cluster}, which is not there")
    return Vocabulary(tuple(values["columns"]), tuple(values["embeddings"]), counts)
