"""The known data sets: which files each needs, how they are read, where they come from, on what terms."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from dbull.data import cifar10, kddcup99, mnist, reuters, stl10, synthetic, text, usps
from dbull.data.dataset import Samples
from dbull.data.files import CATALOGUE, DataFile, files_of


@dataclass(frozen=True)
class Recipe:
    """How to come by one data set.

    `choices` are sets of files that are each enough, fastest to read first; all of them give the
    same bytes. The first complete one is read; the first with addresses is what `fetch` downloads.
    """

    summary: str
    kind: str
    subfolder: str
    choices: tuple[tuple[DataFile, ...], ...]
    read: Callable[[Mapping[str, Path]], Samples]
    source: str
    licence: str

    @property
    def download(self) -> tuple[DataFile, ...]:
        """The files to download, or to ask for where none can be downloaded."""
        with_addresses = [files for files in self.choices if files and all(f.urls for f in files)]
        return (with_addresses or self.choices)[0]

    @property
    def can_get(self) -> bool:
        """Whether the files can be downloaded."""
        return bool(self.download) and all(file.urls for file in self.download)


def _read_digits(_paths: Mapping[str, Path]) -> Samples:
    """Return the digits that come with scikit-learn, pixels in [0, 1]; no training and test part."""
    from sklearn.datasets import load_digits  # slow to import, and few need it

    bunch = load_digits()
    x = bunch.data.astype(np.float32) / np.float32(16)
    return Samples(x, bunch.target.astype(np.int64), tuple("0123456789"), (8, 8))


_READERS: dict[str, Callable[[Mapping[str, Path]], Samples]] = {
    "digits": _read_digits,
    "mnist": partial(mnist.read_idx_images, label_names=mnist.MNIST_LABELS),
    "fashion-mnist": partial(mnist.read_idx_images, label_names=mnist.FASHION_LABELS),
    "usps": usps.read_usps,
    "reuters10k": reuters.read_reuters10k,
    "reuters-rcv1": reuters.read_pool,
    "20newsgroups": text.read_newsgroups,
    "reuters-21578": text.read_reuters21578,
    "cifar10": cifar10.read_images,
    "cifar10-test": cifar10.read_test,
    "cifar10-features": cifar10.read_features,
    "stl10": stl10.read_images,
    "stl10-features": stl10.read_features,
    "kddcup99": kddcup99.read_connections,
    "kddcup99-corrected": kddcup99.read_connections,
    "gaussian-mixture": lambda _: synthetic.gaussian_mixture(seed=0),
    "skewed-mixture": lambda _: synthetic.skewed_mixture(seed=0),
    "drifting-mixture": lambda _: synthetic.drifting_mixture(seed=0),
}
RECIPES: dict[str, Recipe] = {
    name: Recipe(
        told["summary"],
        told["kind"],
        told.get("subfolder", ""),
        tuple(map(files_of, told.get("choices", ()))) or ((),),
        _READERS[name],
        told["source"],
        told["licence"],
    )
    for name, told in CATALOGUE["sets"].items()
}
