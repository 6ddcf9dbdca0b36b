"""``dbull bench``: run methods on scenarios, and read tables and figures from what was kept."""

from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option

from dbull.cli.options import AllowDirty, Quiet
from dbull.cli.output import say, show_json, split, terminal_width
from dbull.cli.progress import follow
from dbull.errors import ResultsError, SettingsError, check_known

if TYPE_CHECKING:
    from dbull.experiments.results import Result
    from dbull.experiments.settings import BenchSettings


def bench(
    targets: Annotated[
        list[str] | None,
        Argument(metavar="SCENARIO METHOD | DIR...", help="What to run, or with --table where results are."),
    ] = None,
    seeds: Annotated[str | None, Option(help="0..4 (both included), 0,2,5 or one number.")] = None,
    assignments: Annotated[
        list[str] | None,
        Option("--set", metavar="KEY=VALUE", help="Parameter of the method, typed as in TOML."),
    ] = None,
    method_path: Annotated[
        str | None, Option(metavar="PACKAGE.MODULE:CLASS", help="A class, instead of METHOD.")
    ] = None,
    label: Annotated[
        str | None, Option(help="Name of this variant of the method in folders and tables.")
    ] = None,
    config: Annotated[Path | None, Option(help="An experiment as TOML instead of SCENARIO METHOD.")] = None,
    out: Annotated[Path | None, Option(help="Where result folders go, ./results unless set.")] = None,
    data: Annotated[Path | None, Option(help="Folder of data sets; else DBULL_DATA, else the cache.")] = None,
    table: Annotated[bool, Option("--table", help="Read results below DIR... instead of running.")] = False,
    style: Annotated[str, Option("--format", help="text, markdown, latex or json.")] = "text",
    columns: Annotated[str | None, Option(help="Columns of the table, with commas between.")] = None,
    matrix: Annotated[
        bool, Option("--matrix", help="Show score matrices, R[after task i, on task j], as the table.")
    ] = False,
    figure: Annotated[Path | None, Option(help="Draw curves to this .png, .pdf or .svg.")] = None,
    score: Annotated[str, Option(help="Score of the figure and the matrices.")] = "nmi_geometric",
    pictures: Annotated[
        bool,
        Option(
            "--pictures",
            help="Draw what was learned (prototypes, samples, map, training) into pictures/ of each new run.",
        ),
    ] = False,
    verify: Annotated[
        Path | None, Option(metavar="DIR", help="Run the result in this folder again, and compare.")
    ] = None,
    allow_dirty: AllowDirty = False,
    list_names: Annotated[bool, Option("--list", help="List scenarios and methods, and stop.")] = False,
    as_json: Annotated[bool, Option("--json", help="Same as --format json.")] = False,
    quiet: Quiet = False,
) -> None:
    """Run METHOD on SCENARIO with every seed: predict, score, then learn; labels serve for scoring only.

    Each run is kept in OUT/SCENARIO/METHOD/seed-N. The same command goes on after an interruption and leaves
    finished runs alone. A method that learns in epochs shows them as it goes, on standard error.

    Examples: `dbull bench split-digits dp-mixture --seeds 0..2`, then
    `dbull bench --table results --figure streams.png`
    """
    from dbull.experiments.results import find_results

    _refuse_wrong_output(figure, style, columns, matrix, score)
    if list_names:
        _list_names(as_json or style == "json")
        return
    if verify is not None:
        if targets or any((seeds, assignments, method_path, label, config, out, table, pictures)):
            raise SettingsError("--verify runs what its folder says: only --data and --quiet go with it")
        _verify(verify, data, quiet)
        return
    if table:
        if any((seeds, assignments, method_path, label, config, out, data, pictures)):
            raise SettingsError(
                "--table reads results and runs nothing: --seeds, --set, --method-path, --label, --config, "
                "--out, --data and --pictures do not go with it"
            )
        if not targets:
            raise SettingsError("--table needs at least one folder of results")
        results, unfinished = find_results(map(Path, targets))
        for folder in [] if quiet else unfinished:
            say(f"not complete, left out: {folder}", err=True)
    else:
        from dbull.experiments.environment import refuse_changed_source
        from dbull.experiments.run import bench as run_bench
        from dbull.experiments.settings import parse_seeds, read_config

        if config is None:
            settings = _settings(targets or [], assignments or [], method_path, label)
        elif targets or assignments or method_path or label:
            raise SettingsError(
                "--config names scenario and methods itself: only --seeds, --out and --data go with it"
            )
        else:
            settings = read_config(config)
        if seeds is not None:
            settings = replace(settings, seeds=parse_seeds(seeds))
        if out is not None:
            settings = replace(settings, out=out)
        if not allow_dirty:
            refuse_changed_source()
        runs = follow(lambda told: run_bench(settings, data, pictures=pictures, watch=told), quiet, pictures)
        results = find_results(run.folder for run in runs)[0]
    _show(results, "json" if as_json else style, columns, matrix, score)
    if figure is not None:
        from dbull.experiments.figures import draw_streams

        draw_streams(results, figure, score)
        if not quiet:
            say(f"figure: {figure}", err=True)


def _verify(folder: Path, data: Path | None, quiet: bool) -> None:
    """Run a stored result again in a place of its own, and say whether it came out the same."""
    from dbull.experiments.results import find_results
    from dbull.experiments.verify import compare, rerun, stored_run

    before = stored_run(folder)
    with TemporaryDirectory() as place:
        runs = follow(lambda told: rerun(before, Path(place), data, told), quiet)
        outcome = compare(before, find_results(run.folder for run in runs)[0][0])
    made_by = ", ".join(commit[:12] or "code without a commit" for commit in outcome.commits)
    if outcome.first_difference is None:
        say(
            f"{folder}: the same, all scores of {outcome.n_steps} arrivals in every digit (made by {made_by})"
        )
        return
    sides = [
        f"NMI {100 * final['scores']['nmi_geometric']:.2f}, ARI {100 * final['scores']['ari']:.2f}, "
        f"{final['n_clusters']} clusters"
        for final in (outcome.then, outcome.now)
    ]
    raise ResultsError(
        f"{folder} (made by {made_by}) differs from arrival {outcome.first_difference + 1} of "
        f"{outcome.n_steps} on, by up to {100 * outcome.largest:.2f} points: {sides[0]} then, {sides[1]} now"
    )


def _settings(
    targets: list[str], assignments: list[str], method_path: str | None, label: str | None
) -> "BenchSettings":
    """Turn the command line into settings."""
    from dbull.experiments.settings import BenchSettings, MethodChoice, parse_assignments

    expected = ["SCENARIO"] if method_path else ["SCENARIO", "METHOD"]
    if len(targets) != len(expected):
        raise SettingsError(
            f"expected {' '.join(expected)}, got {' '.join(targets) or 'nothing'}; "
            "`dbull bench --list` shows both, `dbull bench --help` the options"
        )
    name = None if method_path else targets[1]
    choice = MethodChoice(name, method_path, label or "", parse_assignments(assignments))
    return BenchSettings(targets[0], (choice,))


def _show(results: list["Result"], style: str, columns: str | None, matrix: bool, score: str) -> None:
    from dbull.experiments.summary import DEFAULT_COLUMNS, score_matrices, summarise
    from dbull.experiments.tables import HEADINGS, render

    if matrix:
        rows, what = score_matrices(results, score), HEADINGS[score]
    else:
        rows, what = summarise(results, DEFAULT_COLUMNS if columns is None else split(columns)), "scores"
    say(render(rows, style, what, terminal_width()), lines=True)


def _list_names(as_json: bool) -> None:
    from dbull.data import scenario_names
    from dbull.experiments.registry import METHODS

    methods = {name: method.summary for name, method in METHODS.items()}
    if as_json:
        show_json({"scenarios": list(scenario_names()), "methods": methods})
        return
    lines = ["scenarios", *(f"  {name}" for name in scenario_names())]
    lines += ["methods", *(f"  {name:<18}{summary}" for name, summary in methods.items())]
    say("\n".join(lines), lines=True)


def _refuse_wrong_output(
    figure: Path | None, style: str, columns: str | None, matrix: bool, score: str
) -> None:
    """Find out before a long run, not after it, that its result cannot be shown."""
    from dbull.experiments.summary import column_names
    from dbull.experiments.tables import FORMATS
    from dbull.metrics import SCORE_NAMES

    check_known("format", style, FORMATS)
    check_known("score", score, SCORE_NAMES)
    for column in split(columns or ""):
        check_known("column", column, column_names())
    if matrix and columns is not None:
        raise SettingsError("--matrix has the tasks as columns: --columns does not go with it")
    if figure is not None:
        from dbull.experiments.figures import check_target

        check_target(figure)
