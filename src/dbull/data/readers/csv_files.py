"""Separated text in chunks, by numpy's parser or, if it is there, pyarrow's; errors name row and column."""

import csv
import io
import math
from collections.abc import Iterator
from contextlib import nullcontext
from itertools import chain, islice
from pathlib import Path
from typing import IO, Any, TextIO

import numpy as np

from dbull.data.readers.chunk import Chunk, ReadSettings, Selection, optional_pyarrow, select_columns
from dbull.data.readers.opening import DAMAGE, open_bytes
from dbull.data.readers.separators import MAX_LINE, Writing, long_cells, look_at
from dbull.data.readers.text_parts import CountedLines, Cut, length_of_mark, open_part, row_cuts
from dbull.errors import DataError

_MAX_BLOCK = 2**31 - 1  # pyarrow holds the size in 32 bits
BLOCK_CHARACTERS = 1 << 26  # lines that are held at once


def read_csv(path: Path, settings: ReadSettings) -> Iterator[Chunk]:
    """Yield the rows of a file of separated text, packed or not."""
    with open_bytes(path, settings) as stream, open_part(path, settings) as part:
        yield from read_csv_stream(stream, settings, str(path), part)


def csv_cuts(path: Path, settings: ReadSettings, n_rows: int) -> list[Cut]:
    """Return where a file that is not packed can be cut into parts of so many rows; none if it cannot.

    One pass: a line without a quote is a row, others are shown to the parser.
    """
    where = str(path)

    def is_row(line: str) -> bool:
        if '"' in line:
            return bool(next(_quoted_rows(chain([line], lines), where, look.separator)))
        return bool(line.strip("\r\n" if settings.mixed else None))

    try:
        with path.open("rb") as stream, long_cells() if settings.mixed else nullcontext():
            text = io.TextIOWrapper(stream, encoding="utf-8-sig", newline="")
            _, look, first, has_header = _begun(text, settings, where)
            text.seek(0)
            lines = CountedLines(bounded_lines(text, where), length_of_mark(path))
            next(line for line in lines if line.strip())
            if not has_header:
                lines.put_back(first)
            return row_cuts(lines, n_rows, is_row)
    except (*DAMAGE, UnicodeDecodeError, csv.Error, DataError):  # of which the reader will tell
        return []


def first_line(path: Path) -> tuple[str, ...] | None:
    """Return the cells of the first line that is not empty, None if the file cannot be read."""
    try:
        with open_bytes(path, ReadSettings()) as stream:
            text = io.TextIOWrapper(stream, encoding="utf-8-sig", newline="")
            lines, look = look_at(bounded_lines(text, str(path)))
            rows = _quoted_rows(lines, str(path), look.separator)
            return tuple(cell.strip() for cell in next(rows, []))
    except (*DAMAGE, UnicodeDecodeError, csv.Error, DataError):
        return None


def read_csv_stream(
    stream: Any, settings: ReadSettings, where: str, part: IO[bytes] | None = None
) -> Iterator[Chunk]:
    """Yield the rows of an open stream of separated UTF-8 text; of a part, if its bytes are given too."""
    text = io.TextIOWrapper(stream, encoding="utf-8-sig", newline="")
    try:
        yield from _chunks(text, settings, where, part)
    except UnicodeDecodeError as error:
        raise DataError(f"{where}: not UTF-8 text ({error.reason} at byte {error.start})") from error
    except DAMAGE as error:
        raise DataError(f"{where}: truncated or damaged ({error})") from error
    except csv.Error as error:  # most often a quote that is never closed and swallows the rest of the file
        raise DataError(f"{where}: not readable as CSV ({error}); is a quote left open?") from error
    finally:
        text.detach()


def _begun(text: TextIO, settings: ReadSettings, where: str) -> tuple[Iterator[str], Writing, str, bool]:
    """Return the lines after the first that has anything, how cells are written, it, and if it has names."""
    lines, look = look_at(bounded_lines(text, where))
    first = next((line for line in lines if line.strip()), "")
    if not first:
        raise DataError(f"{where}: the file is empty")
    cells = next(csv.reader([first], delimiter=look.separator))
    has_header = settings.header if settings.header is not None else _is_header(cells, settings, where)
    return lines, look, first, has_header


def _chunks(text: TextIO, settings: ReadSettings, where: str, part: IO[bytes] | None) -> Iterator[Chunk]:
    lines, look, first_line, has_header = _begun(text, settings, where)
    first = next(csv.reader([first_line], delimiter=look.separator))
    names = [name.strip() for name in first] if has_header else [str(i) for i in range(len(first))]
    selection = select_columns(names, settings, where)
    if part is not None:
        lines = bounded_lines(io.TextIOWrapper(part, encoding="utf-8", newline=""), where)
    elif not has_header:
        lines = chain([first_line], lines)
    first_row = settings.rows[0] if settings.rows is not None else 0
    if settings.mixed:
        yield from _quoted_chunks(lines, settings, selection, first_row, look)
        return
    while block := _block(lines, settings.rows_at_once(selection.n_columns)):
        if any('"' in line for line in block):
            # Quotes may hide separators and line ends: the rest of the file goes through the csv module.
            yield from _quoted_chunks(chain(block, lines), settings, selection, first_row, look)
            return
        block = [line for line in block if line.strip()]
        if block:
            yield _plain_chunk(block, selection, first_row, look)
        first_row += len(block)
    if first_row == 0:
        raise DataError(f"{where}: there is a header but no rows")


def bounded_lines(text: Any, where: str) -> Iterator[str]:
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


def _quoted_rows(lines: Iterator[str], where: str, separator: str) -> Iterator[list[str]]:
    """Yield rows whose cells may have quotes, each of bounded length though it may have many lines."""
    since_row = 0

    def counted() -> Iterator[str]:
        nonlocal since_row
        for line in lines:
            since_row += len(line)
            if since_row > MAX_LINE:
                _refuse_long(where)
            yield line

    for row in csv.reader(counted(), delimiter=separator):
        since_row = 0
        if row:
            yield row


def _refuse_long(where: str) -> None:
    raise DataError(
        f"{where}: has a line of more than {MAX_LINE:,} characters, longer than that of any table; "
        "is it damaged, or not CSV at all?"
    )


def _plain_chunk(lines: list[str], selection: Selection, first_row: int, look: Writing) -> Chunk:
    separator, keys = look.separator, None
    if optional_pyarrow() is None or selection.key_position is not None:  # pyarrow's parser finds them itself
        _check_even(lines, selection, first_row, separator)
    if (position := selection.key_position) is not None:
        keys = _cells([line.split(separator, position + 1)[position].strip() for line in lines])
    if look.decimal_comma:
        lines = [line.replace(",", ".") for line in lines]
    try:
        x = _parse(lines, selection, separator)
    except ValueError as error:
        _check_even(lines, selection, first_row, separator)
        _locate_text([line.split(separator) for line in lines], selection, first_row)
        last_row = first_row + len(lines)
        raise DataError(f"{selection.where}: rows {first_row + 1} to {last_row}: {error}") from error
    return selection.chunk(x, keys, first_row)


def _check_even(lines: list[str], selection: Selection, first_row: int, separator: str) -> None:
    for number, line in enumerate(lines):
        if line.count(separator) != selection.n_columns - 1:
            _refuse_ragged(line.count(separator) + 1, selection, first_row + number)


def _cells(texts: list[str]) -> np.ndarray:
    """Return texts as they are: an array of numpy's own would be as wide as the longest for all of them."""
    return np.fromiter(texts, dtype=object, count=len(texts))


def _parse(lines: list[str], selection: Selection, separator: str) -> np.ndarray:
    """Return the chosen columns, (n, d); raise ValueError if any is not a number."""
    pyarrow = optional_pyarrow()
    if pyarrow is None:  # numpy's parser is several times slower but always there
        return np.loadtxt(lines, delimiter=separator, usecols=selection.positions, comments=None, ndmin=2)
    all_names = [str(position) for position in range(selection.n_columns)]
    wanted = [str(position) for position in selection.positions]
    text = "".join(lines).encode()
    table = pyarrow.csv.read_csv(
        pyarrow.py_buffer(text),
        # One block: a row of very many columns may be longer than pyarrow's usual one.
        read_options=pyarrow.csv.ReadOptions(
            column_names=all_names, use_threads=False, block_size=min(len(text) + 1, _MAX_BLOCK)
        ),
        parse_options=pyarrow.csv.ParseOptions(delimiter=separator),
        convert_options=pyarrow.csv.ConvertOptions(
            include_columns=wanted,
            column_types={name: pyarrow.float64() for name in wanted},
            null_values=[],  # an empty cell or "NA" is an error here, as it is for numpy's parser
        ),
    )
    with np.errstate(over="ignore"):  # what does not fit is refused afterwards
        columns = np.stack([table.column(name).to_numpy() for name in wanted]).astype(np.float32)
    return np.ascontiguousarray(columns.T)


def _quoted_chunks(
    lines: Iterator[str], settings: ReadSettings, selection: Selection, start: int, look: Writing
) -> Iterator[Chunk]:
    reader = _quoted_rows(lines, selection.where, look.separator)
    begun = start
    while rows := _some(reader, settings.rows_at_once(selection.n_columns), settings.mixed):
        for number, row in enumerate(rows):
            if len(row) != selection.n_columns:
                _refuse_ragged(len(row), selection, start + number)
        position = selection.key_position
        keys = None if position is None else _cells([row[position].strip() for row in rows])
        if settings.mixed:
            places = zip(selection.names, selection.positions, strict=True)
            columns = {name: _cells(look.plain([row[i] for row in rows])) for name, i in places}
            yield selection.table(columns, keys, start)
        else:
            yield selection.chunk(_numbers(rows, selection, start, look), keys, start)
        start += len(rows)
    if start == begun == 0:
        raise DataError(f"{selection.where}: there is a header but no rows")


def _some(rows: Iterator[list[str]], n_rows: int, mixed: bool) -> list[list[str]]:
    """Take rows, as many as asked for unless they are very long."""
    some, n_characters = [], 0
    with long_cells() if mixed else nullcontext():
        for row in islice(rows, n_rows):
            some.append(row)
            n_characters += sum(map(len, row))
            if n_characters > BLOCK_CHARACTERS:
                break
    return some


def _numbers(rows: list[list[str]], selection: Selection, start: int, look: Writing) -> np.ndarray:
    x = np.empty((len(rows), len(selection.positions)))
    try:
        for place, position in enumerate(selection.positions):
            x[:, place] = [_number(cell) for cell in look.plain([row[position] for row in rows])]
    except ValueError:
        _locate_text(rows, selection, start)
        raise
    return x


def _number(cell: str) -> float:
    if not _is_number(cell):
        raise ValueError(cell)
    return float(cell)


def _refuse_ragged(found: int, selection: Selection, row: int) -> None:
    raise DataError(f"{selection.where}: row {row + 1} has {found} columns, expected {selection.n_columns}")


def _locate_text(rows: list[list[str]], selection: Selection, first_row: int) -> None:
    """Raise for the first cell that is not a number."""
    for number, row in enumerate(rows):
        for position, name in zip(selection.positions, selection.names, strict=True):
            cell = row[position].strip()
            if not _is_number(cell):
                what = "the cell is empty" if not cell else f"{cell[:40]!r} is not a number"
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
