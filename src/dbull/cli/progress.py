"""Progress of runs and downloads on standard error: a live bar on a terminal, plain lines elsewhere."""

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from time import monotonic
from typing import TYPE_CHECKING, Any, NamedTuple

from dbull.cli.output import printable, say

if TYPE_CHECKING:
    from rich.progress import Progress, ProgressColumn, TaskID

    from dbull.experiments.run import Learning, RunDone, RunSkipped, StepDone, Watch

MIB = 2**20
SECONDS_BETWEEN_LINES = 5.0
SECONDS_BETWEEN_EPOCHS = 30.0  # lines about epochs within one arrival, which may take hours


class Pace:
    """Tells when it is time for another line."""

    def __init__(self) -> None:
        self._last = monotonic()

    def due(self, seconds: float) -> bool:
        """Whether so many seconds have passed since it was due last."""
        if monotonic() - self._last < seconds:
            return False
        self._last = monotonic()
        return True


class Teller(NamedTuple):
    """Says how learning goes, if anybody listens, and clears the line when something else is to be said."""

    tell: Callable[[str, Any], object] | None
    clear: Callable[[], None] = lambda: None


@contextmanager
def learning_progress(quiet: bool) -> Iterator[Teller]:
    """Say how learning goes: a live line on a terminal, a line every few seconds elsewhere."""
    if quiet:
        yield Teller(None)
    elif sys.stderr.isatty():
        from rich.progress import SpinnerColumn, TextColumn

        bar = make_bar(SpinnerColumn(), TextColumn("{task.description}", markup=False))
        task = bar.add_task("")

        def show(label: str, progress: Any) -> None:
            bar.update(task, description=printable(f"{label}: {_course(progress)}"))
            if not bar.live.is_started:
                bar.start()

        try:
            yield Teller(show, bar.stop)
        finally:
            bar.stop()
    else:
        pace = Pace()

        def tell(label: str, progress: Any) -> None:
            if pace.due(SECONDS_BETWEEN_LINES):
                say(f"{label}: {_course(progress)}", err=True)

        yield Teller(tell)


@contextmanager
def download_progress(name: str, quiet: bool) -> Iterator[Callable[[int, int], None] | None]:
    """Say how a download goes: a bar on a terminal, a line every few seconds elsewhere."""
    if quiet:
        yield None
    elif sys.stderr.isatty():
        from rich.progress import BarColumn, DownloadColumn, TextColumn, TransferSpeedColumn

        title = TextColumn("{task.description}", markup=False)
        with make_bar(title, BarColumn(), DownloadColumn(), TransferSpeedColumn()) as bar:
            task = bar.add_task(name, total=None)
            yield lambda done, total: bar.update(task, completed=done, total=total)
    else:
        pace = Pace()

        def tell(done: int, total: int) -> None:
            if pace.due(SECONDS_BETWEEN_LINES):
                say(f"{name}: {done / MIB:.1f} of {total / MIB:.1f} MiB", err=True)

        yield tell


def follow(
    start: Callable[["Watch | None"], Iterable["StepDone | RunDone | RunSkipped"]],
    quiet: bool,
    pictures: bool = False,
) -> list["RunDone"]:
    """Go through a benchmark, say how it goes, and return the runs that are complete.

    It is made by `start`, given who is told how learning goes. If pictures were asked for, a run without any
    is named.
    """
    from dbull.experiments.run import RunDone, RunSkipped

    if quiet:
        return [event for event in start(None) if isinstance(event, RunDone)]
    runs = []
    with _run_bar() if sys.stderr.isatty() else nullcontext() as bar:
        reporter = _Lines() if bar is None else _LiveBar(bar)
        for event in start(reporter.learning):
            if isinstance(event, RunDone):
                runs.append(event)
                reporter.run(event, _outcome(event, pictures))
            elif isinstance(event, RunSkipped):
                reporter.run(event, event.reason)
            else:
                reporter.step(event)
    return runs


class _Lines:
    """A line per run, and one every few seconds in between; fewer about epochs."""

    def __init__(self) -> None:
        self._pace = Pace()

    def learning(self, event: "Learning") -> None:
        if self._pace.due(SECONDS_BETWEEN_EPOCHS):
            at = f"arrival {event.arrival + 1}/{event.n_arrivals}, " if event.n_arrivals > 1 else ""
            say(f"{_name(event)}: {at}{_course(event.progress)}", err=True)

    def step(self, step: "StepDone") -> None:
        if self._pace.due(SECONDS_BETWEEN_LINES):
            at = f"arrival {step.record['arrival'] + 1}/{step.n_arrivals}"
            say(f"{_name(step)}: {at}, {_state(step)}", err=True)

    def run(self, run: "RunDone | RunSkipped", outcome: str) -> None:
        self._pace = Pace()
        say(f"{_name(run)}: {outcome}", err=True)


class _LiveBar:
    """A bar for the run under way, one below it for its epochs; finished runs stay as lines above."""

    def __init__(self, bar: "Progress"):
        self._bar = bar
        self._tasks: dict[str, TaskID] = {}

    def learning(self, event: "Learning") -> None:
        self._shown("run", _name(event), event.n_arrivals)
        progress = event.progress
        self._bar.update(
            self._shown("epochs"),
            description=f"  {progress.stage}",
            completed=progress.epoch,
            total=progress.n_epochs,
            state=_latest(progress),
            left=_time_left(progress),
        )

    def step(self, step: "StepDone") -> None:
        self._remove("epochs")
        task = self._shown("run", _name(step), step.n_arrivals)
        self._bar.update(task, completed=step.record["arrival"] + 1, state=_state(step))

    def run(self, run: "RunDone | RunSkipped", outcome: str) -> None:
        self._remove("epochs", "run")
        line = f"{_name(run)}: {outcome}"
        self._bar.console.print(printable(line), highlight=False, markup=False, soft_wrap=True)

    def _shown(self, kind: str, title: str = "", total: int | None = None) -> "TaskID":
        if kind not in self._tasks:
            left = "" if kind == "epochs" else None  # of which the method itself tells
            self._tasks[kind] = self._bar.add_task(title, total=total, state="", left=left)
        return self._tasks[kind]

    def _remove(self, *kinds: str) -> None:
        for kind in self._tasks.keys() & kinds:
            self._bar.remove_task(self._tasks.pop(kind))


def _run_bar() -> "Progress":
    from rich.progress import BarColumn, MofNCompleteColumn, Task, TextColumn, TimeRemainingColumn
    from rich.table import Column
    from rich.text import Text

    class TimeLeft(TimeRemainingColumn):
        """What the method itself expects, where it says so."""

        def render(self, task: Task) -> Text:
            left = task.fields["left"]
            return super().render(task) if left is None else Text(left, style="progress.remaining")

    return make_bar(
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=12, table_column=Column(no_wrap=True)),
        MofNCompleteColumn(table_column=Column(no_wrap=True)),
        TimeLeft(table_column=Column(no_wrap=True)),
        # Goes on below on a narrow terminal.
        TextColumn("{task.fields[state]}", markup=False, table_column=Column()),
    )


def make_bar(*columns: "ProgressColumn") -> "Progress":
    """Return a live display on standard error that leaves nothing behind."""
    from rich.console import Console
    from rich.progress import Progress

    return Progress(*columns, console=Console(stderr=True), transient=True)


def _name(event: "Learning | StepDone | RunDone | RunSkipped") -> str:
    return printable(f"{event.scenario} {event.method} seed {event.seed}")


def _state(step: "StepDone") -> str:
    record = step.record
    again = " (replayed)" if step.replayed else ""
    return f"NMI {record['cumulative']['nmi_geometric']:.3f}, {_clusters(record)}{again}"


# What a method says of itself is a `Progress` of `DBULL`, or has its attributes.


def _course(progress: Any) -> str:
    """Say what is being done, how far it is, how good, and how long it will still take."""
    left = _time_left(progress)
    at = f"{progress.stage} {progress.epoch}/{progress.n_epochs}"
    return f"{at}, {_latest(progress)}{f', {left} left' if left else ''}"


def _latest(progress: Any) -> str:
    """Say how good the latest epoch was, how many components there are, and how fast it goes."""
    n_components = f"{progress.n_components} component{'s' if progress.n_components > 1 else ''}"
    terms, rate = progress.terms, getattr(progress, "rows_per_second", None)
    if terms is None:
        return n_components if rate is None else f"{n_components}, {rate:,.0f} rows/s"
    # Before there is a mixture the bound has no prior and no entropy: it is the reconstruction alone.
    what = "ELBO" if terms.log_prior or terms.entropy else "reconstruction"
    speed = f", {terms.rows_per_second:,.0f} rows/s" if terms.rows_per_second else ""
    return f"{what} {terms.elbo:.2f}/row, {n_components}{speed}"


def _time_left(progress: Any) -> str:
    """Say how long it will still take, or nothing if that is not known."""
    if progress.seconds_left is None:
        return ""
    minutes, seconds = divmod(round(progress.seconds_left), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}"


def _outcome(run: "RunDone", pictures: bool) -> str:
    final = run.final
    if run.was_done:
        lost = "; pictures are drawn of new runs only, give another --label or --out" if pictures else ""
        return f"done before, left alone: {run.folder}{lost}"
    score, seconds = final["scores"]["nmi_geometric"], final["cost"]["seconds"]
    warned = f", {len(run.warnings)} warnings of the method in timings.jsonl" if run.warnings else ""
    drawn = "" if not pictures else ", with pictures" if run.pictures else ", no pictures of this method"
    return f"done in {seconds:.1f} s, NMI {score:.3f}, {_clusters(final)}{warned}{drawn}: {run.folder}"


def _clusters(record: dict[str, int]) -> str:
    return f"{record['n_clusters']} clusters for {record['n_classes']} classes"
