"""Small files that ask for much: refused with a message; memory is measured in a process of its own."""

import functools
import gzip
import json
import struct
import subprocess
import sys
import zipfile
import zlib

import numpy as np
import pytest

MIB = 1 << 20
# Each file is read by a fork, whose memory begins as that of the process with all imports.
READ = """
import json, os, resource, sys
from pathlib import Path
from dbull.data.readers import ReadSettings, read_chunks, table_names
from dbull.errors import DataError
import pyarrow, PIL.Image, pyarrow.csv
for line in sys.stdin:
    path, colour = json.loads(line)
    if child := os.fork():
        if os.waitpid(child, 0)[1] != 0:
            print("null", flush=True)
        continue
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    try:
        table_names(Path(path))
        for chunk in read_chunks(path, ReadSettings(grey=colour == "grey")):
            pass
        told = "read"
    except DataError as error:
        told = f"refused: {error}"
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    print(json.dumps([told, grown // 1024]), flush=True)
    os._exit(0)
"""


@pytest.fixture(scope="module")
def read():
    """Return what tells what a reader says of a file, and by how many MiB the process grew."""
    pytest.importorskip("pyarrow")
    pytest.importorskip("PIL.Image")
    with subprocess.Popen(
        [sys.executable, "-c", READ], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:

        def ask(path, colour="grey"):
            process.stdin.write(json.dumps([str(path), colour]) + "\n")
            process.stdin.flush()
            return json.loads(process.stdout.readline())

        yield ask


def npy_header(shape, dtype="<f8"):
    text = f"{{'descr': '{dtype}', 'fortran_order': False, 'shape': {shape}, }}".encode()
    text = text.ljust(117) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text


@functools.cache
def png(width, height):
    """Return a picture of one colour, packed without making it."""
    packer, line = zlib.compressobj(6), bytes(width + 1)
    data = b"".join(packer.compress(line) for _ in range(height)) + packer.flush()

    def part(kind, content):
        return (
            struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))
        )

    head = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + part(b"IHDR", head) + part(b"IDAT", data) + part(b"IEND", b"")


@pytest.mark.parametrize("shape", [(1, 10**9), (2, 10**5, 10**5), (10**9, 10**9)])
@pytest.mark.parametrize("fortran", [False, True])
def test_an_array_that_declares_too_many_columns(read, tmp_path, shape, fortran):
    header = npy_header(shape)
    if fortran:
        header = header.replace(b"False", b"True ")
    (tmp_path / "x.npy").write_bytes(header + bytes(80))
    with zipfile.ZipFile(tmp_path / "x.npz", "w") as archive:
        archive.writestr("x.npy", header + bytes(80))
    for name in ("x.npy", "x.npz"):
        told, grown = read(tmp_path / name)
        assert told.startswith("refused:")
        assert name in told
        assert grown < 50, (name, grown)


def test_an_array_that_declares_too_many_rows(read, tmp_path):
    (tmp_path / "x.npy").write_bytes(npy_header((10**12, 5)) + bytes(80))
    told, grown = read(tmp_path / "x.npy")
    assert "cut off after 2 of" in told
    assert grown < 50


def test_wide_rows_come_in_chunks_of_bounded_size(read, tmp_path):
    """A packed array of 400 MB, whose rows at once would be all of it."""
    with (
        zipfile.ZipFile(tmp_path / "x.npz", "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive,
        archive.open("x.npy", "w") as out,
    ):
        out.write(npy_header((500, 200_000), "<f4"))
        for _ in range(500):
            out.write(bytes(800_000))
    told, grown = read(tmp_path / "x.npz")
    assert told == "read"
    assert grown < 700


@pytest.mark.parametrize("colour", ["grey", "colour"])
def test_a_small_picture_of_many_pixels(read, tmp_path, colour):
    data = png(13_000, 13_000)
    assert len(data) < 500_000
    (tmp_path / "shots").mkdir()
    (tmp_path / "shots" / "bomb.png").write_bytes(data)
    told, grown = read(tmp_path / "shots", colour)
    assert "13,000 x 13,000 pixels" in told
    assert "bomb.png" in told
    assert grown < 50


def test_a_picture_that_needs_a_size(read, tmp_path):
    (tmp_path / "shots").mkdir()
    (tmp_path / "shots" / "large.png").write_bytes(png(4_000, 4_000))
    told, grown = read(tmp_path / "shots")
    assert "image_size" in told
    assert grown < 50


@pytest.mark.parametrize(
    ("start", "cell"),
    [(b"", b"1"), (b"", b"1,"), (b"", b'"'), (b"", b'"\n",'), (b"", b" "), (b"a,b\n1,2\n", b"1,")],
)
def test_a_packed_table_of_one_row_without_end(read, tmp_path, start, cell):
    """150 MB of one line, or of one row of quotes and many lines, in 700 kB."""
    path = tmp_path / "bomb.csv.gz"
    with gzip.open(path, "wb", compresslevel=1) as out:
        out.write(start)
        for _ in range(150):
            out.write(cell * (MIB // len(cell)))
    told, grown = read(path)
    assert told.startswith("refused:")
    assert "bomb.csv.gz" in told
    assert grown < 300, (cell, grown)


@pytest.mark.parametrize("names", [True, False])
def test_a_table_of_a_million_columns(read, tmp_path, names):
    cells = (f"c{i}" if names else "1" for i in range(10**6))
    (tmp_path / "wide.csv").write_text(",".join(cells) + "\n" + ",".join(["1"] * 10**6) + "\n")
    told, grown = read(tmp_path / "wide.csv")
    assert "1,000,000 columns" in told
    assert grown < 300, grown


def test_long_lines_come_in_chunks_of_bounded_size(read, tmp_path):
    """300 MB of lines that are short tables but long texts."""
    path = tmp_path / "long.csv.gz"
    with gzip.open(path, "wb", compresslevel=1) as out:
        out.write(b"a,b\n")
        for i in range(300):
            out.write(b"%d," % i + b" " * MIB + b"2\n")
    told, grown = read(path)
    assert told == "read"
    assert grown < 450, grown


def test_what_is_read_in_pieces_of_any_size_is_the_same(tmp_path, monkeypatch):
    from dbull.data.readers import chunk, csv_files, read_table

    values = np.random.default_rng(0).normal(size=(50, 7)).astype(np.float32)
    np.save(tmp_path / "x.npy", values)
    np.savetxt(tmp_path / "x.csv", values, delimiter=",")
    monkeypatch.setattr(chunk, "CHUNK_VALUES", 21)
    monkeypatch.setattr(csv_files, "BLOCK_CHARACTERS", 300)
    for name in ("x.npy", "x.csv"):
        np.testing.assert_array_equal(read_table(tmp_path / name).x, values)
