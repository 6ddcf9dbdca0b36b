"""20 Newsgroups, the "by date" version: 18,846 Usenet posts of 1993 from the raw text on."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from dbull.data.archives import read_texts
from dbull.data.catalogue import files_of
from dbull.data.dataset import Samples
from dbull.data.text import tfidf
from dbull.errors import DataError

(ARCHIVE,) = files_of("20newsgroups")


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
            raise DataError(
                f"{path}: unexpected member {name}; expected 20news-bydate-{{train,test}}/GROUP/ID"
            )
        parts[part][0].append(without_header(text))
        parts[part][1].append(group)
    (train_posts, train_groups), (test_posts, test_groups) = parts["train"], parts["test"]
    return train_posts + test_posts, train_groups + test_groups, len(train_posts)


def read_newsgroups(paths: Mapping[str, Path]) -> Samples:
    """Read the archive and return tf-idf vectors of the 2,000 most frequent words."""
    posts, groups, n_train = read_posts(paths[ARCHIVE.name])
    label_names, y_true = np.unique(groups, return_inverse=True)
    x = tfidf(posts)
    return Samples(x, y_true.astype(np.int64), tuple(map(str, label_names)), (x.shape[1],), n_train)
