"""Small random changes of each sample that leave what it shows as it is."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

Augmentation = Callable[[Tensor, torch.Generator], Tensor]


@dataclass(frozen=True)
class ImageShifts:
    """Rotate, shift, scale and shear each image by its own random amount; what comes in from outside is 0.

    Rows are (height, width, n_channels) flattened.
    """

    height: int
    width: int
    n_channels: int = 1
    rotation: float = 10.0  # degrees at most
    shift: float = 0.1  # share of the side at most
    scale: float = 0.0  # largest relative change of size
    shear: float = 0.0  # largest

    def __call__(self, rows: Tensor, generator: torch.Generator) -> Tensor:
        """Return changed images as rows (N, height * width * n_channels)."""
        n = len(rows)
        angle = uniform((n,), math.radians(self.rotation), generator)
        size = 1 + uniform((n, 2), self.scale, generator)
        affine = torch.empty(n, 2, 3, device=generator.device)
        affine[:, 0, 0] = angle.cos() * size[:, 0]
        # Coordinates run from -1 to 1 along either side: a turn of an oblong image must know its sides.
        affine[:, 0, 1] = uniform((n,), self.shear, generator) - angle.sin() * (self.height / self.width)
        affine[:, 1, 0] = angle.sin() * (self.width / self.height)
        affine[:, 1, 1] = angle.cos() * size[:, 1]
        affine[:, :, 2] = uniform((n, 2), 2 * self.shift, generator)  # a side is 2 long in these coordinates
        images = rows.reshape(n, self.height, self.width, self.n_channels).movedim(-1, 1)
        grid = F.affine_grid(affine.to(rows), list(images.shape), align_corners=False)
        return F.grid_sample(images, grid, align_corners=False).movedim(1, -1).reshape(n, -1)


@dataclass(frozen=True)
class MaskingNoise:
    """Set a random share of the values of each row to 0."""

    share: float = 0.2

    def __call__(self, rows: Tensor, generator: torch.Generator) -> Tensor:
        """Return rows with holes."""
        kept = torch.rand(rows.shape, generator=generator, device=generator.device) >= self.share
        return rows * kept.to(rows)


def uniform(shape: tuple[int, ...], reach: float, generator: torch.Generator) -> Tensor:
    """Draw from the uniform distribution on [-reach, reach]."""
    return (torch.rand(shape, generator=generator, device=generator.device) * 2 - 1) * reach
