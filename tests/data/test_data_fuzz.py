"""Damaged files of every kind: a reader gives rows or our own error, never another."""

import contextlib
import gzip
import io

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dbull.data import ReadSettings, image_sets, kddcup99, read_table
from dbull.data.archives import read_arrays, read_texts
from dbull.data.files import DataFile, matching_digest, read_content
from dbull.data.text_sets import parse_stories
from dbull.errors import DataError

pa = pytest.importorskip("pyarrow")
import pyarrow.feather  # noqa: E402
import pyarrow.parquet  # noqa: E402


def valid_files() -> dict[str, bytes]:
    table = pa.table({"a": [1.0, 2.0, 3.0], "b": [4, 5, 6]})
    sinks = {name: io.BytesIO() for name in ("npy", "npz", "parquet", "feather", "stream")}
    np.save(sinks["npy"], np.arange(6.0).reshape(3, 2))
    np.savez_compressed(sinks["npz"], x=np.arange(6.0).reshape(3, 2))
    pyarrow.parquet.write_table(table, sinks["parquet"])
    pyarrow.feather.write_feather(table, sinks["feather"], compression="uncompressed")
    with pa.ipc.new_stream(sinks["stream"], table.schema) as writer:
        writer.write_table(table)
    csv = b"a,b\n1,2\n3,4\n"
    files = {".csv": csv, ".csv.gz": gzip.compress(csv, mtime=0)}
    return files | {
        f".{'arrow' if name == 'stream' else name}": sink.getvalue() for name, sink in sinks.items()
    }


VALID = valid_files()


def damaged(content: bytes):
    """Random bytes, a cut, or a few bytes overwritten."""
    changes = st.lists(
        st.tuples(st.integers(0, len(content) - 1), st.integers(0, 255)), min_size=1, max_size=4
    )

    def overwrite(pairs):
        data = bytearray(content)
        for place, value in pairs:
            data[place] = value
        return bytes(data)

    cuts = st.integers(0, len(content) - 1).map(lambda n: content[:n])
    return st.one_of(st.binary(max_size=200), cuts, changes.map(overwrite))


@pytest.mark.parametrize("suffix", VALID)
@given(data=st.data())
@settings(max_examples=40)
def test_table_readers(tmp_path_factory, suffix, data):
    path = tmp_path_factory.getbasetemp() / f"fuzz{suffix}"
    path.write_bytes(data.draw(damaged(VALID[suffix])))
    with contextlib.suppress(DataError):
        table = read_table(path, ReadSettings(chunk_rows=2))
        assert np.isfinite(table.x).all()


def test_a_header_whose_type_is_no_python(tmp_path):
    header = b"{'descr':',','fortran_order':False,'shape':(0,0)}".ljust(118)
    path = tmp_path / "damaged.npy"
    path.write_bytes(b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header)
    with pytest.raises(DataError, match=r"not an array in \.npy format"):
        read_table(path)


@given(data=st.data())
@settings(max_examples=40)
def test_streams(data):
    content = VALID[data.draw(st.sampled_from([".csv", ".csv.gz", ".npy", ".arrow"]))]
    with contextlib.suppress(DataError):
        read_table("-", stream=io.BytesIO(data.draw(damaged(content))))


PARSERS = {
    "idx": lambda content: image_sets.parse_idx(content, "here"),
    "usps": lambda content: image_sets.parse_usps(content, "here"),
    "cifar": lambda content: image_sets.parse_cifar10(content, "here"),
    "stl images": lambda content: image_sets.parse_stl10(content, b"", "here"),
    "stl labels": lambda content: image_sets.parse_stl10(bytes(3 * 27_648), content, "here"),
    "kdd": lambda content: kddcup99.parse_connections(content, "here"),
    "sgml": lambda content: list(parse_stories(content.decode("latin-1"), "here")),
}


@pytest.mark.parametrize("name", PARSERS)
@given(content=st.binary(max_size=300) | st.from_regex(rb"(?:[0-9.,\n <>A-Z/]|\x00){0,80}"))
@settings(max_examples=40)
def test_parsers(name, content):
    with contextlib.suppress(DataError):
        PARSERS[name](content)


@given(data=st.data())
@settings(max_examples=40)
def test_known_files(tmp_path_factory, data):
    folder = tmp_path_factory.getbasetemp()
    name, read = data.draw(
        st.sampled_from(
            [
                ("fuzz.gz", read_content),
                ("fuzz.xz", read_content),
                ("fuzz.tar.gz", read_texts),
                ("fuzz.npz", lambda path: read_arrays(path, ("x",))),
                ("fuzz.gz", lambda path: matching_digest(path, DataFile("fuzz.gz", content=("0" * 64,)))),
            ]
        )
    )
    content = VALID[".npz"] if name.endswith("npz") else VALID[".csv.gz"]
    (folder / name).write_bytes(data.draw(damaged(content)))
    with contextlib.suppress(DataError):
        read(folder / name)
