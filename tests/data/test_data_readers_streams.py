"""Folders of images, streams, and files larger than the memory they are read with."""

import gzip
import io
import subprocess
import sys

import numpy as np
import pytest

from dbull.data import ReadSettings, read_chunks, read_table
from dbull.errors import DataError

pa = pytest.importorskip("pyarrow")

NAMES = ("height", "width", "depth")
VALUES = np.round(np.random.default_rng(0).normal(size=(25, 3)), 3)


class TestImages:
    @pytest.fixture
    def folder(self, tmp_path):
        image = pytest.importorskip("PIL.Image")
        pixels = np.random.default_rng(1).integers(256, size=(3, 4, 5, 3)).astype(np.uint8)
        (tmp_path / "cats").mkdir()
        for name, values in zip(["b.png", "cats/a.PNG", "a.bmp"], pixels, strict=True):
            image.fromarray(values).save(tmp_path / name)
        (tmp_path / "notes.txt").write_text("no image")
        return tmp_path, pixels

    def test_colour_images_sorted_by_path(self, folder):
        path, pixels = folder
        chunks = list(read_chunks(path, ReadSettings(chunk_rows=2)))
        assert [key for chunk in chunks for key in chunk.keys] == ["a.bmp", "b.png", "cats/a.PNG"]
        assert chunks[0].sample_shape == (3, 4, 5)
        expected = pixels[[2, 0, 1]].transpose(0, 3, 1, 2).reshape(3, -1) / 255
        np.testing.assert_array_equal(np.concatenate([c.x for c in chunks]), expected.astype(np.float32))

    def test_grey_and_resized(self, folder):
        chunk = read_table(folder[0], ReadSettings(grey=True, image_size=(8, 6)))
        assert chunk.sample_shape == (8, 6)
        assert 0 <= chunk.x.min() < chunk.x.max() <= 1

    def test_what_may_be_wrong(self, folder):
        path, _ = folder
        with pytest.raises(DataError, match="has no columns to choose"):
            read_table(path, ReadSettings(columns=("a",)))
        (path / "c.png").write_bytes(b"not a png")
        with pytest.raises(DataError, match=r"c\.png: not a readable image"):
            read_table(path)
        import PIL.Image

        PIL.Image.new("RGB", (9, 9)).save(path / "c.png")
        with pytest.raises(DataError, match=r"c\.png: shape \(3, 9, 9\), the images before have \(3, 4, 5\)"):
            read_table(path)
        (path / "empty").mkdir()
        with pytest.raises(DataError, match="no images in this folder"):
            read_table(path / "empty")


class TestStreams:
    def arrow_stream(self) -> bytes:
        sink = io.BytesIO()
        table = pa.table({name: VALUES[:, i] for i, name in enumerate(NAMES)})
        with pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table, max_chunksize=10)
        return sink.getvalue()

    def npy(self) -> bytes:
        sink = io.BytesIO()
        np.save(sink, VALUES)
        return sink.getvalue()

    @pytest.mark.parametrize("kind", ["csv", "csv.gz", "arrow", "npy"])
    def test_a_stream_tells_its_format_by_its_first_bytes(self, kind):
        plain = "\n".join(",".join(map(str, row)) for row in VALUES.tolist()).encode()
        body = {
            "csv": plain,
            "csv.gz": gzip.compress(plain, mtime=0),
            "arrow": self.arrow_stream(),
            "npy": self.npy(),
        }[kind]
        chunks = list(read_chunks("-", ReadSettings(chunk_rows=8), io.BytesIO(body)))
        assert len(chunks) > 3
        np.testing.assert_array_equal(np.concatenate([c.x for c in chunks]), VALUES.astype(np.float32))

    def test_standard_input_of_a_process(self):
        code = "from dbull.data import read_table; print(read_table('-').x.sum(dtype=float))"
        done = subprocess.run([sys.executable, "-c", code], input=self.npy(), capture_output=True, check=True)
        assert float(done.stdout) == pytest.approx(VALUES.astype(np.float32).sum(dtype=float))

    @pytest.mark.parametrize(
        ("body", "message"),
        [
            (b"", "standard input: nothing came"),
            (b"ARROW1\0\0rest", "must be read from a file"),
            (b"PAR1rest", "must be read from a file"),
            (b"a,b\n1,x\n", "standard input: row 1, column 'b': 'x' is not a number"),
        ],
    )
    def test_what_cannot_be_streamed_is_said(self, body, message):
        with pytest.raises(DataError, match=message):
            read_table("-", stream=io.BytesIO(body))

    def test_column_major_array_cannot_be_streamed(self):
        sink = io.BytesIO()
        np.save(sink, np.asfortranarray(VALUES))
        with pytest.raises(DataError, match="stored column by column"):
            read_table("-", stream=io.BytesIO(sink.getvalue()))


@pytest.mark.parametrize(
    ("name", "message"),
    [("a.xlsx", "unknown kind of file; known are .csv"), ("none.csv", "no such file or folder")],
)
def test_unknown_and_missing_files(tmp_path, name, message):
    (tmp_path / "a.xlsx").write_bytes(b"PK")
    with pytest.raises(DataError, match=message):
        read_chunks(tmp_path / name)


@pytest.mark.parametrize("kind", ["csv", "npy", "npz"])
def test_memory_is_bounded_by_the_chunk_not_by_the_file(tmp_path, kind):
    """A table of 400 MB as float32 (of 100 MB for CSV) is read by a process that may grow by 60 MB."""
    n_rows, n_columns = 100_000, 1_000
    path = tmp_path / f"big.{kind}"
    if kind == "csv":
        path = "-"
    elif kind == "npy":
        np.lib.format.open_memmap(path, "w+", np.float32, (n_rows, n_columns)).flush()  # a sparse file
    else:
        np.savez_compressed(path, x=np.zeros((n_rows, n_columns), np.uint8))
    code = f"""
import io, resource, dbull.data as d
class Rows(io.RawIOBase):
    sent = 0
    def readable(self): return True
    def readinto(self, buffer):
        row = b"0" + b",0" * {n_columns - 1} + b"\\n"
        if self.sent == {n_rows // 4}: return 0
        self.sent += 1
        buffer[: len(row)] = row
        return len(row)
for warm in d.read_chunks("-", d.ReadSettings(chunk_rows=1000), io.BytesIO(b"1,2\\n")): pass
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
rows = 0
for chunk in d.read_chunks({str(path)!r}, d.ReadSettings(chunk_rows=1000), Rows()):
    rows += len(chunk.x)
grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
print(rows, grown)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    rows, grown = done.stdout.split()
    assert int(rows) == (n_rows // 4 if kind == "csv" else n_rows)
    assert float(grown) < 60, f"grew by {grown} MB"


def test_core_formats_need_no_extra_and_the_others_name_theirs(tmp_path):
    (tmp_path / "a.csv").write_text("a,b\n1,2\n")
    np.save(tmp_path / "a.npy", VALUES)
    (tmp_path / "a.parquet").write_bytes(b"PAR1")
    (tmp_path / "images").mkdir()
    code = f"""
import sys
sys.modules["pyarrow"] = sys.modules["PIL"] = None  # as if they were not installed
from pathlib import Path
from dbull.data import read_table
from dbull.errors import DataError
folder = Path({str(tmp_path)!r})
print(read_table(folder / "a.csv").x.tolist(), read_table(folder / "a.npy").x.shape)
for name in ("a.parquet", "images"):
    try:
        read_table(folder / name)
    except DataError as error:
        print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    first, second, third = done.stdout.splitlines()
    assert first == "[[1.0, 2.0]] (25, 3)"
    assert "pip install 'dbull[io]'" in second
    assert "pip install 'dbull[vision]'" in third
