"""Files of text in parts: cut where rows end, so that whoever has a part reads its bytes and no others."""

import codecs
import io
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import IO, NamedTuple

from dbull.data.readers.chunk import ReadSettings
from dbull.data.readers.opening import Through


class Cut(NamedTuple):
    """A place between two rows: how many rows and bytes are before it."""

    row: int
    byte: int


class CountedLines:
    """Lines of UTF-8 text, and how many bytes there were up to the latest."""

    def __init__(self, lines: Iterable[str], n_bytes: int = 0):
        self._lines, self.n_bytes = iter(lines), n_bytes

    def __iter__(self) -> Iterator[str]:
        """Return the lines that are left."""
        return self

    def __next__(self) -> str:
        """Return the next line."""
        line = next(self._lines)
        self.n_bytes += _size(line)
        return line

    def put_back(self, line: str) -> None:
        """Let the latest line come again."""
        self._lines = chain([line], self._lines)
        self.n_bytes -= _size(line)


def row_cuts(lines: CountedLines, n_rows: int, is_row: Callable[[str], bool]) -> list[Cut]:
    """Return the first place, one after each so many rows, and the end.

    `is_row` tells whether a row begins with a line, and takes the further lines that are of it.
    """
    found, n = [Cut(0, lines.n_bytes)], 0
    for line in lines:
        n += is_row(line)
        if n == found[-1].row + n_rows:
            found.append(Cut(n, lines.n_bytes))
    return found if n == found[-1].row else [*found, Cut(n, lines.n_bytes)]


def length_of_mark(path: Path) -> int:
    """Return how many bytes a file begins with that only say that it is UTF-8."""
    with path.open("rb") as file:
        return len(codecs.BOM_UTF8) if file.read(len(codecs.BOM_UTF8)) == codecs.BOM_UTF8 else 0


@contextmanager
def open_part(path: Path, settings: ReadSettings) -> Iterator[IO[bytes] | None]:
    """Yield the bytes of the part that is meant, None if it is the whole file."""
    if settings.span is None:
        yield None
        return
    first, last = settings.span
    with path.open("rb") as file:
        file.seek(first)
        yield io.BufferedReader(Through(file, last - first))


def _size(line: str) -> int:
    return len(line) if line.isascii() else len(line.encode())
