"""The events of a model: in each generation as the truth, and once more in one log for readers.

Each generation holds its own events and the inputs it has learned, written with it in one piece, so that they
are there together or not at all. ``MODEL/events.jsonl`` is made from them: those of all generations in a row.
A manifest tells where in the log the events of its generation begin. So every writer puts the same bytes at
the same place: writing twice changes nothing, two writers cannot double a line, and after a kill the next
writer fills in what is missing. A reader takes from the log only what agrees with the manifest at hand, whose
`log_sha256` stands for all events that it rests on; else it reads the generations one by one.
"""

import json
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from dbull.documents import dump_document, parse_document
from dbull.errors import ModelFileError
from dbull.store import layout
from dbull.store.layout import DOCUMENT_BYTES, EVENTS, damaged, generation_name, open_regular
from dbull.store.manifest import Manifest, chained, read_manifest
from dbull.store.writing import replace_file

_LINE = re.compile(rb'\{"generation": ([1-9]\d{0,18}), ', re.ASCII)


def event_lines(number: int, events: Sequence[Any]) -> bytes:
    """Return the text of a generation's events.jsonl."""
    told = ({"generation": number, **event} for event in events)
    return b"".join(dump_document(line, f"events[{i}]", indent=None) for i, line in enumerate(told))


def own_events(model: Path, manifest: Manifest) -> bytes:
    """Return the text of a generation's events, after checking that it is as it was written."""
    if EVENTS not in manifest.files:
        return b""
    path, record = manifest.path(model, EVENTS), manifest.files[EVENTS]
    layout.check_file(path, record.bytes, record.sha256)
    data = layout.read_bounded(path, DOCUMENT_BYTES)
    lines = data.split(b"\n")
    if lines.pop() or len(lines) != manifest.n_events:
        raise damaged(path, f"holds {len(lines)} lines instead of {manifest.n_events}")
    return data


def parse_events(data: bytes, number: int, where: str) -> list[dict[str, Any]]:
    """Return the events of a generation, each with its number under ``generation``."""
    lines = data.split(b"\n")[:-1]
    events = [parse_document(line, f"{where}:{i}") for i, line in enumerate(lines, start=1)]
    for i, event in enumerate(events, start=1):
        if not isinstance(event, dict) or event.get("generation") != number:
            raise ModelFileError(f"{where}: line {i} is no event of generation {number}; the file was edited")
    return events


def past_events(model: Path, newest: Manifest) -> tuple[list[tuple[int, bytes]], bool]:
    """Return number and events of the generations that one rests on, oldest first, from format 2 on.

    And whether they came from the log, which then is as it should be.
    """
    with suppress(ModelFileError, OSError):
        parts = _from_log(model, newest)
        if parts is not None:
            return parts, True
    found, manifest = [], newest
    while manifest.generation != newest.base:
        found.append((manifest.generation, own_events(model, manifest)))
        if manifest.rests_on is None:
            break
        manifest = ancestor(model, manifest.rests_on)
    return found[::-1], False


def ancestor(model: Path, number: int) -> Manifest:
    """Return the manifest of a generation on which others rest."""
    if not os.path.lexists(model / generation_name(number)):
        raise ModelFileError(
            f"{model / generation_name(number)}: the generation is missing, and later ones rest on it; "
            "bring it back from a copy"
        )
    return read_manifest(model, number)


def sync_log(model: Path, newest: Manifest, *, anew: bool = False) -> None:
    """Bring the log up to a generation: add what is missing at its end, or write it anew if it is amiss."""
    parts: list[tuple[int, bytes]] = []
    try:
        handle = -1 if anew else open_regular(model / EVENTS, os.O_RDWR)
    except ModelFileError:  # missing, a link, a special file: whatever has the name is replaced
        handle = -1
    if handle < 0:
        _write_anew(model, newest)
        return
    try:
        size, manifest = os.fstat(handle).st_size, newest
        while True:
            text = own_events(model, manifest)
            if manifest.log_end <= size and _read_at(handle, manifest.log_offset, len(text)) == text:
                break
            parts.append((manifest.log_offset, text))
            if manifest.parent is None or manifest.log_offset == 0:
                break
            try:
                before = read_manifest(model, manifest.parent)
            except ModelFileError:  # a damaged generation: what the log has of it stays
                break
            if before.log_end != manifest.log_offset:
                break
            manifest = before
        fits = not parts or parts[-1][0] <= size
        for offset, text in reversed(parts) if fits else ():
            os.lseek(handle, offset, os.SEEK_SET)
            while text:
                text = text[os.write(handle, text) :]
        if parts:
            os.fsync(handle)
    finally:
        os.close(handle)
    if not fits:
        _write_anew(model, newest)


def _write_anew(model: Path, newest: Manifest) -> None:
    numbers = sorted(n for name in os.listdir(model) if (n := layout.generation_number(name)) is not None)
    manifests, lost, at = [], 0, 0
    for number in numbers:
        if number <= newest.generation:
            with suppress(ModelFileError):
                manifests.append(read_manifest(model, number))
                lost, at = lost + max(0, manifests[-1].log_offset - at), manifests[-1].log_end
    if lost <= DOCUMENT_BYTES:  # else a manifest was forged, and `check` tells
        replace_file(model / EVENTS, _pieces(model, manifests))


def _pieces(model: Path, manifests: list[Manifest]) -> Iterator[bytes]:
    """Yield the events of all generations, and blanks in the place of those that are lost."""
    at = 0
    for manifest in manifests:
        if manifest.log_offset > at:
            yield b" " * (manifest.log_offset - at - 1) + b"\n"
        at = max(at, manifest.log_offset)
        with suppress(ModelFileError):
            text = own_events(model, manifest)
            at += len(text)
            yield text


def _from_log(model: Path, newest: Manifest) -> list[tuple[int, bytes]] | None:
    """Return what `past_events` returns, None if the log does not hold just that."""
    texts: dict[int, bytes] = {}
    with os.fdopen(open_regular(model / EVENTS), "rb") as log:
        held: list[bytes] = []
        left, number = newest.log_end, 0
        if os.fstat(log.fileno()).st_size < left:
            return None
        while left > 0 and (line := log.readline(min(left, DOCUMENT_BYTES))):
            left -= len(line)
            match = _LINE.match(line)
            if match is None:
                if line.strip():
                    return None
                continue
            if int(match[1]) != number:
                texts[number], held, number = b"".join(held), [], int(match[1])
                if number in texts:
                    return None
            held.append(line)
        texts[number] = b"".join(held)
    order, at = [], newest.generation
    while at > 0 and at != newest.base:
        order.append(at)
        at = _restored(texts.get(at, b""), at) or at - 1
    if at != (newest.base or 0):
        return None
    # The hashes of events begin with nothing, or with a generation of format 1.
    found = "" if newest.base is None else read_manifest(model, newest.base).sha256
    for number in reversed(order):
        found = chained(found, texts.get(number, b""))
    return [(n, texts.get(n, b"")) for n in reversed(order)] if found == newest.log_sha256 else None


def _restored(text: bytes, number: int) -> int | None:
    """Return the generation that a generation brings back, from the text of its events."""
    if not text.startswith(b'{"generation": %d, "kind": "rollback", ' % number):
        return None
    try:
        back = json.loads(text)["restores"]
    except (ValueError, KeyError):
        return None
    return back if isinstance(back, int) and 0 < back < number else None


def _read_at(handle: int, offset: int, length: int) -> bytes:
    os.lseek(handle, offset, os.SEEK_SET)
    pieces = []
    while length and (piece := os.read(handle, length)):
        pieces.append(piece)
        length -= len(piece)
    return b"".join(pieces)
