"""A map of the plane on which components keep their places however long the stream is.

Components of the first data set are laid out so that distances on the map are those of their mean codes as
well as the plane allows (stress majorisation: de Leeuw 1977, with weights 1 / distance squared). Later ones
are laid out among those that have places, which stay. A row lies where its components have their places,
moved by where its code lies beside their means, in a direction that is the same for all.

Codes move when the encoder learns, but a row is told relative to its components, which are carried along.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from dbull.mixture.updates import local_step

if TYPE_CHECKING:
    from dbull.lifelong.state import LearnerState
    from dbull.mixture.posterior import MixturePosterior
    from dbull.mixture.updates import Points

N_ROUNDS = 100
STILL = 1e-4  # of the median distance: a round that moves no place further is the last


@dataclass(frozen=True)
class Plane:
    """Places of components, and how codes lie beside them."""

    axes: Tensor  # (2, D) float64
    unit: float  # distance from which those that are larger are shortened like logarithms
    places: dict[int, tuple[float, float]]  # by id of component

    def shortened(self, distances: Tensor) -> Tensor:
        """Return distances on the map: what is on another scale must not make all else a dot."""
        return self.unit * torch.asinh(distances / self.unit)


def lay_out(state: LearnerState, before: Plane | None) -> Plane:
    """Return a place for each component; those that have one keep it."""
    means = _means(state)
    apart = torch.cdist(means, means)
    if before is None:
        before = Plane(_main_axes(state), _unit(apart), {})
    distances = before.shortened(apart)
    old = torch.tensor([i in before.places for i in state.memory.ids]).bool()
    places = means @ before.axes.T
    for k in old.nonzero()[:, 0].tolist():
        places[k] = torch.tensor(before.places[state.memory.ids[k]], dtype=torch.float64)
    if bool(old.any()):
        # Beside the nearest that has a place, as its code lies beside that one's mean.
        for k in (~old).nonzero()[:, 0].tolist():
            near = int(apart[k].masked_fill(~old, torch.inf).argmin())
            beside = before.axes @ (means[k] - means[near])
            places[k] = places[near] + _resized(beside[None], before)[0]
    settled = _settled(places, distances, (~old).nonzero()[:, 0].tolist())
    found = dict(zip(state.memory.ids, map(tuple, settled.tolist()), strict=True))
    return Plane(before.axes, before.unit, found)


def points_of(state: LearnerState, plane: Plane, codes: Tensor) -> Tensor:
    """Return where codes (N, D) lie on the map, (N, 2)."""
    places = torch.tensor([plane.places[i] for i in state.memory.ids], dtype=torch.float64)
    means = _means(state)

    def placed(posterior: MixturePosterior, points: Points) -> Tensor:
        shares = local_step(posterior, points).exp()
        beside = (points.zt.T - shares @ means) @ plane.axes.T
        return shares @ places + _resized(beside, plane)

    return state.by_chunks(placed, codes)


def _settled(places: Tensor, distances: Tensor, movable: list[int]) -> Tensor:
    """Move places one after another to where the stress is least, the others fixed, until all stand still."""
    places = places.clone()
    positive = distances[distances > 0]
    if not len(positive):
        return places
    middle = float(positive.median())
    weights = distances.clamp_min(1e-3 * middle).square().reciprocal().fill_diagonal_(0.0)
    for _ in range(N_ROUNDS):
        furthest = 0.0
        for k in movable:
            away = places[k] - places
            length = away.norm(dim=1, keepdim=True).clamp_min(1e-9 * middle)
            target = places + distances[k][:, None] * away / length
            after = (weights[k][:, None] * target).sum(0) / weights[k].sum()
            furthest = max(furthest, float((after - places[k]).norm()))
            places[k] = after
        if furthest <= STILL * middle:
            break
    return places


def _resized(beside: Tensor, plane: Plane) -> Tensor:
    length = beside.norm(dim=1, keepdim=True).clamp_min(torch.finfo(torch.float64).tiny)
    resized: Tensor = beside * plane.shortened(length) / length
    return resized


def _means(state: LearnerState) -> Tensor:
    total = state.memory.total
    return total.sum_z / total.counts.clamp_min(torch.finfo(torch.float64).tiny)[:, None]


def _unit(apart: Tensor) -> float:
    between = apart[apart > 0]
    return 10 * float(between.median()) if len(between) else 10.0


def _main_axes(state: LearnerState) -> Tensor:
    """Return the two directions in which components are apart most, (2, D); 0 where there is only one.

    Of directions in which they are not, those in which codes spread.
    """
    total = state.memory.total
    n_rows = total.counts.sum().clamp_min(1.0)
    mean = total.sum_z.sum(0) / n_rows
    spread = total.sum_zz.sum(0) / n_rows - torch.outer(mean, mean)
    away = _means(state) - mean
    between = away.T @ (away * (total.counts / n_rows)[:, None])
    vectors = torch.linalg.eigh(between + 1e-3 * spread).eigenvectors
    axes = vectors.flip(1)[:, :2].T
    largest = axes.gather(1, axes.abs().argmax(1, keepdim=True))
    axes = axes * torch.where(largest < 0, -1.0, 1.0)  # eigenvectors have no sign of their own
    return torch.cat([axes, axes.new_zeros(2 - len(axes), axes.shape[1])])
