"""``dbull predict`` and ``dbull preview``: what a model says about files; the model is never changed."""

import csv
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dbull.cli.exits import exit_codes
from dbull.cli.options import AsJson, Data, Generation, Key, Model, Quiet
from dbull.cli.output import printable, show_json, show_table
from dbull.cli.progress import learning_progress
from dbull.errors import SettingsError, not_written

if TYPE_CHECKING:
    from dbull.data.readers import Chunk
    from dbull.methods.dbull import DBULL

__all__ = ["predict", "preview"]

Columns = dict[str, list[Any]]
SECONDS_BETWEEN_LINES = 5.0


def predict(
    model: Model,
    data: Data,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", "-o", help="A .csv or .parquet file; else CSV on standard output.", show_default=False
        ),
    ] = None,
    key: Key = None,
    generation: Generation = None,
    quiet: Quiet = False,
) -> None:
    """Write for each row its cluster: id, name, status, probability and log density.

    Rows are read and written in pieces, so files may be larger than memory. Columns are found by name. The
    answer for a row does not depend on the rows beside it. OUT appears whole or not at all.

    Example: `dbull predict model today.csv -o today-clusters.parquet`
    """
    with exit_codes():
        from dbull.cli.config import Reading
        from dbull.cli.inputs import chunks_for
        from dbull.cli.learning import open_model, without_name_warnings

        suffix = None if out is None else out.suffix.lower()
        if suffix not in (None, ".csv", ".parquet"):
            raise SettingsError(f"{out}: the name must end in .csv or .parquet")
        if out is not None and any(out.exists() and path.exists() and out.samefile(path) for path in data):
            raise SettingsError(f"{out}: is one of the files to read; give the answers another name")
        learner, stored = open_model(model, generation)
        reading = Reading(**{**stored, **({} if key is None else {"key": key})})
        known = {row["id"]: row for row in learner.clusters_}
        n_rows, started, last = 0, perf_counter(), perf_counter()
        with _writer(out) as write, without_name_warnings():
            for path in data:
                for chunk in chunks_for(path, learner, reading, key_optional=key is None):
                    write(_answers(learner, known, chunk, path if len(data) > 1 else None))
                    n_rows += len(chunk.x)
                    if not quiet and perf_counter() - last >= SECONDS_BETWEEN_LINES:
                        last = perf_counter()
                        print(
                            f"{n_rows:,} rows, {n_rows / (last - started):,.0f} rows/s",
                            file=sys.stderr,
                            flush=True,
                        )
        if not quiet:
            seconds = max(perf_counter() - started, 1e-9)
            print(f"{n_rows:,} rows in {seconds:.1f} s ({n_rows / seconds:,.0f} rows/s)", file=sys.stderr)


def preview(model: Model, data: Data, as_json: AsJson = False, quiet: Quiet = False) -> None:
    """Show what learning the files would change, each on its own; nothing is written.

    Takes as long as learning. Each file is taken as one arrival and must fit into memory.

    Example: `dbull preview model wednesday.csv`
    """
    with exit_codes():
        import numpy as np

        from dbull.cli.config import Reading
        from dbull.cli.inputs import chunks_for
        from dbull.cli.learning import open_model, without_name_warnings

        learner, stored = open_model(model)
        found = []
        for path in data:
            chunks = chunks_for(path, learner, Reading(**stored), key_optional=True)
            rows = np.concatenate([chunk.x for chunk in chunks])
            with without_name_warnings(), learning_progress(quiet) as teller:
                if teller.tell is not None:
                    learner.callback = partial(teller.tell, path.name)
                plan = learner.preview(rows)
            found.append(
                {
                    "file": str(path),
                    "rows": len(rows),
                    "novel_share": plan.events[0].evidence["novel_share"],
                    "born": [event.clusters[0] for event in plan.events if event.kind == "birth"],
                    "rows_per_cluster": {str(cluster): n for cluster, n in plan.rows.items() if n},
                }
            )
        if as_json:
            show_json(found)
            return
        for one in found:
            new = f"new: {' '.join(map(str, one['born']))}" if one["born"] else "nothing new"
            novel = "" if one["novel_share"] is None else f"{one['novel_share']:.0%} novel, "
            typer.echo(printable(f"{one['file']}: {one['rows']:,} rows, {novel}{new}"))
            show_table(
                [{"cluster": int(c), "rows": n} for c, n in one["rows_per_cluster"].items()],
                ("cluster", "rows"),
            )


def _answers(model: "DBULL", known: dict[int, Any], chunk: "Chunk", path: Path | None) -> Columns:
    proba = model.predict_proba(chunk.x)
    best = proba.argmax(1)
    ids = model.cluster_ids_[best].tolist()
    row: Columns = {} if path is None else {"file": [str(path)] * len(ids)}
    if chunk.keys is not None:
        row["key"] = [str(key) for key in chunk.keys.tolist()]
    row["row"] = list(range(chunk.first_row + 1, chunk.first_row + len(ids) + 1))
    row["cluster"] = ids
    row["name"] = [known[i]["name"] or "" for i in ids]
    row["status"] = [known[i]["status"] for i in ids]
    row["probability"] = proba[range(len(ids)), best].tolist()
    row["log_density"] = model.score_samples(chunk.x).tolist()
    return row


@contextmanager
def _writer(out: Path | None) -> Iterator[Callable[[Columns], None]]:
    """Yield a function that writes a piece of the table; the file gets its name when all is written."""
    if out is None:
        yield _csv_writer(sys.stdout)
        return
    partial = out.with_name(f".{out.name}.partial-{os.getpid()}")
    try:
        if out.suffix.lower() == ".csv":
            with partial.open("w", encoding="utf-8", newline="") as handle:
                yield _csv_writer(handle)
        else:
            with _parquet_writer(partial) as write:
                yield write
        os.replace(partial, out)
    except OSError as error:
        raise not_written(out, error) from error
    finally:
        with suppress(OSError):  # the reason why it is not there has been told
            partial.unlink(missing_ok=True)


def _csv_writer(handle: Any) -> Callable[[Columns], None]:
    writer, begun = csv.writer(handle, lineterminator="\n"), False

    def write(columns: Columns) -> None:
        nonlocal begun
        if not begun:
            writer.writerow(columns)
            begun = True
        writer.writerows(zip(*columns.values(), strict=True))

    return write


@contextmanager
def _parquet_writer(path: Path) -> Iterator[Callable[[Columns], None]]:
    from dbull.data.readers.extras import need_pyarrow

    pyarrow = need_pyarrow(str(path))
    opened: list[Any] = []

    def write(columns: Columns) -> None:
        table = pyarrow.table(columns)
        if not opened:
            opened.append(pyarrow.parquet.ParquetWriter(path, table.schema))
        opened[0].write_table(table)

    try:
        yield write
    finally:
        for writer in opened:
            writer.close()
