"""STL-10: 13,000 labelled images of 96 x 96 in the binary format, and ResNet-50 features made from them.

The features of the paper are the last feature map of a ResNet-50, averaged over its 3 x 3 places: 2,048
numbers. The weights are the user's; `examples/stl10_features.py` makes the file that is read here.
"""

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from dbull.data.archives import read_arrays, read_members
from dbull.data.dataset import Samples
from dbull.data.files import files_of
from dbull.data.mnist import image_samples
from dbull.errors import DataError

LABELS = ("airplane", "bird", "car", "cat", "deer", "dog", "horse", "monkey", "ship", "truck")
N_FEATURES = 2048
(ARCHIVE,), BINARY_FILES, (FEATURES_FILE,) = map(files_of, ("stl10", "stl10-unpacked", "stl10-features"))

_SHAPE = (3, 96, 96)
_IMAGE_BYTES = 3 * 96 * 96


def parse_images(content: bytes, where: str) -> np.ndarray:
    """Return the images, (N, 3, 96, 96) uint8, row by row; the file holds each plane column by column."""
    if not content or len(content) % _IMAGE_BYTES:
        raise DataError(
            f"{where}: {len(content):,} bytes are no whole number of images of {_IMAGE_BYTES:,}; cut off?"
        )
    planes: np.ndarray = np.frombuffer(content, dtype=np.uint8).reshape(-1, *_SHAPE)
    return np.swapaxes(planes, 2, 3)


def parse_labels(content: bytes, n_images: int, where: str) -> np.ndarray:
    """Return labels 0 to 9, (N,) int64; the file counts them from 1."""
    labels = np.frombuffer(content, dtype=np.uint8).astype(np.int64)
    if len(labels) != n_images:
        raise DataError(f"{where}: {len(labels):,} labels for {n_images:,} images")
    wrong = np.flatnonzero((labels < 1) | (labels > len(LABELS)))
    if wrong.size:
        raise DataError(f"{where}: label {wrong[0]} is {labels[wrong[0]]}, allowed are 1 to 10")
    return labels - 1


def read_images(paths: Mapping[str, Path]) -> Samples:
    """Return the 5,000 training and 8,000 test images, in that order; pixels in [0, 1]."""
    names = tuple(file.name for file in BINARY_FILES)
    if ARCHIVE.name in paths:
        where, content = str(paths[ARCHIVE.name]), read_members(paths[ARCHIVE.name], names)
    else:
        where, content = str(paths[names[0]].parent), {name: paths[name].read_bytes() for name in names}
    parts = []
    for part in ("train", "test"):
        images = parse_images(content[f"{part}_X.bin"], f"{where}:{part}_X.bin")
        labels = parse_labels(content[f"{part}_y.bin"], len(images), f"{where}:{part}_y.bin")
        parts.append((images, labels))
    return image_samples(parts, LABELS, _SHAPE, len(parts[0][0]))


def read_features(paths: Mapping[str, Path]) -> Samples:
    """Return the features in `stl10_resnet50.npz`: arrays `features` (N, 2048) and `label` (N,), 0 to 9."""
    path = paths[FEATURES_FILE.name]
    arrays = read_arrays(path, ("features", "label"))
    features, label = arrays["features"].astype(np.float32), arrays["label"].astype(np.int64)
    if features.ndim != 2 or features.shape[1] != N_FEATURES or label.shape != (len(features),):
        raise DataError(
            f"{path}: expected features (N, {N_FEATURES}) and label (N,), "
            f"got {features.shape} and {label.shape}"
        )
    return Samples(features, label, LABELS, (N_FEATURES,))
