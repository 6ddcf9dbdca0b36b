"""Which inputs a model has learned, so that none is learned twice without being asked for.

Each generation holds the inputs that it has learned itself, as lines of kind ``learned`` among its events,
about 200 bytes each. The list of a generation is gathered from those that it rests on, so a rollback brings
the list of its time back with the model. It grows with inputs, never with rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from dbull.documents import check_fields, fail, parse_document, text, whole
from dbull.errors import AlreadyLearnedError
from dbull.store.checkpoint import LearnedInput, with_bytes
from dbull.store.eventlog import parse_events, past_events
from dbull.store.layout import DOCUMENT_BYTES, LEARNED, check_file, read_bounded
from dbull.store.manifest import LEARNED_INPUT, Manifest, read_manifest

# Of the last models at hand, by the hash of the manifest: it stands for all that the generation rests on, so
# this is never out of date. Without it a commit would take the longer the more had been learned.
_KNOWN: dict[str, dict[str, LearnedRecord]] = {}
_MOST_KNOWN = 4


@dataclass(frozen=True, slots=True)
class LearnedRecord:
    """When an input was learned last, under which name, with how many rows, and how often in all."""

    generation: int
    name: str
    rows: int
    times: int
    bytes: int = 0


def add_learned(known: dict[str, LearnedRecord], inputs: Iterable[LearnedInput], generation: int) -> None:
    """Add the inputs of a generation to the list."""
    for one in inputs:
        before = known.get(one.sha256)
        times = 1 if before is None else before.times + 1
        known[one.sha256] = LearnedRecord(generation, one.name, one.rows, times, one.bytes)


def refuse_known(known: Mapping[str, LearnedRecord], inputs: Iterable[LearnedInput]) -> None:
    """Refuse inputs that were learned before, also those that occur twice."""
    seen: set[str] = set()
    for one in inputs:
        before = known.get(one.sha256)
        if before is not None or one.sha256 in seen:
            told = f" (there as {before.name!r})" if before is not None and before.name != one.name else ""
            when = "just now" if before is None else f"in generation {before.generation}{told}"
            raise AlreadyLearnedError(
                f"{one.name or one.sha256}: this was learned {when}; "
                "learning it again would count its rows twice: leave it out, or force it"
            )
        seen.add(one.sha256)


def learned_lines(inputs: Iterable[LearnedInput]) -> list[dict[str, Any]]:
    """Return the inputs of a generation as lines for its events."""
    return [{"kind": "learned", **asdict(one)} for one in inputs]


def read_inputs(events: Iterable[dict[str, Any]], where: str) -> list[LearnedInput]:
    """Return the inputs among the events of a generation."""
    own = [event for event in events if event.get("kind") == "learned"]
    told = ({key: value for key, value in event.items() if key in LEARNED_INPUT} for event in own)
    return [LearnedInput(**check_fields(one, where, LEARNED_INPUT)) for one in told]


def known_inputs(model: Path, manifest: Manifest) -> tuple[dict[str, LearnedRecord], bool]:
    """Return all inputs that a generation has learned, and whether the log is as it should be.

    The answer belongs to this module: copy it before it is given away.
    """
    if manifest.sha256 in _KNOWN:
        return _KNOWN[manifest.sha256], True
    known = {} if manifest.base is None else _read_list(model, manifest.base)
    parts, logged = past_events(model, manifest)
    for number, data in parts:
        mark = b'{"generation": %d, "kind": "learned", ' % number
        own = b"".join(line + b"\n" for line in data.split(b"\n") if line.startswith(mark))
        where = f"{model}: events of generation {number}"
        add_learned(known, read_inputs(parse_events(own, number, where), where), number)
    _keep(manifest.sha256, known)
    return known, logged


def remember(before: str | None, after: str, inputs: Sequence[LearnedInput], generation: int) -> None:
    """Let the list of one manifest become that of the next."""
    known = {} if before is None else _KNOWN.pop(before, None)
    if known is not None:
        add_learned(known, inputs, generation)
        _keep(after, known)


def _keep(sha256: str, known: dict[str, LearnedRecord]) -> None:
    _KNOWN[sha256] = known
    while len(_KNOWN) > _MOST_KNOWN:
        del _KNOWN[next(iter(_KNOWN))]


def _read_list(model: Path, number: int) -> dict[str, LearnedRecord]:
    """Return what learned.json of a generation of format 1 tells, by SHA-256."""
    manifest = read_manifest(model, number)
    if LEARNED not in manifest.files:
        fail(str(model), f"generation {number} is told to be of format 1 and is not")
    path, record = manifest.path(model, LEARNED), manifest.files[LEARNED]
    check_file(path, record.bytes, record.sha256)
    value = parse_document(read_bounded(path, DOCUMENT_BYTES), str(path))
    if not isinstance(value, dict):
        fail(str(path), f"expected an object, got {type(value).__name__}")
    readers = {"generation": whole, "name": text, "rows": whole, "times": whole, "bytes": whole}
    return {
        sha256: LearnedRecord(**check_fields(with_bytes(part), f"{path}.{sha256}", readers))
        for sha256, part in value.items()
    }
