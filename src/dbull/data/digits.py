"""The 1,797 digits of 8 x 8 that come with scikit-learn: the set that needs no file and no network."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from dbull.data.dataset import Samples

_MAX_PIXEL = np.float32(16)


def read_digits(_paths: Mapping[str, Path]) -> Samples:
    """Return the digits with pixels in [0, 1]; the source knows no training and test part."""
    from sklearn.datasets import load_digits  # slow to import, and few need it

    bunch = load_digits()
    x = bunch.data.astype(np.float32) / _MAX_PIXEL
    return Samples(x, bunch.target.astype(np.int64), tuple("0123456789"), (8, 8))
