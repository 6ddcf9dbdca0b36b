"""Parquet, Arrow and Feather files and Arrow streams, in chunks, through pyarrow (the `io` extra)."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from itertools import accumulate
from pathlib import Path
from typing import IO, Any

import numpy as np

from dbull.data.readers import chunk
from dbull.data.readers.chunk import Chunk, ReadSettings, Selection, need_pyarrow, select_columns
from dbull.errors import DataError

FILE_MAGIC = b"ARROW1"


def read_parquet(path: Path, settings: ReadSettings) -> Iterator[Chunk]:
    """Yield the rows of a Parquet file; only the columns asked for are read."""
    with _reading(str(path), "Parquet file") as pyarrow, pyarrow.parquet.ParquetFile(path) as file:
        names = file.schema_arrow.names
        selection = select_columns(names, settings, str(path))
        key = () if selection.key_position is None else (selection.key_position,)
        wanted = [names[i] for i in (*selection.positions, *key)]
        starts = _group_starts(file)
        first, last = settings.rows or (0, starts[-1])
        batches = file.iter_batches(
            batch_size=settings.rows_at_once(len(wanted)),
            row_groups=[i for i, start in enumerate(starts[:-1]) if first <= start < last],
            columns=wanted,
            use_threads=False,
        )
        yield from _chunks(batches, settings, selection, first)


def parquet_cuts(path: Path) -> list[int]:
    """Return the rows at which the row groups of a Parquet file begin, and how many there are."""
    with _reading(str(path), "Parquet file") as pyarrow, pyarrow.parquet.ParquetFile(path) as file:
        return _group_starts(file)


def _group_starts(file: Any) -> list[int]:
    sizes = (file.metadata.row_group(i).num_rows for i in range(file.metadata.num_row_groups))
    return [0, *accumulate(sizes)]


def read_arrow(path: Path, settings: ReadSettings) -> Iterator[Chunk]:
    """Yield the rows of an Arrow IPC (Feather version 2) file, in the file or the stream format."""
    need_pyarrow(str(path))
    with path.open("rb") as stream:
        if not _is_file_format(stream):
            yield from read_arrow_stream(stream, settings, str(path))
            return
    with (
        _reading(str(path), "Arrow file") as pyarrow,
        pyarrow.memory_map(str(path)) as source,
        pyarrow.ipc.open_file(source) as reader,
    ):
        selection = select_columns(reader.schema.names, settings, str(path))
        batches = (reader.get_batch(i) for i in range(reader.num_record_batches))
        yield from _chunks(batches, settings, selection)


def read_arrow_stream(stream: IO[bytes], settings: ReadSettings, where: str) -> Iterator[Chunk]:
    """Yield the rows of an Arrow IPC stream."""
    with _reading(where, "Arrow stream") as pyarrow, pyarrow.ipc.open_stream(stream) as reader:
        yield from _chunks(reader, settings, select_columns(reader.schema.names, settings, where))


def schema_names(path: Path) -> tuple[str, ...] | None:
    """Return the names of the columns, None if the file cannot be read."""
    need_pyarrow(str(path))
    with suppress(DataError), _reading(str(path), "table") as pyarrow:
        if path.name.lower().endswith(".parquet"):
            return tuple(pyarrow.parquet.read_schema(path).names)
        with path.open("rb") as stream:
            opened = pyarrow.ipc.open_file if _is_file_format(stream) else pyarrow.ipc.open_stream
            return tuple(opened(stream).schema.names)
    return None


@contextmanager
def _reading(where: str, kind: str) -> Iterator[Any]:
    """Yield pyarrow; whatever it raises about a file becomes our own error."""
    pyarrow = need_pyarrow(where)
    try:
        yield pyarrow
    except (pyarrow.ArrowException, UnicodeDecodeError, OSError, MemoryError) as error:
        raise DataError(f"{where}: not a readable {kind} ({error})") from error


def _is_file_format(stream: IO[bytes]) -> bool:
    """Tell the file format from the stream format; the stream is at its beginning before and after."""
    begins = stream.read(len(FILE_MAGIC))
    stream.seek(0)
    return begins == FILE_MAGIC


def _chunks(
    batches: Iterable[Any], settings: ReadSettings, selection: Selection, first_row: int = 0
) -> Iterator[Chunk]:
    begin = first_row
    for batch in batches:
        for start in range(0, batch.num_rows, settings.chunk_rows):
            part = batch.slice(start, settings.chunk_rows)
            yield _chunk(part, first_row + start, settings, selection)
        first_row += batch.num_rows
    if first_row == begin:
        raise DataError(f"{selection.where}: there are columns but no rows")


def _chunk(batch: Any, first_row: int, settings: ReadSettings, selection: Selection) -> Chunk:
    where, key = selection.where, settings.key
    keys = None
    if key is not None and selection.key_position is not None:
        column = batch.column(key)
        if need_pyarrow(where).types.is_nested(column.type):
            raise DataError(f"{where}: column '{key}': a key must be a text or a number, got {column.type}")
        keys = np.array(column.to_pylist())
    if settings.mixed:
        return selection.table({n: _cells(batch.column(n), where) for n in selection.names}, keys, first_row)
    parts, names = [], []
    for name in selection.names:
        values, value_names = _numbers(batch.column(name), name, first_row, where)
        parts.append(values)
        names += value_names
    return replace(selection, names=tuple(names)).chunk(np.concatenate(parts, axis=1), keys, first_row)


def _cells(column: Any, where: str) -> np.ndarray:
    """Return the cells of a column of any type; times without their zone, as the clock on the wall showed."""
    pyarrow = need_pyarrow(where)
    types = pyarrow.types
    if types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if types.is_timestamp(column.type):
        if column.type.tz is not None:
            column = pyarrow.compute.local_timestamp(column)
        return np.asarray(column.cast(pyarrow.timestamp("us"), safe=False).to_numpy(zero_copy_only=False))
    if types.is_nested(column.type):
        return np.fromiter(column.to_pylist(), dtype=object, count=len(column))
    return np.asarray(column.to_numpy(zero_copy_only=False))


def _numbers(column: Any, name: str, first_row: int, where: str) -> tuple[np.ndarray, list[str]]:
    """Return a column as (n, width) numbers with their names; width > 1 for lists of equal length."""
    pyarrow = need_pyarrow(where)
    types = pyarrow.types
    if column.null_count:
        row = int(np.flatnonzero(column.is_null().to_numpy(zero_copy_only=False))[0])
        raise DataError(f"{where}: row {first_row + row + 1}, column '{name}': the value is missing")
    if any(test(column.type) for test in (types.is_fixed_size_list, types.is_list, types.is_large_list)):
        lengths = np.unique(column.value_lengths().to_numpy(zero_copy_only=False))
        if len(lengths) > 1:
            raise DataError(
                f"{where}: column '{name}': its lists must all be of one length, got {lengths[:5].tolist()}"
            )
        width = int(lengths[0])
        chunk.check_width(width, where)
        values, _ = _numbers(column.flatten(), name, first_row, where)
        return values.reshape(len(column), width), [f"{name}[{i}]" for i in range(width)]
    if types.is_boolean(column.type) or types.is_decimal(column.type):
        column = column.cast(pyarrow.float64())
    if not (types.is_integer(column.type) or types.is_floating(column.type)):
        advice = chunk.TIMES if types.is_temporal(column.type) else "leave the column out or make it the key"
        raise DataError(
            f"{where}: row {first_row + 1}, column '{name}': expected numbers, got {column.type}; {advice}"
        )
    return column.to_numpy(zero_copy_only=False)[:, None], [name]
