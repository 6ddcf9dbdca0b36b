"""Pictures in a terminal: half blocks in shades of grey, or shaded characters where there is no colour."""

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from rich.text import Text

__all__ = ["picture_lines", "plain_lines"]

SHADES = " ░▒▓█"
ASCII_SHADES = " .:+#"


def picture_lines(pixels: NDArray[np.uint8]) -> "list[Text]":
    """Return an image (height, width) twice as fine, two pixels above each other in a character."""
    from rich.text import Text

    fine = _doubled(pixels)
    lines = []
    for upper, lower in zip(fine[::2], fine[1::2], strict=True):
        line = Text()
        for above, below in zip(upper.tolist(), lower.tolist(), strict=True):
            line.append("▀", style=f"rgb({above},{above},{above}) on rgb({below},{below},{below})")
        lines.append(line)
    return lines


def plain_lines(pixels: NDArray[np.uint8], *, ascii_only: bool = False) -> list[str]:
    """Return an image (height, width) as text, two characters for a pixel since they are narrow."""
    shades = ASCII_SHADES if ascii_only else SHADES
    levels = np.rint(pixels / 255 * (len(shades) - 1)).astype(int)
    return ["".join(shades[level] * 2 for level in row) for row in levels.tolist()]


def _doubled(pixels: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Return an image with twice as many pixels each way, in between by the mean of neighbours."""
    fine = pixels.astype(np.float64)
    for axis in (0, 1):
        n = fine.shape[axis]
        places = (np.arange(2 * n) + 0.5) / 2 - 0.5
        left = np.clip(np.floor(places).astype(int), 0, n - 1)
        right = np.clip(left + 1, 0, n - 1)
        part = np.clip(places - left, 0.0, 1.0).reshape([-1 if a == axis else 1 for a in (0, 1)])
        fine = fine.take(left, axis) * (1 - part) + fine.take(right, axis) * part
    return np.rint(fine).astype(np.uint8)
