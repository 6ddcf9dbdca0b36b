"""From the user's rows to what the networks see and describe, and back; fixed by the first data.

rows --bend, shift, scale--> values --front end, normalisation--> inputs
                             (described by the decoder)           (seen by the encoder)
"""

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn import functional as F

from dbull.categories import categories_in
from dbull.errors import DataError, check_known
from dbull.nets.frontend import FrontEnd
from dbull.scaling import LINEAR, Curve, category_spread, column_scale

KINDS = ("images", "sparse", "dense")
SPARSE_SHARE = 0.8  # share of zeros from which non-negative rows count as sparse (word counts and the like)
SMALLEST, LARGEST = 1e-150, 1e150  # values that are told from 0 and from each other by their squares
SAME_UNIT = 10.0  # times the median: columns whose deviations go no higher are taken to have one unit
SMALLEST_SHARE = 0.5  # of their common deviation that each of them is scaled by at least
MOST_BENT = 345.0  # sinh of it is about LARGEST
LARGEST_INPUT = 1e6  # in standard deviations: rows further out stay in reach of float32


@dataclass(frozen=True)
class InputView:
    """What is done to rows before the encoder, and how it is undone after the decoder."""

    kind: str
    shift: Tensor  # (d,) or (1,)
    scale: Tensor  # (d,) or (1,)
    front_end: FrontEnd | None
    input_shift: Tensor  # (n_inputs,)
    input_scale: float
    centre: Tensor  # (d,) or (0,), of columns with heavy tails, which are bent: asinh((x - centre) / unit)
    unit: Tensor  # (d,) or (0,); 0 for columns as they are

    @property
    def n_inputs(self) -> int:
        """Numbers per row that the encoder sees."""
        return len(self.input_shift)

    def values(self, rows: Tensor) -> Tensor:
        """Return what the decoder describes, float32 (N, d)."""
        scaled = (self.bent(rows) - self.shift) / self.scale
        return scaled.clamp(-LARGEST_INPUT, LARGEST_INPUT).to(torch.float32)

    def rows(self, values: Tensor) -> Tensor:
        """Undo `values`."""
        bent = values.to(self.scale) * self.scale + self.shift
        if not len(self.unit):
            return bent
        return torch.where(
            self.unit > 0, self.centre + self.unit * bent.clamp(-MOST_BENT, MOST_BENT).sinh(), bent
        )

    def bent(self, rows: Tensor) -> Tensor:
        """Return rows with columns of heavy tails on a scale that is logarithmic far out."""
        if not len(self.unit):
            return rows
        unit = torch.where(self.unit > 0, self.unit, 1.0)
        return torch.where(self.unit > 0, ((rows - self.centre) / unit).asinh(), rows)

    def log_volume(self, values: Tensor) -> Tensor:
        """Return the log of the volume that a unit of values has in the units of the rows, (N,) or ()."""
        scale = self.scale.double()
        volume = scale.log().sum() * (values.shape[1] / len(scale))
        if not len(self.unit):
            return volume
        bent = values.double() * scale + self.shift
        slope = torch.where(self.unit > 0, self.unit.clamp_min(1e-300).log() + _log_cosh(bent), 0.0)
        return volume + slope.sum(1)

    @property
    def curves(self) -> list[Curve]:
        """How each column is bent, as many as there are; none if none is."""
        pairs = zip(self.centre.tolist(), self.unit.tolist(), strict=True)
        return [Curve("robust", centre, unit) if unit > 0 else LINEAR for centre, unit in pairs]

    def features(self, values: Tensor) -> Tensor:
        """Return fixed features: of images those of the front end, of sparse rows their direction."""
        if self.front_end is not None:
            return self.front_end(values)
        if self.kind == "sparse":
            return F.normalize(values, dim=1)
        return values

    def inputs(self, values: Tensor) -> Tensor:
        """Return what the encoder sees, float32 (N, n_inputs)."""
        return (self.features(values) - self.input_shift) / self.input_scale


def _log_cosh(x: Tensor) -> Tensor:
    size = x.abs()
    return size + (-2 * size).exp().log1p() - math.log(2)


def guess_kind(rows: Tensor, image_shape: tuple[int, int, int] | None) -> str:
    """Return "images" if a shape is given, "sparse" for non-negative rows that are mostly 0, else "dense".

    Columns that are mostly those of categories, one for each value, are a table though they are mostly 0.
    """
    if image_shape is not None:
        return "images"
    mostly_zero = bool((rows == 0).double().mean() >= SPARSE_SHARE)
    if not mostly_zero or bool(rows.min() < 0):
        return "dense"
    n_of_categories = sum(run.stop - run.start for run in categories_in(rows.numpy()))
    return "dense" if n_of_categories > rows.shape[1] / 2 else "sparse"


def fit_inputs(
    rows: Tensor,
    kind: str,
    image_shape: tuple[int, int, int] | None,
    use_front_end: bool,
    as_they_are: bool = False,
    scaled: bool = False,
    counts: Tensor | None = None,
) -> InputView:
    """Fix the view from the first data.

    Images are brought to [0, 1] as a whole. Dense columns get mean 0 and variance 1: less where they hardly
    vary and have the unit of the others, and by the rules of tables where they have none in common
    (scaling.py). Sparse columns are divided by the root of their deviation, to a mean square of 1 as a whole
    (zeros stay zeros). With `as_they_are` inputs are the values themselves, so that they can be undone
    without a decoder. Columns that are `scaled` already keep their proportions. With `counts`, (N,), rows are
    means of so many.
    """
    check_known("kind of data", kind, KINDS)
    check_range(rows)
    centre = unit = rows.new_zeros(0)
    if scaled and kind != "sparse":
        shift, scale = rows.new_zeros(1), rows.new_ones(1)
    elif kind == "images":
        low, high = rows.min(), rows.max()
        shift, scale = low[None], torch.where(high > low, high - low, torch.ones_like(high))[None]
    elif kind == "sparse":
        # In float64, since squares leave the range of float32 long before the values do. Half way between
        # columns as they are, where few rule, and columns of one variance, where rare ones rule.
        deviation = rows.double().std(0, correction=0)
        deviation = deviation.clamp_min(SMALLEST_SHARE * float(deviation.mean()))
        half_way = torch.where((deviation > 0) & (not scaled), deviation, 1.0).sqrt()
        root_mean_square = torch.linalg.vector_norm(rows.double() / half_way) / math.sqrt(rows.numel())
        scale = (half_way * torch.where(root_mean_square > 0, root_mean_square, 1.0)).to(rows.dtype)
        shift = torch.zeros_like(scale)
    else:
        shift, scale = rows.mean(0), rows.std(0, correction=0)
        rounding = 8 * torch.finfo(rows.dtype).eps * rows.abs().amax(0)
        categories = categories_in(rows.numpy(), None if counts is None else counts.numpy())
        other = torch.ones(len(scale), dtype=torch.bool)
        for columns in categories:
            other[columns] = False
        if bool(other.any()) and bool(scale[other].max() > SAME_UNIT * scale[other].median()):
            centre, unit, shift, scale = _scaled_apart(rows)
        else:
            # What hardly varies in the first data may vary in later ones, as much as other columns do.
            floor = SMALLEST_SHARE * scale[other].double().square().mean().sqrt()
            scale = torch.where(other & (scale < floor), floor.to(scale), scale)
        for columns in categories:  # all columns of one have one vote together
            scale[columns] = category_spread(rows[:, columns].double().numpy())
        scale = torch.where(scale > rounding, scale, torch.ones_like(scale))  # constant columns have no scale
    if as_they_are:
        return InputView("dense", shift, scale, None, torch.zeros(rows.shape[1]), 1.0, centre, unit)
    front_end = None
    if use_front_end and kind == "images" and image_shape is not None:
        height, width, n_channels = image_shape
        # A single line of pixels has no slant.
        front_end = FrontEnd(*image_shape, straighten=n_channels == 1 and min(height, width) > 1)
    plain = InputView(kind, shift, scale, front_end, torch.zeros(1), 1.0, centre, unit)
    features = plain.features(plain.values(rows))
    spread = float(features.std()) if len(features) > 1 else 1.0
    return replace(plain, input_shift=features.mean(0), input_scale=spread if spread > 0 else 1.0)


def _scaled_apart(rows: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return centre, unit, shift and scale of columns that have no common unit, each by its own numbers."""
    found = []
    for column in rows.double().numpy().T:
        curve, mean, spread = column_scale(column)
        found.append((curve.centre, 0.0 if curve == LINEAR else curve.unit, mean, spread))
    centre, unit, shift, scale = torch.tensor(found, dtype=rows.dtype).T.contiguous()
    return centre, unit, shift, scale


def check_range(rows: Tensor) -> None:
    """Say which column holds values whose squares leave the range of float64."""
    largest = rows.abs().amax(0).to(torch.float64)
    bad = (largest > LARGEST) | ((largest > 0) & (largest < SMALLEST))
    if bool(bad.any()):
        column = int(bad.nonzero()[0, 0])
        what = "large" if largest[column] > 1 else "small"
        told = f"too {what} to square in float64 (largest {float(largest[column]):.3g})"
        raise DataError(f"the values of column {column} are {told}. Rescale the column.")
