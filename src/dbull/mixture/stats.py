"""Sufficient statistics of a mixture: a record that adds and subtracts.

Memory, merging, streaming and distribution over processes are all "add the right records".
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from operator import add

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
        f64 = torch.float64
        return cls(
            torch.zeros(K, dtype=f64),
            torch.zeros(K, D, dtype=f64),
            torch.zeros(K, D, D, dtype=f64),
            torch.zeros(K, dtype=f64),
        )

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

    def __add__(self, other: SufficientStats) -> SufficientStats:
        return SufficientStats(
            self.counts + other.counts,
            self.sum_z + other.sum_z,
            self.sum_zz + other.sum_zz,
            self.entropy + other.entropy,
        )

    def __sub__(self, other: SufficientStats) -> SufficientStats:
        return SufficientStats(
            self.counts - other.counts,
            self.sum_z - other.sum_z,
            self.sum_zz - other.sum_zz,
            self.entropy - other.entropy,
        )

    def scaled(self, weight: float) -> SufficientStats:
        """Return the record in which every observation counts `weight` times (a power posterior)."""
        if weight == 1.0:
            return self
        return SufficientStats(
            self.counts * weight, self.sum_z * weight, self.sum_zz * weight, self.entropy * weight
        )

    def select(self, index: Tensor) -> SufficientStats:
        """Return the components named by `index` (K',), in that order; reorders and removes."""
        return SufficientStats(self.counts[index], self.sum_z[index], self.sum_zz[index], self.entropy[index])

    def with_empty(self, n_new: int) -> SufficientStats:
        """Return the record with `n_new` empty components appended."""
        return self.concat(SufficientStats.zeros(n_new, self.n_dims))

    def concat(self, other: SufficientStats) -> SufficientStats:
        """Return the components of both records side by side (not their sum)."""
        return SufficientStats(
            torch.cat([self.counts, other.counts]),
            torch.cat([self.sum_z, other.sum_z]),
            torch.cat([self.sum_zz, other.sum_zz]),
            torch.cat([self.entropy, other.entropy]),
        )

    def pooled(self, keep: int, drop: int, entropy: Tensor | float) -> SufficientStats:
        """Return the record with component `drop` added to `keep` and removed.

        The entropy of the pooled component is not a function of the two entropies, so the caller gives it.
        """
        record = SufficientStats(
            self.counts.clone(), self.sum_z.clone(), self.sum_zz.clone(), self.entropy.clone()
        )
        record.counts[keep] += record.counts[drop]
        record.sum_z[keep] += record.sum_z[drop]
        record.sum_zz[keep] += record.sum_zz[drop]
        record.entropy[keep] = entropy
        rest = torch.arange(self.n_components) != drop
        return record.select(rest)

    def without_negatives(self) -> SufficientStats:
        """Return the record with counts and entropies that subtraction left just below zero set to zero."""
        return SufficientStats(
            self.counts.clamp_min(0.0), self.sum_z, self.sum_zz, self.entropy.clamp_min(0.0)
        )
