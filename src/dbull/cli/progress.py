"""Progress of runs and downloads on standard error: a live bar on a terminal, plain lines elsewhere."""

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from time import monotonic
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from rich.progress import Progress, ProgressColumn, TaskID

    from dbull.experiments.run import RunDone, StepDone

__all__ = ["MIB", "download_progress", "follow"]

MIB = 2**20
SECONDS_BETWEEN_LINES = 5.0


class _Reporter(Protocol):
    def step(self, step: "StepDone") -> None: ...

    def run(self, run: "RunDone") -> None: ...


def follow(events: Iterable["StepDone | RunDone"], quiet: bool) -> list["RunDone"]:
    """Go through a benchmark, say how it goes, and return the runs that are complete."""
    from dbull.experiments.run import RunDone

    runs = []
    with _reporter(quiet) as reporter:
        for event in events:
            if isinstance(event, RunDone):
                runs.append(event)
                reporter.run(event)
            else:
                reporter.step(event)
    return runs


@contextmanager
def download_progress(name: str, quiet: bool) -> Iterator[Callable[[int, int], None] | None]:
    """Say how a download goes: a bar on a terminal, a line every few seconds elsewhere."""
    if quiet:
        yield None
    elif sys.stderr.isatty():
        from rich.progress import BarColumn, DownloadColumn, TextColumn, TransferSpeedColumn

        columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
        with _bar(*columns) as bar:
            task = bar.add_task(name, total=None)
            yield lambda done, total: bar.update(task, completed=done, total=total)
    else:
        yield _download_lines(name)


def _download_lines(name: str) -> Callable[[int, int], None]:
    last = monotonic()

    def say(done: int, total: int) -> None:
        nonlocal last
        if monotonic() - last >= SECONDS_BETWEEN_LINES:
            last = monotonic()
            print(f"{name}: {done / MIB:.1f} of {total / MIB:.1f} MiB", file=sys.stderr, flush=True)

    return say


@contextmanager
def _reporter(quiet: bool) -> Iterator[_Reporter]:
    if quiet:
        yield _Silence()
    elif sys.stderr.isatty():
        with _run_bar() as bar:
            yield _LiveBar(bar)
    else:
        yield _Lines()


class _Silence:
    def step(self, step: "StepDone") -> None:
        pass

    def run(self, run: "RunDone") -> None:
        pass


class _Lines:
    """A line per run, and one every few seconds in between."""

    def __init__(self) -> None:
        self._last = monotonic()

    def step(self, step: "StepDone") -> None:
        if monotonic() - self._last >= SECONDS_BETWEEN_LINES:
            self._say(
                f"{_name(step)}: arrival {step.record['arrival'] + 1}/{step.n_arrivals}, {_state(step)}"
            )

    def run(self, run: "RunDone") -> None:
        self._say(f"{_name(run)}: {_outcome(run)}")

    def _say(self, line: str) -> None:
        self._last = monotonic()
        print(line, file=sys.stderr, flush=True)


class _LiveBar:
    """One bar for the run under way; finished runs stay as lines above it."""

    def __init__(self, bar: "Progress"):
        self._bar = bar
        self._task: TaskID | None = None

    def step(self, step: "StepDone") -> None:
        if self._task is None:
            self._task = self._bar.add_task(_name(step), total=step.n_arrivals, state="")
        self._bar.update(self._task, completed=step.record["arrival"] + 1, state=_state(step))

    def run(self, run: "RunDone") -> None:
        if self._task is not None:
            self._bar.remove_task(self._task)
            self._task = None
        self._bar.console.print(f"{_name(run)}: {_outcome(run)}", highlight=False, soft_wrap=True)


def _run_bar() -> "Progress":
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn

    return _bar(
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        TextColumn("{task.fields[state]}"),
        TimeRemainingColumn(),
    )


def _bar(*columns: "ProgressColumn") -> "Progress":
    from rich.console import Console
    from rich.progress import Progress

    return Progress(*columns, console=Console(stderr=True), transient=True)


def _name(event: "StepDone | RunDone") -> str:
    return f"{event.scenario} {event.method} seed {event.seed}"


def _state(step: "StepDone") -> str:
    record = step.record
    again = " (replayed)" if step.replayed else ""
    return f"NMI {record['cumulative']['nmi_geometric']:.3f}, {_clusters(record)}{again}"


def _outcome(run: "RunDone") -> str:
    final = run.final
    if run.was_done:
        return f"done before, left alone: {run.folder}"
    score, seconds = final["scores"]["nmi_geometric"], final["cost"]["seconds"]
    warned = f", {len(run.warnings)} warnings of the method in timings.jsonl" if run.warnings else ""
    return f"done in {seconds:.1f} s, NMI {score:.3f}, {_clusters(final)}{warned}: {run.folder}"


def _clusters(record: dict[str, int]) -> str:
    return f"{record['n_clusters']} clusters for {record['n_classes']} classes"
