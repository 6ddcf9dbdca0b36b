"""Tables that commands write, piece by piece: CSV or Parquet, a file or standard output."""

import csv
import io
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, Any

from dbull.cli.output import printable
from dbull.errors import DataError
from dbull.writing import replacing

Columns = dict[str, list[Any]]
FORMULA = ("=", "+", "-", "@", "\t", "\r")  # with which spreadsheets let one begin


@contextmanager
def table_writer(out: Path | None, safe: bool) -> Iterator[Callable[[Columns], None]]:
    """Yield a function that writes a piece of the table; the file gets its name when all is written."""
    changes = [harmless] if safe else []
    if out is None:
        if sys.stdout is None:  # closed before we began
            yield lambda columns: None
            return
        # A pipe gets texts as they are: keys are there to find rows again.
        yield _csv_writer(sys.stdout, [*([printable] if sys.stdout.isatty() else []), *changes])
        return
    with replacing(out) as handle:
        if out.suffix.lower() == ".csv":
            text = io.TextIOWrapper(handle, encoding="utf-8", newline="")
            yield _csv_writer(text, changes)
            text.flush()
            text.detach()
        else:
            with _parquet_writer(handle, str(out)) as write:
                yield write


def harmless(cell: str) -> str:
    """Return a text that spreadsheets take for a text and not for a formula; numbers stay numbers."""
    if not cell.startswith(FORMULA):
        return cell
    try:
        float(cell)
    except ValueError:
        return f"'{cell}"
    return cell


def _csv_writer(handle: Any, changes: Sequence[Callable[[str], str]]) -> Callable[[Columns], None]:
    writer, names = csv.writer(handle, lineterminator="\n"), list[str]()

    def write(columns: Columns) -> None:
        if not names:
            names.extend(columns)
            writer.writerow(columns)
        _check_names(columns, names, "the output")
        for change in changes:
            columns = {name: [_changed(cell, change) for cell in cells] for name, cells in columns.items()}
        writer.writerows(zip(*columns.values(), strict=True))

    return write


def _changed(cell: Any, change: Callable[[str], str]) -> Any:
    return change(cell) if isinstance(cell, str) else cell


@contextmanager
def _parquet_writer(handle: IO[bytes], where: str) -> Iterator[Callable[[Columns], None]]:
    from dbull.data.readers.chunk import need_pyarrow

    pyarrow = need_pyarrow(where)
    with ExitStack() as opened:
        writer: Any = None

        def write(columns: Columns) -> None:
            nonlocal writer
            table = pyarrow.table(columns)
            if writer is None:
                types = {field.name: field.type for field in table.schema}
                nothing = {
                    name: pyarrow.string() for name, kind in types.items() if pyarrow.types.is_null(kind)
                }
                schema = pyarrow.schema(list({**types, **nothing}.items()))
                writer = opened.enter_context(pyarrow.parquet.ParquetWriter(handle, schema))
            _check_names(columns, writer.schema.names, where)
            try:
                writer.write_table(table.cast(writer.schema))
            except pyarrow.ArrowException as error:
                raise DataError(f"{where}: a column changes its type ({error}); write a .csv file") from error

        yield write


def _check_names(columns: Columns, names: Sequence[str], where: str) -> None:
    if list(columns) != list(names):
        other = next(
            (name for name in (*columns, *names) if name not in columns or name not in names), "order"
        )
        raise DataError(
            f"{where}: files with other columns cannot be in one table ({other!r}); write several"
        )
