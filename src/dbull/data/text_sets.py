"""Published sets of text as tf-idf: 20 Newsgroups "by date", Reuters-21578, and Reuters10k.

The first two begin with the raw text: 18,846 Usenet posts of 1993, newswire stories of 1987 (Distribution
1.0). Reuters10k are 10,000 documents of RCV1 with one of four root topics; the ready file and the recipe from
raw word counts give the same bytes, and whichever file is there is used.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import scipy  # its parts are imported when they are first used

from dbull.data.archives import read_arrays, read_texts
from dbull.data.dataset import Samples
from dbull.data.files import files_of
from dbull.errors import DataError

(NEWSGROUPS,), (REUTERS,) = files_of("20newsgroups"), files_of("reuters-21578")
(READY_FILE,), (COUNTS_FILE,) = files_of("reuters10k-ready"), files_of("reuters-rcv1")
N_WORDS = 2000  # as in the Reuters10k of DEC, VaDE and the paper
# The files are SGML without nesting of these elements, so five patterns read them whole. A parser
# that resolves entities or a DTD would be both slower and open to whatever the file asks for.
_STORY = re.compile(r'<REUTERS [^>]*NEWID="(\d+)"[^>]*>(.*?)</REUTERS>', re.DOTALL)
_TOPICS = re.compile(r"<TOPICS>(.*?)</TOPICS>", re.DOTALL)
_ITEM = re.compile(r"<D>(.*?)</D>", re.DOTALL)
_TEXT = re.compile(r"<TEXT[^>]*>(.*?)</TEXT>", re.DOTALL)
_TAG = re.compile(r"</?(?:TITLE|AUTHOR|DATELINE|BODY)>")
# Documents drawn of CCAT, GCAT, MCAT, ECAT: the counts of the Reuters10k label file in common use.
_CLASS_SIZES = (4312, 2403, 2471, 814)
_DRAW_SEED = 1234


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


def _samples(documents: Sequence[str], classes: Sequence[str], n_train: int | None = None) -> Samples:
    label_names, y_true = np.unique(classes, return_inverse=True)
    x = tfidf(documents)
    return Samples(x, y_true.astype(np.int64), tuple(map(str, label_names)), (x.shape[1],), n_train)


def read_posts(path: Path) -> tuple[list[str], list[str], int]:
    """Return posts without headers, the group of each, and the number of training posts; these come first."""
    parts: dict[str, tuple[list[str], list[str]]] = {"train": ([], []), "test": ([], [])}
    for name, text in read_texts(path):
        folder, _, rest = name.partition("/")
        group = rest.partition("/")[0]
        part = folder.removeprefix("20news-bydate-")
        if part not in parts or not group:
            expected = "expected 20news-bydate-{train,test}/GROUP/ID"
            raise DataError(f"{path}: unexpected member {name}; {expected}")
        # Organisation, sender and subject in the header all but name the group.
        parts[part][0].append(text.partition("\n\n")[2])
        parts[part][1].append(group)
    (train_posts, train_groups), (test_posts, test_groups) = parts["train"], parts["test"]
    return train_posts + test_posts, train_groups + test_groups, len(train_posts)


def read_newsgroups(paths: Mapping[str, Path]) -> Samples:
    """Read the archive and return tf-idf vectors of the 2,000 most frequent words."""
    return _samples(*read_posts(paths[NEWSGROUPS.name]))


@dataclass(frozen=True)
class Story:
    """One newswire story: its number, its topics (none to many), its title and text."""

    number: int
    topics: tuple[str, ...]
    text: str


def parse_stories(sgml: str, where: str) -> Iterator[Story]:
    """Yield the stories of one SGML file."""
    n_stories = 0
    for match in _STORY.finditer(sgml):
        number, body = int(match.group(1)), match.group(2)
        topics, text = _TOPICS.search(body), _TEXT.search(body)
        if topics is None or text is None:
            lacks = "TOPICS" if topics is None else "TEXT"
            raise DataError(f"{where}: story {number} has no {lacks} element")
        n_stories += 1
        told = html.unescape(_TAG.sub(" ", text.group(1)))
        yield Story(number, tuple(_ITEM.findall(topics.group(1))), told)
    n_begun = sgml.count("<REUTERS ")
    if n_stories != n_begun:
        raise DataError(f"{where}: {n_begun} stories begin but only {n_stories} end; is it cut off?")


def read_stories(path: Path) -> list[Story]:
    """Return all stories of the archive, sorted by number."""
    stories = [s for name, sgml in read_texts(path, ".sgm") for s in parse_stories(sgml, f"{path}:{name}")]
    if not stories:
        raise DataError(f"{path}: no .sgm file with stories in it")
    return sorted(stories, key=lambda story: story.number)


def read_reuters21578(paths: Mapping[str, Path]) -> Samples:
    """Return tf-idf vectors of the stories with exactly one topic, which is their class."""
    stories = [story for story in read_stories(paths[REUTERS.name]) if len(story.topics) == 1]
    return _samples([story.text for story in stories], [story.topics[0] for story in stories])


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
    return weights.astype(np.float32).sorted_indices(), columns


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
    if READY_FILE.name in paths:
        wanted = ("tfidf_data", "indices", "indptr", "shape", "label", "label_names")
        arrays = read_arrays(paths[READY_FILE.name], wanted)
        x, labels, names = _csr(arrays["tfidf_data"], arrays), arrays["label"], arrays["label_names"]
    else:
        pool = read_pool(paths)
        assert pool.y_true is not None
        random = np.random.RandomState(_DRAW_SEED)  # the draw was made with this generator
        drawn = [
            random.choice(np.flatnonzero(pool.y_true == label), size, replace=False)
            for label, size in enumerate(_CLASS_SIZES)
        ]
        rows = random.permutation(np.concatenate(drawn))
        x, labels, names = pool.x[rows], pool.y_true[rows], np.array(pool.label_names)
    return Samples(x.sorted_indices(), labels.astype(np.int64), tuple(map(str, names)), (x.shape[1],))


def _csr(values: np.ndarray, arrays: Mapping[str, np.ndarray]) -> scipy.sparse.csr_matrix:
    places = (arrays["indices"].astype(np.int32), arrays["indptr"])
    return scipy.sparse.csr_matrix((values, *places), shape=tuple(arrays["shape"]))
