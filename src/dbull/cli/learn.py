"""``dbull learn`` and ``dbull watch``: files into a model, each exactly once."""

import sys
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dbull.cli.exits import ExitCode, exit_codes
from dbull.cli.options import ArrivalRows, Assignments, Columns, ConfigFile, Data, Key, Model, Quiet
from dbull.cli.output import check_text, drop_output, reader_is_gone, say, show_json
from dbull.cli.progress import learning_progress
from dbull.errors import (
    AlreadyLearnedError,
    DataError,
    NumericalError,
    SettingsError,
    check_known,
)

if TYPE_CHECKING:
    from dbull.cli.learning import Learned, Learner

__all__ = ["learn", "watch"]

CONDITIONS = ("new-cluster",)
SETTLE_SECONDS = 2.0

Name = Annotated[
    str, typer.Option("--name", help="Tag of these arrivals in the history.", show_default=False)
]
JsonLines = Annotated[bool, typer.Option("--json", help="As JSON, a line for each arrival.")]
StrictScale = Annotated[
    bool,
    typer.Option(
        "--strict-scale", help="Refuse columns whose scale has changed a hundredfold (other units?)."
    ),
]
FailOn = Annotated[
    str | None,
    typer.Option("--fail-on", help="new-cluster: end with code 6 if one was born after the first data set."),
]


def learn(
    model: Model,
    data: Data,
    config: ConfigFile = None,
    assignments: Assignments = None,
    name: Name = "",
    key: Key = None,
    columns: Columns = None,
    arrival_rows: ArrivalRows = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would change; write nothing.")
    ] = False,
    strict_scale: StrictScale = False,
    fail_on: FailOn = None,
    force: Annotated[
        bool, typer.Option("--force", help="Learn files again that were learned before, also in part.")
    ] = False,
    as_json: JsonLines = False,
    quiet: Quiet = False,
) -> None:
    """Learn files, one arrival after the other, into MODEL, which is made if it is not there.

    Each arrival is a generation of its own, safe on disk when its line appears. An interrupted command goes
    on where it was when it is given again. A file that was learned before is left out, whatever its name;
    if all were, the command is refused.

    Examples: `dbull learn model monday.csv`, `dbull learn model tuesday.parquet --fail-on new-cluster`,
    `dbull learn model digits.npy --set image_shape=[8,8] --set epochs=20`
    """
    with exit_codes():
        if fail_on is not None:
            check_known("condition", fail_on, CONDITIONS)
        flags = _flags(key, columns, arrival_rows, strict_scale)
        learner = _learner(model, config, assignments, flags, name, dry_run, force)
        born = False
        refused: list[AlreadyLearnedError] = []
        with learning_progress(quiet) as teller:
            for path in data:
                try:
                    for learned in learner.learn(path, teller.tell):
                        teller.clear()
                        _show(learned, as_json)
                        born |= bool(learned.born) and not learned.first
                except AlreadyLearnedError as error:
                    refused.append(error)
        if len(refused) == len(data):
            raise refused[0]
        for reason in refused:  # the same command again after an interruption goes on with the others
            say(f"left out: {reason}", err=True)
        if fail_on is not None and born:
            raise typer.Exit(ExitCode.CONDITION_MET)


def watch(
    model: Model,
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Where files arrive.", show_default=False)],
    config: ConfigFile = None,
    assignments: Assignments = None,
    name: Name = "",
    key: Key = None,
    columns: Columns = None,
    arrival_rows: ArrivalRows = None,
    interval: Annotated[float, typer.Option(help="Seconds between looks.", min=0.01)] = 2.0,
    settle: Annotated[
        float | None,
        typer.Option(
            help="Seconds that a file must have been left alone before it is read.  "
            "[default: 2, with --once 0]",
            min=0,
            show_default=False,
        ),
    ] = None,
    strict_scale: StrictScale = False,
    once: Annotated[bool, typer.Option("--once", help="Learn what is there, and stop.")] = False,
    fail_on: FailOn = None,
    as_json: JsonLines = False,
    quiet: Quiet = False,
) -> None:
    """Learn files as they arrive in DIR, in the order of their names, each exactly once, until stopped.

    A file that cannot be used is named on standard error and left alone until it changes; of a file to
    which rows were added only these are learned. What others change in the model meanwhile is kept. After a
    restart everything goes on where it was. Names that begin with a dot, and unknown kinds of files, are
    left alone.

    Example: `dbull watch model inbox --once`
    """
    with exit_codes():
        if fail_on is not None:
            check_known("condition", fail_on, CONDITIONS)
        if not folder.is_dir():
            raise SettingsError(f"{folder}: is not a folder; make it, or name the one where files arrive")
        learner = _learner(model, config, assignments, _flags(key, columns, arrival_rows, strict_scale), name)
        if settle is None:
            settle = 0.0 if once else SETTLE_SECONDS
        dealt_with: dict[Path, tuple[int, int]] = {}
        born = bad = False
        if not (quiet or once):
            say(f"watching {folder}; stop with Ctrl-C", err=True)
        with learning_progress(quiet) as teller:
            while True:
                for path in _arrived(folder, settle, dealt_with):
                    dealt_with[path] = _stamp(path)
                    try:
                        for learned in learner.learn_among_others(path, teller.tell):
                            teller.clear()
                            _show(learned, as_json)
                            born |= bool(learned.born) and not learned.first
                    except AlreadyLearnedError:
                        continue
                    except (DataError, NumericalError) as error:
                        bad = True
                        teller.clear()
                        named = "" if path.name in str(error) else f"{path}: "
                        say(f"left alone: {named}{error}", err=True)
                if once or (born and fail_on is not None):
                    break
                time.sleep(interval)
        if fail_on is not None and born:
            raise typer.Exit(ExitCode.CONDITION_MET)
        if bad:
            raise typer.Exit(ExitCode.DATA_REFUSED)


def _flags(
    key: str | None, columns: str | None, arrival_rows: int | None, strict_scale: bool
) -> dict[str, Any]:
    chosen = None if columns is None else [part.strip() for part in columns.split(",") if part.strip()]
    strict = True if strict_scale else None  # what the settings say, unless the flag is given
    return {"key": key, "columns": chosen, "arrival_rows": arrival_rows, "strict_scale": strict}


def _learner(
    model: Path,
    config: Path | None,
    assignments: list[str] | None,
    flags: dict[str, Any],
    name: str,
    dry_run: bool = False,
    force: bool = False,
) -> "Learner":
    from dbull.cli.config import read_config
    from dbull.cli.learning import Learner

    tag = check_text("--name", name)
    return Learner(
        model, read_config(config, assignments or [], flags), name=tag, dry_run=dry_run, force=force
    )


def _show(learned: "Learned", as_json: bool) -> None:
    try:
        if as_json:
            show_json(asdict(learned), line=True)
        else:
            say(learned.line)
        if sys.stdout is not None:
            sys.stdout.flush()
    except BrokenPipeError:
        if not reader_is_gone(sys.stdout):
            raise
        drop_output()  # nobody reads the lines any more; the files are to be learned all the same


def _arrived(folder: Path, settle: float, seen: dict[Path, tuple[int, int]]) -> Iterator[Path]:
    """Yield files that nobody has touched for a while and that were not dealt with as they are."""
    from dbull.data.readers import SUFFIXES

    try:
        paths = sorted(folder.iterdir())
    except OSError as error:
        raise SettingsError(f"{folder}: cannot be looked into any more ({error.strerror})") from error
    for path in paths:
        if path.name.startswith(".") or not path.is_file() or not path.name.lower().endswith(SUFFIXES):
            continue
        stamp = _stamp(path)
        # The clock that stamped a file may be ahead of ours.
        if abs(time.time() - stamp[1] / 1e9) >= settle and seen.get(path) != stamp:
            yield path


def _stamp(path: Path) -> tuple[int, int]:
    try:
        found = path.stat()
    except OSError:  # taken away meanwhile
        return 0, 0
    return found.st_size, found.st_mtime_ns
