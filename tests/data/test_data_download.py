"""Downloads against a server on this machine that can cut, refuse, lie and change its mind."""

import gzip
import hashlib
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from dbull import data
from dbull.data.download import download_files
from dbull.data.files import DataFile
from dbull.data.registry import RECIPES, Recipe
from dbull.data.synthetic import gaussian_mixture
from dbull.errors import DataError

CONTENT = bytes(range(256)) * 4000  # 1 MB
PACKED = gzip.compress(CONTENT, 1, mtime=0)


class Server:
    """Serves `body`; `cut` ends the connection after so many bytes; `ranges`: whether Range is honoured."""

    def __init__(self):
        self.body, self.cut, self.ranges, self.status = PACKED, None, True, 200
        self.requests: list[tuple[str, str | None]] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                wanted = self.headers.get("Range")
                outer.requests.append((self.path, wanted))
                if self.path.startswith("/moved/"):
                    self.send_response(302)
                    self.send_header("Location", self.path.removeprefix("/moved"))
                    self.end_headers()
                    return
                if outer.status != 200:
                    self.send_error(outer.status)
                    return
                start = int(wanted.removeprefix("bytes=").removesuffix("-")) if wanted and outer.ranges else 0
                if start and start >= len(outer.body):
                    self.send_error(416)
                    return
                self.send_response(206 if start else 200)
                if start:
                    self.send_header(
                        "Content-Range", f"bytes {start}-{len(outer.body) - 1}/{len(outer.body)}"
                    )
                self.send_header("Content-Length", str(len(outer.body) - start))
                self.end_headers()
                end = len(outer.body) if outer.cut is None else start + outer.cut
                self.wfile.write(outer.body[start:end])

            def log_message(self, *args):
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}/"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)
        self._thread.start()

    def close(self):
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@pytest.fixture
def server():
    server = Server()
    yield server
    server.close()


def packed_file(*urls: str) -> DataFile:
    digest = hashlib.sha256(PACKED).hexdigest()
    content = hashlib.sha256(CONTENT).hexdigest()
    return DataFile("a.gz", len(PACKED), (digest,), (content,), tuple(url + "a.gz" for url in urls))


def test_download_is_verified_and_progress_rises_to_the_whole(server, tmp_path):
    seen = []
    (path,) = download_files(
        [packed_file(server.url)], tmp_path / "new", lambda done, total: seen.append((done, total))
    )
    assert path.read_bytes() == PACKED
    assert seen[-1] == (len(PACKED), len(PACKED))
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)
    assert list(path.parent.iterdir()) == [path]


def test_cut_connection_leaves_a_part_and_the_next_call_goes_on_from_there(server, tmp_path):
    server.cut = 3000
    with pytest.raises(DataError, match=r"ended after 3,000 of .* Run the same command again"):
        download_files([packed_file(server.url)], tmp_path)
    assert (tmp_path / "partial-a.gz").read_bytes() == PACKED[:3000]
    assert not (tmp_path / "a.gz").exists()
    server.cut = None
    (path,) = download_files([packed_file(server.url)], tmp_path)
    assert path.read_bytes() == PACKED
    assert [wanted for _, wanted in server.requests] == [None, "bytes=3000-"]


def test_a_moved_file_is_resumed_where_it_has_moved_to(server, tmp_path):
    (tmp_path / "partial-a.gz").write_bytes(PACKED[:3000])
    (path,) = download_files([packed_file(server.url + "moved/")], tmp_path)
    assert path.read_bytes() == PACKED
    assert server.requests == [("/moved/a.gz", "bytes=3000-"), ("/a.gz", "bytes=3000-")]


def test_server_without_ranges_sends_all_again(server, tmp_path):
    (tmp_path / "partial-a.gz").write_bytes(PACKED[:3000])
    server.ranges = False
    (path,) = download_files([packed_file(server.url)], tmp_path)
    assert path.read_bytes() == PACKED


def test_whole_part_is_recognised_without_a_further_byte(server, tmp_path):
    (tmp_path / "partial-a.gz").write_bytes(PACKED)
    (path,) = download_files([packed_file(server.url)], tmp_path)
    assert path.read_bytes() == PACKED


def test_part_of_another_version_is_thrown_away_and_fetched_anew(server, tmp_path):
    (tmp_path / "partial-a.gz").write_bytes(b"\x1f\x8b" + b"x" * 2998)
    (path,) = download_files([packed_file(server.url)], tmp_path)
    assert path.read_bytes() == PACKED
    assert [wanted for _, wanted in server.requests] == ["bytes=3000-", None]


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"<html>please log in</html>", "this is an HTML page"),
        (gzip.compress(b"something else", mtime=0), "not the file it should be"),
        (b"", "the file is empty"),
    ],
)
def test_wrong_bodies_are_refused_and_leave_nothing(server, tmp_path, body, message):
    server.body = body
    with pytest.raises(DataError, match=message) as caught:
        download_files([packed_file(server.url)], tmp_path)
    assert server.url in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_other_compression_of_the_same_content_is_right(server, tmp_path):
    server.body = gzip.compress(CONTENT, 9, mtime=3)
    (path,) = download_files([packed_file(server.url)], tmp_path)
    assert gzip.decompress(path.read_bytes()) == CONTENT


def test_mirror_is_asked_when_the_first_source_fails(server, tmp_path):
    other = Server()
    try:
        server.status = 503
        (path,) = download_files([packed_file(server.url, other.url)], tmp_path)
        assert path.read_bytes() == PACKED
    finally:
        other.close()


def test_offline_says_so_and_names_the_folder(tmp_path):
    closed = Server()
    closed.close()
    with pytest.raises(DataError, match=r"could not get a\.gz: .*refused") as caught:
        download_files([packed_file(closed.url)], tmp_path)
    assert str(tmp_path) in str(caught.value)


def test_file_that_is_there_is_verified_and_not_fetched(server, tmp_path):
    (tmp_path / "a.gz").write_bytes(PACKED)
    download_files([packed_file(server.url)], tmp_path)
    assert server.requests == []
    (tmp_path / "a.gz").write_bytes(PACKED[:-1])
    with pytest.raises(DataError, match=r"a\.gz"):
        download_files([packed_file(server.url)], tmp_path)


def test_fetch_puts_a_known_set_where_load_finds_it(server, empty_home, monkeypatch):
    samples = gaussian_mixture(0)
    recipe = Recipe(
        "s", "features", "toy", ((packed_file(server.url),),), lambda paths: samples, "src", "MIT"
    )
    monkeypatch.setitem(RECIPES, "toy", recipe)
    entry = next(e for e in data.catalogue() if e.name == "toy")
    assert (entry.found, entry.can_get, entry.files[0].path) == (False, True, None)
    with pytest.raises(DataError, match=r"missing a\.gz; searched .*run `dbull data get toy`.*DBULL_DATA"):
        data.load("toy")
    (path,) = data.fetch("toy")
    assert path == empty_home / "cache" / "dbull" / "data" / "toy" / "a.gz"
    entry = next(e for e in data.catalogue() if e.name == "toy")
    assert (entry.found, entry.files[0].path) == (True, path)
    dataset = data.load("toy")
    assert (dataset.source, dataset.licence) == ("src", "MIT")
    assert dataset.checksums == {"a.gz": f"sha256:{hashlib.sha256(PACKED).hexdigest()}"}


def test_fetch_of_what_cannot_be_had_says_where_to_put_it(empty_home):
    with pytest.raises(DataError, match=r"missing reuters10k_rcv1\.npz; searched .*cannot be downloaded"):
        data.fetch("reuters10k")


def test_fetch_of_a_set_without_files_is_done_at_once(empty_home):
    assert data.fetch("digits") == []
