"""JSON lines in chunks: an object in each line, whose fields are the cells of a row. Lists of objects too."""

import io
import json
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from dbull.data.readers.chunk import Chunk, ReadSettings, Selection, select_columns
from dbull.data.readers.csv_files import bounded_lines
from dbull.data.readers.opening import DAMAGE, open_bytes
from dbull.data.readers.text_parts import CountedLines, Cut, length_of_mark, open_part, row_cuts
from dbull.errors import DataError

MOST_BYTES = 1 << 28  # of a list
TEXT = "text"  # the column of lines that are texts alone


def read_json_lines(path: Path, settings: ReadSettings) -> Iterator[Chunk]:
    """Yield the rows of a .jsonl file, packed or not."""
    with open_bytes(path, settings) as stream, open_part(path, settings) as part:
        yield from read_json_stream(stream if part is None else part, settings, str(path))


def json_cuts(path: Path, n_rows: int) -> list[Cut]:
    """Return where a file that is not packed can be cut into parts of so many rows; none if it cannot."""
    try:
        with path.open("rb") as stream:
            text = io.TextIOWrapper(stream, encoding="utf-8-sig", newline="\n")
            lines = CountedLines(bounded_lines(text, str(path)), length_of_mark(path))
            return row_cuts(lines, n_rows, lambda line: bool(line.strip()))
    except (*DAMAGE, UnicodeDecodeError, DataError):  # of which the reader will tell
        return []


def read_json(path: Path, settings: ReadSettings) -> Iterator[Chunk]:
    """Yield the rows of a .json file, a list of objects, which must fit into memory."""
    if path.stat().st_size > MOST_BYTES:
        raise DataError(f"{path}: more than {MOST_BYTES:,} bytes are too much at once; make it JSON lines")
    try:
        rows = json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path}: is not JSON ({error!s:.100})") from error
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise DataError(f"{path}: must be a list of objects with named fields")
    yield from _chunks(iter(rows), settings, str(path))


def read_json_stream(stream: Any, settings: ReadSettings, where: str) -> Iterator[Chunk]:
    """Yield the rows of an open stream of JSON lines."""
    text = io.TextIOWrapper(stream, encoding="utf-8-sig", newline="\n")
    first_row = settings.rows[0] if settings.rows is not None else 0
    try:
        yield from _chunks(_rows(text, where, first_row), settings, where, first_row)
    except UnicodeDecodeError as error:
        raise DataError(f"{where}: not UTF-8 text ({error.reason} at byte {error.start})") from error
    except DAMAGE as error:
        raise DataError(f"{where}: truncated or damaged ({error})") from error
    finally:
        text.detach()


def json_names(path: Path) -> tuple[str, ...] | None:
    """Return the fields of the first line, None if the file cannot be read."""
    try:
        with open_bytes(path, ReadSettings()) as stream:
            text = io.TextIOWrapper(stream, encoding="utf-8-sig", newline="\n")
            return tuple(next(_rows(text, str(path)), {}))
    except (*DAMAGE, UnicodeDecodeError, DataError):
        return None


def _rows(text: Any, where: str, first_row: int = 0) -> Iterator[dict[str, Any]]:
    lines = (line for line in bounded_lines(text, where) if line.strip())
    for number, line in enumerate(lines, first_row + 1):
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise DataError(f"{where}: row {number} is not JSON ({error!s:.100})") from error
        row = {TEXT: row} if isinstance(row, str) else row
        if not isinstance(row, dict):
            raise DataError(
                f"{where}: row {number} must be an object with named fields, got {line.strip():.60}"
            )
        yield row


def _chunks(
    rows: Iterator[dict[str, Any]], settings: ReadSettings, where: str, first_row: int = 0
) -> Iterator[Chunk]:
    while some := list(islice(rows, settings.chunk_rows)):
        names = dict.fromkeys(name for row in some for name in row)
        if settings.mixed:  # fields that no row of this chunk has are missing
            asked = (*(settings.columns or ()), *([settings.key] if settings.key else []))
            names |= dict.fromkeys(asked)
        selection = select_columns(list(names), settings, where)
        key = settings.key if selection.key_position is not None else None
        keys = None if key is None else np.array([str(row.get(key)) for row in some], dtype=object)
        columns = {name: _cells([row.get(name) for row in some]) for name in selection.names}
        if settings.mixed:
            yield selection.table(columns, keys, first_row)
        else:
            yield selection.chunk(_numbers(columns, selection, first_row), keys, first_row)
        first_row += len(some)
    if first_row == 0:
        raise DataError(f"{where}: there are no rows")


def _cells(cells: list[Any]) -> np.ndarray:
    return np.fromiter(cells, dtype=object, count=len(cells))


def _numbers(columns: dict[str, np.ndarray], selection: Selection, first_row: int) -> np.ndarray:
    for name, cells in columns.items():
        for row, cell in enumerate(cells):
            if isinstance(cell, bool) or not isinstance(cell, int | float):
                raise DataError(
                    f"{selection.where}: row {first_row + row + 1}, column '{name}': {cell!r:.40} is not a "
                    "number"
                )
    try:
        return np.column_stack([column.astype(np.float64) for column in columns.values()])
    except OverflowError as error:
        raise DataError(f"{selection.where}: a number is too large ({error})") from error
