"""Files of text as byte streams: unpacked by what they are named, bounded, and shown to who asks."""

import bz2
import gzip
import io
import lzma
import sys
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from dbull.data.readers.chunk import ReadSettings, optional_pyarrow
from dbull.errors import DataError

PACKED = (".gz", ".bz2", ".zst")
MAGIC = {b"\x1f\x8b": ".gz", b"BZh": ".bz2", b"\x28\xb5\x2f\xfd": ".zst"}
_TAP_BYTES = 1 << 16
# What unpackers raise on damaged files.
DAMAGE = (EOFError, zlib.error, lzma.LZMAError, OSError)


class Through(io.RawIOBase):
    """A stream of which no more than `n_bytes` are read, and whose bytes are shown to `tap` as they are."""

    def __init__(self, stream: Any, n_bytes: int, tap: Callable[[bytes], object] | None = None):
        self._stream, self._left, self._tap = stream, n_bytes, tap

    def readable(self) -> bool:
        """Return that it is."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Fill a buffer."""
        data = self._stream.read(min(len(buffer), self._left))
        self._left -= len(data)
        if self._tap is not None:
            self._tap(data)
        buffer[: len(data)] = data
        return len(data)


@contextmanager
def open_bytes(path: Path, settings: ReadSettings) -> Iterator[IO[bytes]]:
    """Yield the unpacked bytes of a file, up to where it ends as far as we are concerned."""
    with path.open("rb") as file:
        raw: Any = file
        if settings.max_bytes is not None:
            raw = io.BufferedReader(Through(file, settings.max_bytes))
        stream = unpacked(raw, path.suffix.lower(), str(path))
        if settings.tap is not None:
            stream = io.BufferedReader(Through(stream, sys.maxsize, settings.tap), _TAP_BYTES)
        yield stream


def unpacked(stream: Any, suffix: str, where: str) -> Any:
    """Return what a stream holds; `suffix` is that of its packer, or any other if it has none."""
    if suffix == ".gz":
        return gzip.GzipFile(fileobj=stream)
    if suffix == ".bz2":
        return bz2.BZ2File(stream)
    return _unzstd(stream, where) if suffix == ".zst" else stream


def packed_as(head: bytes) -> str:
    """Return how a stream that begins like this is packed, "" if it is not."""
    return next((suffix for magic, suffix in MAGIC.items() if head.startswith(magic)), "")


def _unzstd(stream: Any, where: str) -> Any:
    pyarrow = optional_pyarrow()
    if pyarrow is None:
        raise DataError(f"{where}: zstd needs pyarrow; install it with `pip install 'dbull[io]'`")
    return io.BufferedReader(_Unpacked(pyarrow.CompressedInputStream(stream, "zstd")))


class _Unpacked(io.RawIOBase):
    """What pyarrow unpacks, as a stream of Python's."""

    def __init__(self, stream: Any):
        self._stream = stream

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self._stream.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)
