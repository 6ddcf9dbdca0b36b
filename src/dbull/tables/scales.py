"""How far apart encoded rows lie: one column, one vote.

A column's features have a variance of about 1 in all, as a number scaled by its standard deviation has.
Categories, flags and numbers of up to five values have a tenth of that: neighbours differ a little in a
number, but in a category they are alike or a whole step apart. With the variance of a number, the values of
each category would part all rows (a flag that half of them have lies 2 apart; with a tenth, 0.6, about as far
as neighbours in a few numbers).

For what is rare this alone would go wrong: a flag that 0.1 % of rows have, divided by its standard deviation,
puts these rows 10 away from all others, further than any number does; undivided, at 1, it is lost among them.
So values lie no further apart than FARTHEST = 4, where two clusters of unit spread just part (2 % of each are
nearer to the other).

What is missing is put at the centre, 0. If any of the first rows lack it, one more feature says so, since a
gap that is rare at first may be what a later day is about (flights that never took off have no times); it
lies 1 / sqrt(1 - share) from the rest, which adds just the variance that the rows at the centre have lost.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dbull.tables.cells import Floats

ALL_OR_NOTHING = 0.1  # variance of what is alike or not at all: categories and flags,
FEW_VALUES = 5  # and numbers of no more different values
FARTHEST = 4.0  # distance of two values of one column, if rare ones would otherwise be further out
LARGEST = 1e6  # encoded values lie within: far outside, but in reach of float32 and its squares
HEAVY = 1.5  # standard deviation, in robust ones, from which a tail is heavy; exponential has 1.2, normal 1
DECADE, DECADES = 10.0, 1000.0  # ratio of large and small values for a log if the tail is heavy, and if not
CURVES = ("linear", "log", "robust")


@dataclass(frozen=True)
class Curve:
    """A number x as it is, or asinh((x - centre) / unit): as it is near the centre, like a log far from it.

    "log" is for numbers of at least 0 over decades, from 0 in units of small ones; "robust" is for other
    heavy tails, from the median in units of the interquartile range. Both are defined for every later number.
    """

    rule: str = "linear"
    centre: float = 0.0
    unit: float = 1.0

    @classmethod
    def of(cls, numbers: Floats) -> "Curve":
        """Choose by the first numbers."""
        if not len(numbers):
            return cls()
        first, median, third = np.quantile(numbers, [0.25, 0.5, 0.75])
        bulk = float(third - first) / 1.349  # the standard deviation of a normal distribution
        heavy = bool(numbers.std() > HEAVY * bulk and np.ptp(numbers) > 0)
        positive = numbers[numbers > 0]
        if numbers.min() >= 0 and len(positive):
            small, large = np.quantile(positive, [0.05, 0.95])
            if large >= (DECADE if heavy else DECADES) * small:
                return cls("log", 0.0, float(max(small, 1e-100)))
        if not heavy:
            return cls()
        away = np.abs(numbers - median)
        unit = bulk if bulk > 0 else float(np.median(away[away > 0]))  # more than half may be one value
        return cls("robust", float(median), max(unit, 1e-100))

    def bend(self, numbers: Floats) -> Floats:
        """Return what is scaled in place of the numbers."""
        if self.rule == "linear":
            return numbers
        bent: Floats = np.arcsinh((numbers - self.centre) / self.unit)
        return bent

    def unbend(self, bent: ArrayLike) -> NDArray[np.float64]:
        """Undo `bend`."""
        values = np.asarray(bent, dtype=np.float64)
        return values if self.rule == "linear" else self.centre + self.unit * np.sinh(values)


@dataclass(frozen=True)
class Feature:
    """One number of an encoded row, and what it means.

    Attributes
    ----------
    column, role
        Where it comes from.
    part
        Which part of it: "value", a category, "other", "missing", "sin of hour of day", ...
    measure
        What `restored` gives: "value" in the user's units, "share" of rows, or "position" on a circle or in
        a space of topics.
    mean, spread, curve
        It is (curve(x) - mean) / spread.
    """

    column: str
    role: str
    part: str
    measure: str
    mean: float
    spread: float
    curve: Curve = Curve()

    @property
    def name(self) -> str:
        """The column, and which part of it."""
        return self.column if self.part == "value" else f"{self.column}: {self.part}"

    def restored(self, encoded: ArrayLike) -> NDArray[np.float64]:
        """Return encoded values in the measure of this feature; of the mean of some rows, their share."""
        return self.curve.unbend(self.mean + self.spread * np.asarray(encoded, dtype=np.float64))


def number_spread(numbers: Floats) -> float:
    """Return by what numbers are divided; 99 of 100 then lie within FARTHEST of the median."""
    low, median, high = np.quantile(numbers, [0.005, 0.5, 0.995])
    spread = max(float(numbers.std()), float(max(high - median, median - low)) / FARTHEST)
    rounding = 8 * np.finfo(np.float64).eps * float(np.abs(numbers).max())
    return spread if spread > rounding else 1.0


def block_spread(block: Floats, reach: float, variance: float = 1.0) -> float:
    """Return by what all of a block is divided to have this variance; `reach` is the distance of its ends."""
    spread = math.sqrt(float(block.var(0).sum()) / variance)
    return max(spread, reach / FARTHEST) or 1.0


def missing_spread(share: float) -> float:
    """Return the spread of the feature that says what is missing."""
    return max(math.sqrt(1 - share), 1 / FARTHEST)
