"""``dbull predict``, ``preview`` and ``report``: what a model says about files and itself, unchanged."""

from dataclasses import replace
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Annotated, Any

from typer import Option

from dbull.cli.answering import Answering, Asked, Parts
from dbull.cli.input_columns import InputColumns
from dbull.cli.options import (
    AsJson,
    Data,
    Generation,
    Key,
    Model,
    Quiet,
    Scheduler,
    Workers,
    check_files,
    check_folder,
)
from dbull.cli.output import rows_per_cluster, say, show_json, show_table
from dbull.cli.progress import SECONDS_BETWEEN_LINES, Pace, learning_progress
from dbull.cli.table_files import table_writer
from dbull.documents import as_text
from dbull.errors import SettingsError
from dbull.writing import check_place, now

if TYPE_CHECKING:
    pass


def predict(
    model: Model,
    data: Data,
    out: Annotated[
        Path | None,
        Option(
            "--out", "-o", help="A .csv or .parquet file, or a folder of parts; else CSV on standard output."
        ),
    ] = None,
    key: Key = None,
    generation: Generation = None,
    safe_csv: Annotated[
        bool, Option("--safe-csv", help="A ' before texts that a spreadsheet would run as a formula.")
    ] = False,
    flag_outliers: Annotated[
        bool, Option("--flag-outliers", help="Cluster -1 for rows that every cluster finds strange.")
    ] = False,
    append: Annotated[
        bool, Option("--append", help="Keep the columns of the files; answers come behind them.")
    ] = False,
    scores: Annotated[
        bool, Option("--scores/--no-scores", help="Without probability, log density and novelty: faster.")
    ] = True,
    workers: Workers = None,
    scheduler: Scheduler = None,
    quiet: Quiet = False,
) -> None:
    """Write for each row its cluster: id, name, status, probability, log density and novelty.

    The novelty of a row is the share of its cluster's own rows that are as strange or stranger: 0.03 means
    that 3 % are, 0 that it is stranger than all of them. Rows are read and written in pieces, so files may be
    larger than memory. Columns are found by name. The answer for a row does not depend on the rows beside it.
    OUT appears whole or not at all.

    If OUT has no ending it is a folder: one Parquet file for each block of rows, made by as many workers as
    are asked for. The same command after a stop writes those that are missing.

    Examples: `dbull predict model today.csv -o today-clusters.parquet --flag-outliers`,
    `dbull predict model 'year/*.parquet' -o answers --workers 4`
    """
    if out is not None and not out.suffix:
        if append or safe_csv:
            raise SettingsError("--append and --safe-csv are for one file of answers; name a file with -o")
        asked = Asked(scores, flag_outliers, key)
        with _at_work(workers, scheduler):
            _predict_parts(model, data, out, asked, generation, quiet)
        return
    if workers is not None or scheduler is not None:
        raise SettingsError("--workers and --scheduler write a folder of parts: name one with -o")
    data = check_files(model, data)
    from dbull.data.readers.standard_input import saved_input
    from dbull.ingest import Input, open_model, rows_for, telling_notices

    suffix = None if out is None else out.suffix.lower()
    if suffix not in (None, ".csv", ".parquet"):
        raise SettingsError(f"{out}: the name must end in .csv or .parquet")
    if out is not None:
        check_place(out)
        check_folder(out)
        if any(_same(out, path) for path in data):
            raise SettingsError(f"{out}: is one of the files to read; give the answers another name")
    if append:  # whose files are read twice
        data = [saved_input() if str(path) == "-" else path for path in data]
    learner, reading = open_model(model, generation)
    if key is not None:
        reading = replace(reading, key=key)
    answering = Answering(
        learner, {row["id"]: row for row in learner.clusters_}, Asked(scores, flag_outliers)
    )
    n_rows, started, pace = 0, perf_counter(), Pace()
    notices: dict[str, None] = {}
    with table_writer(out, safe_csv) as write, telling_notices(notices.setdefault):
        for path in data:
            columns = InputColumns(path, reading.header) if append else None
            for chunk in Input(path, learner, reading, key is None).chunks():
                rows = learner.encoded(rows_for(chunk.x, reading))
                named = path if len(data) > 1 else None
                answers = answering(replace(chunk, x=rows), named)
                write(answers if columns is None else columns.beside(answers, reading.key))
                n_rows += len(chunk.x)
                if not quiet and pace.due(SECONDS_BETWEEN_LINES):
                    say(f"{n_rows:,} rows, {n_rows / (perf_counter() - started):,.0f} rows/s", err=True)
    for notice in notices:
        say(f"note: {notice}", err=True)
    if not quiet:
        seconds = max(perf_counter() - started, 1e-9)
        say(f"{n_rows:,} rows in {seconds:.1f} s ({n_rows / seconds:,.0f} rows/s)", err=True)


def preview(model: Model, data: Data, as_json: AsJson = False, quiet: Quiet = False) -> None:
    """Show what learning the files would change, each on its own; nothing is written.

    Takes as long as learning. Each file is taken as one arrival and must fit into memory.

    Example: `dbull preview model wednesday.csv`
    """
    data = check_files(model, data)
    from dbull.data.readers.chunk import joined
    from dbull.ingest import Input, open_model, rows_for, telling_notices

    learner, reading = open_model(model)
    found: list[dict[str, Any]] = []
    for path in data:
        chunks = Input(path, learner, reading, key_optional=True).chunks()
        read = rows_for(joined([chunk.x for chunk in chunks]), reading)
        notices: dict[str, None] = {}
        with telling_notices(notices.setdefault), learning_progress(quiet) as teller:
            rows = learner.encoded(read)
            if teller.tell is not None:
                learner.callback = partial(teller.tell, path.name)
            plan = learner.preview(rows)
        for notice in notices:
            say(f"note: {path.name}: {notice}", err=True)
        found.append(
            {
                "file": str(path),
                "rows": len(rows),
                "novel_share": plan.novel_share,
                "born": list(plan.born),
                "rows_per_cluster": rows_per_cluster(plan),
            }
        )
    if as_json:
        show_json(found)
        return
    for one in found:
        new = f"new: {' '.join(map(str, one['born']))}" if one["born"] else "nothing new"
        novel = "" if one["novel_share"] is None else f"{one['novel_share']:.0%} novel, "
        say(f"{one['file']}: {one['rows']:,} rows, {novel}{new}")
        counts = [{"cluster": cluster, "rows": n} for cluster, n in one["rows_per_cluster"].items()]
        show_table(counts, ("cluster", "rows"))


def report(
    model: Model,
    out: Annotated[
        Path, Option("--out", "-o", help="Where the page goes; what is there is replaced.")
    ] = Path("report.html"),
    title: Annotated[str | None, Option(help="Heading; the name of the folder unless given.")] = None,
    generation: Generation = None,
) -> None:
    """Write one HTML page about a model: clusters, timeline, map, course, settings. It needs no network.

    Prints where the page is. The page holds no row of the data.

    Example: `dbull report model -o report.html`
    """
    check_files(model, ())
    from dbull.methods.storage import load_generation
    from dbull.report import build_report, check_target, write_report
    from dbull.store import ModelFolder

    check_folder(out)
    check_target(out)
    folder = ModelFolder(model)
    loaded = folder.load(generation)
    learner, manifest = load_generation(folder, loaded, events=True), loaded.manifest
    name = as_text(model.resolve().name)
    facts = {
        "Folder": name,
        "Generation": str(manifest.generation),
        **({"Saved": manifest.time} if manifest.time else {}),
        **({"Note": manifest.note} if manifest.note else {}),
        "Saved by": ", ".join(f"{package} {version}" for package, version in manifest.versions.items()),
    }
    data = build_report(learner, title=as_text(title or name), facts=facts, written=now())
    say(write_report(data, out))


def _same(out: Path, path: Path) -> bool:
    try:
        return out.samefile(path)
    except OSError:  # one of them is not there
        return False


def _predict_parts(
    model: Path, data: list[Path], out: Path, asked: Asked, generation: int | None, quiet: bool
) -> None:
    """Write a folder of parts."""
    from dbull.data.blocks import Source
    from dbull.data.readers.remote import copied
    from dbull.ingest import Input, open_model
    from dbull.methods.block_work import slim_model
    from dbull.store import ModelFolder

    source = Source([*map(str, data)])
    files = source.files()
    learner, reading = open_model(model, generation)
    reading = reading if asked.key is None else replace(reading, key=asked.key)
    with copied(files[0]) as first:
        blocks = source.blocks(Input(first, learner, reading, asked.key is None).settings())
    known = {row["id"]: row for row in learner.clusters_}
    answering = Answering(slim_model(learner, learner.state_), known, asked)
    parts = Parts(answering, str(out.resolve()), len(files) > 1)
    n_rows = done = 0
    started, pace = perf_counter(), Pace()
    for rows in parts.write(blocks, ModelFolder(model).manifest(generation).sha256):
        n_rows, done = n_rows + rows, done + 1
        if not quiet and pace.due(SECONDS_BETWEEN_LINES):
            rate = n_rows / (perf_counter() - started)
            say(f"{done} of {len(blocks)} parts, {n_rows:,} rows, {rate:,.0f} rows/s", err=True)
    if not quiet:
        seconds = max(perf_counter() - started, 1e-9)
        before = f", {len(blocks) - done} were there" if done < len(blocks) else ""
        speed = f"{n_rows:,} rows in {seconds:.1f} s ({n_rows / seconds:,.0f} rows/s)"
        say(f"{done} parts{before}, {speed}", err=True)


def _at_work(workers: int | None, scheduler: str | None) -> Any:
    from dbull.methods.engine import workers as at_work

    return at_work(workers, scheduler)
