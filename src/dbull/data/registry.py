"""All known data sets by name: which files each needs and how they are read; find, fetch, verify, load."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from dbull.data import files, image_sets, kddcup99, synthetic, text_sets
from dbull.data.dataset import Dataset, Samples
from dbull.data.download import Progress, download_files
from dbull.data.files import DataFile
from dbull.errors import DataError, check_known

Reader = Callable[[Mapping[str, Path]], Samples]


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
    read: Reader
    source: str
    licence: str

    @property
    def download(self) -> tuple[DataFile, ...]:
        """The files to download, or to ask for where none can be downloaded."""
        with_addresses = [choice for choice in self.choices if choice and all(file.urls for file in choice)]
        return (with_addresses or self.choices)[0]

    @property
    def can_get(self) -> bool:
        """Whether the files can be downloaded."""
        return bool(self.download) and all(file.urls for file in self.download)

    def find(self, file: DataFile, folder: Path | str | None) -> Path | None:
        """Return where a file of the set is, None if it is not here."""
        return files.find_file(file.name, self.subfolder, folder)

    def complete(self, folder: Path | str | None) -> dict[DataFile, Path] | None:
        """Return the places of the files of the first choice that is here as a whole, None if none is."""
        for choice in self.choices:
            places = {file: path for file in choice if (path := self.find(file, folder)) is not None}
            if len(places) == len(choice):
                return places
        return None


def _read_digits(_paths: Mapping[str, Path]) -> Samples:
    """Return the digits that come with scikit-learn, pixels in [0, 1]; no training and test part."""
    from sklearn.datasets import load_digits  # slow to import, and few need it

    bunch = load_digits()
    x = bunch.data.astype(np.float32) / np.float32(16)
    return Samples(x, bunch.target.astype(np.int64), image_sets.DIGITS, (8, 8))


_READERS: dict[str, Reader] = {
    "digits": _read_digits,
    "mnist": partial(image_sets.read_idx_images, label_names=image_sets.DIGITS),
    "fashion-mnist": partial(image_sets.read_idx_images, label_names=image_sets.FASHION_LABELS),
    "usps": image_sets.read_usps,
    "reuters10k": text_sets.read_reuters10k,
    "reuters-rcv1": text_sets.read_pool,
    "20newsgroups": text_sets.read_newsgroups,
    "reuters-21578": text_sets.read_reuters21578,
    "cifar10": image_sets.read_cifar10,
    "cifar10-test": partial(image_sets.read_cifar10, names=image_sets.CIFAR10_TEST),
    "cifar10-features": partial(
        image_sets.read_features, label_names=image_sets.CIFAR10_LABELS, n_features=1280
    ),
    "stl10": image_sets.read_stl10,
    "stl10-features": partial(image_sets.read_features, label_names=image_sets.STL10_LABELS, n_features=2048),
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
        told.get("subfolder", name),
        tuple(map(files.files_of, told.get("choices", [name]))) or ((),),
        _READERS[name],
        told["source"],
        told["licence"],
    )
    for name, told in files.CATALOGUE["sets"].items()
}


@dataclass(frozen=True)
class FileStatus:
    """One file of a data set: its name, size at the source, and where it was found (None: nowhere)."""

    name: str
    n_bytes: int
    path: Path | None


@dataclass(frozen=True)
class CatalogueEntry:
    """What `dbull data list` shows of a data set."""

    name: str
    summary: str
    kind: str
    files: tuple[FileStatus, ...]
    found: bool
    can_get: bool
    n_bytes: int
    source: str
    licence: str


def dataset_names() -> tuple[str, ...]:
    """Return the names that :func:`load` knows."""
    return tuple(RECIPES)


def catalogue(folder: Path | None = None) -> tuple[CatalogueEntry, ...]:
    """Return every known data set, with its files and whether they are there; nothing is read or verified."""
    entries = []
    for name, recipe in RECIPES.items():
        choice = recipe.complete(folder)
        wanted = recipe.download if choice is None else choice
        shown = tuple(FileStatus(file.name, file.n_bytes, recipe.find(file, folder)) for file in wanted)
        n_bytes = sum(file.n_bytes for file in shown)
        state = choice is not None, recipe.can_get, n_bytes, recipe.source, recipe.licence
        entries.append(CatalogueEntry(name, recipe.summary, recipe.kind, shown, *state))
    return tuple(entries)


def load(name: str, folder: Path | str | None = None) -> Dataset:
    """Load a data set from files that are already here, each verified by its digest.

    They are looked for in `folder`, or else in that of the environment variable `DBULL_DATA`, then in the
    per-user cache. Nothing is ever downloaded; that is what :func:`fetch` is for. Raises SettingsError for an
    unknown name, DataError for missing files or a file that is not what it should be.
    """
    recipe = _recipe(name)
    paths, checksums = _verified(name, recipe, folder)
    return Dataset(
        name=name,
        kind=recipe.kind,
        source=recipe.source,
        licence=recipe.licence,
        checksums=checksums,
        **vars(recipe.read(paths)),
    )


def verify(name: str, folder: Path | str | None = None) -> dict[str, str]:
    """Verify the files of a data set; return the digest by which each was recognised."""
    return _verified(name, _recipe(name), folder)[1]


def fetch(name: str, folder: Path | str | None = None, progress: Progress | None = None) -> list[Path]:
    """Download the files of a data set from their official source, resuming and verifying.

    They go below `folder`, or else that of `DBULL_DATA`, else the per-user cache. `progress` is called with
    (bytes done, bytes in all). Returns the files; none for a set that needs none.
    """
    recipe = _recipe(name)
    if recipe.complete(folder) is not None:
        return list(_verified(name, recipe, folder)[0].values())
    if not recipe.can_get:
        missing = [file.name for file in recipe.download]
        raise DataError(
            files.missing_message(name, recipe.subfolder, missing, folder, can_get=False)
            + f". It cannot be downloaded: {recipe.summary}; source: {recipe.source}"
        )
    return download_files(recipe.download, files.roots(folder)[0] / recipe.subfolder, progress)


def _recipe(name: str) -> Recipe:
    check_known("data set", name, RECIPES)
    return RECIPES[name]


def _verified(name: str, recipe: Recipe, folder: Path | str | None) -> tuple[dict[str, Path], dict[str, str]]:
    """Return the path and the digest of each file of the first complete choice."""
    found = recipe.complete(folder)
    if found is None:
        missing = [file.name for file in recipe.download if recipe.find(file, folder) is None]
        raise DataError(files.missing_message(name, recipe.subfolder, missing, folder, recipe.can_get))
    checksums = {file.name: files.matching_digest(path, file) for file, path in found.items()}
    return {file.name: path for file, path in found.items()}, checksums
