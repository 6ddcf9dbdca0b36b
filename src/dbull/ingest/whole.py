"""All files of a command as one arrival, of any length: what is new among them, and how blocks are read."""

import hashlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import joblib

from dbull.data.blocks import FileBlock, Piece, Source
from dbull.data.readers.remote import is_address, mark_of
from dbull.documents import as_text
from dbull.errors import AlreadyLearnedError, DataError
from dbull.ingest.contents import hash_on_disk
from dbull.ingest.inputs import Input
from dbull.store import LearnedInput
from dbull.store.learned import LearnedRecord


def new_files(
    files: Sequence[str], known: Mapping[str, LearnedRecord], force: bool
) -> tuple[list[str], list[LearnedInput]]:
    """Return the files that the model has not learned, and what it is to remember of them.

    A file is known by all its bytes. One of which only some were learned is refused: which of its rows are
    new is told by `learn` without --whole.
    """
    # Workers may be in another folder.
    places = (path if is_address(path) else os.path.abspath(path) for path in files)
    marks = joblib.Parallel()(joblib.delayed(_mark)(place) for place in places)
    names = {record.name for record in known.values()}
    found, learned, whole = [], list[LearnedInput](), None
    for path, mark in zip(files, marks, strict=True):
        name = as_text(path.rpartition("/")[2])
        whole = whole or known.get(mark)
        if force or mark not in known:
            if name in names and not force:
                raise DataError(
                    f"{path}: a file of this name was learned, and this one is another, or has grown; learn "
                    "it without --whole, which finds its new rows, or give --force to learn all of it"
                )
            found.append(path)
            learned.append(LearnedInput(mark, name))
    if not found:
        assert whole is not None
        raise AlreadyLearnedError(
            f"{files[0]}: this was learned in generation {whole.generation} as {whole.name!r}, and so were "
            "all others; learning them again would count their rows twice: give --force"
        )
    return found, learned


def _mark(path: str) -> str:
    """Return by what a file is remembered; one elsewhere by what its place says of it."""
    if is_address(path):
        return hashlib.sha256(f"{path}\n{mark_of(path)}".encode()).hexdigest()
    return hash_on_disk(Path(path))


def one_arrival(learned: Sequence[LearnedInput], label: str, n_rows: int) -> tuple[LearnedInput, ...]:
    """Return what a model remembers of an arrival of several files: all together, and each."""
    if len(learned) == 1:
        return (replace(learned[0], rows=n_rows),)
    together = hashlib.sha256("\n".join(one.sha256 for one in learned).encode()).hexdigest()
    return LearnedInput(together, label, n_rows), *learned


def readable(source: Source, given: Input) -> tuple[Source, Piece]:
    """Return a source with how its files are read, as numbers or as a mixed table, and its first rows."""
    first = source.files()[0]

    def tried(one: Input) -> tuple[Source, Piece]:
        settings = one.settings()
        peeked = replace(settings, chunk_rows=min(settings.chunk_rows, 1000))
        piece = next(FileBlock(first, peeked).pieces())
        columns = settings.columns if one.mixed or settings.columns else piece.names
        return replace(source, reading=replace(settings, columns=columns, unnamed=True)), piece

    try:
        return tried(given)
    except DataError:
        if given.mixed or given.model is not None:
            raise
        return tried(replace(given, mixed=True))
