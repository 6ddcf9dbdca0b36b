"""Each reader on small files written in the true format, and on what may be wrong with them."""

import gzip
import io
import lzma
import struct
import tarfile

import numpy as np
import pytest
import scipy.sparse

from dbull.data import image_sets, kddcup99, text_sets
from dbull.data.archives import read_texts
from dbull.data.text_sets import tfidf
from dbull.errors import DataError


def write_tar(path, members: dict[str, bytes]) -> None:
    with tarfile.open(path, "w:gz") as archive:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))


def idx(values: np.ndarray) -> bytes:
    return struct.pack(f">BBBB{values.ndim}I", 0, 0, 8, values.ndim, *values.shape) + values.tobytes()


class TestIdx:
    def test_four_files_become_one_set_with_the_training_part_first(self, tmp_path):
        random = np.random.default_rng(0)
        images = {"train": random.integers(256, size=(7, 4, 3)), "t10k": random.integers(256, size=(2, 4, 3))}
        labels = {"train": np.array([3, 1, 4, 1, 5, 9, 2]), "t10k": np.array([6, 5])}
        paths = {}
        for part in ("train", "t10k"):
            for kind, values in (("images-idx3", images[part]), ("labels-idx1", labels[part])):
                name = f"{part}-{kind}-ubyte.gz"
                paths[name] = tmp_path / name
                paths[name].write_bytes(gzip.compress(idx(values.astype(np.uint8)), mtime=0))
        samples = image_sets.read_idx_images(paths, image_sets.DIGITS)
        expected = np.concatenate([images["train"], images["t10k"]]).reshape(9, 12) / 255
        np.testing.assert_array_equal(samples.x, expected.astype(np.float32))
        assert samples.y_true.tolist() == [3, 1, 4, 1, 5, 9, 2, 6, 5]
        assert (samples.sample_shape, samples.n_train) == ((4, 3), 7)

    @pytest.mark.parametrize(
        ("content", "message"),
        [
            (b"", "not an IDX file"),
            (b"\x1f\x8b\x08\x00", "not an IDX file"),
            (idx(np.zeros((2, 2), np.uint8))[:-1], r"header \(2, 2\) asks for 16 bytes, the file has 15"),
            (idx(np.zeros((2, 2), np.uint8)) + b"!", "the file has 17"),
            (b"\0\0\x0d\x01\0\0\0\x01abcd", "type 13"),
        ],
    )
    def test_wrong_content_is_named(self, content, message):
        with pytest.raises(DataError, match=f"here: .*{message}"):
            image_sets.parse_idx(content, "here")

    def test_every_byte_scales_to_the_nearest_float(self):
        values = np.arange(256, dtype=np.uint8)[:, None].repeat(3, axis=1)
        out = np.empty(values.shape, dtype=np.float32)
        image_sets.scale_bytes(values, out)
        np.testing.assert_array_equal(out, (values / 255.0).astype(np.float32))


class TestUsps:
    def test_values_are_moved_from_minus_one_one_to_zero_one(self):
        row = "6.0000 " + " ".join(["-1.0000"] * 255 + ["0.5000"]) + " \n"
        pixels, labels = image_sets.parse_usps(row.encode() * 2, "here")
        assert labels.tolist() == [6, 6]
        assert pixels.shape == (2, 256)
        assert pixels[1, 0] == 0
        assert pixels[1, 255] == 0.75

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("1 2 3\n", "got 3 numbers"),
            ("1 " * 257 + "\n2 3\n", "here"),
            ("a b\n", "here"),
            ("9 " * 257, r"\[-1, 1\]"),
        ],
    )
    def test_wrong_rows_are_refused(self, text, message):
        with pytest.raises(DataError, match=message):
            image_sets.parse_usps(text.encode(), "here")


class TestCifar10:
    records = np.random.default_rng(1).integers(256, size=(4, 3073)).astype(np.uint8)
    records[:, 0] = (3, 0, 9, 3)

    def test_batch_is_read_plane_by_plane(self, tmp_path):
        path = tmp_path / "test_batch.bin.xz"
        path.write_bytes(lzma.compress(self.records.tobytes()))
        samples = image_sets.read_cifar10({path.name: path}, image_sets.CIFAR10_TEST)
        assert samples.sample_shape == (3, 32, 32)
        assert samples.y_true.tolist() == [3, 0, 9, 3]
        np.testing.assert_array_equal(samples.x, (self.records[:, 1:] / 255).astype(np.float32))
        green_of_row_2_column_5 = self.records[1, 1 + 1024 + 2 * 32 + 5]
        assert samples.x[1].reshape(3, 32, 32)[1, 2, 5] == np.float32(green_of_row_2_column_5 / 255)

    def test_archive_gives_training_batches_in_order_and_the_test_batch_last(self, tmp_path):
        path = tmp_path / image_sets.CIFAR10_ARCHIVE.name
        members = {"cifar-10-batches-bin/batches.meta.txt": b"airplane\n"}
        for number, name in enumerate(["test_batch.bin", *(f"data_batch_{i}.bin" for i in (5, 4, 3, 2, 1))]):
            members[f"cifar-10-batches-bin/{name}"] = bytes([number]) + bytes(3072)
        write_tar(path, members)
        samples = image_sets.read_cifar10({path.name: path})
        assert samples.y_true.tolist() == [5, 4, 3, 2, 1, 0]
        assert samples.n_train == 5
        assert image_sets.read_cifar10({path.name: path}, image_sets.CIFAR10_TEST).y_true.tolist() == [0]

    def test_cut_and_wrong_records_are_named(self, tmp_path):
        with pytest.raises(DataError, match=r"here: 12,291 bytes are no whole number"):
            image_sets.parse_cifar10(self.records.tobytes()[:-1], "here")
        wrong = self.records.copy()
        wrong[2, 0] = 10
        with pytest.raises(DataError, match="record 2 has label 10"):
            image_sets.parse_cifar10(wrong.tobytes(), "here")
        write_tar(tmp_path / "a.tar.gz", {"x/data_batch_1.bin": wrong[:1].tobytes()})
        with pytest.raises(DataError, match=r"data_batch_2\.bin.* not in the archive"):
            image_sets.read_cifar10({image_sets.CIFAR10_ARCHIVE.name: tmp_path / "a.tar.gz"})

    def test_features_are_widened(self, tmp_path):
        path = tmp_path / "features.npz"
        np.savez(
            path, features=np.array([[0.5, 2], [1, 0]], dtype=np.float16), label=np.array([1, 9], np.uint8)
        )
        samples = image_sets.read_features({path.name: path}, image_sets.CIFAR10_LABELS, 2)
        assert samples.x.dtype == np.float32
        assert samples.x.tolist() == [[0.5, 2], [1, 0]]
        np.savez(path, features=np.zeros((2, 2)))
        with pytest.raises(DataError, match="arrays label are missing; it has features"):
            image_sets.read_features({path.name: path}, image_sets.CIFAR10_LABELS, 2)


class TestStl10:
    """The format: uint8, image by image, red, green and blue plane, each column by column; labels from 1."""

    def write(self, folder, images: np.ndarray, labels: list[int]) -> dict[str, bytes]:
        def column_major(part: np.ndarray) -> bytes:
            # Written the long way round: for each image, channel and column, the rows.
            return b"".join(
                bytes(int(part[n, channel, row, column]) for row in range(96))
                for n in range(len(part))
                for channel in range(3)
                for column in range(96)
            )

        files = {
            "train_X.bin": column_major(images[:2]),
            "train_y.bin": bytes(labels[:2]),
            "test_X.bin": column_major(images[2:]),
            "test_y.bin": bytes(labels[2:]),
        }
        for name, content in files.items():
            (folder / name).write_bytes(content)
        return files

    @pytest.fixture
    def images(self):
        return np.random.default_rng(2).integers(256, size=(3, 3, 96, 96))

    def test_unpacked_files(self, tmp_path, images):
        self.write(tmp_path, images, [1, 10, 2])
        samples = image_sets.read_stl10({file.name: tmp_path / file.name for file in image_sets.STL10_FILES})
        np.testing.assert_array_equal(samples.x, (images.reshape(3, -1) / 255).astype(np.float32))
        assert samples.y_true.tolist() == [0, 9, 1]
        assert (samples.sample_shape, samples.n_train) == ((3, 96, 96), 2)
        assert [image_sets.STL10_LABELS[label] for label in samples.y_true] == ["airplane", "truck", "bird"]

    def test_archive_gives_the_same(self, tmp_path, images):
        files = self.write(tmp_path, images, [1, 10, 2])
        path = tmp_path / image_sets.STL10_ARCHIVE.name
        write_tar(path, {f"stl10_binary/{name}": content for name, content in reversed(files.items())})
        unpacked = image_sets.read_stl10({file.name: tmp_path / file.name for file in image_sets.STL10_FILES})
        packed = image_sets.read_stl10({path.name: path})
        np.testing.assert_array_equal(packed.x, unpacked.x)
        np.testing.assert_array_equal(packed.y_true, unpacked.y_true)

    def test_wrong_files_are_named(self, tmp_path, images):
        files = self.write(tmp_path, images, [1, 10, 11])
        paths = {file.name: tmp_path / file.name for file in image_sets.STL10_FILES}
        with pytest.raises(DataError, match=r"test_y\.bin: label 0 is 11, allowed are 1 to 10"):
            image_sets.read_stl10(paths)
        paths["test_y.bin"].write_bytes(b"\1\1")
        with pytest.raises(DataError, match=r"test_y\.bin: 2 labels for 1 images"):
            image_sets.read_stl10(paths)
        paths["test_X.bin"].write_bytes(files["test_X.bin"][:-5])
        with pytest.raises(DataError, match=r"test_X\.bin: 27,643 bytes are no whole number"):
            image_sets.read_stl10(paths)
        (tmp_path / "bad.tar.gz").write_bytes(gzip.compress(b"x" * 2000, mtime=0)[:-30])
        with pytest.raises(DataError, match=r"bad\.tar\.gz: .*tar archive"):
            image_sets.read_stl10({image_sets.STL10_ARCHIVE.name: tmp_path / "bad.tar.gz"})

    def test_features_of_the_user(self, tmp_path):
        path = tmp_path / "features.npz"
        np.savez(path, features=np.ones((2, 2048), np.float32), label=np.array([0, 9]))
        assert image_sets.read_features({path.name: path}, image_sets.STL10_LABELS, 2048).x.shape == (2, 2048)
        np.savez(path, features=np.ones((2, 2047), np.float32), label=np.array([0, 9]))
        with pytest.raises(DataError, match=r"expected features \(N, 2048\)"):
            image_sets.read_features({path.name: path}, image_sets.STL10_LABELS, 2048)


class TestKdd:
    zeros = "0," * 35
    line = (
        "0,udp,private,SF,105,146,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,1,1,"
        + "0.50," * 7
        + "255,254,"
        + "1.00," * 8
    )

    def test_attributes_in_order_with_one_column_per_category(self):
        x, y_true = kddcup99.parse_connections(f"{self.line}normal.\n{self.line}smurf.\n".encode(), "here")
        row = dict(zip(kddcup99.COLUMNS, x[0].tolist(), strict=True))
        assert (len(kddcup99.ATTRIBUTES), len(kddcup99.COLUMNS), x.shape) == (41, 38 + 3 + 71 + 11, (2, 123))
        assert [kddcup99.LABELS[label] for label in y_true] == ["normal", "smurf"]
        assert (row["protocol_type=udp"], row["protocol_type=tcp"]) == (1, 0)
        assert (row["service=private"], row["flag=SF"], row["service=http"]) == (1, 1, 0)
        assert sum(value for name, value in row.items() if "=" in name) == 3
        assert row["src_bytes"] == pytest.approx(np.log(106))
        assert row["dst_host_srv_count"] == pytest.approx(np.log(255))
        assert (row["serror_rate"], row["srv_diff_host_rate"]) == (0.5, 0.5)
        assert row["dst_host_srv_rerror_rate"] == 1

    def test_copies_keep_their_places(self):
        other = self.line.replace("105", "7")
        text = f"{self.line}normal.\n{other}back.\n{self.line}normal.\n{other}back.\n"
        x, y_true = kddcup99.parse_connections(text.encode(), "here")
        np.testing.assert_array_equal(x[0], x[2])
        np.testing.assert_array_equal(x[1], x[3])
        assert (x[0] != x[1]).sum() == 1
        assert [kddcup99.LABELS[label] for label in y_true] == ["normal", "back"] * 2

    def test_unknown_category_and_ragged_line_are_named(self):
        text = f"{self.line}normal.\n{self.line}normal.\n{self.line.replace('udp', 'sctp')}normal.\n"
        with pytest.raises(DataError, match="here: row 3, column 'protocol_type': unknown value 'sctp'"):
            kddcup99.parse_connections(text.encode(), "here")
        with pytest.raises(DataError, match="here: expected 41 attributes and a label"):
            kddcup99.parse_connections(b"1,2,3\n", "here")


class TestText:
    def test_tfidf_by_hand(self):
        documents = ["Cat cat dog 42", "the dog", "bird bird bird bird", "dog bird"]
        x = tfidf(documents, n_words=2).toarray()  # bird 5, dog 3, cat 2; "the" is a stop word, 42 no word
        idf_bird, idf_dog = np.log(5 / 3) + 1, np.log(5 / 4) + 1
        last = np.array([idf_bird, idf_dog]) / np.hypot(idf_bird, idf_dog)
        np.testing.assert_allclose(x, [[0, 1], [0, 1], [1, 0], last], rtol=1e-6)

    def test_newsgroups_lose_their_header_and_keep_train_before_test(self, tmp_path):
        path = tmp_path / text_sets.NEWSGROUPS.name
        post = "From: {0}@x\nSubject: {0}\n\nbody of {0}\n\nsecond part"
        names = [
            "20news-bydate-test/sci.med/9",
            "20news-bydate-train/sci.space/2",
            "20news-bydate-train/sci.med/1",
        ]
        write_tar(path, {name: post.format(name[-1]).encode() for name in names})
        posts, groups, n_train = text_sets.read_posts(path)
        assert posts == [f"body of {i}\n\nsecond part" for i in "129"]
        assert groups == ["sci.med", "sci.space", "sci.med"]
        assert n_train == 2
        samples = text_sets.read_newsgroups({path.name: path})
        assert samples.label_names == ("sci.med", "sci.space")
        assert samples.y_true.tolist() == [0, 1, 0]

    def test_newsgroups_of_another_layout_are_refused(self, tmp_path):
        write_tar(tmp_path / "a.tar.gz", {"20news-19997/sci.med/1": b"x"})
        with pytest.raises(DataError, match=r"unexpected member 20news-19997/sci\.med/1"):
            text_sets.read_posts(tmp_path / "a.tar.gz")

    def test_archives_are_read_without_following_links_or_writing(self, tmp_path, monkeypatch):
        path = tmp_path / "a.tar.gz"
        with tarfile.open(path, "w:gz") as archive:
            link = tarfile.TarInfo("link.txt")
            link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
            archive.addfile(link)
            evil = tarfile.TarInfo("../../evil.txt")
            evil.size = 4
            archive.addfile(evil, io.BytesIO(b"evil"))
        assert read_texts(path) == [("../../evil.txt", "evil")]
        assert sorted(tmp_path.rglob("*")) == [path]


class TestReuters21578:
    story = (
        '<REUTERS TOPICS="YES" LEWISSPLIT="TRAIN" OLDID="5" NEWID="{}">\n<TOPICS>{}</TOPICS>\n'
        "<PLACES><D>usa</D></PLACES>\n<UNKNOWN>&#5;noise</UNKNOWN>\n<TEXT{}>&#2;\n"
        "<TITLE>PROFIT &lt;UP></TITLE>\n<DATELINE>PARIS, </DATELINE>"
        "<BODY>{} &amp; more\n&#3;</BODY></TEXT>\n</REUTERS>\n"
    )

    def test_topics_title_and_body(self):
        sgml = '<!DOCTYPE lewis SYSTEM "lewis.dtd">\n' + self.story.format(
            7, "<D>earn</D><D>acq</D>", "", "Wheat"
        )
        (story,) = text_sets.parse_stories(sgml, "here")
        assert (story.number, story.topics) == (7, ("earn", "acq"))
        assert story.text.split() == ["PROFIT", "<UP>", "PARIS,", "Wheat", "&", "more"]

    def test_an_entity_of_the_file_is_never_looked_up(self):
        sgml = '<!DOCTYPE lewis [<!ENTITY x SYSTEM "file:///etc/passwd">]>\n' + self.story.format(
            1, "", "", "&x;"
        )
        (story,) = text_sets.parse_stories(sgml, "here")
        assert "&x;" in story.text

    def test_only_stories_with_one_topic_become_samples(self, tmp_path):
        path = tmp_path / text_sets.REUTERS.name
        second = self.story.format(2, "<D>acq</D>", ' TYPE="BRIEF"', "takeover")
        first = self.story.format(1, "<D>earn</D>", "", "profits") + self.story.format(3, "", "", "nothing")
        write_tar(
            path,
            {"reut2-001.sgm": second.encode(), "reut2-000.sgm": first.encode(), "README.txt": b"<REUTERS "},
        )
        samples = text_sets.read_reuters21578({path.name: path})
        assert [samples.label_names[label] for label in samples.y_true] == ["earn", "acq"]
        assert samples.x.shape[0] == 2

    def test_a_cut_file_is_named(self):
        sgml = self.story.format(1, "", "", "a") + self.story.format(2, "", "", "b")[:-20]
        with pytest.raises(DataError, match="2 stories begin but only 1 end"):
            list(text_sets.parse_stories(sgml, "here"))


class TestReuters10k:
    def test_recipe_by_hand(self):
        # Totals 1, 9, 3, 3: of the two with 3 the first is kept.
        counts = scipy.sparse.csr_matrix([[1, 4, 0, 3], [0, 1, 3, 0], [0, 4, 0, 0]])
        weights, columns = text_sets.reuters_tfidf(counts, n_words=2)
        assert columns.tolist() == [1, 2]
        idf_1, idf_2 = np.log(4 / 4) + 1, np.log(4 / 2) + 1
        second = np.array([idf_1, (1 + np.log(3)) * idf_2])
        np.testing.assert_allclose(
            weights.toarray(), [[1, 0], second / np.linalg.norm(second), [1, 0]], rtol=1e-6
        )

    def test_documents_with_no_or_several_roots_are_left_out(self, tmp_path):
        path = tmp_path / text_sets.COUNTS_FILE.name
        root = np.array([[1, 0, 0, 0], [0, 1, 1, 0], [0, 0, 0, 1], [0, 0, 0, 0]], dtype=bool)
        counts = scipy.sparse.csr_matrix(np.arange(1, 13).reshape(4, 3))
        np.savez(
            path,
            data=counts.data.astype(np.uint8),
            indices=counts.indices.astype(np.uint16),
            indptr=counts.indptr,
            shape=counts.shape,
            root=root,
            root_names=["CCAT", "GCAT", "MCAT", "ECAT"],
        )
        kept, labels, names = text_sets.read_counts(path)
        assert kept.toarray().tolist() == [[1, 2, 3], [7, 8, 9]]
        assert labels.tolist() == [0, 3]
        assert names == ("CCAT", "GCAT", "MCAT", "ECAT")
