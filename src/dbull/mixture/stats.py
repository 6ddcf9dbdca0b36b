"""Sufficient statistics of a mixture: a record that adds and subtracts.

Memory, merging, streaming and distribution over processes are all "add the right records".
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import reduce
from operator import add, sub

import torch
from torch import Tensor


@dataclass(frozen=True)
class SufficientStats:
    """What K components remember of the points they were given.

    With responsibilities r_nk, points z_n and optional point variances S_n = diag(var_n):
    counts = sum_n r_nk, sum_z = sum_n r_nk z_n, sum_zz = sum_n r_nk (z_n z_n^T + S_n) and
    entropy = -sum_n r_nk log r_nk. The paper prints z^T z for the second moment; see docs/errata.md.
    """

    counts: Tensor  # (K,)
    sum_z: Tensor  # (K, D)
    sum_zz: Tensor  # (K, D, D)
    entropy: Tensor  # (K,)

    @classmethod
    def zeros(cls, n_components: int, n_dims: int) -> SufficientStats:
        """Return the record of no data at all."""
        K, D = n_components, n_dims
        return cls(*(torch.zeros(shape, dtype=torch.float64) for shape in ((K,), (K, D), (K, D, D), (K,))))

    @classmethod
    def total(cls, records: list[SufficientStats]) -> SufficientStats:
        """Return the sum of records in the order given (so that the result is the same to the bit)."""
        return reduce(add, records)

    @property
    def n_components(self) -> int:
        """K."""
        return self.counts.shape[-1]

    @property
    def n_dims(self) -> int:
        """D."""
        return self.sum_z.shape[-1]

    @property
    def parts(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """The four statistics, each with the components along its first dimension."""
        return self.counts, self.sum_z, self.sum_zz, self.entropy

    def each(self, change: Callable[..., Tensor], *others: SufficientStats) -> SufficientStats:
        """Return the record whose statistics are `change` of those of this record and the others."""
        return SufficientStats(*map(change, self.parts, *(other.parts for other in others)))

    def __add__(self, other: SufficientStats) -> SufficientStats:
        return self.each(add, other)

    def __sub__(self, other: SufficientStats) -> SufficientStats:
        return self.each(sub, other)

    def scaled(self, weight: float) -> SufficientStats:
        """Return the record in which every observation counts `weight` times (a power posterior)."""
        return self if weight == 1.0 else self.each(lambda part: part * weight)

    def select(self, index: Tensor) -> SufficientStats:
        """Return the components named by `index` (K',), in that order; reorders and removes."""
        return self.each(lambda part: part[index])

    def with_empty(self, n_new: int) -> SufficientStats:
        """Return the record with `n_new` empty components appended."""
        return self.concat(SufficientStats.zeros(n_new, self.n_dims))

    def concat(self, other: SufficientStats) -> SufficientStats:
        """Return the components of both records side by side (not their sum)."""
        return self.each(lambda *parts: torch.cat(parts), other)

    def pooled(self, keep: int, drop: int, entropy: Tensor | float) -> SufficientStats:
        """Return the record with component `drop` added to `keep` and removed.

        The entropy of the pooled component is not a function of the two entropies, so the caller gives it.
        """
        record = self.each(Tensor.clone)
        for part in record.parts:
            part[keep] += part[drop]
        record.entropy[keep] = entropy
        return record.select(torch.arange(self.n_components) != drop)

    def without_negatives(self) -> SufficientStats:
        """Return the record with counts and entropies that subtraction left just below zero set to zero."""
        return replace(self, counts=self.counts.clamp_min(0.0), entropy=self.entropy.clamp_min(0.0))
