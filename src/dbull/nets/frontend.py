"""Fixed features of images: straightened strokes, then local histograms of gradient orientation.

Nothing here is learned, so it cannot drift while a stream is learned, and neighbours in these features are
more often of one kind than neighbours in pixels. The encoder sees the features; the decoder still gives back
the pixels.
"""

import math
from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor
from torch.nn import functional as F

CHUNK_IMAGES = 256  # few calls per image, and maps that stay near the cache
SMALLEST_WEIGHT = 1e-15  # of a pixel in a cell
TINY = 1e-12


@dataclass(frozen=True)
class FrontEnd:
    """Histograms of gradient orientation on a grid, as histograms of oriented gradients, but smooth.

    With `straighten` each image is centred and its slant undone, both by moments of its brightness: for
    figures on empty ground (writing); on other images moments say nothing about slant.
    """

    height: int
    width: int
    n_channels: int = 1  # which are averaged
    straighten: bool = False
    n_orientations: int = 8  # bins over the full circle, at least two
    n_cells: int = 9  # along each side

    @property
    def n_features(self) -> int:
        """Numbers per image."""
        return self.n_orientations * self.n_cells**2

    def __call__(self, rows: Tensor) -> Tensor:
        """Return the features (N, n_features) of images given as rows (N, height * width * n_channels)."""
        features = rows.new_empty(len(rows), self.n_features)
        # Two bins more than orientations: the first two come after the last again on the circle.
        votes = rows.new_empty(self.height, self.width, self.n_orientations + 2, CHUNK_IMAGES)
        pools = pooling(self.height, self.n_cells).to(rows), pooling(self.width, self.n_cells).to(rows)
        for chunk, place in zip(rows.split(CHUNK_IMAGES), features.split(CHUNK_IMAGES), strict=True):
            # Filled up, because a matrix product rounds differently for different numbers of images.
            filled = F.pad(chunk, (0, 0, 0, CHUNK_IMAGES - len(chunk)))
            place.copy_(self._features(filled, votes, *pools)[: len(chunk)])
        return features

    def _features(self, rows: Tensor, votes: Tensor, pool_y: Tensor, pool_x: Tensor) -> Tensor:
        """Return the features of one chunk; `votes` (height, width, bins, images) is room to work in."""
        images = rows.reshape(-1, self.height, self.width, self.n_channels)
        images = images[..., 0] if self.n_channels == 1 else images.mean(-1)
        if self.straighten:
            images = straightened(images)
        maps = images.permute(1, 2, 0).contiguous()
        smooth = blurred(maps, 0.5 * self.height / 28)
        horizontal, vertical = central_difference(smooth, 1), central_difference(smooth, 0)
        bins = torch.atan2(vertical, horizontal).mul_(self.n_orientations / (2 * math.pi))
        # A root that is quick where it is 0.
        squared = horizontal.square_().addcmul_(vertical, vertical)
        strength = squared.mul_(squared.clamp(min=torch.finfo(squared.dtype).tiny).rsqrt_())
        # Each gradient votes for the two nearest orientations, by its distance to them.
        low = bins.floor()
        to_next = bins.sub_(low).mul_(strength)
        n_below = -(-self.n_orientations // 2)  # angles begin at minus half the circle
        low = low.add_(n_below).long()[:, :, None]
        votes.zero_()
        votes.scatter_add_(2, low, strength.sub_(to_next)[:, :, None])
        votes.scatter_add_(2, low.add_(1), to_next[:, :, None])
        cells = (pool_y @ votes.flatten(1)).reshape(self.n_cells, *votes.shape[1:])
        cells[:, :, :2] += cells[:, :, -2:]
        cells = (pool_x @ cells[:, :, :-2].flatten(2)).unflatten(2, (self.n_orientations, -1))
        features = cells.permute(2, 0, 1, 3).roll(-n_below, 0).flatten(0, 2)
        length = features.square().sum(0).sqrt_().clamp_(min=TINY)
        roots: Tensor = features.div_(length).clamp_(min=0).sqrt_()
        return roots.T


def straightened(images: Tensor) -> Tensor:
    """Centre images (N, height, width) and undo their slant by first and second moments of brightness.

    Pixels are interpolated linearly; there is nothing beyond the border.
    """
    n_images, height, width = images.shape
    y, powers = moment_powers(height, width)
    moments = images.flatten(1).to(torch.float64) @ powers
    _, mean_y, mean_x, square_y, product = (moments / moments[:, :1].clamp(min=1e-6)).T
    spread_y = (square_y - mean_y.square()).clamp(min=1e-4)
    slant = ((product - mean_y * mean_x) / spread_y).clamp(-1, 1)
    # All rows of an image move down by the same, and each to the right by its own number of pixels.
    down = (mean_y * ((height - 1) / 2)).clamp(-height, height)
    right = torch.addcmul(mean_x, y[:, None], slant).mul_((width - 1) / 2).clamp_(-width, width).T
    whole_down, whole_right = down.floor(), right.floor()
    part_down = (down - whole_down).to(images.dtype)
    part_right = (right - whole_right).T[:, None].to(images.dtype)
    # Rows with empty room between them, and empty ones at both ends: a row moved by so many pixels starts as
    # many further on, and one that comes from beyond the border is the last.
    stride = 2 * width + 1
    spaced = images.new_zeros(n_images * height + 2, stride)
    spaced[1:-1, :width] = images.reshape(-1, width)
    windows = spaced.flatten().unfold(0, width + 1, 1)
    first = 1 + height * torch.arange(n_images)[:, None]
    columns = whole_right.long()

    def moved(down: Tensor) -> Tensor:
        source = torch.arange(height) + down.long()[:, None]
        row = torch.where((source >= 0) & (source < height), first + source, len(spaced) - 1)
        start = torch.add(columns, row, alpha=stride).flatten()
        taken = windows.index_select(0, start).reshape(n_images, height, width + 1)
        return taken.permute(1, 2, 0).contiguous()  # what is done to a pixel is done to all images in one go

    rows = torch.lerp(moved(whole_down), moved(whole_down + 1), part_down)
    return torch.lerp(rows[:, :-1], rows[:, 1:], part_right).permute(2, 0, 1)


@cache
def moment_powers(height: int, width: int) -> tuple[Tensor, Tensor]:
    """Return y from -1 to 1, (height,), and 1, y, x, y y, y x at each pixel, (pixels, 5)."""
    y = torch.linspace(-1, 1, height, dtype=torch.float64)
    x = torch.linspace(-1, 1, width, dtype=torch.float64)
    powers = [torch.outer(y**a, x**b) for a, b in ((0, 0), (1, 0), (0, 1), (2, 0), (1, 1))]
    return y, torch.stack(powers).flatten(1).T


def blurred(maps: Tensor, std: float) -> Tensor:
    """Smooth maps (height, width, N) with a Gaussian of this standard deviation in pixels."""
    reach = max(1, math.ceil(2 * std))
    kernel = {offset: math.exp(-0.5 * (offset / std) ** 2) for offset in range(-reach, reach + 1)}
    total = sum(kernel.values())
    # Sums of shifted maps: a convolution rounds differently for different numbers of images.
    for dim in (0, 1):
        size, before = maps.shape[dim], maps
        maps = torch.zeros_like(before)
        for offset, weight in kernel.items():
            n_shared = size - abs(offset)
            if n_shared > 0:
                shifted = before.narrow(dim, max(0, offset), n_shared)
                maps.narrow(dim, max(0, -offset), n_shared).add_(shifted, alpha=weight / total)
    return maps


def central_difference(maps: Tensor, dim: int) -> Tensor:
    """Return half of what comes after less what comes before, of maps (height, width, N); borders go on."""
    last = maps.shape[dim] - 1
    places = torch.arange(last + 1)
    after = maps.index_select(dim, (places + 1).clamp(max=last))
    return after.sub_(maps.index_select(dim, (places - 1).clamp(min=0))).mul_(0.5)


def pooling(n_pixels: int, n_cells: int) -> Tensor:
    """Weights (n_cells, n_pixels) of overlapping Gaussian cells, evenly spaced along one side."""
    step = n_pixels / n_cells
    centres = (torch.arange(n_cells) + 0.5) * step - 0.5
    weights = torch.exp(-0.5 * ((torch.arange(n_pixels) - centres[:, None]) / (0.5 * step)).square())
    # Smaller ones change nothing, but their products leave the normal numbers, which takes much time.
    return torch.where(weights > SMALLEST_WEIGHT, weights, 0.0)
