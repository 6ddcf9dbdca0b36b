"""Reuters-21578, Distribution 1.0: newswire stories of 1987 from the raw SGML on. It is not Reuters10k."""

import html
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from dbull.data.archives import read_texts
from dbull.data.catalogue import files_of
from dbull.data.dataset import Samples
from dbull.data.text import tfidf
from dbull.errors import DataError

(ARCHIVE,) = files_of("reuters-21578")

# The files are SGML without nesting of these elements, so five patterns read them whole. A parser
# that resolves entities or a DTD would be both slower and open to whatever the file asks for.
_STORY = re.compile(r'<REUTERS [^>]*NEWID="(\d+)"[^>]*>(.*?)</REUTERS>', re.DOTALL)
_TOPICS = re.compile(r"<TOPICS>(.*?)</TOPICS>", re.DOTALL)
_ITEM = re.compile(r"<D>(.*?)</D>", re.DOTALL)
_TEXT = re.compile(r"<TEXT[^>]*>(.*?)</TEXT>", re.DOTALL)
_TAG = re.compile(r"</?(?:TITLE|AUTHOR|DATELINE|BODY)>")


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
            raise DataError(
                f"{where}: story {number} has no {'TOPICS' if topics is None else 'TEXT'} element"
            )
        n_stories += 1
        yield Story(
            number, tuple(_ITEM.findall(topics.group(1))), html.unescape(_TAG.sub(" ", text.group(1)))
        )
    if n_stories != sgml.count("<REUTERS "):
        raise DataError(
            f"{where}: {sgml.count('<REUTERS ')} stories begin but only {n_stories} end; is it cut off?"
        )


def read_stories(path: Path) -> list[Story]:
    """Return all stories of the archive, sorted by number."""
    stories = [s for name, sgml in read_texts(path, ".sgm") for s in parse_stories(sgml, f"{path}:{name}")]
    if not stories:
        raise DataError(f"{path}: no .sgm file with stories in it")
    return sorted(stories, key=lambda story: story.number)


def read_reuters21578(paths: Mapping[str, Path]) -> Samples:
    """Return tf-idf vectors of the stories with exactly one topic, which is their class."""
    stories = [story for story in read_stories(paths[ARCHIVE.name]) if len(story.topics) == 1]
    label_names, y_true = np.unique([story.topics[0] for story in stories], return_inverse=True)
    x = tfidf([story.text for story in stories])
    return Samples(x, y_true.astype(np.int64), tuple(map(str, label_names)), (x.shape[1],))
