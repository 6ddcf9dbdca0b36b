"""What changed between two generations."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

from dbull.store.learned import LearnedRecord

if TYPE_CHECKING:
    from torch import Tensor

    from dbull.store.folder import Loaded

MISSING = "(missing)"


@dataclass(frozen=True)
class Change:
    """A value in a document or a setting; `place` is its path, such as ``clusters.clusters[3].rows``."""

    place: str
    before: Any
    after: Any


@dataclass(frozen=True)
class TensorChange:
    """A tensor that is new, gone, of another shape or kind, or has other values."""

    group: str
    name: str
    before: str  # kind and shape, or MISSING
    after: str
    largest: float | None  # largest absolute change of a value, where shape and kind stayed


@dataclass(frozen=True)
class Difference:
    """All that generation `b` has different from generation `a`."""

    a: int
    b: int
    settings: tuple[Change, ...]
    data_schema: tuple[Change, ...]
    documents: tuple[Change, ...]
    tensors: tuple[TensorChange, ...]
    learned: tuple[str, ...]  # names or hashes of inputs that only b has learned
    unlearned: tuple[str, ...]  # and that only a has
    encoder_changed: bool

    @property
    def equal(self) -> bool:
        """Whether the two generations would answer alike."""
        parts = (self.settings, self.data_schema, self.documents, self.tensors, self.encoder_changed)
        return not any(parts)


def compare(
    a: Loaded, b: Loaded, learned_a: Mapping[str, LearnedRecord], learned_b: Mapping[str, LearnedRecord]
) -> Difference:
    """Return the difference of two generations and of the inputs that they have learned."""
    before, after = a.checkpoint, b.checkpoint
    return Difference(
        a=a.generation,
        b=b.generation,
        settings=tuple(changes(before.settings, after.settings, "settings")),
        data_schema=tuple(changes(before.data_schema, after.data_schema, "data_schema")),
        documents=tuple(changes(before.documents, after.documents)),
        tensors=tuple(_tensor_changes(before.tensors, after.tensors)),
        learned=names_beyond(learned_b, learned_a),
        unlearned=names_beyond(learned_a, learned_b),
        encoder_changed=before.encoder_fingerprint != after.encoder_fingerprint,
    )


def names_beyond(learned: Mapping[str, LearnedRecord], other: Mapping[str, LearnedRecord]) -> tuple[str, ...]:
    """Return the names of inputs, or hashes where they have none, that `other` has not."""
    return tuple(record.name or key for key, record in learned.items() if key not in other)


def changes(a: Any, b: Any, place: str = "") -> Iterator[Change]:
    """Yield what differs between two plain values, each with its path below `place`."""
    if isinstance(a, Mapping) and isinstance(b, Mapping):
        for key in dict.fromkeys((*a, *b)):
            yield from changes(a.get(key, MISSING), b.get(key, MISSING), f"{place}.{key}" if place else key)
    elif isinstance(a, list) and isinstance(b, list):
        for i, (before, after) in enumerate(zip_longest(a, b, fillvalue=MISSING)):
            yield from changes(before, after, f"{place}[{i}]")
    elif a != b or type(a) is not type(b):
        yield Change(place, a, b)


def _tensor_changes(
    a: Mapping[str, Mapping[str, Tensor]], b: Mapping[str, Mapping[str, Tensor]]
) -> Iterator[TensorChange]:
    import torch

    for group in sorted({*a, *b}):
        ours, theirs = a.get(group, {}), b.get(group, {})
        for name in sorted({*ours, *theirs}):
            before, after = ours.get(name), theirs.get(name)
            largest = None
            if before is not None and after is not None and _kind(before) == _kind(after):
                # By bytes: two NaN of the same bits are no change.
                if torch.equal(*(part.reshape(-1).view(torch.uint8) for part in (before, after))):
                    continue
                largest = float((after.to(torch.float64) - before.to(torch.float64)).abs().max())
            yield TensorChange(group, name, _kind(before), _kind(after), largest)


def _kind(tensor: Tensor | None) -> str:
    if tensor is None:
        return MISSING
    return f"{str(tensor.dtype).removeprefix('torch.')} {tuple(tensor.shape)}"
