"""MNIST and Fashion-MNIST: 70,000 grey images of 28 x 28 in the IDX format."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from dbull.data.dataset import Samples
from dbull.data.files import read_content
from dbull.errors import DataError

MNIST_LABELS = tuple("0123456789")
FASHION_LABELS = (
    *("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat"),
    *("Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot"),
)
_UNSIGNED_BYTE = 8
_ROWS_PER_BLOCK = 512  # small enough that a block is converted and scaled while it is in the cache


def parse_idx(content: bytes, where: str) -> np.ndarray:
    """Return the array of an IDX file of unsigned bytes, as a view of `content`.

    The format: two zero bytes, a type byte, the number of dimensions, each dimension as a
    big-endian 32-bit number, then the values in C order.
    """
    if len(content) < 4 or content[:2] != b"\0\0":
        raise DataError(f"{where}: not an IDX file (it begins with {content[:4]!r})")
    if content[2] != _UNSIGNED_BYTE:
        raise DataError(f"{where}: IDX values must be unsigned bytes (type 8), got type {content[2]}")
    n_dimensions = content[3]
    start = 4 + 4 * n_dimensions
    shape = tuple(int(n) for n in np.frombuffer(content[4:start], dtype=">u4"))
    expected = start + int(np.prod(shape, dtype=np.int64))
    if len(shape) != n_dimensions or len(content) != expected:
        raise DataError(f"{where}: header {shape} asks for {expected:,} bytes, the file has {len(content):,}")
    return np.frombuffer(content, dtype=np.uint8, offset=start).reshape(shape)


def image_samples(
    parts: Sequence[tuple[np.ndarray, np.ndarray]],
    label_names: tuple[str, ...],
    sample_shape: tuple[int, ...],
    n_train: int | None,
) -> Samples:
    """Return images of bytes, (n, ...) in each part, with their labels, (n,), one part after the other."""
    x = np.empty((sum(len(images) for images, _ in parts), math.prod(sample_shape)), dtype=np.float32)
    start = 0
    for images, _ in parts:
        scale_bytes(images.reshape(len(images), -1), x[start : start + len(images)])
        start += len(images)
    y_true = np.concatenate([labels for _, labels in parts]).astype(np.int64)
    return Samples(x, y_true, label_names, sample_shape, n_train)


def scale_bytes(values: np.ndarray, out: np.ndarray) -> None:
    """Write `values` / 255 as float32 into `out`; both (N, d)."""
    for start in range(0, len(values), _ROWS_PER_BLOCK):
        block = out[start : start + _ROWS_PER_BLOCK]
        block[...] = values[start : start + _ROWS_PER_BLOCK]
        block /= np.float32(255)


def read_idx_images(paths: Mapping[str, Path], label_names: tuple[str, ...]) -> Samples:
    """Read the four IDX files of MNIST or of a set in its likeness; pixels in [0, 1], training part first."""
    parts = []
    for part in ("train", "t10k"):
        image_path, label_path = paths[f"{part}-images-idx3-ubyte.gz"], paths[f"{part}-labels-idx1-ubyte.gz"]
        images = parse_idx(read_content(image_path), str(image_path))
        labels = parse_idx(read_content(label_path), str(label_path))
        if len(images) != len(labels):
            raise DataError(f"{label_path}: {len(labels)} labels for {len(images)} images")
        parts.append((images, labels))
    n_train, *sample_shape = parts[0][0].shape
    return image_samples(parts, label_names, tuple(sample_shape), n_train)
