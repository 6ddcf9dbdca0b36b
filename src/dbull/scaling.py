"""How a column of numbers is scaled: bent if its tail is heavy, then divided so that it has one vote.

Numbers that lie over decades would be ruled by a few of them, so they are seen on a scale that is linear near
the centre and logarithmic far out. The rule looks at the first numbers alone and is stored with the model.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]

ALL_OR_NOTHING = 0.1  # variance of what is alike or not at all: categories and flags,
FEW_VALUES = 5  # and numbers of no more different values
FARTHEST = 4.0  # distance of two values of one column, if rare ones would otherwise be further out
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


LINEAR = Curve()


def number_spread(numbers: Floats) -> float:
    """Return by what numbers are divided; 99 of 100 then lie within FARTHEST of the median."""
    low, median, high = np.quantile(numbers, [0.005, 0.5, 0.995])
    spread = max(float(numbers.std()), float(max(high - median, median - low)) / FARTHEST)
    rounding = 8 * np.finfo(np.float64).eps * float(np.abs(numbers).max())
    return spread if spread > rounding else 1.0


def column_spread(numbers: Floats) -> float:
    """Return by what the numbers of a column are divided to have one vote, or a part if they are but few."""
    votes = ALL_OR_NOTHING if 1 < len(np.unique(numbers)) <= FEW_VALUES else 1.0
    return number_spread(numbers) / math.sqrt(votes)


def block_spread(block: Floats, reach: float, variance: float = 1.0) -> float:
    """Return by what all of a block is divided to have this variance; `reach` is the distance of its ends."""
    spread = math.sqrt(float(block.var(0).sum()) / variance)
    return max(spread, reach / FARTHEST) or 1.0


def category_spread(kinds: Floats) -> float:
    """Return by what the columns of a category, 1 for the value of a row and else 0, are divided."""
    return block_spread(kinds, math.sqrt(2), ALL_OR_NOTHING)


def column_scale(numbers: Floats) -> tuple[Curve, float, float]:
    """Return how a column is bent, and then by what it is shifted and divided; few values are not bent."""
    curve = Curve.of(numbers) if len(np.unique(numbers)) > FEW_VALUES else LINEAR
    bent = curve.bend(numbers)
    return curve, float(bent.mean()), column_spread(bent)
