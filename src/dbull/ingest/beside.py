"""Embeddings in an .npy file beside a file or a folder of texts, as one more column of its rows."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np

from dbull.data.readers import SUFFIXES, Chunk
from dbull.data.readers.chunk import Table
from dbull.data.readers.text_folders import text_files
from dbull.errors import DataError

COLUMN = "embedding"
SAME_NAME = "*.npy"  # each file has embeddings of its own, under its name


def with_embeddings(chunks: Iterator[Chunk], source: Path, beside: str) -> Iterator[Chunk]:
    """Yield chunks of tables with the embeddings of their rows; refuse a file of another number of rows."""
    path = place_of(source, beside)
    try:
        vectors = np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise DataError(f"{path}: the embeddings of {source} cannot be read ({error!s:.100})") from error
    if vectors.ndim != 2 or vectors.dtype.kind not in "iuf":
        raise DataError(f"{path}: expected a matrix of numbers, got {vectors.dtype} of shape {vectors.shape}")
    # Of a folder only some texts may be read; all have their row, in the order of their names.
    order = {key: row for row, key in enumerate(text_files(source))} if source.is_dir() else {}
    n_read = 0
    for chunk in chunks:
        end = n_read = chunk.first_row + len(chunk.x)
        if end > len(vectors) or (order and len(order) != len(vectors)):
            n_rows = len(order) or f"{end} rows or more"
            raise DataError(f"{path}: has {len(vectors)} rows, {source} has {n_rows}; each needs one")
        rows = list(range(chunk.first_row, end))
        if order and chunk.keys is not None:
            rows = [order[str(key)] for key in chunk.keys.tolist()]
        columns = {**chunk.x.columns, COLUMN: np.asarray(vectors[rows], dtype=np.float32)}
        yield replace(chunk, x=Table(columns, len(chunk.x)), columns=tuple(columns))
    if not order and n_read != len(vectors):
        raise DataError(f"{path}: has {len(vectors)} rows, {source} has {n_read}; each needs one")


def place_of(source: Path, beside: str) -> Path:
    """Return where the embeddings of a file are."""
    if beside != SAME_NAME:
        return Path(beside).expanduser()
    endings = [suffix for suffix in SUFFIXES if source.is_file() and source.name.lower().endswith(suffix)]
    stem = source.name[: -max(map(len, endings))] if endings else source.name
    return source.with_name(f"{stem}.npy")
