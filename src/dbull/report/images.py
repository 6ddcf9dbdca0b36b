"""Pictures as text: PNG by hand, so that a report needs no image library."""

import base64
import struct
import zlib
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Pixels = NDArray[np.uint8]


def drawable_shape(image_shape: Sequence[int] | None) -> tuple[int, ...] | None:
    """Return (height, width) or (height, width, 3) if rows can be drawn as images, else None."""
    if image_shape is None:
        return None
    height, width, *channels = (int(side) for side in image_shape)
    if channels in ([], [1]):
        return height, width
    return (height, width, 3) if channels == [3] else None


def as_picture(row: NDArray[np.float64], shape: Sequence[int], low: float, high: float) -> Pixels:
    """Return a row as pixels; `low` becomes black and `high` white."""
    scaled = (row - low) / (high - low if high > low else 1.0)
    return np.rint(np.clip(scaled, 0.0, 1.0) * 255).astype(np.uint8).reshape(shape)


def tiled(pictures: Sequence[Pixels], n_columns: int) -> Pixels:
    """Return pictures of one size in rows of `n_columns`, one black pixel between them."""
    height, width, *channels = pictures[0].shape
    n_columns = min(n_columns, len(pictures))
    n_rows = -(-len(pictures) // n_columns)
    shape = (n_rows * (height + 1) - 1, n_columns * (width + 1) - 1, *channels)
    paper = np.zeros(shape, dtype=np.uint8)
    for i, picture in enumerate(pictures):
        top, left = i // n_columns * (height + 1), i % n_columns * (width + 1)
        paper[top : top + height, left : left + width] = picture
    return paper


def png_bytes(pixels: Pixels) -> bytes:
    """Return an image (height, width) or (height, width, 3) as a PNG file."""
    if pixels.dtype != np.uint8 or pixels.ndim not in (2, 3) or (pixels.ndim == 3 and pixels.shape[2] != 3):
        raise ValueError(f"pixels must be bytes (height, width) or (height, width, 3); got {pixels.shape}.")
    height, width = pixels.shape[:2]
    colour_type = 0 if pixels.ndim == 2 else 2
    header = struct.pack(">IIBBBBB", width, height, 8, colour_type, 0, 0, 0)
    lines = pixels.reshape(height, -1)
    unfiltered = np.concatenate([np.zeros((height, 1), dtype=np.uint8), lines], axis=1)
    body = zlib.compress(unfiltered.tobytes(), 9)
    return b"\x89PNG\r\n\x1a\n" + _chunk(b"IHDR", header) + _chunk(b"IDAT", body) + _chunk(b"IEND", b"")


def data_uri(pixels: Pixels) -> str:
    """Return an image as an address that contains it."""
    return "data:image/png;base64," + base64.b64encode(png_bytes(pixels)).decode("ascii")


def _chunk(kind: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
