"""Inputs as arrivals: pieces of bounded size, each learned once, known again by what they hold."""

import hashlib
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

from dbull.data.readers import SUFFIXES, Chunk
from dbull.data.readers.chunk import joined
from dbull.documents import as_text
from dbull.errors import AlreadyLearnedError, DataError
from dbull.ingest.contents import Survey, hash_on_disk, row_bytes, row_digests, survey_folder, survey_table
from dbull.ingest.inputs import Input
from dbull.store import LearnedInput
from dbull.store.learned import LearnedRecord

TABLE_SUFFIXES = tuple(suffix for suffix in SUFFIXES if suffix not in (".npy", ".npz", ".h5ad"))
SAMPLED_ROWS = 16  # of each arrival of a table, remembered one by one


@dataclass(frozen=True)
class Piece:
    """One arrival of a source."""

    rows: Any  # an array, a `Table`, `SparseRows` or a `Source` of any length
    names: tuple[str, ...] | None
    sample_shape: tuple[int, ...]
    learned: tuple[LearnedInput, ...]  # what the model is to remember of it; the first tells its rows
    label: str
    keys: tuple[str, ...] | None  # what its rows are called: by their key, or by file and row, from 1
    offsets: Mapping[str, Sequence[int]] = field(default_factory=dict)  # of a log: where to go on after it


@dataclass(frozen=True)
class Source(ABC):
    """An input, and how much of it a model has learned."""

    unit: ClassVar[str]  # what it consists of

    input: Input
    sha256: str
    n_bytes: int
    n_done: int  # rows learned in an earlier run that was interrupted, or before more were added
    n_passes: int  # how often all of it was learned before

    @abstractmethod
    def new_rows(self) -> Iterator[tuple[Chunk, Any, list[str]]]:
        """Yield what is left: a chunk, those of its rows that are left, and what tells each of them."""

    @abstractmethod
    def facts(self, told: Sequence[str]) -> list[LearnedInput]:
        """Return what is remembered of the rows of a piece besides the piece itself."""

    def pieces(self) -> Iterator[Piece]:
        """Yield what is left to learn, at most one and a half times `arrival_rows` rows each."""
        first, size = self.n_done, self.input.reading.arrival_rows
        held: list[Any] = []
        told: list[tuple[str, str]] = []  # what tells a row, and its key
        for chunk, rows, facts in self.new_rows():
            held.append(rows)
            told += zip(facts, self._keys(chunk, len(rows)), strict=True)
            while len(told) >= size + size // 2:
                rows = joined(held)
                yield self._piece(chunk, rows[:size], told[:size], first, last=False)
                held, told = [rows[size:]], told[size:]
                first += size
        yield self._piece(chunk, joined(held), told, first, last=True)

    def _keys(self, chunk: Chunk, n_rows: int) -> Sequence[str]:
        """Return what the last rows of a chunk are called."""
        if chunk.keys is not None:
            return [as_text(str(key)) for key in chunk.keys[-n_rows:].tolist()]
        name, end = as_text(self.input.path.name), chunk.first_row + len(chunk.x)
        return [f"{name}:{row + 1}" for row in range(end - n_rows, end)]

    def _piece(
        self, chunk: Chunk, rows: Any, told: list[tuple[str, str]], first: int, *, last: bool
    ) -> Piece:
        name = as_text(self.input.path.name)
        whole = last and first == 0
        label = name if whole else f"{name} {self.unit} {first + 1}-{first + len(rows)}"
        learned: list[LearnedInput] = []
        if not whole:
            part = _part_key(self.sha256, first, self.n_passes)
            learned.append(LearnedInput(part, label, len(rows), self.n_bytes))
        if last:
            learned.append(LearnedInput(self.sha256, name, first + len(rows), self.n_bytes))
        learned += self.facts([fact for fact, _ in told])
        keys = tuple(key for _, key in told)
        return Piece(rows, chunk.names, chunk.sample_shape, tuple(learned), label, keys)


@dataclass(frozen=True)
class _Table(Source):
    unit = "rows"
    survey: Survey
    remembered: set[str] = field(default_factory=set)  # rows by which the model knows a file of this name

    def new_rows(self) -> Iterator[tuple[Chunk, Any, list[str]]]:
        for chunk in self.survey.read():
            new = max(0, self.n_done - chunk.first_row)
            if new < len(chunk.x):
                yield chunk, chunk.x[new:], list(row_digests(self.input.path, row_bytes(chunk)[new:]))

    def facts(self, told: Sequence[str]) -> list[LearnedInput]:
        """Remember a few rows, chosen by what they hold.

        None that occurs twice: such rows are common, and may be in a file that has nothing to do with it.
        None of standard input, which is called the same whatever it holds.
        """
        told = told if self.input.named else ()
        single = sorted(digest for digest, count in Counter(told).items() if count == 1)
        chosen = [digest for digest in single[:SAMPLED_ROWS] if digest not in self.remembered]
        self.remembered.update(chosen)
        return [LearnedInput(digest, as_text(self.input.path.name)) for digest in chosen]


@dataclass(frozen=True)
class _Images(Source):
    unit = "images"
    images: dict[str, tuple[str, str]]  # those to learn: key -> SHA-256, by what it is remembered

    def new_rows(self) -> Iterator[tuple[Chunk, Any, list[str]]]:
        only = {key: sha256 for key, (sha256, _) in self.images.items()}
        for chunk in self.input.chunks(only=only):
            assert chunk.keys is not None
            yield chunk, chunk.x, [str(key) for key in chunk.keys.tolist()]

    def facts(self, told: Sequence[str]) -> list[LearnedInput]:
        return [LearnedInput(self.images[key][1], as_text(key), 1) for key in told]


class _Texts(_Images):
    unit = "texts"


def open_source(given: Input, known: Mapping[str, LearnedRecord], force: bool) -> Source:
    """Identify an input by its content; refuse it if all of it was learned, or part of it, unless forced.

    A file whose beginning was learned goes on from there. One that has some of the rows of a file of its
    name, but does not begin with all of them, is refused: nobody can tell which of its rows are new.
    """
    path = given.path
    if path.is_dir():
        return _open_folder(given, known, force)
    lengths = {record.bytes for record in known.values() if record.bytes > 0}
    name = as_text(path.name)
    sampled = {s for s, record in known.items() if given.named and record.name == name and record.rows == 0}
    survey = _survey(given, lengths, sampled)
    given = survey.source
    whole, n_passes = _learned_whole(path, survey.sha256, known)
    before = 0 if whole is not None or force else _rows_of_beginning(survey, known)
    done = max(_parts_done(survey.sha256, first, known, n_passes) for first in (0, before))
    if whole is not None and not force and done == 0:
        raise _learned_before(path, whole)
    if done == 0 and survey.known_rows and not force:
        raise DataError(
            f"{path}: has rows that were learned from a file of this name, but does not begin with all that "
            "was learned; learning it would count rows twice: save the new rows alone, or give --force"
        )
    if done == survey.n_rows:
        raise AlreadyLearnedError(f"{path}: no rows were added since it was learned")
    if done > survey.n_rows:
        raise DataError(f"{path}: has {survey.n_rows} rows, {done} of which were learned: it has changed")
    remembered = set() if force else set(known)
    return _Table(given, survey.sha256, survey.n_bytes, done, n_passes, survey, remembered)


def _survey(given: Input, lengths: Collection[int], sampled: Collection[str]) -> Survey:
    """Look at a table; the first of a model is read as columns of any type if it is not numbers alone."""
    try:
        return survey_table(given, lengths, sampled)
    except DataError:
        if given.mixed or given.model is not None or not given.path.name.lower().endswith(TABLE_SUFFIXES):
            raise
        return survey_table(replace(given, mixed=True), lengths, sampled)


def _open_folder(given: Input, known: Mapping[str, LearnedRecord], force: bool) -> Source:
    images = survey_folder(given.path)
    kind = _Texts if given.mixed else _Images
    sha256 = hashlib.sha256("\n".join(fact for _, fact in images.values()).encode()).hexdigest()
    whole, n_passes = _learned_whole(given.path, sha256, known)
    keys = list(images)
    if force:
        new = keys[_parts_done(sha256, 0, known, n_passes) :]
    elif whole is not None:
        raise _learned_before(given.path, whole)
    else:
        new = [key for key in keys if images[key][1] not in known]
    if not new:
        raise AlreadyLearnedError(f"{given.path}: no {kind.unit} were added since they were learned")
    done = len(keys) - len(new)
    return kind(given, sha256, 0, done, n_passes, {key: images[key] for key in new})


def _learned_whole(
    path: Path, sha256: str, known: Mapping[str, LearnedRecord]
) -> tuple[LearnedRecord | None, int]:
    """Return when all of a content was learned last, and how often."""
    whole = known.get(sha256) or (known.get(hash_on_disk(path)) if known else None)
    return whole, 0 if whole is None else whole.times


def _learned_before(path: Path, whole: LearnedRecord) -> AlreadyLearnedError:
    return AlreadyLearnedError(
        f"{path}: this was learned in generation {whole.generation} as {whole.name!r}; learning it again "
        "would count its rows twice: leave it out, or give --force"
    )


def _rows_of_beginning(survey: Survey, known: Mapping[str, LearnedRecord]) -> int:
    """Return how many rows of a table were learned when it was shorter, whole or in part."""
    done = 0
    for _, sha256 in sorted(survey.beginnings.items()):
        whole = known.get(sha256)
        starts = (0, done, 0 if whole is None else whole.rows)
        done = max(_parts_done(sha256, first, known) for first in starts)
    return done


def _parts_done(sha256: str, first: int, known: Mapping[str, LearnedRecord], n_passes: int = 0) -> int:
    """Return up to which row the arrivals of a content were learned in this pass, from a first row on."""
    while (part := known.get(_part_key(sha256, first, n_passes))) is not None:
        first += part.rows
    return first


def _part_key(sha256: str, first_row: int, n_passes: int) -> str:
    """Name an arrival of a content; in a pass after the first, which was forced, by another name."""
    again = f":{n_passes}" if n_passes else ""
    return hashlib.sha256(f"{sha256}:{first_row}{again}".encode()).hexdigest()
