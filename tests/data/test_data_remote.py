"""Addresses through fsspec: the local and the memory file system stand for all others."""

import sys

import numpy as np
import pytest

from dbull.data.readers import expand_sources, read_table
from dbull.errors import DataError

fsspec = pytest.importorskip("fsspec", reason="fsspec is not installed")


@pytest.fixture
def memory():
    system = fsspec.filesystem("memory")
    for name, text in (("a.csv", "x,y\n1,2\n3,4\n"), ("b.csv", "x,y\n5,6\n"), ("deep/c.csv", "x,y\n7,8\n")):
        system.pipe(f"/bucket/{name}", text.encode())
    yield system
    system.rm("/bucket", recursive=True)


@pytest.mark.parametrize("slashes", ["://", ":/"])  # paths of Python have one slash
def test_files_patterns_and_folders(memory, slashes):
    at = f"memory{slashes}bucket"
    np.testing.assert_array_equal(read_table(f"{at}/a.csv").x, [[1, 2], [3, 4]])
    assert [path.name for path in expand_sources([f"{at}/*.csv"])] == ["a.csv", "b.csv"]
    assert [path.name for path in expand_sources([at])] == ["a.csv", "b.csv", "c.csv"]


def test_the_local_file_system(tmp_path):
    (tmp_path / "t.tsv").write_text("x\ty\n1\t2\n")
    np.testing.assert_array_equal(read_table(f"file://{tmp_path}/t.tsv").x, [[1, 2]])


def test_what_is_not_there(memory, monkeypatch):
    with pytest.raises(DataError, match=r"memory://bucket/none.csv: cannot be read"):
        read_table("memory://bucket/none.csv")
    with pytest.raises(DataError, match="no file is there"):
        expand_sources(["memory://bucket/*.tsv"])
    with pytest.raises(DataError, match=r"nothing://x/y.csv: cannot be read"):
        read_table("nothing://x/y.csv")
    monkeypatch.setitem(sys.modules, "fsspec.core", None)
    with pytest.raises(DataError, match=r"dbull\[remote\]"):
        read_table("memory://bucket/a.csv")
