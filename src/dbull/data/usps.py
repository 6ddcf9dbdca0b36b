"""USPS: 9,298 postal digits of 16 x 16, the text files of *The Elements of Statistical Learning*."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from dbull.data.dataset import Samples
from dbull.data.files import read_content
from dbull.errors import DataError

LABELS = tuple("0123456789")
_N_PIXELS = 256


def parse_usps(content: bytes, where: str) -> tuple[np.ndarray, np.ndarray]:
    """Parse lines of "label v1 ... v256", v in [-1, 1]; return pixels in [0, 1], (N, 256), and labels."""
    if not content or content.isspace():
        raise DataError(f"{where}: there are no rows")
    try:
        table = np.loadtxt(content.decode("ascii").splitlines(), dtype=np.float32, comments=None, ndmin=2)
    except ValueError as error:
        raise DataError(f"{where}: expected rows of numbers ({error})") from error
    if table.shape[1] != _N_PIXELS + 1:
        raise DataError(
            f"{where}: rows must hold a label and {_N_PIXELS} pixels, got {table.shape[1]} numbers"
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
    return Samples(x, y_true, LABELS, (16, 16), len(parts[0][0]))
