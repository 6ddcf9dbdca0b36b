import gzip
import hashlib
import lzma
import struct
import tracemalloc

import pytest

from dbull.data.files import DataFile, find_file, matching_digest, read_content, roots
from dbull.errors import DataError

CONTENT = b"the quick brown fox" * 1000


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def test_an_explicit_folder_is_the_only_one_searched(empty_home, monkeypatch):
    monkeypatch.setenv("DBULL_DATA", "/somewhere")
    assert roots(empty_home / "mine") == (empty_home / "mine",)


def test_environment_comes_before_the_cache(empty_home, monkeypatch):
    monkeypatch.setenv("DBULL_DATA", str(empty_home / "env"))
    assert roots() == (empty_home / "env", empty_home / "cache" / "dbull" / "data")


def test_file_is_found_in_its_subfolder_first_then_flat(tmp_path):
    (tmp_path / "file.gz").write_bytes(b"flat")
    assert find_file("file.gz", "set", tmp_path) == tmp_path / "file.gz"
    (tmp_path / "set").mkdir()
    (tmp_path / "set" / "file.gz").write_bytes(b"sub")
    assert find_file("file.gz", "set", tmp_path) == tmp_path / "set" / "file.gz"
    assert find_file("other.gz", "set", tmp_path) is None


def test_a_file_is_recognised_as_stored_or_by_content_whatever_its_compression(tmp_path):
    path = tmp_path / "a.gz"
    first, second = gzip.compress(CONTENT, 9, mtime=0), gzip.compress(CONTENT, 1, mtime=7)
    assert first != second
    file = DataFile("a.gz", stored=(sha256(first),), content=(sha256(CONTENT),))
    path.write_bytes(first)
    assert matching_digest(path, file) == f"sha256:{sha256(first)}"
    path.write_bytes(second)
    assert matching_digest(path, file) == f"sha256:{sha256(CONTENT)}"


def test_md5_is_accepted_where_only_that_is_known(tmp_path):
    path = tmp_path / "a.bin"
    path.write_bytes(CONTENT)
    digest = hashlib.md5(CONTENT).hexdigest()
    assert matching_digest(path, DataFile("a.bin", stored=(digest,))) == f"md5:{digest}"


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "the file is empty"),
        (b"<!DOCTYPE html><html>404</html>", "this is an HTML page"),
        (b"  \n<html>log in</html>", "this is an HTML page"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "Git LFS pointer"),
        (b"plain text", r"not a \.gz file"),
        (gzip.compress(CONTENT, mtime=0)[:-20], "truncated or damaged"),
        (gzip.compress(CONTENT + b"!", mtime=0), "not the file it should be"),
        (gzip.compress(CONTENT, mtime=0)[:-8] + b"\0" * 8, "truncated or damaged"),
    ],
)
def test_wrong_files_are_refused_by_name(tmp_path, data, message):
    path = tmp_path / "a.gz"
    path.write_bytes(data)
    with pytest.raises(DataError, match=message) as caught:
        matching_digest(path, DataFile("a.gz", stored=("0" * 64,), content=(sha256(CONTENT),)))
    assert str(path) in str(caught.value)


@pytest.mark.parametrize("suffix", [".gz", ".xz", ".bin"])
def test_content_is_read_whatever_the_compression(tmp_path, suffix):
    path = tmp_path / f"a{suffix}"
    path.write_bytes({".gz": gzip.compress, ".xz": lzma.compress, ".bin": bytes}[suffix](CONTENT))
    assert read_content(path) == CONTENT


def test_gzip_of_several_members_is_read_whole(tmp_path):
    path = tmp_path / "a.gz"
    path.write_bytes(gzip.compress(b"one", mtime=0) + gzip.compress(b"twotwo", mtime=0))
    assert read_content(path) == b"onetwotwo"


@pytest.mark.parametrize("cut", [5, 40, -1])
def test_truncated_gzip_is_named_on_reading(tmp_path, cut):
    path = tmp_path / "a.gz"
    path.write_bytes(gzip.compress(CONTENT, mtime=0)[:cut])
    with pytest.raises(DataError, match=r"a\.gz: truncated or damaged"):
        read_content(path)


def test_a_huge_size_in_the_trailer_reserves_no_memory(tmp_path):
    path = tmp_path / "a.gz"
    path.write_bytes(gzip.compress(CONTENT, mtime=0)[:-4] + struct.pack("<I", 0xFFFFFFFF))
    with pytest.raises(DataError, match="truncated or damaged"):
        read_content(path)


def test_a_content_that_unpacks_to_very_much_is_hashed_in_pieces(tmp_path):
    path = tmp_path / "a.gz"
    path.write_bytes(gzip.compress(bytes(100 << 20), 9, mtime=0))
    tracemalloc.start()
    try:
        with pytest.raises(DataError, match="not the file it should be"):
            matching_digest(path, DataFile("a.gz", content=("0" * 64,)))
        assert tracemalloc.get_traced_memory()[1] < 10 << 20
    finally:
        tracemalloc.stop()
