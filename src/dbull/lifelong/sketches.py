"""What imprints are made from where rows come in parts, and sums in one order, whoever adds.

Mean and variance of each input are exact. Of the directions of the spread the leading ones stay, twice as
many as an imprint keeps, so that what several parts agree on is not lost between them.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from dbull.lifelong.past import FEWEST_ROWS, IMPRINT_RANK, Imprint, leading_part, packed

SKETCH_RANK = 2 * IMPRINT_RANK
WIDE, DIRECTION_ROWS = 256, 256  # inputs beyond which directions are those of so many rows of a part


@dataclass(frozen=True)
class Sketch:
    """Rows of a component so far; sketches add up."""

    n_rows: float
    mean: Tensor  # (d,) float64
    spread: Tensor  # (r, d) float32: spread^T spread is about their covariance
    variance: Tensor  # (d,) float64
    some: frozenset[bytes]  # distinct rows by their digests, up to `FEWEST_ROWS`

    @classmethod
    def of(cls, inputs: Tensor) -> Sketch:
        """Return the sketch of rows (N, d), at least one."""
        wide = inputs.to(torch.float64)
        mean = wide.mean(0)
        beside = wide - mean
        part = beside[:DIRECTION_ROWS] if beside.shape[1] > WIDE else beside
        spread = leading_part(part / math.sqrt(len(part)), SKETCH_RANK)
        return cls(float(len(inputs)), mean, spread, beside.square().mean(0), _distinct(inputs))

    def __add__(self, other: Sketch) -> Sketch:
        n_rows = self.n_rows + other.n_rows
        mine, theirs = self.n_rows / n_rows, other.n_rows / n_rows
        between = math.sqrt(mine * theirs) * (self.mean - other.mean)
        parts = [math.sqrt(mine) * self.spread, math.sqrt(theirs) * other.spread]
        spread = torch.cat([*parts, between[None].to(torch.float32)])
        return Sketch(
            n_rows,
            mine * self.mean + theirs * other.mean,
            leading_part(spread, SKETCH_RANK),
            mine * self.variance + theirs * other.variance + between.square(),
            frozenset(sorted(self.some | other.some)[:FEWEST_ROWS]),
        )

    @property
    def has_shape(self) -> bool:
        """Whether there are enough distinct rows for a shape of their own (docs/privacy.md)."""
        return len(self.some) >= FEWEST_ROWS

    def imprint(self, shape: Imprint) -> Imprint:
        """Return the imprint of the rows; few of them get a `shape` that is not theirs alone."""
        mean = self.mean.to(torch.float32)
        if not self.has_shape:
            return Imprint(self.n_rows, mean, shape.factor, shape.leftover)
        return packed(self.n_rows, mean, self.spread, self.variance.to(torch.float32), IMPRINT_RANK)


def pooled_shape_of(sketches: Iterable[Sketch], n_inputs: int) -> Imprint:
    """Return the average shape of components around their means; as the first data, of too few rows."""
    nothing = torch.zeros(n_inputs, dtype=torch.float64)
    around = [Sketch(s.n_rows, nothing, s.spread, s.variance, s.some) for s in sketches]
    pooled: Sketch | None = summed(around)
    if pooled is None or not pooled.has_shape:
        return Imprint(0.0, torch.zeros(n_inputs), torch.zeros(0, n_inputs), torch.ones(n_inputs))
    return pooled.imprint(Imprint(0.0, nothing, pooled.spread, nothing))


class Tree:
    """Adds up records in the order in which they are given, in pairs, pairs of pairs and so on.

    Who made the records, and how many at once, changes no bit of the sum; no more of them are held than the
    logarithm of their number.
    """

    def __init__(self) -> None:
        self._parts: list[tuple[int, Any]] = []  # how many records, and their sum; ever fewer

    def add(self, record: Any) -> None:
        """Take in the next record."""
        size = 1
        while self._parts and self._parts[-1][0] == size:
            record = self._parts.pop()[1] + record
            size *= 2
        self._parts.append((size, record))

    @property
    def total(self) -> Any:
        """The sum of all records, None if there is none."""
        total = None
        for _, part in reversed(self._parts):
            total = part if total is None else part + total
        return total


def summed(records: Iterable[Any]) -> Any:
    """Return the sum of records as a `Tree` makes it."""
    tree = Tree()
    for record in records:
        tree.add(record)
    return tree.total


def _distinct(inputs: Tensor) -> frozenset[bytes]:
    """Return digests of the first distinct rows, up to `FEWEST_ROWS`."""
    found: set[bytes] = set()
    for row in inputs.numpy():
        found.add(hashlib.blake2b(row.tobytes(), digest_size=8).digest())
        if len(found) == FEWEST_ROWS:
            break
    return frozenset(found)
