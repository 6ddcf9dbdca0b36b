"""What the rows of each cluster are like, input by input, from what is kept of them: no row is needed."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from dbull.lifelong.state import LearnerState


@dataclass(frozen=True)
class Profile:
    """Count, mean and variance of some rows, column by column; float64."""

    n_rows: float
    mean: Tensor  # (d,)
    variance: Tensor  # (d,)

    @classmethod
    def of_rows(cls, rows: Tensor) -> Profile:
        """Return the profile of rows (N, d), at least one."""
        wide = rows.double()
        return cls(float(len(rows)), wide.mean(0), wide.var(0, correction=0))

    def scaled(self, shift: Tensor, scale: Tensor | float) -> Profile:
        """Return the profile of shift + scale * row."""
        return Profile(self.n_rows, shift + scale * self.mean, self.variance * scale**2)


def together(parts: Iterable[Profile]) -> Profile:
    """Return the profile of the rows of all parts, at least one of which has rows."""
    given = list(parts)
    counts = torch.tensor([part.n_rows for part in given], dtype=torch.float64)
    shares = counts / counts.sum()
    means = torch.stack([part.mean for part in given])
    mean = shares @ means
    within = shares @ torch.stack([part.variance for part in given])
    return Profile(float(counts.sum()), mean, within + shares @ (means - mean).square())


def feature_profiles(state: LearnerState) -> dict[int, list[Profile]] | None:
    """Return what the features (`InputView.features`) of each component's rows are like, by cluster.

    In the units of the rows, bent (`InputView.bent`), where features are the values themselves. None if
    components keep no imprints.
    """
    if not state.imprints or not state.imprints.keys() >= set(state.memory.ids):
        return None
    view, found = state.view, dict[int, list[Profile]]()
    for cluster in state.cluster_ids:
        found[cluster] = [
            Profile(part.n_rows, part.mean.double(), part.variance.double()).scaled(
                view.input_shift.double(), view.input_scale
            )
            for part in state.imprints_of(cluster)
        ]
        if view.front_end is None and view.kind != "sparse":
            scaling = view.shift.double(), view.scale.double()
            found[cluster] = [features.scaled(*scaling) for features in found[cluster]]
    return found


def gaps(state: LearnerState) -> Tensor:
    """Return how far the mean codes of clusters are apart, over the sum of both spreads, (C, C).

    In the order of `cluster_ids`; infinite on the diagonal.
    """
    members = [state.cluster_of == cluster for cluster in state.cluster_ids]
    total = state.memory.total
    tiny = torch.finfo(torch.float64).tiny
    counts = torch.stack([total.counts[mine].sum() for mine in members]).clamp_min(tiny)
    means = torch.stack([total.sum_z[mine].sum(0) for mine in members]) / counts[:, None]
    spread = torch.tensor([state.spread(cluster) for cluster in state.cluster_ids], dtype=torch.float64)
    both = (spread[:, None] + spread[None, :]).clamp_min(tiny)
    return (torch.cdist(means, means) / both).fill_diagonal_(torch.inf)
