"""Leading principal directions of rows, and how far two halves of the rows agree on them."""

import math
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F

OVERSAMPLED = 10  # more directions than asked for while they are sought
NARROW = 1000  # inputs up to which all their products take less time than as many directions four times over
PROJECTION_ROWS = 5000  # rows from which directions are taken
Product = Callable[[Tensor], Tensor]


def reproducible(inputs: Tensor, n_dims: int, generator: torch.Generator) -> Tensor:
    """Return rows in their leading principal directions, each as long as two halves of the rows agree on it.

    A direction of one half is as good as the part of it that lies among the leading directions of the other,
    up to twice as many. Directions of images agree nearly all, those of a few texts hardly after the first.
    """
    centred = inputs - inputs.mean(0)
    sample = centred[torch.randperm(len(inputs), generator=generator)[: 2 * PROJECTION_ROWS]]
    n_dims = min(n_dims, inputs.shape[1], len(sample) // 2 - 1)
    if n_dims < 2:
        return centred
    one, other, whole = (
        _directions(product, inputs.shape[1], n_dims, generator)
        for product in products_of_halves(sample[0::2], sample[1::2])
    )
    common = (one.T @ other).square().cumsum(1)
    order = torch.arange(n_dims)
    agreed = common[order, (2 * order + OVERSAMPLED // 2 - 1).clamp(max=n_dims - 1)]
    smooth = F.avg_pool1d(agreed[None, None], 5, stride=1, padding=2, count_include_pad=False)[0, 0]
    rows: Tensor = centred @ (whole * smooth.clamp(max=1.0))
    return rows


def leading_directions(rows: Tensor, n_dims: int, generator: torch.Generator) -> Tensor:
    """Return the principal directions of rows (N, d), (d, n_dims), the strongest first."""
    return _directions(_product(_scatter(rows)), rows.shape[1], n_dims, generator)


def products_of_halves(one: Tensor, other: Tensor) -> tuple[Product, Product, Product]:
    """Return how the scatter of two halves of some rows, and that of all, is multiplied with a matrix.

    The scatter of all is the sum of both, and what lies between their means.
    """
    gap = math.sqrt(len(one) * len(other) / (len(one) + len(other))) * (one.mean(0) - other.mean(0))[None]
    first, second = _scatter(one), _scatter(other)
    if one.shape[1] <= NARROW:
        return _product(first), _product(second), _product(first + second + gap.T @ gap)
    return _product(first), _product(second), _product(torch.cat([first, second, gap]))


def _scatter(rows: Tensor) -> Tensor:
    """Return what stands for the scatter of rows: itself, or the rows, centred, if they are wide."""
    rows = rows - rows.mean(0)
    # Of narrow rows, once their products are made, each pass costs next to nothing.
    return rows.T @ rows if rows.shape[1] <= NARROW else rows


def _product(scatter: Tensor) -> Product:
    if scatter.shape[1] <= NARROW:
        return lambda basis: scatter @ basis
    return lambda basis: scatter.T @ (scatter @ basis)


def _directions(product: Product, width: int, n_dims: int, generator: torch.Generator) -> Tensor:
    """Return the leading eigenvectors of a scatter by its products (subspace iteration, Halko 2011)."""
    basis = torch.eye(width)
    if width > n_dims + OVERSAMPLED:
        basis = torch.linalg.qr(torch.randn(width, n_dims + OVERSAMPLED, generator=generator)).Q
        for _ in range(4):
            basis = torch.linalg.qr(product(basis)).Q
    directions: Tensor = basis @ torch.linalg.eigh(basis.T @ product(basis)).eigenvectors[:, -n_dims:].flip(1)
    return directions
