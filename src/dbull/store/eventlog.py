"""The events of a model: in each generation as the truth, and once more in one log for other tools.

Each generation holds its own events, written with it in one piece, so that a generation and its events are
there together or not at all. ``MODEL/events.jsonl`` is made from them: the events of all generations in a
row. A manifest tells where in the log the events of its generation begin. So every writer puts the same bytes
at the same place: writing twice changes nothing, two writers cannot double a line, and after a kill the next
writer fills in what is missing. Nothing of the model is ever read from the log.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from dbull.errors import ModelFileError
from dbull.store.documents import dump_line, parse_document
from dbull.store.layout import DOCUMENT_BYTES, EVENTS, damaged, generation_name, read_bounded
from dbull.store.manifest import Manifest

__all__ = ["event_lines", "read_events", "sync_log"]


def event_lines(number: int, events: Sequence[Any]) -> bytes:
    """Return the text of a generation's events.jsonl."""
    return b"".join(
        dump_line({"generation": number, **event}, f"events[{i}]") for i, event in enumerate(events)
    )


def read_events(folder: Path, manifest: Manifest) -> list[dict[str, Any]]:
    """Return the events of a generation, each with its number under ``generation``."""
    path = folder / EVENTS
    data = read_bounded(path, DOCUMENT_BYTES)
    lines = data.split(b"\n")
    if lines.pop() or len(lines) != manifest.n_events:
        raise damaged(path, f"holds {len(lines)} lines instead of {manifest.n_events}")
    events = [parse_document(line, f"{path}:{i}") for i, line in enumerate(lines, start=1)]
    for i, event in enumerate(events, start=1):
        if not isinstance(event, dict) or event.get("generation") != manifest.generation:
            raise damaged(path, f"line {i} is no event of generation {manifest.generation}")
    return events


def sync_log(model: Path, latest: int, manifest_of: Callable[[int], Manifest]) -> None:
    """Bring the log up to `latest`: add what is missing at its end, mend the last part if a kill tore it."""
    handle = os.open(model / EVENTS, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        size = os.fstat(handle).st_size
        parts: list[tuple[int, bytes]] = []
        for number in range(latest, 0, -1):
            try:
                manifest = manifest_of(number)
                text = read_bounded(model / generation_name(number) / EVENTS, DOCUMENT_BYTES)
            except ModelFileError:  # a damaged generation: its events cannot be had, those of others can
                continue
            if manifest.log_end <= size and _read_at(handle, manifest.log_offset, len(text)) == text:
                break
            parts.append((manifest.log_offset, text))
        for offset, text in reversed(parts):
            _write_at(handle, offset, text)
        if parts:
            os.fsync(handle)
    finally:
        os.close(handle)


def _read_at(handle: int, offset: int, length: int) -> bytes:
    os.lseek(handle, offset, os.SEEK_SET)
    pieces = []
    while length and (piece := os.read(handle, length)):
        pieces.append(piece)
        length -= len(piece)
    return b"".join(pieces)


def _write_at(handle: int, offset: int, data: bytes) -> None:
    os.lseek(handle, offset, os.SEEK_SET)
    while data:
        data = data[os.write(handle, data) :]
