"""Text data sets from the raw text on, as tf-idf: 20 Newsgroups "by date" and Reuters-21578.

The first has 18,846 Usenet posts of 1993, the second (Distribution 1.0) newswire stories of 1987; the latter
is not Reuters10k.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import scipy  # its parts are imported when they are first used

from dbull.data.archives import read_texts
from dbull.data.dataset import Samples
from dbull.data.files import files_of
from dbull.errors import DataError

(NEWSGROUPS,), (REUTERS,) = files_of("20newsgroups"), files_of("reuters-21578")
N_WORDS = 2000  # as in the Reuters10k of DEC, VaDE and the paper
# The files are SGML without nesting of these elements, so five patterns read them whole. A parser
# that resolves entities or a DTD would be both slower and open to whatever the file asks for.
_STORY = re.compile(r'<REUTERS [^>]*NEWID="(\d+)"[^>]*>(.*?)</REUTERS>', re.DOTALL)
_TOPICS = re.compile(r"<TOPICS>(.*?)</TOPICS>", re.DOTALL)
_ITEM = re.compile(r"<D>(.*?)</D>", re.DOTALL)
_TEXT = re.compile(r"<TEXT[^>]*>(.*?)</TEXT>", re.DOTALL)
_TAG = re.compile(r"</?(?:TITLE|AUTHOR|DATELINE|BODY)>")


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


def without_header(post: str) -> str:
    """Return the post without its header: organisation, sender and subject all but name the group."""
    return post.partition("\n\n")[2]


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
        parts[part][0].append(without_header(text))
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
