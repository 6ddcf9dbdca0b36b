"""CSV files in chunks, by numpy's parser or, if it is installed, pyarrow's; errors name row and column."""

import csv
import gzip
import io
import math
import sys
import zlib
from collections.abc import Callable, Iterator
from itertools import chain, islice
from pathlib import Path
from typing import Any, BinaryIO, TextIO

import numpy as np

from dbull.data.readers.chunk import Chunk, ReadSettings, Selection, optional_pyarrow, select_columns
from dbull.errors import DataError

_MAX_BLOCK = 2**31 - 1  # pyarrow holds the size in 32 bits
MAX_LINE = 1 << 24  # characters; so many columns as a table may have need fewer
BLOCK_CHARACTERS = 1 << 26  # lines that are held at once
_TAP_BYTES = 1 << 16


def read_csv(path: Path, settings: ReadSettings) -> Iterator[Chunk]:
    """Yield the rows of a .csv or .csv.gz file."""
    with path.open("rb") as file:
        raw = file if settings.max_bytes is None else io.BufferedReader(_Through(file, settings.max_bytes))
        stream: Any = gzip.GzipFile(fileobj=raw) if path.suffix.lower() == ".gz" else raw
        if settings.tap is not None:
            stream = io.BufferedReader(_Through(stream, sys.maxsize, settings.tap), _TAP_BYTES)
        yield from read_csv_stream(stream, settings, str(path))


def first_line(path: Path) -> tuple[str, ...] | None:
    """Return the cells of the first line that is not empty, None if the file cannot be read."""
    open_text = gzip.open if path.suffix.lower() == ".gz" else open
    try:
        with open_text(path, "rt", encoding="utf-8-sig", newline="") as handle:
            rows = _quoted_rows(_lines(handle, str(path)), str(path))
            return tuple(cell.strip() for cell in next(rows, []))
    except (OSError, EOFError, UnicodeDecodeError, zlib.error, csv.Error, DataError):
        return None


class _Through(io.RawIOBase):
    """A stream of which no more than `n_bytes` are read, and whose bytes are shown to `tap` as they are."""

    def __init__(self, stream: Any, n_bytes: int, tap: Callable[[bytes], object] | None = None):
        self._stream, self._left, self._tap = stream, n_bytes, tap

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self._stream.read(min(len(buffer), self._left))
        self._left -= len(data)
        if self._tap is not None:
            self._tap(data)
        buffer[: len(data)] = data
        return len(data)


def read_csv_stream(stream: BinaryIO | gzip.GzipFile, settings: ReadSettings, where: str) -> Iterator[Chunk]:
    """Yield the rows of an open stream of comma-separated UTF-8 text."""
    text = io.TextIOWrapper(stream, encoding="utf-8-sig", newline="")
    try:
        yield from _chunks(text, settings, where)
    except UnicodeDecodeError as error:
        raise DataError(f"{where}: not UTF-8 text ({error.reason} at byte {error.start})") from error
    except (EOFError, zlib.error, OSError) as error:
        raise DataError(f"{where}: truncated or damaged ({error})") from error
    except csv.Error as error:  # most often a quote that is never closed and swallows the rest of the file
        raise DataError(f"{where}: not readable as CSV ({error}); is a quote left open?") from error
    finally:
        text.detach()


def _chunks(text: TextIO, settings: ReadSettings, where: str) -> Iterator[Chunk]:
    lines = _lines(text, where)
    first_line = next((line for line in lines if line.strip()), "")
    if not first_line:
        raise DataError(f"{where}: the file is empty")
    first = next(csv.reader([first_line]))
    has_header = settings.header if settings.header is not None else _is_header(first, settings, where)
    names = [name.strip() for name in first] if has_header else [str(i) for i in range(len(first))]
    selection = select_columns(names, settings, where)
    if not has_header:
        lines = chain([first_line], lines)
    first_row = 0
    while block := _block(lines, settings.rows_at_once(selection.n_columns)):
        if any('"' in line for line in block):
            # Quotes may hide commas and line ends: the rest of the file goes through the csv module.
            yield from _quoted_chunks(chain(block, lines), settings, selection, first_row)
            return
        block = [line for line in block if line.strip()]
        if block:
            yield _plain_chunk(block, selection, first_row)
        first_row += len(block)
    if first_row == 0:
        raise DataError(f"{where}: there is a header but no rows")


def _lines(text: Any, where: str) -> Iterator[str]:
    """Yield lines of bounded length: a small compressed file may hold one without an end."""
    while line := text.readline(MAX_LINE + 1):
        if len(line) > MAX_LINE:
            _refuse_long(where)
        yield line


def _block(lines: Iterator[str], n_lines: int) -> list[str]:
    """Take lines, as many as asked for unless they are very long."""
    block, n_characters = [], 0
    for line in islice(lines, n_lines):
        block.append(line)
        n_characters += len(line)
        if n_characters > BLOCK_CHARACTERS:
            break
    return block


def _quoted_rows(lines: Iterator[str], where: str) -> Iterator[list[str]]:
    """Yield rows whose cells may have quotes, each of bounded length though it may have many lines."""
    since_row = 0

    def counted() -> Iterator[str]:
        nonlocal since_row
        for line in lines:
            since_row += len(line)
            if since_row > MAX_LINE:
                _refuse_long(where)
            yield line

    for row in csv.reader(counted()):
        since_row = 0
        if row:
            yield row


def _refuse_long(where: str) -> None:
    raise DataError(
        f"{where}: has a line of more than {MAX_LINE:,} characters, longer than that of any table; "
        "is it damaged, or not CSV at all?"
    )


def _plain_chunk(lines: list[str], selection: Selection, first_row: int) -> Chunk:
    for number, line in enumerate(lines):
        if line.count(",") != selection.n_columns - 1:
            _refuse_ragged(line.count(",") + 1, selection, first_row + number)
    keys = None
    if (position := selection.key_position) is not None:
        keys = np.array([line.split(",", position + 1)[position].strip() for line in lines])
    try:
        x = _parse(lines, selection)
    except ValueError as error:
        _locate_text([line.split(",") for line in lines], selection, first_row)
        last_row = first_row + len(lines)
        raise DataError(f"{selection.where}: rows {first_row + 1} to {last_row}: {error}") from error
    return selection.chunk(x, keys, first_row)


def _parse(lines: list[str], selection: Selection) -> np.ndarray:
    """Return the chosen columns, (n, d); raise ValueError if any is not a number."""
    pyarrow = optional_pyarrow()
    if pyarrow is None:  # numpy's parser is several times slower but always there
        return np.loadtxt(lines, delimiter=",", usecols=selection.positions, comments=None, ndmin=2)
    all_names = [str(position) for position in range(selection.n_columns)]
    wanted = [str(position) for position in selection.positions]
    text = "".join(lines).encode()
    table = pyarrow.csv.read_csv(
        pyarrow.py_buffer(text),
        # One block: a row of very many columns may be longer than pyarrow's usual one.
        read_options=pyarrow.csv.ReadOptions(
            column_names=all_names, use_threads=False, block_size=min(len(text) + 1, _MAX_BLOCK)
        ),
        convert_options=pyarrow.csv.ConvertOptions(
            include_columns=wanted,
            column_types={name: pyarrow.float64() for name in wanted},
            null_values=[],  # an empty cell or "NA" is an error here, as it is for numpy's parser
        ),
    )
    return np.column_stack([table.column(name).to_numpy() for name in wanted])


def _quoted_chunks(
    lines: Iterator[str], settings: ReadSettings, selection: Selection, start: int
) -> Iterator[Chunk]:
    reader, position = _quoted_rows(lines, selection.where), selection.key_position
    while rows := list(islice(reader, settings.rows_at_once(selection.n_columns))):
        for number, row in enumerate(rows):
            if len(row) != selection.n_columns:
                _refuse_ragged(len(row), selection, start + number)
        keys = None if position is None else np.array([row[position].strip() for row in rows])
        try:
            x = np.array([[row[i] for i in selection.positions] for row in rows]).astype(np.float64)
        except ValueError:
            _locate_text(rows, selection, start)
            raise
        yield selection.chunk(x, keys, start)
        start += len(rows)


def _refuse_ragged(found: int, selection: Selection, row: int) -> None:
    raise DataError(f"{selection.where}: row {row + 1} has {found} columns, expected {selection.n_columns}")


def _locate_text(rows: list[list[str]], selection: Selection, first_row: int) -> None:
    """Raise for the first cell that is not a number."""
    for number, row in enumerate(rows):
        for position, name in zip(selection.positions, selection.names, strict=True):
            cell = row[position].strip()
            if not _is_number(cell):
                what = "the cell is empty" if not cell else f"{cell[:40]!r} is not a number"
                if ";" in cell or "\t" in cell:
                    what += " (cells are separated by commas, not by semicolons or tabs)"
                raise DataError(
                    f"{selection.where}: row {first_row + number + 1}, column '{name}': {what}; "
                    "leave the column out, make it the key, or mend the file"
                )


def _is_header(first: list[str], settings: ReadSettings, where: str) -> bool:
    """Tell names from numbers; refuse what could be a row with a hole in it."""
    asked = {*(settings.columns or ()), *([] if settings.key is None else [settings.key])}
    if asked & {cell.strip() for cell in first} and not all(map(_is_number, first)):
        return True
    numbers = [_is_number(cell) and math.isfinite(float(cell)) for cell in first]
    cells = zip(numbers, first, strict=True)
    if not all(numbers) and any(is_number and not cell.strip().isdigit() for is_number, cell in cells):
        raise DataError(
            f"{where}: the first line has both numbers and other things ({','.join(first)[:60]}): names of "
            "columns, or a row? Say header=true or header=false (on the command line: --set header=false)"
        )
    return not all(map(_is_number, first))


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return "_" not in cell  # Python's 1_000 is no number in a file
