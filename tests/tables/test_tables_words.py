"""Hashed words against scikit-learn's tf-idf; counts of words against exact ones, within their bound."""

import copy
import math
import zlib
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.feature_extraction.text import TfidfVectorizer

from dbull.documents import dump_document, parse_document
from dbull.errors import ModelFileError, SettingsError
from dbull.tables import WordCounts, WordHasher
from dbull.tables.words import words_of

LINES = [f"alpha{i % 7} beta{i % 5} gamma{i % 5} gamma{i % 5} the delta{i % 11} {i}" for i in range(60)]
ZEBRA, CAFE = 358047158, 2561491637
texts = st.lists(
    st.lists(st.sampled_from(["aa", "bb", "cc", "dd", "ee", "ff"]), max_size=9).map(" ".join), max_size=30
)


def test_words():
    assert words_of("It's A test: the 3 ﬁsh_eat 42 x²!") == ["it's", "test", "the", "fish", "eat", "x2"]
    assert words_of("Straße STRASSE café CAFE\u0301") == ["strasse", "strasse", "café", "café"]
    assert words_of("") == words_of("... 1 2 33 a") == []


def test_rows_are_tfidf_of_scikit_learn():
    """Without collisions columns are those of scikit-learn, in another order; stop words by their share."""
    hasher = WordHasher(1 << 20).learned(LINES)
    reference = TfidfVectorizer(sublinear_tf=True, max_df=0.5, token_pattern=r"(?u)\b[a-z]\w+\b")
    expected = reference.fit_transform(LINES)
    assert "the" not in reference.vocabulary_
    rows = hasher.rows(LINES)
    buckets = {zlib.crc32(word.encode()) % (1 << 20): i for word, i in reference.vocabulary_.items()}
    assert len(buckets) == len(reference.vocabulary_)
    np.testing.assert_allclose(
        rows[:, list(buckets)].toarray(), expected[:, list(buckets.values())].toarray()
    )
    assert rows.nnz == expected.nnz
    np.testing.assert_allclose(rows.multiply(rows).sum(1), 1)
    assert rows.min() >= 0


def test_the_definition_never_changes():
    """By hand: CRC-32 of the word's bytes; 1 + log 2 for two of a word; idf 1 where nothing was learned."""
    row = WordHasher(1 << 24).rows(["Zebra zebra CAFÉ"])
    buckets = {ZEBRA % (1 << 24): 1 + math.log(2), CAFE % (1 << 24): 1.0}
    length = math.hypot(*buckets.values())
    found = dict(zip(row.indices.tolist(), row.data.tolist(), strict=True))
    assert found == pytest.approx({bucket: weight / length for bucket, weight in buckets.items()})


@given(texts, texts)
def test_what_was_seen_adds_up(first, second):
    whole = WordHasher(64).learned([*first, *second])
    for other in (
        WordHasher(64).learned(first).learned(second),
        WordHasher(64).learned(second) + WordHasher(64).learned(first),
    ):
        assert other.n_texts == whole.n_texts
        np.testing.assert_array_equal(other.text_counts, whole.text_counts)
    before = WordHasher(64)
    before.learned(first)
    assert before.n_texts == before.text_counts.sum() == 0


def test_texts_without_words_are_rows_of_zeros():
    rows = WordHasher(8).learned(LINES).rows(["", "12 3", "the"])
    assert rows.shape == (3, 8)
    assert rows[:2].nnz == 0
    assert WordHasher(1 << 20).learned(LINES).rows(["the"]).nnz == 0  # nothing but a stop word
    assert WordHasher().rows([]).shape == (0, 4096)


def test_hashers_come_back():
    hasher = WordHasher(64).learned(LINES)
    document, arrays = hasher.to_document()
    again = WordHasher.from_document(parse_document(dump_document(document, ""), ""), arrays)
    np.testing.assert_array_equal(again.rows(LINES).toarray(), hasher.rows(LINES).toarray())
    counts = arrays["text_counts"]
    for wrong in (counts[1:], counts + 0.5, -counts, counts * 1000, counts.astype(int), counts * np.nan):
        with pytest.raises(ModelFileError, match="text_counts"):
            WordHasher.from_document(document, {"text_counts": wrong})
    with pytest.raises(ModelFileError):
        WordHasher.from_document({"n_buckets": 0, "n_texts": 0}, {"text_counts": np.zeros(0)})
    for wrong in (0, 1 << 30):
        with pytest.raises(SettingsError, match="n_buckets"):
            WordHasher(wrong)
    with pytest.raises(SettingsError, match="buckets"):
        hasher + WordHasher(32)


# --- words of clusters


@given(st.lists(texts, min_size=1, max_size=6), st.integers(1, 8), st.booleans())
def test_counts_are_never_too_high_nor_lower_than_their_bound(parts, most_words, by_merging):
    counts, exact = WordCounts(most_words), Counter()
    for part in parts:
        for text in part:
            exact.update(set(words_of(text)))
        if by_merging:
            other = WordCounts(most_words)
            other.add(part, [7] * len(part))
            counts.merge(other)
        else:
            counts.add(part, [7] * len(part))
    (cluster,) = counts.to_document()["clusters"] or [{"words": [], "total": 0, "taken": 0}]
    found = dict(map(tuple, cluster["words"]))
    assert len(found) <= most_words
    assert cluster["total"] == exact.total()
    assert cluster["taken"] <= exact.total() / (most_words + 1)
    for word, count in exact.items():
        assert count - cluster["taken"] <= found.get(word, 0) <= count


def test_top_words_set_a_cluster_apart():
    counts = WordCounts()
    counts.add(["the dog barks", "the dog runs", "a dog and the cat"], [0, 0, 0])
    counts.add(["the cat sleeps", "the cat purrs", "the cat eats"], [1, 1, 1])
    assert counts.top_words(0)[0][0] == "dog"
    assert counts.top_words(1)[0][0] == "cat"
    for cluster in counts.clusters:
        assert "the" not in [word for word, _ in counts.top_words(cluster, 3)]
    assert len(counts.top_words(0, 1)) == 1
    with pytest.raises(SettingsError, match="unknown cluster '5'"):
        counts.top_words(5)


def test_scores_are_those_of_the_formula():
    """Monroe, Colaresi and Quinn by hand: counts 8 of 20 here, 2 of 30 there, prior 500 words as in all."""
    counts = WordCounts()
    counts.add(["apple"] * 8 + ["filler here"] * 6, [0] * 14)
    counts.add(["apple"] * 2 + ["filler there"] * 14, [1] * 16)
    prior = 500 * 10 / 50
    here, there = (math.log((y + prior) / (n + 500 - y - prior)) for y, n in ((8, 20), (2, 30)))
    expected = (here - there) / math.sqrt(1 / (8 + prior) + 1 / (2 + prior))
    assert dict(counts.top_words(0))["apple"] == pytest.approx(expected)
    assert "apple" not in dict(counts.top_words(1))


def test_clusters_that_merge_take_their_words_along():
    counts = WordCounts()
    counts.add(["dog dog", "cat", "dog"], np.array([0, 1, 2]))
    counts.join(2, into=0)
    counts.join(9, into=1)
    assert counts.clusters == (0, 1)
    assert counts.to_document()["clusters"][0]["words"] == [["dog", 2]]
    alone = WordCounts()
    alone.add(["only"], [0])
    assert alone.top_words(0) == []  # nothing to be set apart from


def test_counts_come_back():
    counts = WordCounts(50)
    counts.add(LINES, [i % 3 for i in range(len(LINES))])
    document = parse_document(dump_document(counts.to_document(), ""), "")
    again = WordCounts.from_document(document)
    assert again.to_document() == counts.to_document()
    assert [again.top_words(c) for c in again.clusters] == [counts.top_words(c) for c in counts.clusters]
    changes = [
        lambda d: d.update(version=9),
        lambda d: d.update(most_words=0),
        lambda d: d.update(most_words=1),
        lambda d: d.update(clusters=d["clusters"] * 2),
        lambda d: d["clusters"][0].update(total=1),
        lambda d: d["clusters"][0].update(taken=-1),
        lambda d: d["clusters"][0]["words"].append(d["clusters"][0]["words"][0]),
        lambda d: d["clusters"][0]["words"].append(["word", True]),
        lambda d: d["clusters"][0]["words"].append(["word", 0]),
        lambda d: d["clusters"][0]["words"].append([["word"], 1]),
        lambda d: d["clusters"][0]["words"].append("xy"),
    ]
    for change in changes:
        hostile = copy.deepcopy(document)
        change(hostile)
        with pytest.raises(ModelFileError):
            WordCounts.from_document(hostile)
    with pytest.raises(SettingsError, match="most_words"):
        WordCounts(0)
