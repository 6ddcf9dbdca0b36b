"""Fixed features of images: straightened strokes, then local histograms of gradient orientation.

Nothing here is learned, so it cannot drift while a stream is learned, and neighbours in these features are
more often of one kind than neighbours in pixels. The encoder sees the features; the decoder still gives back
the pixels.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

__all__ = ["FrontEnd"]

CHUNK_IMAGES = 256  # so many gradient maps stay in the cache


@dataclass(frozen=True)
class FrontEnd:
    """Histograms of gradient orientation on a grid, as histograms of oriented gradients, but smooth.

    Parameters
    ----------
    height, width, n_channels
        Shape of an image; channels are averaged.
    straighten
        Centre each image and undo its slant, both by moments of its brightness. For figures on empty ground
        (writing); on other images moments say nothing about slant.
    n_orientations, n_cells
        Orientation bins (over the full circle) and cells along each side.
    """

    height: int
    width: int
    n_channels: int = 1
    straighten: bool = False
    n_orientations: int = 8
    n_cells: int = 9

    @property
    def n_features(self) -> int:
        """Numbers per image."""
        return self.n_orientations * self.n_cells**2

    def __call__(self, rows: Tensor) -> Tensor:
        """Return the features (N, n_features) of images given as rows (N, height * width * n_channels)."""
        pool = torch.kron(pooling(self.height, self.n_cells), pooling(self.width, self.n_cells)).T.to(rows)
        parts = []
        for chunk in rows.split(CHUNK_IMAGES):
            # Filled up, because a matrix product rounds differently for different numbers of rows.
            filled = F.pad(chunk, (0, 0, 0, CHUNK_IMAGES - len(chunk)))
            parts.append(self._features(filled, pool)[: len(chunk)])
        return torch.cat(parts) if parts else rows.new_zeros(0, self.n_features)

    def _features(self, rows: Tensor, pool: Tensor) -> Tensor:
        """Return the features of one chunk; `pool` (pixels, cells) sums maps into cells."""
        images = rows.reshape(-1, self.height, self.width, self.n_channels).mean(-1)
        if self.straighten:
            images = straightened(images)
        horizontal, vertical = gradients(blurred(images, 0.5 * self.height / 28))
        strength = (horizontal.square() + vertical.square()).sqrt()
        angle = torch.atan2(vertical, horizontal) * (self.n_orientations / (2 * math.pi))
        # Each gradient votes for the two nearest orientations, by its distance to them.
        low = angle.floor()
        share = angle - low
        low = low.long() % self.n_orientations
        votes = images.new_zeros(len(images), self.n_orientations, self.height, self.width)
        votes.scatter_add_(1, low[:, None], (strength * (1 - share))[:, None])
        votes.scatter_add_(1, ((low + 1) % self.n_orientations)[:, None], (strength * share)[:, None])
        features = (votes.flatten(2).flatten(0, 1) @ pool).reshape(len(images), -1)
        return F.normalize(features, dim=1).clamp(min=0).sqrt()


def straightened(images: Tensor) -> Tensor:
    """Centre images (N, height, width) and undo their slant by first and second moments of brightness."""
    n_images, height, width = images.shape
    y = torch.linspace(-1, 1, height, dtype=images.dtype)[:, None]
    x = torch.linspace(-1, 1, width, dtype=images.dtype)
    mass = images.sum((1, 2)).clamp(min=1e-6)
    mean_y = (images * y).sum((1, 2)) / mass
    mean_x = (images * x).sum((1, 2)) / mass
    off_y = y - mean_y[:, None, None]
    off_x = x - mean_x[:, None, None]
    spread_y = (images * off_y.square()).sum((1, 2)) / mass
    together = (images * off_y * off_x).sum((1, 2)) / mass
    slant = (together / spread_y.clamp(min=1e-4)).clamp(-1, 1)
    affine = images.new_zeros(n_images, 2, 3)
    affine[:, 0, 0] = affine[:, 1, 1] = 1
    affine[:, 0, 1] = slant
    affine[:, 0, 2] = mean_x
    affine[:, 1, 2] = mean_y
    grid = F.affine_grid(affine, [n_images, 1, height, width], align_corners=True)
    return F.grid_sample(images[:, None], grid, align_corners=True)[:, 0]


def blurred(images: Tensor, std: float) -> Tensor:
    """Smooth images (N, height, width) with a Gaussian of this standard deviation in pixels."""
    reach = max(1, math.ceil(2 * std))
    offsets = torch.arange(-reach, reach + 1, dtype=images.dtype)
    kernel = torch.exp(-0.5 * (offsets / std).square())
    kernel /= kernel.sum()
    # Sums of shifted images: a convolution rounds differently for different numbers of images.
    for dim, margin in ((1, (0, 0, reach, reach)), (2, (reach, reach))):
        size, padded = images.shape[dim], F.pad(images, margin)
        images = torch.zeros_like(images)
        for place, weight in enumerate(kernel.tolist()):
            images += weight * padded.narrow(dim, place, size)
    return images


def gradients(images: Tensor) -> tuple[Tensor, Tensor]:
    """Central differences (N, height, width) along x and y; the border counts as continued."""
    padded = F.pad(images[:, None], (1, 1, 1, 1), mode="replicate")[:, 0]
    return (padded[:, 1:-1, 2:] - padded[:, 1:-1, :-2]) / 2, (padded[:, 2:, 1:-1] - padded[:, :-2, 1:-1]) / 2


def pooling(n_pixels: int, n_cells: int) -> Tensor:
    """Weights (n_cells, n_pixels) of overlapping Gaussian cells, evenly spaced along one side."""
    step = n_pixels / n_cells
    centres = (torch.arange(n_cells) + 0.5) * step - 0.5
    return torch.exp(-0.5 * ((torch.arange(n_pixels) - centres[:, None]) / (0.5 * step)).square())
