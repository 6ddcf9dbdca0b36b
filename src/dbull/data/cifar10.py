"""CIFAR-10: images of 32 x 32 in the binary format, and features of them from an ImageNet network."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from dbull.data.archives import read_arrays, read_members
from dbull.data.dataset import Samples
from dbull.data.files import files_of, read_content
from dbull.data.mnist import image_samples
from dbull.errors import DataError

LABELS = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
(ARCHIVE,), (FEATURES_FILE,) = files_of("cifar10"), files_of("cifar10-features")

_SHAPE = (3, 32, 32)
_RECORD = 1 + 3 * 32 * 32
_TRAIN_NAMES = tuple(f"data_batch_{number}.bin" for number in range(1, 6))
_TEST_NAME = "test_batch.bin"


def parse_batch(content: bytes, where: str) -> np.ndarray:
    """Return the records of a batch, (N, 3073) uint8: the label, then the red, green and blue plane."""
    if not content or len(content) % _RECORD:
        raise DataError(
            f"{where}: {len(content):,} bytes are no whole number of records of {_RECORD:,}; is it cut off?"
        )
    records = np.frombuffer(content, dtype=np.uint8).reshape(-1, _RECORD)
    wrong = np.flatnonzero(records[:, 0] >= len(LABELS))
    if wrong.size:
        raise DataError(f"{where}: record {wrong[0]} has label {records[wrong[0], 0]}, allowed are 0 to 9")
    return records


def read_images(paths: Mapping[str, Path]) -> Samples:
    """Return all 60,000 images, the training part first; pixels in [0, 1]."""
    batches = _archive_batches(paths[ARCHIVE.name], (*_TRAIN_NAMES, _TEST_NAME))
    records = [batches[name] for name in (*_TRAIN_NAMES, _TEST_NAME)]
    return _samples(records, n_train=sum(map(len, records[:-1])))


def read_test(paths: Mapping[str, Path]) -> Samples:
    """Return the 10,000 test images, from the file of them alone or from the whole archive."""
    (path,) = paths.values()
    if path.name == ARCHIVE.name:
        return _samples([_archive_batches(path, (_TEST_NAME,))[_TEST_NAME]], None)
    return _samples([parse_batch(read_content(path), str(path))], None)


def read_features(paths: Mapping[str, Path]) -> Samples:
    """Return the features of the test images, (10000, 1280), in the order of the images."""
    arrays = read_arrays(paths[FEATURES_FILE.name], ("features", "label"))
    x = arrays["features"].astype(np.float32)
    return Samples(x, arrays["label"].astype(np.int64), LABELS, (x.shape[1],))


def _samples(records: list[np.ndarray], n_train: int | None) -> Samples:
    return image_samples([(batch[:, 1:], batch[:, 0]) for batch in records], LABELS, _SHAPE, n_train)


def _archive_batches(path: Path, names: tuple[str, ...]) -> dict[str, np.ndarray]:
    return {name: parse_batch(data, f"{path}:{name}") for name, data in read_members(path, names).items()}
