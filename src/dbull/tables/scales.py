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

from dbull.scaling import FARTHEST, LINEAR, Curve

LARGEST = 1e6  # encoded values lie within: far outside, but in reach of float32 and its squares


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
    curve: Curve = LINEAR

    @property
    def name(self) -> str:
        """The column, and which part of it."""
        return self.column if self.part == "value" else f"{self.column}: {self.part}"

    def restored(self, encoded: ArrayLike) -> NDArray[np.float64]:
        """Return encoded values in the measure of this feature; of the mean of some rows, their share."""
        return self.curve.unbend(self.mean + self.spread * np.asarray(encoded, dtype=np.float64))


def missing_spread(share: float) -> float:
    """Return the spread of the feature that says what is missing."""
    return max(math.sqrt(1 - share), 1 / FARTHEST)
