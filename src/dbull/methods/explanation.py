"""What sets a cluster apart from all other rows and from its nearest neighbour, in the user's words.

The effect of a column is Cliff's delta (Cliff 1993): the probability that a row of the cluster has more of it
than another row, less the probability of the opposite. 1: always more; -1: always less; 0: no difference. It
is told from the means and variances of components, as if each were normal, and of shares exactly. Effects
below 0.147 are negligible (Romano et al. 2006) and not told.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray

from dbull.lifelong.profiles import Profile, feature_profiles, gaps, together
from dbull.tables import Feature

if TYPE_CHECKING:
    from dbull.ledger import ArrivalReport
    from dbull.lifelong.state import LearnerState
    from dbull.methods.answers import LearnedClusters
    from dbull.methods.dbull import DBULL

NEGLIGIBLE = 0.147
N_DRAWS = 120  # decoded samples of a cluster, where nothing else tells what its rows are like
MOST_MISSING = 0.95  # share from which the few values that are there say little
PLACES = (
    ("top left", "top", "top right"),
    ("left", "centre", "right"),
    ("bottom left", "bottom", "bottom right"),
)
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Trait:
    """A column, a category or a part of an image in which a cluster differs from other rows."""

    column: str
    part: str  # a category, "missing", ...; "" where the column is one number
    measure: str  # "value" in the user's units, "share" of rows, "days" since 1970-01-01, "brightness", ...
    here: float  # mean of the cluster
    others: float  # mean of those it is compared with
    effect: float  # from -1 to 1

    def told(self, others: str = "others") -> str:
        """Say it: "delay 180, others 12"."""
        name = f"{self.column} {self.part}".strip()
        return f"{name} {shown(self.here, self.measure)}, {others} {shown(self.others, self.measure)}"

    def __str__(self) -> str:
        return self.told()


@dataclass(frozen=True)
class Explanation:
    """What sets a cluster apart, strongest first."""

    cluster: int
    traits: tuple[Trait, ...]  # from all other rows
    nearest: int | None  # the cluster whose codes are nearest
    from_nearest: tuple[Trait, ...]

    def __str__(self) -> str:
        return "\n".join(self.lines())

    def lines(self) -> Iterator[str]:
        """Yield it line by line, for people."""
        yield f"cluster {self.cluster} is set apart by"
        yield from _listed(self.traits, "others")
        if self.nearest is not None and self.from_nearest != self.traits:  # as they are of two clusters
            yield f"and from cluster {self.nearest}, the nearest, by"
            yield from _listed(self.from_nearest, f"cluster {self.nearest}")

    @property
    def sentence(self) -> str:
        """The three strongest traits in one line, empty if there is none."""
        return "; ".join(map(str, self.traits[:3]))


def _listed(traits: Sequence[Trait], others: str) -> Iterator[str]:
    for trait in traits:
        yield f"  {trait.told(others)} ({trait.effect:+.2f})"
    if not traits:
        yield "  no column alone"


def shown(value: float, measure: str) -> str:
    """Write a value as people do."""
    if measure == "share":
        share = 100 * min(max(value, 0.0), 1.0)
        return f"{share:.0f} %" if share >= 10 or share == 0 else f"{share:.1g} %"
    if measure == "days":
        whole = math.floor(value + 0.01)  # days were encoded in float32
        return str(np.datetime64(0, "D") + np.timedelta64(whole, "D"))
    if value == 0 or 1e-4 <= abs(value) < 1e6:
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
    return f"{value:.2e}"


class Explainer:
    """The profiles of a model's clusters, made once for all explanations."""

    def __init__(self, model: LearnedClusters):
        self._ids = model.state_.cluster_ids
        self._gaps = gaps(model.state_)
        shape = getattr(model, "image_shape", None)
        if shape is not None:
            features, pooled = _regions([int(side) for side in shape])
            self._columns = Columns(features)
            self._profiles = _decoded(model, pooled)
            return
        names = getattr(model, "feature_names_in_", None)
        measure = "weight" if model.state_.view.kind == "sparse" else "value"
        self._columns = Columns(
            [
                _number(f"column {i}" if names is None else str(names[i]), measure)
                for i in range(model.n_features_in_)
            ]
        )
        self._profiles = feature_profiles(model.state_) or _decoded(model, lambda rows: rows)

    def __call__(self, cluster: int, n_traits: int = 6) -> Explanation:
        """Explain one cluster."""
        rest = [part for other in self._ids if other != cluster for part in self._profiles[other]]
        if not rest:
            return Explanation(cluster, (), None, ())
        nearest = self.nearest(cluster, self._ids)[0][0]
        here = self._profiles[cluster]
        traits = self._columns.traits(here, rest, n_traits)
        from_nearest = self._columns.traits(here, self._profiles[nearest], n_traits)
        return Explanation(cluster, traits, nearest, from_nearest)

    def nearest(self, cluster: int, among: Collection[int]) -> tuple[tuple[int, float], ...]:
        """Return the other clusters by the distance of their centres over the sum of both spreads."""
        apart = zip(self._gaps[self._ids.index(cluster)].tolist(), self._ids, strict=True)
        found = sorted((gap, other) for gap, other in apart if other != cluster and other in among)
        return tuple((other, gap) for gap, other in found)


def with_reasons(
    model: DBULL, state: LearnerState, report: ArrivalReport
) -> tuple[LearnerState, ArrivalReport]:
    """Say of newborn clusters what sets them apart, in the report and in the events."""
    if not report.born or report.n_clusters < 2:
        return state, report
    learned = copy.copy(model)
    learned._adopt(state)
    explain = Explainer(learned)
    reasons = {cluster: explain(cluster).sentence for cluster in report.born}
    state.ledger.explain_births(reasons)
    born = {cluster: replace(one, because=reasons[cluster]) for cluster, one in report.born.items()}
    return state, replace(report, born=born)


def _number(name: str, measure: str) -> Feature:
    return Feature(name, "number", "value", measure, 0.0, 1.0)


class Columns:
    """Features of rows, and what their means say."""

    def __init__(self, features: Sequence[Feature]):
        self._features = tuple(features)
        flags = {feature.column: i for i, feature in enumerate(features) if feature.part == "missing"}
        absent = ((flags.get(f.column, -1) if f.part != "missing" else -1) for f in features)
        self._missing = np.fromiter(absent, dtype=np.int64, count=len(features))
        self._is_share = np.array([feature.measure == "share" for feature in features])
        self._spread = np.array([feature.spread for feature in features])

    def traits(self, ours: Sequence[Profile], theirs: Sequence[Profile], most: int) -> tuple[Trait, ...]:
        """Return in what some rows differ from others, strongest first, each column once.

        Both are groups of rows: an effect is the mean of those between groups, which may lie on both sides.
        """
        here, others = together(ours), together(theirs)
        (mean, variance, known), (other_mean, other_variance, other_known) = map(self._there, (here, others))
        apart = _apart(mean, variance, other_mean, other_variance)
        effect = np.zeros(len(mean))
        for one, other in product(ours, theirs):
            away = _apart(*self._there(one)[:2], *self._there(other)[:2])
            share = one.n_rows / here.n_rows * other.n_rows / others.n_rows
            effect += share * torch.erf(torch.from_numpy(away) / math.sqrt(2)).numpy()
        effect = np.where(self._is_share, self._spread * (mean - other_mean), effect)
        effect = np.where(known & other_known, effect, 0.0)
        found: dict[str, Trait] = {}
        rarer = self._is_share & (effect < 0)  # of two categories, say which is there and not which is not
        for i in np.lexsort((-np.abs(apart), rarer, -np.abs(effect).round(3))).tolist():
            feature = self._features[i]
            if abs(effect[i]) < NEGLIGIBLE or len(found) == most:
                break
            if feature.column not in found:
                part = "" if feature.part in ("value", "true", "days") else feature.part
                means = float(feature.restored(mean[i])), float(feature.restored(other_mean[i]))
                found[feature.column] = Trait(feature.column, part, feature.measure, *means, float(effect[i]))
        return tuple(found.values())

    def _there(self, profile: Profile) -> tuple[Floats, Floats, NDArray[np.bool_]]:
        """Return mean and variance of the rows in which features are there, and whether these are enough."""
        mean, variance = profile.mean.numpy(), profile.variance.numpy()
        missing = np.zeros(len(mean))
        for flag in np.unique(self._missing[self._missing >= 0]).tolist():
            share = float(self._features[flag].restored(mean[flag]))
            missing[self._missing == flag] = min(max(share, 0.0), 1.0)
        # What is missing was put at 0, so the sums are those of what is there.
        there = np.maximum(1.0 - missing, 1.0 - MOST_MISSING)
        squares = (variance + mean**2) / there
        mean = mean / there
        return mean, np.maximum(squares - mean**2, 0.0), missing <= MOST_MISSING


def _apart(mean: Floats, variance: Floats, other_mean: Floats, other_variance: Floats) -> Floats:
    """Return differences of two means in standard deviations of the difference of two rows."""
    spread = np.sqrt(variance + other_variance)
    apart: Floats = (mean - other_mean) / np.maximum(spread, np.finfo(np.float64).tiny)
    return apart


def _decoded(
    model: LearnedClusters, pooled: Callable[[torch.Tensor], torch.Tensor]
) -> dict[int, list[Profile]]:
    """Return profiles of decoded samples, each counted as often as its cluster has rows."""
    found = {}
    for cluster, weight in zip(model.cluster_ids_.tolist(), model.weights_.tolist(), strict=True):
        codes, _ = model.sample_codes(N_DRAWS, cluster, random_state=cluster)
        drawn = Profile.of_rows(pooled(torch.from_numpy(model.inverse_transform(codes))))
        found[cluster] = [Profile(max(weight, 1e-12), drawn.mean, drawn.variance)]
    return found


def _regions(shape: Sequence[int]) -> tuple[tuple[Feature, ...], Callable[[torch.Tensor], torch.Tensor]]:
    """Return the ninths of an image as features, and what gives the brightness of each."""
    height, width = shape[:2]
    sides = 3 if height >= 3 else 1, 3 if width >= 3 else 1
    rows, columns = (slice(None) if side == 3 else slice(1, 2) for side in sides)
    names = [name for row in PLACES[rows] for name in row[columns]]

    def brightness(pixels: torch.Tensor) -> torch.Tensor:
        grey = pixels.reshape(len(pixels), height, width, -1).mean(3)
        return torch.nn.functional.adaptive_avg_pool2d(grey[:, None], sides).flatten(1)

    return tuple(_number(f"brightness {name}", "brightness") for name in names), brightness
