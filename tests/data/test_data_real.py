"""The loaders against the published counts, statistics and digests of the real sets."""

import gzip
import hashlib
import tracemalloc
import zlib

import numpy as np
import pytest

from dbull import data
from dbull.data import text_sets
from dbull.errors import DataError

# SHA-256 of the files of the benchmark collection as they are stored.
STORED = {
    "mnist": {
        "t10k-images-idx3-ubyte.gz": "1a1a05eab793c14bb050b398624a11b0ffd1a2953baed553b1b9bd079e2a20be",
        "t10k-labels-idx1-ubyte.gz": "b91679a0acfe4ba0e50a2437a903084cba1f5f92592b016a25a7dfd00455798b",
        "train-images-idx3-ubyte.gz": "0b367032e93c5d0cea0925647cfdb18614af8ee15f83e6f2fc2ad904a6835971",
        "train-labels-idx1-ubyte.gz": "1787548bbe0bff1ec2ecdc0ef292b02df999e2d1a6002d27500982c652b17203",
    },
    "fashion-mnist": {
        "t10k-images-idx3-ubyte.gz": "cc1d090a38ace84dfa1aa66e3ada7c336ef481a96936906477e6dd344da56eaa",
        "t10k-labels-idx1-ubyte.gz": "8d3605d196f4be44669e46906da9733c8131fef761fdbfec72c424d5222f1a05",
        "train-images-idx3-ubyte.gz": "b0564c3eedabfbf835052cff8503ea422014ce006caf5b757f851416ee8300c7",
        "train-labels-idx1-ubyte.gz": "0ae29f65d86684f32d1b9c85147786c547b9c6aebcaf235f0400a0cce308b056",
    },
    "usps": {
        "zip.test.gz": "8dacc3c6e136af6c3488de9e5113a7daf140c8c2f1f0b61c54ee02f03f1a962f",
        "zip.train.gz": "66ebf231ab51f2cf6ac1a892d0f98ccffee1079d7a5db638c1f11f366046ca16",
    },
    "reuters10k": {"reuters10k_rcv1.npz": "d5704119c275181b106a292f03666e5c464e894363c4c350f53eae337bd66ff4"},
    "reuters-rcv1": {
        "rcv1_27271_counts.npz": "9473eb0eb5fda4b3943cf00f935e56b4f5b79adda4a6dbb7d727cb3220572002"
    },
    "20newsgroups": {
        "20news-bydate.tar.gz": "af60160eb96de6c2b393ac5e6cb987dacd42718011a9cd9260166356ba4e639f"
    },
    "reuters-21578": {
        "reuters21578.tar.gz": "fe5c940d5a28c942a203de3155e51eedd0cc266aebd2ef66fae19df3bf924d25"
    },
    "cifar10-test": {"test_batch.bin.xz": "89f4e12a985a64b8729884fe56b06dab93e30da267c8957ee031f6fc6d96a18f"},
    "cifar10-features": {
        "test_efficientnet_lite0.npz": "449a76357cd9038f556dff9c741a2218de68038c12b7cf06ef953fbea4f2c13e"
    },
    "kddcup99": {
        "kddcup.data_10_percent.gz": "7bfaa8cef1350f72842018c32893e2fa4539d57efbb22f998eb74ecefc3da3b4"
    },
    "kddcup99-corrected": {
        "corrected.gz": "74f0daef49b242badc09f2adbd457dea6a45b4f77177efbd11216d333651044b"
    },
}


@pytest.mark.parametrize("name", STORED)
def test_files_are_recognised_by_their_stored_digest(real_data, name):
    assert data.verify(name, real_data) == {file: f"sha256:{digest}" for file, digest in STORED[name].items()}


@pytest.fixture(scope="module")
def mnist(real_set):
    return real_set("mnist")


def counts(labels):
    return np.bincount(labels).tolist()


def moments(x):
    total, squares = 0.0, 0.0
    for start in range(0, len(x), 5_000):
        part = x[start : start + 5_000].astype(np.float64)
        total, squares = total + part.sum(), squares + (part * part).sum()
    mean = total / x.size
    variance = squares / x.size - mean**2
    return round(float(mean), 4), round(float(np.sqrt(variance)), 4)


def test_mnist(mnist):
    assert (mnist.x.shape, mnist.sample_shape, mnist.n_train, mnist.kind) == (
        (70_000, 784),
        (28, 28),
        60_000,
        "images",
    )
    train, test = mnist.y_true[:60_000], mnist.y_true[60_000:]
    assert counts(train) == [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]
    assert counts(test) == [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]
    assert moments(mnist.x[:60_000]) == (0.1307, 0.3081)
    assert moments(mnist.x[60_000:]) == (0.1325, 0.3105)


def test_mnist_content_is_that_of_the_original_distribution(mnist):
    pixels = np.rint(mnist.x[60_000:] * 255).astype(np.uint8)
    header = b"\0\0\x08\x03" + np.array([10_000, 28, 28], dtype=">u4").tobytes()
    assert hashlib.md5(header + pixels.tobytes()).hexdigest() == "2646ac647ad5339dbf082846283269ea"


def test_mnist_recompressed_is_recognised_and_changed_is_not(real_data, tmp_path):
    for path in (real_data / "mnist").glob("*.gz"):
        (tmp_path / path.name).write_bytes(gzip.compress(gzip.decompress(path.read_bytes()), 1, mtime=0))
    checksums = data.verify("mnist", tmp_path)
    assert checksums["t10k-labels-idx1-ubyte.gz"].startswith("sha256:ff7bcfd4")
    labels = tmp_path / "t10k-labels-idx1-ubyte.gz"
    content = bytearray(gzip.decompress(labels.read_bytes()))
    content[-1] ^= 1
    labels.write_bytes(gzip.compress(content, mtime=0))
    with pytest.raises(DataError, match=r"t10k-labels-idx1-ubyte\.gz: not the file it should be"):
        data.load("mnist", tmp_path)


def test_mnist_is_unpacked_once_and_into_nothing_but_its_pixels(real_data, monkeypatch):
    """Four files, each read and unpacked once; beside the result no more than what was unpacked."""
    unpacked = []
    decompress = zlib.decompress

    def spy(*arguments, **options):
        unpacked.append(len(content := decompress(*arguments, **options)))
        return content

    monkeypatch.setattr(zlib, "decompress", spy)
    for slow in ("open", "decompress"):  # through Python's own reader it takes twice as long
        monkeypatch.setattr(gzip, slow, None)
    tracemalloc.start()
    try:
        mnist = data.load("mnist", real_data)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert sorted(unpacked) == [10_008, 60_008, 16 + 10_000 * 784, 16 + 60_000 * 784]
    assert peak < 1.2 * (mnist.x.nbytes + sum(unpacked))  # doubles of the pixels alone would be more


def test_fashion_mnist(real_set):
    fashion = real_set("fashion-mnist")
    assert counts(fashion.y_true[:60_000]) == [6000] * 10
    assert counts(fashion.y_true[60_000:]) == [1000] * 10
    assert moments(fashion.x[:60_000]) == (0.2860, 0.3530)
    assert moments(fashion.x[60_000:]) == (0.2868, 0.3524)


def test_usps(real_set):
    usps = real_set("usps")
    assert (usps.x.shape, usps.n_train, usps.sample_shape) == ((9298, 256), 7291, (16, 16))
    assert counts(usps.y_true[:7291]) == [1194, 1005, 731, 658, 652, 556, 664, 645, 542, 644]
    assert counts(usps.y_true[7291:]) == [359, 264, 198, 166, 200, 160, 170, 147, 166, 177]
    assert (usps.x.min(), usps.x.max()) == (0, 1)


def test_reuters10k(real_set):
    ready = real_set("reuters10k")
    assert ready.x.shape == (10_000, 2_000)
    assert ready.label_names == ("CCAT", "GCAT", "MCAT", "ECAT")
    assert counts(ready.y_true) == [4312, 2403, 2471, 814]
    np.testing.assert_allclose(np.sqrt(ready.x.multiply(ready.x).sum(axis=1)), 1, rtol=1e-5)


def test_reuters10k_by_the_recipe_from_raw_counts_is_the_ready_file_to_the_byte(real_data):
    folder = real_data / "reuters-rcv1"
    ready = text_sets.read_reuters10k({text_sets.READY_FILE.name: folder / text_sets.READY_FILE.name})
    recipe = text_sets.read_reuters10k({text_sets.COUNTS_FILE.name: folder / text_sets.COUNTS_FILE.name})
    for part in ("indptr", "indices", "data"):
        np.testing.assert_array_equal(getattr(recipe.x, part), getattr(ready.x, part))
    np.testing.assert_array_equal(recipe.y_true, ready.y_true)
    assert recipe.label_names == ready.label_names


def test_reuters_pool_and_its_words(real_data):
    counts_, labels, _ = text_sets.read_counts(real_data / "reuters-rcv1" / text_sets.COUNTS_FILE.name)
    assert counts_.shape == (23_158, 47_236)
    assert counts(labels) == [9550, 5140, 6586, 1882]
    _, columns = text_sets.reuters_tfidf(counts_)
    with np.load(real_data / "reuters-rcv1" / text_sets.READY_FILE.name) as ready:
        np.testing.assert_array_equal(columns, ready["term_id"] - 1)


@pytest.mark.slow
def test_20newsgroups(real_set):
    news = real_set("20newsgroups")
    assert (news.x.shape, news.n_train, len(news.label_names)) == ((18_846, 2_000), 11_314, 20)
    train = dict(zip(news.label_names, counts(news.y_true[:11_314]), strict=True))
    assert (train["talk.religion.misc"], train["rec.sport.hockey"]) == (377, 600)
    assert (min(train.values()), max(train.values())) == (377, 600)


@pytest.mark.slow
def test_reuters21578(real_data, real_set):
    path = real_data / "reuters-21578" / text_sets.REUTERS.name
    stories = text_sets.read_stories(path)
    assert len(stories) == 21_578
    assert [story.number for story in stories] == list(range(1, 21_579))
    newswire = real_set("reuters-21578")
    assert newswire.x.shape == (9_494, 2_000)
    sizes = dict(zip(newswire.label_names, counts(newswire.y_true), strict=True))
    published = {"earn": 3945, "acq": 2362, "crude": 408, "trade": 361, "money-fx": 307, "interest": 285}
    assert {name: sizes[name] for name in published} == published


@pytest.mark.slow
def test_cifar10_test_images_and_features_are_in_the_same_order(real_set):
    images, features = real_set("cifar10-test"), real_set("cifar10-features")
    assert (images.x.shape, images.sample_shape) == ((10_000, 3_072), (3, 32, 32))
    assert counts(images.y_true) == [1000] * 10
    assert features.x.shape == (10_000, 1_280)
    np.testing.assert_array_equal(images.y_true, features.y_true)
    assert features.x.max() == pytest.approx(5.88, abs=0.005)
    assert (features.x == 0).mean() == pytest.approx(0.41, abs=0.005)
    records = np.rint(images.x * 255).astype(np.uint8)
    packed = np.column_stack([images.y_true.astype(np.uint8), records])
    assert hashlib.md5(packed.tobytes()).hexdigest() == "803d5f7f4d78ea53de84dbe85f74fb6d"


@pytest.mark.slow
def test_kddcup99(real_set):
    first, second = real_set("kddcup99"), real_set("kddcup99-corrected")
    assert (first.x.shape, second.x.shape) == ((494_021, 123), (311_029, 123))
    sizes = dict(zip(first.label_names, np.bincount(first.y_true, minlength=40).tolist(), strict=True))
    published = {
        "smurf": 280_790,
        "neptune": 107_201,
        "normal": 97_278,
        "back": 2_203,
        "satan": 1_589,
        "spy": 2,
    }
    assert {name: sizes[name] for name in published} == published
    seen, later = set(first.y_true), set(second.y_true)
    assert (len(seen), len(later), len(later - seen)) == (23, 38, 17)
    assert np.isfinite(first.x).all()


def test_catalogue_knows_what_is_there(real_data):
    entries = {entry.name: entry for entry in data.catalogue(real_data)}
    assert tuple(entries) == data.dataset_names()
    assert all(entries[name].found for name in STORED)
    assert not entries["stl10"].found
    assert entries["stl10"].can_get
    assert all(entry.source and entry.licence and entry.summary for entry in entries.values())
    assert entries["mnist"].n_bytes == 9_912_422 + 28_881 + 1_648_877 + 4_542
    assert entries["mnist"].files[0].path == real_data / "mnist" / "train-images-idx3-ubyte.gz"
