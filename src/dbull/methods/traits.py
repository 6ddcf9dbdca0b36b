"""In what some rows differ from others, in the user's words and units, from means and variances alone.

The effect of a column is Cliff's delta (Cliff 1993): the probability that one of the rows has more of it than
one of the others, less the probability of the opposite. 1: always more; -1: always less; 0: no difference. It
is that of normal distributions, averaged over pairs of groups, and of shares exact. Effects below 0.147 are
negligible (Romano et al. 2006) and not told.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
import torch
from numpy.typing import NDArray

from dbull.lifelong.profiles import Profile, together
from dbull.tables import Feature

NEGLIGIBLE = 0.147
MOST_MISSING = 0.95  # share from which the few values that are there say little
LEAST_TOGETHER = 0.2  # length of the mean of points on a circle from which they have a place on it
WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Trait:
    """A column, a category or a part of an image in which a cluster differs from other rows."""

    column: str
    part: str  # a category, "missing", ...; "" where the column is one number
    measure: str  # "value" in the user's units, "share" of rows, "hour of day" and other parts of a turn, ...
    here: float  # mean of the cluster
    others: float  # mean of those it is compared with
    effect: float  # from -1 to 1

    def told(self, others: str = "others") -> str:
        """Say it: "delay 180, others 12"."""
        name = f"{self.column} {self.part}".strip()
        return f"{name} {shown(self.here, self.measure)}, {others} {shown(self.others, self.measure)}"

    def __str__(self) -> str:
        return self.told()


def shown(value: float, measure: str) -> str:
    """Write a value as people do."""
    if math.isnan(value):
        return "any"
    if measure == "share":
        share = 100 * min(max(value, 0.0), 1.0)
        return f"{share:.0f} %" if share >= 9.5 or share < 0.05 else f"{share:.1g} %"
    if measure == "hour of day":
        minutes = round(value * 24 * 60) % (24 * 60)
        return f"{minutes // 60:02d}:{minutes % 60:02d}"
    if measure == "day of week":
        return WEEKDAYS[round(value * 7) % 7]
    if measure == "day of year":
        return str(np.datetime64("2001-01-01") + np.timedelta64(round(value * 365) % 365, "D"))[5:]
    if value == 0 or 1e-4 <= abs(value) < 1000:
        return f"{value:.3g}"
    if 1000 <= abs(value) < 1e12:
        digits = float(f"{value:.4g}")
        return f"{digits:,.0f}" if abs(digits) >= 10_000 else f"{digits:.0f}"  # a year has no comma
    return f"{value:.2e}"


class Columns:
    """Features of rows, and what their means say; `more`: what rows lack is not told."""

    def __init__(self, features: Sequence[Feature], more: bool = False):
        self._features, self._more = tuple(features), more
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
        effect = np.maximum(effect, 0.0) if self._more else effect
        found: dict[str, Trait] = {}
        rarer = self._is_share & (effect < 0)  # of two categories, say which is there and not which is not
        for i in np.lexsort((-np.abs(apart), rarer, -np.abs(effect).round(3))).tolist():
            feature = self._features[i]
            if abs(effect[i]) < NEGLIGIBLE or len(found) == most:
                break
            if feature.column in found:
                continue
            part = "" if feature.part in ("value", "true") else feature.part
            cycle = part.removeprefix("sin of ").removeprefix("cos of ")
            if feature.measure == "position" and cycle != part:
                means = self._turn(i, cycle, mean), self._turn(i, cycle, other_mean)
                trait = Trait(feature.column, cycle, cycle, *means, float(effect[i]))
            else:
                means = float(feature.restored(mean[i])), float(feature.restored(other_mean[i]))
                trait = Trait(feature.column, part, feature.measure, *means, float(effect[i]))
            if not math.isnan(trait.here):
                found[feature.column] = trait
        return tuple(found.values())

    def _turn(self, i: int, cycle: str, mean: Floats) -> float:
        """Return where on a circle the mean lies, in turns from 0 to 1; NaN if it lies in the middle."""
        at = {
            feature.part: float(feature.restored(mean[j]))
            for j, feature in enumerate(self._features)
            if feature.column == self._features[i].column
        }
        across, up = at[f"cos of {cycle}"], at[f"sin of {cycle}"]
        if math.hypot(across, up) < LEAST_TOGETHER:
            return math.nan
        return math.atan2(up, across) / (2 * math.pi) % 1.0

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
