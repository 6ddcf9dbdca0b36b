"""``dbull learn`` and ``dbull watch``: files and messages into a model, each exactly once."""

import math
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from inspect import Signature, signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Exit, Option

from dbull.cli.exits import ExitCode
from dbull.cli.options import Data, Key, Model, Quiet, Scheduler, Workers, check_files, read_config
from dbull.cli.output import check_text, drop_output, reader_is_gone, rows_per_cluster, say, show_json, split
from dbull.cli.progress import Teller, learning_progress
from dbull.errors import AlreadyLearnedError, DataError, NumericalError, SettingsError, check_known

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from dbull.cli.hooks import Hooks
    from dbull.data.readers.kafka_log import KafkaLog
    from dbull.ingest import Inbox, Learned, Learner

CONDITIONS = ("new-cluster",)
SETTLE_SECONDS = 2.0


@dataclass(frozen=True)
class _Options:
    """The options that both commands have."""

    config: Annotated[Path | None, Option(help="Settings as TOML; `dbull init` writes one.")] = None
    assignments: Annotated[
        list[str] | None, Option("--set", metavar="KEY=VALUE", help="A setting, typed as in TOML.")
    ] = None
    name: Annotated[str, Option(help="Tag of these arrivals in the history.", show_default=False)] = ""
    key: Key = None
    columns: Annotated[str | None, Option(help="Columns to use, with commas between; else all.")] = None
    embeddings: Annotated[
        str | None,
        Option(
            help="Columns of embeddings, which are clustered while texts give words: names or patterns, or "
            "an .npy file; '*.npy' is that of the same name as each file."
        ),
    ] = None
    arrival_rows: Annotated[
        int | None, Option(help="Rows learned at once; longer files are several arrivals.  [default: 10000]")
    ] = None
    strict_scale: Annotated[
        bool,
        Option("--strict-scale", help="Refuse columns whose scale has changed a hundredfold (other units?)."),
    ] = False
    fail_on: Annotated[
        str | None, Option(help="new-cluster: end with code 6 if one was born after the first data set.")
    ] = None
    as_json: Annotated[bool, Option("--json", help="As JSON, a line for each arrival.")] = False
    quiet: Quiet = False

    def __post_init__(self) -> None:
        if self.fail_on is not None:
            check_known("condition", self.fail_on, CONDITIONS)
        check_text("--name", self.name)

    def settings(self) -> dict[str, Any]:
        """Return what is to be set, by whatever way."""
        flags = {
            "key": self.key,
            "columns": None if self.columns is None else split(self.columns),
            "embeddings": None if self.embeddings is None else _one_or_list(split(self.embeddings)),
            "arrival_rows": self.arrival_rows,
            "strict_scale": self.strict_scale or None,  # what the settings say, unless the flag is given
        }
        return read_config(self.config, self.assignments or [], flags)


def _one_or_list(names: tuple[str, ...]) -> str | tuple[str, ...]:
    return names[0] if len(names) == 1 else names


def _with_options(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options of `_Options` behind its own; it gets them together, as `options`."""
    own, shared = signature(command).parameters, signature(_Options).parameters

    @wraps(command)
    def run(**given: Any) -> None:
        options = _Options(**{name: given.pop(name) for name in shared})
        command(**given, options=options)

    told = [*(parameter for name, parameter in own.items() if name != "options"), *shared.values()]
    run.__signature__ = Signature(told)  # type: ignore[attr-defined]  # which typer reads
    return run


@_with_options
def learn(
    model: Model,
    data: Data,
    options: _Options,
    dry_run: Annotated[bool, Option("--dry-run", help="Show what would change; write nothing.")] = False,
    force: Annotated[
        bool, Option("--force", help="Learn files again that were learned before, also in part.")
    ] = False,
    whole: Annotated[
        bool, Option("--whole", help="All files are one arrival, however long: learned in blocks.")
    ] = False,
    sample_rows: Annotated[
        int | None, Option(help="With --whole: rows by which clusters are found.  [default: 20000]")
    ] = None,
    block_rows: Annotated[
        int | None, Option(help="With --whole: rows of a block, about.  [default: 50000]")
    ] = None,
    workers: Workers = None,
    scheduler: Scheduler = None,
) -> None:
    """Learn files, one arrival after the other, into MODEL, which is made if it is not there.

    Each arrival is a generation of its own, safe on disk when its line appears. An interrupted command goes
    on where it was when it is given again. A file that was learned before is left out, whatever its name;
    if all were, the command is refused.

    Examples: `dbull learn model monday.csv`, `dbull learn model tuesday.parquet --fail-on new-cluster`,
    `dbull learn model digits.npy --set image_shape=[8,8] --set epochs=20`,
    `dbull learn model 'year/*.parquet' --whole --workers 4`
    """
    given = {"sample_rows": sample_rows, "block_rows": block_rows}
    sizes = {name: value for name, value in given.items() if value is not None}
    if not whole and (sizes or workers is not None or scheduler is not None):
        raise SettingsError("--workers, --scheduler, --sample-rows and --block-rows go with --whole")
    if not whole:
        data = check_files(None, data)
    settings = options.settings()
    from dbull.ingest import Learner

    learner = Learner(model, settings, name=options.name, dry_run=dry_run, force=force)
    if whole:
        from dbull.methods.engine import workers as at_work

        with learning_progress(options.quiet) as teller, at_work(workers, scheduler):
            shown = _Shown(teller, options.as_json, stops=options.fail_on is not None)
            shown.show([learner.learn_whole(data, teller.tell, **sizes)])
        if shown.born and shown.stops:
            raise Exit(ExitCode.CONDITION_MET)
        return
    refused: list[AlreadyLearnedError] = []
    with learning_progress(options.quiet) as teller:
        shown = _Shown(teller, options.as_json, stops=options.fail_on is not None)
        for path in data:
            try:
                shown.show(learner.learn(path, teller.tell))
            except AlreadyLearnedError as error:
                refused.append(error)
    if len(refused) == len(data):
        raise refused[0]
    for reason in refused:  # the same command again after an interruption goes on with the others
        say(f"left out: {reason}", err=True)
    if shown.born and shown.stops:
        raise Exit(ExitCode.CONDITION_MET)


@_with_options
def watch(
    model: Model,
    source: Annotated[
        Path, Argument(metavar="DIR", help="Where files arrive; or a log, kafka://host:port/topic.")
    ],
    options: _Options,
    interval: Annotated[float, Option(help="Seconds between looks.", min=0.01)] = 2.0,
    settle: Annotated[
        float | None,
        Option(
            help="Seconds that a file must have been left alone before it is read.  "
            "[default: 2, with --once 0]",
            min=0,
        ),
    ] = None,
    linger: Annotated[
        float, Option(help="Log: seconds after which fewer than --arrival-rows messages are learned.", min=0)
    ] = 60.0,
    skip_lost: Annotated[
        bool, Option("--skip-lost", help="Log: go on although messages that would be next are gone.")
    ] = False,
    kafka_config: Annotated[
        Path | None,
        Option(envvar="DBULL_KAFKA_CONFIG", help="Log: name=value lines for librdkafka, such as passwords."),
    ] = None,
    once: Annotated[bool, Option("--once", help="Learn what is there, and stop.")] = False,
    on: Annotated[str | None, Option("--on", help="new-cluster: when --exec and --webhook are told.")] = None,
    commands: Annotated[
        list[str] | None, Option("--exec", metavar="CMD", help="Run, with the event as JSON on its input.")
    ] = None,
    addresses: Annotated[
        list[str] | None, Option("--webhook", metavar="URL", help="Gets the event as JSON by POST.")
    ] = None,
) -> None:
    """Learn files as they arrive in DIR, in the order of their names, each exactly once, until stopped.

    A file that cannot be used is named on standard error and left alone until it changes; of a file to
    which rows were added only these are learned. What others change in the model meanwhile is kept. After a
    restart everything goes on where it was. Names that begin with a dot, and unknown kinds of files, are
    left alone.

    Of a log messages are learned, JSON objects, as they come. What is next in each partition is stored in
    the model with what was learned. A message that cannot be read is named on standard error and skipped.

    With --on new-cluster each cluster born after the first data set is told to a command or a web server,
    tried again if it fails, while learning goes on.

    Examples: `dbull watch model inbox --once`,
    `dbull watch model inbox --on new-cluster --exec "jq .clusters >> new.txt"`,
    `dbull watch model kafka://localhost:9092/clicks --arrival-rows 5000`
    """
    log = _log(source, kafka_config, skip_lost)
    if log is None and not source.is_dir():  # told before torch is imported
        raise SettingsError(f"{source}: is not a folder; make it, or name the one where files arrive")
    hooks = _hooks(on, commands or (), addresses or ())
    settings = options.settings()
    from dbull.ingest import Inbox, Learner

    if settle is None:
        settle = 0.0 if once else SETTLE_SECONDS
    learner = Learner(model, settings, name=options.name)
    if not (options.quiet or once):
        say(f"watching {source if log is None else log.address}; stop with Ctrl-C", err=True)
    with hooks, learning_progress(options.quiet) as teller:
        shown = _Shown(teller, options.as_json, stops=options.fail_on is not None)
        if log is None:
            bad = _watch_folder(Inbox(source, settle), learner, hooks, shown, None if once else interval)
        else:
            log.notice = shown.tell
            with log:
                arrivals = learner.learn_log(log, teller.tell, linger=linger, once=once)
                for learned in _told(hooks, learner, arrivals):
                    shown.show([learned])
                    if shown.born and shown.stops:
                        break
            bad = log.n_skipped > 0
    if shown.born and shown.stops:
        raise Exit(ExitCode.CONDITION_MET)
    if bad:
        raise Exit(ExitCode.DATA_REFUSED)


def _log(source: Path, config: Path | None, skip_lost: bool) -> "KafkaLog | None":
    """Return the log that is meant, None if it is a folder."""
    from dbull.data.readers.kafka_log import KafkaLog, is_log, read_properties

    if not is_log(source):
        return None
    return KafkaLog(source, None if config is None else read_properties(config), skip_lost=skip_lost)


def _watch_folder(
    inbox: "Inbox", learner: "Learner", hooks: "Hooks", shown: "_Shown", interval: float | None
) -> bool:
    """Learn what arrives, once if there is no interval; return whether any file could not be used."""
    bad = False
    while True:
        for path in inbox.arrived():
            try:
                shown.show(_told(hooks, learner, learner.learn_among_others(path, shown.teller.tell)))
            except AlreadyLearnedError:
                continue
            except (DataError, NumericalError) as error:
                bad = True
                named = "" if path.name in str(error) else f"{path}: "
                shown.tell(f"left alone: {named}{error}")
        if interval is None or (shown.born and shown.stops):
            return bad
        time.sleep(interval)


def _hooks(on: str | None, commands: "Sequence[str]", addresses: "Sequence[str]") -> "Hooks":
    from dbull.cli.hooks import Hooks

    if on is not None:
        check_known("event", on, CONDITIONS)
    if (on is None) != (not commands and not addresses):
        raise SettingsError("--on new-cluster goes with --exec CMD or --webhook URL, and they with it")
    return Hooks(commands, addresses)


def _told(hooks: "Hooks", learner: "Learner", arrivals: "Iterable[Learned]") -> "Iterator[Learned]":
    """Yield the arrivals; tell the hooks of clusters that were born after the first data set."""
    from dbull.methods.listing import told_events

    for learned in arrivals:
        if hooks and learned.report.born and not learned.first:
            where = {"model": str(learner.folder.path), "name": learned.name}
            for event in told_events(learner.folder, learned.generation):
                if event["generation"] == learned.generation and event["kind"] == "birth":
                    hooks.tell({**where, **event})
        yield learned


class _Shown:
    """Prints arrivals as they are learned, and remembers whether a cluster was born after the first."""

    def __init__(self, teller: Teller, as_json: bool, stops: bool):
        self.born = False
        self.stops = stops  # whether such a birth is what is waited for
        self.teller, self._as_json = teller, as_json

    def tell(self, line: str) -> None:
        """Print what is not as it should be."""
        self.teller.clear()
        say(line, err=True)

    def show(self, arrivals: "Iterable[Learned]") -> None:
        for learned in arrivals:
            self.teller.clear()
            for notice in learned.notices:
                say(f"note: {learned.name}: {notice}", err=True)
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
