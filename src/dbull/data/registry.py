"""All known data sets by name: find or fetch their files, verify them, read them."""

from dataclasses import dataclass
from pathlib import Path

from dbull.data.dataset import Dataset
from dbull.data.download import Progress, download_files
from dbull.data.files import DataFile, find_file, matching_digest, missing_message, write_root
from dbull.data.recipes import RECIPES, Recipe
from dbull.errors import DataError, check_known


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
        choice = _complete_choice(recipe, folder) or recipe.download
        files = tuple(FileStatus(file.name, file.n_bytes, _find(file, recipe, folder)) for file in choice)
        entries.append(
            CatalogueEntry(
                name=name,
                summary=recipe.summary,
                kind=recipe.kind,
                files=files,
                found=all(file.path is not None for file in files),
                can_get=recipe.can_get,
                n_bytes=sum(file.n_bytes for file in files),
                source=recipe.source,
                licence=recipe.licence,
            )
        )
    return tuple(entries)


def load(name: str, folder: Path | str | None = None) -> Dataset:
    """Load a data set from files that are already here, each verified by its digest.

    Parameters
    ----------
    name : str
        One of :func:`dataset_names`.
    folder : path, optional
        Where to look. Default: the folder in the environment variable `DBULL_DATA`, then the
        per-user cache. Nothing is ever downloaded; that is what :func:`fetch` is for.

    Raises
    ------
    SettingsError
        For an unknown name.
    DataError
        For missing files, or a file that is not what it should be.
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

    Parameters
    ----------
    name : str
    folder : path, optional
        Root folder to put them under. Default: `DBULL_DATA` if set, else the per-user cache.
    progress : callable, optional
        Called with (bytes done, bytes in all).

    Returns
    -------
    list of Path
        The files, verified; empty for a set that needs none.
    """
    recipe = _recipe(name)
    if _complete_choice(recipe, folder) is not None:
        return list(_verified(name, recipe, folder)[0].values())
    if not recipe.can_get:
        missing = [file.name for file in recipe.download]
        raise DataError(
            missing_message(name, recipe.subfolder, missing, folder, can_get=False)
            + f". It cannot be downloaded: {recipe.summary}; source: {recipe.source}"
        )
    return download_files(recipe.download, write_root(folder) / recipe.subfolder, progress)


def _recipe(name: str) -> Recipe:
    check_known("data set", name, RECIPES)
    return RECIPES[name]


def _find(file: DataFile, recipe: Recipe, folder: Path | str | None) -> Path | None:
    return find_file(file.name, recipe.subfolder, folder)


def _complete_choice(recipe: Recipe, folder: Path | str | None) -> tuple[DataFile, ...] | None:
    for choice in recipe.choices:
        if all(_find(file, recipe, folder) for file in choice):
            return choice
    return None


def _verified(name: str, recipe: Recipe, folder: Path | str | None) -> tuple[dict[str, Path], dict[str, str]]:
    """Return the path and the digest of each file of the first complete choice."""
    choice = _complete_choice(recipe, folder)
    if choice is None:
        missing = [file.name for file in recipe.download if not _find(file, recipe, folder)]
        raise DataError(missing_message(name, recipe.subfolder, missing, folder, recipe.can_get))
    paths, checksums = {}, {}
    for file in choice:
        path = _find(file, recipe, folder)
        assert path is not None
        paths[file.name], checksums[file.name] = path, matching_digest(path, file)
    return paths, checksums
