"""What one generation holds, as the caller gives it and gets it back; the store does not know its meaning."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from dbull.errors import SettingsError
from dbull.store.layout import check_name, is_sha256

if TYPE_CHECKING:
    from torch import Tensor

OWN_KINDS = ("learned", "rollback")  # of lines among the events


@dataclass(frozen=True, slots=True)
class LearnedInput:
    """An input that a model has learned, known by its content and not by its name."""

    sha256: str
    name: str = ""
    rows: int = 0
    bytes: int = 0  # of the content, so that the same content is found again at the start of a longer one

    def __post_init__(self) -> None:
        if not is_sha256(self.sha256):
            raise SettingsError(f"sha256 must be 64 hexadecimal digits, got {self.sha256!r:.80}")


def with_bytes(record: object) -> object:
    """Return the record of an input as it is written now; the first models did not count bytes."""
    return {"bytes": 0, **record} if isinstance(record, dict) else record


@dataclass(frozen=True)
class Checkpoint:
    """Tensors, documents and facts of one generation."""

    # Group `networks` becomes networks.safetensors, document `clusters` becomes clusters.json.
    tensors: Mapping[str, Mapping[str, Tensor]] = field(default_factory=dict)
    documents: Mapping[str, Any] = field(default_factory=dict)
    events: Sequence[Mapping[str, Any]] = ()  # one for each thing that happened since the parent generation
    # What the manifest tells about how the model learns, which data it takes, and which encoder it has.
    settings: Mapping[str, Any] = field(default_factory=dict)
    data_schema: Mapping[str, Any] = field(default_factory=dict)
    encoder_fingerprint: str | None = None
    learned_inputs: Sequence[LearnedInput] = ()  # since the parent; the same content twice is refused
    offsets: Mapping[str, Sequence[int]] = field(default_factory=dict)  # of logs; others stay as they were
    ids_given: int = 0  # so far; never falls along the generations, also not by a rollback
    note: str = ""  # this and the time are what the history shows;
    time: str | None = None  # the store reads no clock, so the same run writes the same bytes

    def __post_init__(self) -> None:
        for name in (*self.tensors, *self.documents):
            if not check_name(name):
                raise SettingsError(
                    f"{name!r} cannot name a file of a model: give at most 61 lower-case letters, digits, "
                    "- and _, and not manifest, events or learned"
                )
        if not isinstance(self.note, str) or not isinstance(self.time, str | None):
            raise SettingsError(
                f"a note and a time must be texts, got {self.note!r:.50} and {self.time!r:.50}"
            )
        for event in self.events:
            if "generation" in event:
                raise SettingsError(f"an event may not have a field 'generation', got {dict(event)!r:.80}")
            if event.get("kind") in OWN_KINDS:
                raise SettingsError(f"events of kind {event['kind']!r} are written by the store alone")
