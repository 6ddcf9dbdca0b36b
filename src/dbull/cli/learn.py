"""``dbull learn`` and ``dbull watch``: files into a model, each exactly once."""

import math
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Exit, Option

from dbull.cli.exits import ExitCode
from dbull.cli.options import ArrivalRows, Assignments, Columns, ConfigFile, Data, Key, Model, Quiet
from dbull.cli.output import check_text, drop_output, reader_is_gone, rows_per_cluster, say, show_json, split
from dbull.cli.progress import Teller, learning_progress
from dbull.errors import AlreadyLearnedError, DataError, NumericalError, check_known

if TYPE_CHECKING:
    from collections.abc import Iterable

    from dbull.ingest import Learned

CONDITIONS = ("new-cluster",)
SETTLE_SECONDS = 2.0

Name = Annotated[str, Option("--name", help="Tag of these arrivals in the history.", show_default=False)]
JsonLines = Annotated[bool, Option("--json", help="As JSON, a line for each arrival.")]
StrictScale = Annotated[
    bool,
    Option("--strict-scale", help="Refuse columns whose scale has changed a hundredfold (other units?)."),
]
FailOn = Annotated[
    str | None,
    Option("--fail-on", help="new-cluster: end with code 6 if one was born after the first data set."),
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
    dry_run: Annotated[bool, Option("--dry-run", help="Show what would change; write nothing.")] = False,
    strict_scale: StrictScale = False,
    fail_on: FailOn = None,
    force: Annotated[
        bool, Option("--force", help="Learn files again that were learned before, also in part.")
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
    from dbull.ingest import Learner

    _check_condition(fail_on)
    tag = check_text("--name", name)
    settings = _settings(config, assignments, key, columns, arrival_rows, strict_scale)
    learner = Learner(model, settings, name=tag, dry_run=dry_run, force=force)
    refused: list[AlreadyLearnedError] = []
    with learning_progress(quiet) as teller:
        shown = _Shown(teller, as_json)
        for path in data:
            try:
                shown.show(learner.learn(path, teller.tell))
            except AlreadyLearnedError as error:
                refused.append(error)
    if len(refused) == len(data):
        raise refused[0]
    for reason in refused:  # the same command again after an interruption goes on with the others
        say(f"left out: {reason}", err=True)
    if fail_on is not None and shown.born:
        raise Exit(ExitCode.CONDITION_MET)


def watch(
    model: Model,
    folder: Annotated[Path, Argument(metavar="DIR", help="Where files arrive.")],
    config: ConfigFile = None,
    assignments: Assignments = None,
    name: Name = "",
    key: Key = None,
    columns: Columns = None,
    arrival_rows: ArrivalRows = None,
    interval: Annotated[float, Option(help="Seconds between looks.", min=0.01)] = 2.0,
    settle: Annotated[
        float | None,
        Option(
            help="Seconds that a file must have been left alone before it is read.  "
            "[default: 2, with --once 0]",
            min=0,
        ),
    ] = None,
    strict_scale: StrictScale = False,
    once: Annotated[bool, Option("--once", help="Learn what is there, and stop.")] = False,
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
    from dbull.ingest import Inbox, Learner

    _check_condition(fail_on)
    if settle is None:
        settle = 0.0 if once else SETTLE_SECONDS
    inbox = Inbox(folder, settle)
    tag = check_text("--name", name)
    settings = _settings(config, assignments, key, columns, arrival_rows, strict_scale)
    learner = Learner(model, settings, name=tag)
    bad = False
    if not (quiet or once):
        say(f"watching {folder}; stop with Ctrl-C", err=True)
    with learning_progress(quiet) as teller:
        shown = _Shown(teller, as_json)
        while True:
            for path in inbox.arrived():
                try:
                    shown.show(learner.learn_among_others(path, teller.tell))
                except AlreadyLearnedError:
                    continue
                except (DataError, NumericalError) as error:
                    bad = True
                    teller.clear()
                    named = "" if path.name in str(error) else f"{path}: "
                    say(f"left alone: {named}{error}", err=True)
            if once or (shown.born and fail_on is not None):
                break
            time.sleep(interval)
    if fail_on is not None and shown.born:
        raise Exit(ExitCode.CONDITION_MET)
    if bad:
        raise Exit(ExitCode.DATA_REFUSED)


def _check_condition(fail_on: str | None) -> None:
    if fail_on is not None:
        check_known("condition", fail_on, CONDITIONS)


def _settings(
    config: Path | None,
    assignments: list[str] | None,
    key: str | None,
    columns: str | None,
    arrival_rows: int | None,
    strict_scale: bool,
) -> dict[str, Any]:
    from dbull.cli.config import read_config

    flags = {
        "key": key,
        "columns": None if columns is None else split(columns),
        "arrival_rows": arrival_rows,
        "strict_scale": strict_scale or None,  # what the settings say, unless the flag is given
    }
    return read_config(config, assignments or [], flags)


class _Shown:
    """Prints arrivals as they are learned, and remembers whether a cluster was born after the first."""

    def __init__(self, teller: Teller, as_json: bool):
        self.born = False
        self._teller, self._as_json = teller, as_json

    def show(self, arrivals: "Iterable[Learned]") -> None:
        for learned in arrivals:
            self._teller.clear()
            try:
                if self._as_json:
                    show_json(_for_programs(learned), line=True)
                else:
                    say(learned)
                if sys.stdout is not None:
                    sys.stdout.flush()
            except BrokenPipeError:
                if not reader_is_gone(sys.stdout):
                    raise
                drop_output()  # nobody reads the lines any more; the files are to be learned all the same
            self.born |= bool(learned.report.born) and not learned.first


def _for_programs(learned: "Learned") -> dict[str, Any]:
    report = learned.report
    return {
        "generation": learned.generation,
        "name": learned.name,
        "rows": report.n_rows,
        "n_clusters": report.n_clusters,
        "born": list(report.born),
        "first": learned.first,
        "novel_share": report.novel_share,
        "elbo": report.elbo if math.isfinite(report.elbo) else None,
        "rows_per_cluster": rows_per_cluster(report),
        "outliers": report.n_outliers,
        "changed_columns": report.changed_columns,
        "seconds": learned.seconds,
    }
