"""``dbull paper``: every table and figure of the paper, made here."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Exit, Option

from dbull.cli.exits import ExitCode
from dbull.cli.options import AllowDirty, AsJson, Quiet
from dbull.cli.output import say, show_rows, split
from dbull.cli.progress import follow

if TYPE_CHECKING:
    from dbull.experiments.run import RunDone, RunSkipped, StepDone, Watch


def paper(
    only: Annotated[str | None, Option(help="Some of them, with commas between: table4,fig5.")] = None,
    seeds: Annotated[str | None, Option(help="0..4 (both included), 0,2,5 or one number.")] = None,
    quick: Annotated[bool, Option("--quick", help="A rehearsal on small images: minutes, no data.")] = False,
    runs: Annotated[Path, Option(help="Where result folders are and go.")] = Path("results"),
    out: Annotated[Path, Option(help="Folder of the page, the tables and the figures.")] = Path("paper"),
    data: Annotated[Path | None, Option(help="Folder of data sets; else DBULL_DATA, else the cache.")] = None,
    no_run: Annotated[
        bool, Option("--no-run", help="Make them from the runs that are there, and run nothing.")
    ] = False,
    list_names: Annotated[bool, Option("--list", help="List them and what of their runs is there.")] = False,
    allow_dirty: AllowDirty = False,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Make every table and figure of *Deep Bayesian Unsupervised Lifelong Learning* from runs made here.

    Runs that are not there are made, seed by seed, and the same command goes on after an interruption. It may
    run several times at once: what another is making is left to it. At the end there is one page,
    OUT/index.html, with the figures as PNG and PDF and the tables as LaTeX and Markdown beside it.

    Examples: `dbull paper --quick`, `dbull paper --only table4,fig5 --seeds 0..2`, `dbull paper --list`
    """
    from dbull.experiments.environment import refuse_changed_source
    from dbull.experiments.figures import check_matplotlib
    from dbull.experiments.paper.page import write_paper
    from dbull.experiments.paper.plan import EXHIBITS, Plan, Runs, make_runs, state
    from dbull.experiments.run import RunSkipped
    from dbull.experiments.settings import parse_seeds

    chosen = tuple(EXHIBITS) if only is None else split(only)
    numbers = parse_seeds(seeds or ("0" if quick else "0..4"))
    plan = Plan(chosen, numbers, quick, data)
    if list_names:
        show_rows(state(plan, runs), ("name", "title", "runs", "there", "needs"), as_json)
        return
    check_matplotlib("figures")
    skipped: list[str] = []
    if not no_run:
        if not allow_dirty:
            refuse_changed_source()

        def noted(told: "Watch | None") -> "Iterator[StepDone | RunDone | RunSkipped]":
            for event in make_runs(plan, runs, told):
                if isinstance(event, RunSkipped):
                    skipped.append(event.reason)
                yield event

        follow(noted, quiet)
    for path in write_paper(Runs.read(plan, runs), out):
        say(path)
    if any(not reason.startswith("not run here") for reason in skipped):
        raise Exit(ExitCode.FAULT)
