"""Published sets of images: MNIST and Fashion-MNIST, USPS, CIFAR-10, STL-10, and features of the last two.

The STL-10 features of the paper are the last feature map of a ResNet-50, averaged over its 3 x 3 places:
2,048 numbers. The weights are the user's; `examples/stl10_features.py` makes the file that is read here.
"""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from dbull.data.archives import read_arrays, read_members
from dbull.data.dataset import Samples
from dbull.data.files import files_of, read_content
from dbull.errors import DataError

DIGITS = tuple("0123456789")
FASHION_LABELS = (
    *("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat"),
    *("Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot"),
)
CIFAR10_LABELS = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
STL10_LABELS = ("airplane", "bird", "car", "cat", "deer", "dog", "horse", "monkey", "ship", "truck")
(CIFAR10_ARCHIVE,), (STL10_ARCHIVE,), STL10_FILES = map(files_of, ("cifar10", "stl10", "stl10-unpacked"))
CIFAR10_TEST = ("test_batch.bin",)
CIFAR10_BATCHES = (*(f"data_batch_{number}.bin" for number in range(1, 6)), *CIFAR10_TEST)

_UNSIGNED_BYTE = 8
_N_USPS_PIXELS = 256
_CIFAR10_SHAPE, _STL10_SHAPE = (3, 32, 32), (3, 96, 96)
_ROWS_PER_BLOCK = 512  # small enough that a block is converted and scaled while it is in the cache


def scale_bytes(values: np.ndarray, out: np.ndarray) -> None:
    """Write `values` / 255 as float32 into `out`; both (N, d)."""
    for start in range(0, len(values), _ROWS_PER_BLOCK):
        block = out[start : start + _ROWS_PER_BLOCK]
        block[...] = values[start : start + _ROWS_PER_BLOCK]
        block /= np.float32(255)


def _samples(
    parts: Sequence[tuple[np.ndarray, np.ndarray]],
    label_names: tuple[str, ...],
    sample_shape: tuple[int, ...],
) -> Samples:
    """Return images of bytes, (n, ...), with labels, (n,); the last of several parts is the test part."""
    n_train = sum(len(images) for images, _ in parts[:-1])
    x = np.empty((n_train + len(parts[-1][0]), math.prod(sample_shape)), dtype=np.float32)
    start = 0
    for images, _ in parts:
        scale_bytes(images.reshape(len(images), -1), x[start : start + len(images)])
        start += len(images)
    y_true = np.concatenate([labels for _, labels in parts]).astype(np.int64)
    return Samples(x, y_true, label_names, sample_shape, n_train or None)


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
    return _samples(parts, label_names, parts[0][0].shape[1:])


def parse_usps(content: bytes, where: str) -> tuple[np.ndarray, np.ndarray]:
    """Parse lines of "label v1 ... v256", v in [-1, 1]; return pixels in [0, 1], (N, 256), and labels.

    These are the text files of *The Elements of Statistical Learning*.
    """
    if not content or content.isspace():
        raise DataError(f"{where}: there are no rows")
    try:
        table = np.loadtxt(content.decode("ascii").splitlines(), dtype=np.float32, comments=None, ndmin=2)
    except ValueError as error:
        raise DataError(f"{where}: expected rows of numbers ({error})") from error
    if table.shape[1] != _N_USPS_PIXELS + 1:
        raise DataError(
            f"{where}: rows must hold a label and {_N_USPS_PIXELS} pixels, got {table.shape[1]} numbers"
        )
    pixels = (table[:, 1:] + 1) / 2
    if not (pixels.min() >= 0 and pixels.max() <= 1):
        raise DataError(f"{where}: pixels must lie in [-1, 1]")
    return pixels, table[:, 0].astype(np.int64)


def read_usps(paths: Mapping[str, Path]) -> Samples:
    """Read both parts, the training part first; pixels in [0, 1]."""
    both = paths["zip.train.gz"], paths["zip.test.gz"]
    parts = [parse_usps(read_content(path), str(path)) for path in both]
    x, y_true = map(np.concatenate, zip(*parts, strict=True))
    return Samples(x, y_true, DIGITS, (16, 16), len(parts[0][0]))


def _records(content: bytes, n_bytes: int, where: str) -> np.ndarray:
    """Return records of so many bytes, (N, n_bytes) uint8."""
    if not content or len(content) % n_bytes:
        raise DataError(
            f"{where}: {len(content):,} bytes are no whole number of records of {n_bytes:,}; is it cut off?"
        )
    return np.frombuffer(content, dtype=np.uint8).reshape(-1, n_bytes)


def parse_cifar10(content: bytes, where: str) -> tuple[np.ndarray, np.ndarray]:
    """Return the images of a batch, (N, 3072) uint8, red, green and blue plane, and their labels, (N,)."""
    records = _records(content, 1 + math.prod(_CIFAR10_SHAPE), where)
    wrong = np.flatnonzero(records[:, 0] >= len(CIFAR10_LABELS))
    if wrong.size:
        raise DataError(f"{where}: record {wrong[0]} has label {records[wrong[0], 0]}, allowed are 0 to 9")
    return records[:, 1:], records[:, 0]


def read_cifar10(paths: Mapping[str, Path], names: tuple[str, ...] = CIFAR10_BATCHES) -> Samples:
    """Return the images of some batches, pixels in [0, 1], from the archive or from the file of one alone."""
    ((file_name, path),) = paths.items()
    archived = file_name == CIFAR10_ARCHIVE.name
    content = read_members(path, names) if archived else {names[0]: read_content(path)}
    parts = [parse_cifar10(content[name], f"{path}:{name}" if archived else str(path)) for name in names]
    return _samples(parts, CIFAR10_LABELS, _CIFAR10_SHAPE)


def parse_stl10(images: bytes, labels: bytes, where: str) -> tuple[np.ndarray, np.ndarray]:
    """Return images, (N, 3, 96, 96) uint8, row by row, and labels 0 to 9, (N,).

    The file holds each plane column by column and counts labels from 1.
    """
    planes = _records(images, math.prod(_STL10_SHAPE), f"{where}_X.bin").reshape(-1, *_STL10_SHAPE)
    numbers = np.frombuffer(labels, dtype=np.uint8).astype(np.int64)
    if len(numbers) != len(planes):
        raise DataError(f"{where}_y.bin: {len(numbers):,} labels for {len(planes):,} images")
    wrong = np.flatnonzero((numbers < 1) | (numbers > len(STL10_LABELS)))
    if wrong.size:
        raise DataError(f"{where}_y.bin: label {wrong[0]} is {numbers[wrong[0]]}, allowed are 1 to 10")
    return np.swapaxes(planes, 2, 3), numbers - 1


def read_stl10(paths: Mapping[str, Path]) -> Samples:
    """Return the 5,000 training and 8,000 test images, in that order; pixels in [0, 1]."""
    names = tuple(file.name for file in STL10_FILES)
    if STL10_ARCHIVE.name in paths:
        where, content = paths[STL10_ARCHIVE.name], read_members(paths[STL10_ARCHIVE.name], names)
    else:
        where, content = paths[names[0]].parent, {name: paths[name].read_bytes() for name in names}
    both = ("train", "test")
    parts = [parse_stl10(content[f"{p}_X.bin"], content[f"{p}_y.bin"], f"{where}:{p}") for p in both]
    return _samples(parts, STL10_LABELS, _STL10_SHAPE)


def read_features(paths: Mapping[str, Path], label_names: tuple[str, ...], n_features: int) -> Samples:
    """Return features of images in the order of these: arrays `features` (N, d) and `label` (N,), from 0."""
    (path,) = paths.values()
    arrays = read_arrays(path, ("features", "label"))
    features, label = arrays["features"].astype(np.float32), arrays["label"].astype(np.int64)
    if features.ndim != 2 or features.shape[1] != n_features or label.shape != (len(features),):
        raise DataError(
            f"{path}: expected features (N, {n_features}) and label (N,), "
            f"got {features.shape} and {label.shape}"
        )
    return Samples(features, label, label_names, (n_features,))
