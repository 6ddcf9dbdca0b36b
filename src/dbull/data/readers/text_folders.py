"""Folders of texts: a .txt file is a row, its path the key."""

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from dbull.data.readers.chunk import Chunk, ReadSettings, Selection
from dbull.errors import DataError

SUFFIX = ".txt"
COLUMN = "text"
MAX_FILE_BYTES = 1 << 26  # of one text; a book has a million
CHUNK_BYTES = 1 << 26  # that are held at once


def read_texts(folder: Path, settings: ReadSettings) -> Iterator[Chunk]:
    """Yield the texts below a folder, sorted by path, which is also their key."""
    files = text_files(folder)
    if settings.only is not None:
        files = {key: folder / key for key in settings.only}
    selection = Selection(str(folder), 1, (0,), (COLUMN,))
    keys: list[str] = []
    texts: list[str] = []
    first_row = size = 0
    for key, path in files.items():
        texts.append(_read(path, settings, key))
        keys.append(key)
        size += len(texts[-1])
        if len(keys) >= settings.chunk_rows or size > CHUNK_BYTES:
            yield selection.table({COLUMN: _cells(texts)}, _cells(keys), first_row)
            first_row += len(keys)
            keys, texts, size = [], [], 0
    if keys:
        yield selection.table({COLUMN: _cells(texts)}, _cells(keys), first_row)


def text_files(folder: Path) -> dict[str, Path]:
    """Return the texts below a folder by their keys, in order."""
    found = sorted(
        Path(place, name) for place, _, names in os.walk(folder) for name in names if _is_text(name)
    )
    return {path.relative_to(folder).as_posix(): path for path in found if path.is_file()}


def is_text_folder(folder: Path) -> bool:
    """Tell whether there is a text below a folder."""
    return any(_is_text(name) for _, _, names in os.walk(folder) for name in names)


def _is_text(name: str) -> bool:
    return name.lower().endswith(SUFFIX) and not name.startswith(".")


def _cells(texts: list[str]) -> np.ndarray:
    return np.fromiter(texts, dtype=object, count=len(texts))


def _read(path: Path, settings: ReadSettings, key: str) -> str:
    """Return a text: UTF-8, else Latin-1, in which every byte is a character."""
    try:
        if path.stat().st_size > MAX_FILE_BYTES:
            raise DataError(f"{path}: has more than the {MAX_FILE_BYTES:,} bytes that a text may have")
        data = path.read_bytes()
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror})") from error
    if settings.only is not None and hashlib.sha256(data).hexdigest() != settings.only[key]:
        raise DataError(f"{path}: has changed while the folder was read; run the same again")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        return data.decode("latin-1")
