"""Which inputs a model has learned, so that none is learned twice without being asked for.

Each generation holds the whole list, about 200 bytes per input: it stays true when older generations are
damaged or removed, and a rollback brings the list of its time back with the model. It grows with inputs,
never with rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from dbull.errors import AlreadyLearnedError
from dbull.lifelong.records import check_fields, fail, text, whole
from dbull.store.checkpoint import LearnedInput, with_bytes
from dbull.store.documents import dump_document, parse_document
from dbull.store.layout import DOCUMENT_BYTES, LEARNED, read_bounded

__all__ = ["LearnedRecord", "add_learned", "dump_learned", "read_learned"]


@dataclass(frozen=True)
class LearnedRecord:
    """When an input was learned last, under which name, with how many rows, and how often in all."""

    generation: int
    name: str
    rows: int
    times: int
    bytes: int = 0


def add_learned(
    known: Mapping[str, LearnedRecord], inputs: Sequence[LearnedInput], generation: int, *, again: bool
) -> dict[str, LearnedRecord]:
    """Return the list with the inputs of a generation added; refuse known ones unless `again`."""
    result = dict(known)
    for one in inputs:
        before = result.get(one.sha256)
        if before is not None and not again:
            told = f" (there as {before.name!r})" if before.name != one.name else ""
            raise AlreadyLearnedError(
                f"{one.name or one.sha256}: this was learned in generation {before.generation}{told}; "
                "learning it again would count its rows twice: leave it out, or force it"
            )
        times = 1 if before is None else before.times + 1
        result[one.sha256] = LearnedRecord(generation, one.name, one.rows, times, one.bytes)
    return result


def dump_learned(learned: Mapping[str, LearnedRecord]) -> bytes:
    """Return the text of learned.json."""
    return dump_document({sha256: asdict(record) for sha256, record in learned.items()}, LEARNED)


def read_learned(folder: Path) -> dict[str, LearnedRecord]:
    """Return what learned.json of a generation's folder tells, by SHA-256."""
    path = folder / LEARNED
    value = parse_document(read_bounded(path, DOCUMENT_BYTES), str(path))
    if not isinstance(value, dict):
        fail(str(path), f"expected an object, got {type(value).__name__}")
    readers = {"generation": whole, "name": text, "rows": whole, "times": whole, "bytes": whole}
    return {
        sha256: LearnedRecord(**check_fields(with_bytes(part), f"{path}.{sha256}", readers))
        for sha256, part in value.items()
    }
