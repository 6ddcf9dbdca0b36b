"""Messages of a log as an arrival: JSON objects, read as the lines of a file would be."""

import hashlib
import json
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import Any

from dbull.data.readers.chunk import Chunk, one_chunk
from dbull.data.readers.json_lines import TEXT
from dbull.data.readers.kafka_log import KafkaLog, Message
from dbull.documents import as_text
from dbull.errors import DataError
from dbull.ingest.inputs import Input
from dbull.ingest.sources import Piece
from dbull.methods.dbull import DBULL
from dbull.store import LearnedInput

MOST_TOLD = 10  # skipped messages of one arrival that are named one by one
MOST_PARTITIONS = 3  # that a label names


def read_messages(
    messages: Sequence[Message], log: KafkaLog, model: DBULL | None, opened: Callable[[Path], Input]
) -> tuple[Piece | None, list[Message]]:
    """Return messages as an arrival; or None, and those that can be read, if they are too few for one.

    `opened` says how a file of JSON lines is read. Messages that cannot be read are told, with their offsets,
    and counted; the others are learned.
    """
    columns = _columns(model)
    refused: dict[Message, str] = {}
    lines: dict[Message, str] = {}
    for message in messages:
        try:
            lines[message] = json.dumps(_cells(message, columns))
        except (ValueError, RecursionError) as error:
            refused[message] = str(error)
    chunk: Chunk | None = None
    good, least = list(lines), 2 if model is None else 1
    if len(good) >= least:
        with tempfile.TemporaryDirectory(prefix="dbull-") as place:
            file = _Lines(Path(place) / f"{messages[0].topic}.jsonl", lines, opened)
            chunk, good = file.read()
            refused |= file.refused
    _tell(log, refused)
    if chunk is None or len(good) < least:
        return None, good
    label, offsets = _label(messages), log.offsets
    digest = hashlib.sha256(json.dumps(offsets, sort_keys=True).encode())  # a topic may be made anew, so also
    for message in good:
        digest.update(message.value or b"")
    learned = (LearnedInput(digest.hexdigest(), label, len(good)),)
    keys = [message.name for message in good] if chunk.keys is None else map(as_text, chunk.keys.tolist())
    return Piece(chunk.x, chunk.names, chunk.sample_shape, learned, label, tuple(keys), offsets), []


def _columns(model: DBULL | None) -> tuple[str, ...]:
    """Return the columns that messages may lack, being rows of a table; those of numbers they must have."""
    if hasattr(model, "text_reader_"):
        return (TEXT,)
    encoder = getattr(model, "column_encoder_", None)
    return () if encoder is None else tuple(encoder.names)


def _cells(message: Message, columns: Sequence[str]) -> dict[str, Any]:
    """Return what a message says, with all columns; raise ValueError if it is no row of these."""
    if message.value is None:
        raise ValueError("it is empty")
    try:
        cells = json.loads(message.value)
    except ValueError as error:
        raise ValueError(f"it is not JSON ({error!s:.100})") from error
    cells = {TEXT: cells} if isinstance(cells, str) else cells
    if not isinstance(cells, dict):
        raise ValueError(f"it must be an object with named fields, got {message.value!r:.60}")
    if columns and not cells.keys() & set(columns):
        raise ValueError(f"it has none of the columns {', '.join(columns[:20])}")
    return {**dict.fromkeys(columns), **cells}


class _Lines:
    """Messages as a file of JSON lines, which is written again with fewer until all of it can be read."""

    def __init__(self, path: Path, lines: Mapping[Message, str], opened: Callable[[Path], Input]):
        self._path, self._lines = path, lines
        self.refused: dict[Message, str] = {}
        self._write(list(lines))
        self._given = opened(path)

    def read(self) -> tuple[Chunk | None, list[Message]]:
        """Return the rows of all messages that have one, and these messages."""
        everything = list(self._lines)
        with suppress(DataError):
            return self._rows(everything), everything
        if self._given.model is None and not self._given.mixed:  # as files: numbers alone, or anything
            self._given = replace(self._given, mixed=True)
        good = self._readable(everything)
        return (self._rows(good), good) if good else (None, good)

    def _write(self, some: Sequence[Message]) -> None:
        text = "".join(f"{self._lines[message]}\n" for message in some)
        self._path.write_text(text, encoding="utf-8")

    def _rows(self, some: Sequence[Message]) -> Chunk:
        self._write(some)
        return one_chunk(list(self._given.chunks()))

    def _readable(self, some: Sequence[Message]) -> list[Message]:
        """Find the messages that cannot be read by halves."""
        try:
            self._rows(some)
            return list(some)
        except DataError as error:
            if len(some) == 1:
                self.refused[some[0]] = str(error).removeprefix(f"{self._path}: ").removeprefix("row 1, ")
                return []
        half = len(some) // 2
        return [*self._readable(some[:half]), *self._readable(some[half:])]


def _tell(log: KafkaLog, refused: Mapping[Message, str]) -> None:
    """Tell of messages that are skipped: some by what is wrong with them, and how many more there are."""
    log.n_skipped += len(refused)
    for message in sorted(refused)[:MOST_TOLD]:
        log.notice(f"skipped {message.name}: {refused[message]}")
    if len(refused) > MOST_TOLD:
        log.notice(f"skipped {len(refused) - MOST_TOLD} more, up to {max(refused).name}")


def _label(messages: Sequence[Message]) -> str:
    """Return which messages these are, in a few words."""
    parts = [list(some) for _, some in groupby(sorted(messages), key=lambda message: message[:2])]
    ranges = [f"{some[0].name}-{some[-1].offset}" for some in parts[:MOST_PARTITIONS]]
    more = len(parts) - len(ranges)
    return " ".join(ranges) + (f" and {more} more partitions" if more else "")
