"""MNIST and Fashion-MNIST: 70,000 grey images of 28 x 28 in the IDX format."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from dbull.data.dataset import Samples
from dbull.data.files import DataFile, read_content
from dbull.errors import DataError

MNIST_LABELS = tuple("0123456789")
FASHION_LABELS = (
    "T-shirt/top",
    "Trouser",
    "Pullover",
    "Dress",
    "Coat",
    "Sandal",
    "Shirt",
    "Sneaker",
    "Bag",
    "Ankle boot",
)

_MNIST_SOURCES = (
    "https://ossci-datasets.s3.amazonaws.com/mnist/",
    "https://storage.googleapis.com/cvdf-datasets/mnist/",
)
_FASHION_SOURCES = (
    "https://github.com/zalandoresearch/fashion-mnist/raw/master/data/fashion/",
    "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
)
_UNSIGNED_BYTE = 8
_ROWS_PER_BLOCK = 512  # small enough that a block is converted and scaled while it is in the cache


def _files(
    sources: tuple[str, ...], facts: tuple[tuple[str, int, tuple[str, ...], str], ...]
) -> tuple[DataFile, ...]:
    return tuple(
        DataFile(name, n_bytes, stored, (content,), tuple(source + name for source in sources))
        for name, n_bytes, stored, content in facts
    )


# Name, bytes of the official gzip file, its SHA-256 and that of a recompressed copy, SHA-256 of the content.
MNIST_FILES = _files(
    _MNIST_SOURCES,
    (
        (
            "train-images-idx3-ubyte.gz",
            9_912_422,
            (
                "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
                "0b367032e93c5d0cea0925647cfdb18614af8ee15f83e6f2fc2ad904a6835971",
            ),
            "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
        ),
        (
            "train-labels-idx1-ubyte.gz",
            28_881,
            (
                "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
                "1787548bbe0bff1ec2ecdc0ef292b02df999e2d1a6002d27500982c652b17203",
            ),
            "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
        ),
        (
            "t10k-images-idx3-ubyte.gz",
            1_648_877,
            (
                "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
                "1a1a05eab793c14bb050b398624a11b0ffd1a2953baed553b1b9bd079e2a20be",
            ),
            "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
        ),
        (
            "t10k-labels-idx1-ubyte.gz",
            4_542,
            (
                "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
                "b91679a0acfe4ba0e50a2437a903084cba1f5f92592b016a25a7dfd00455798b",
            ),
            "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
        ),
    ),
)
FASHION_FILES = _files(
    _FASHION_SOURCES,
    (
        (
            "train-images-idx3-ubyte.gz",
            26_421_880,
            (
                "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84",
                "b0564c3eedabfbf835052cff8503ea422014ce006caf5b757f851416ee8300c7",
            ),
            "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
        ),
        (
            "train-labels-idx1-ubyte.gz",
            29_515,
            (
                "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845",
                "0ae29f65d86684f32d1b9c85147786c547b9c6aebcaf235f0400a0cce308b056",
            ),
            "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
        ),
        (
            "t10k-images-idx3-ubyte.gz",
            4_422_102,
            (
                "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073",
                "cc1d090a38ace84dfa1aa66e3ada7c336ef481a96936906477e6dd344da56eaa",
            ),
            "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
        ),
        (
            "t10k-labels-idx1-ubyte.gz",
            5_148,
            (
                "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5",
                "8d3605d196f4be44669e46906da9733c8131fef761fdbfec72c424d5222f1a05",
            ),
            "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
        ),
    ),
)


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
    (train_images, train_labels), (test_images, test_labels) = parts
    n_train, *sample_shape = train_images.shape
    x = np.empty((n_train + len(test_images), int(np.prod(sample_shape))), dtype=np.float32)
    scale_bytes(train_images.reshape(n_train, -1), x[:n_train])
    scale_bytes(test_images.reshape(len(test_images), -1), x[n_train:])
    y_true = np.concatenate([train_labels, test_labels]).astype(np.int64)
    return Samples(x, y_true, label_names, tuple(sample_shape), n_train)
