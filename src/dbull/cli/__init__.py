"""The command line. Only this room prints: results on standard output, progress and errors on standard error.

Nothing heavy is imported until a command needs it, so that ``dbull --help`` answers at once.
"""

from importlib import metadata
from typing import Annotated, Any

from typer import Exit, Option, Typer
from typer.core import TyperGroup

from dbull.cli import bench, clusters, data, demo, history, learn, map, paper, predict, setup
from dbull.cli.exits import exit_codes
from dbull.cli.output import say

__all__ = ["app", "main"]


class _Commands(TyperGroup):
    """Commands, their usage, help and version included, that end with our exit codes."""

    def make_context(self, *arguments: Any, **more: Any) -> Any:
        with exit_codes():
            return super().make_context(*arguments, **more)

    def invoke(self, ctx: Any) -> Any:
        with exit_codes():
            return super().invoke(ctx)


app = Typer(
    cls=_Commands,
    help="Unsupervised lifelong clustering.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
)
for _command in (
    *(demo.demo, setup.init, learn.learn, learn.watch, predict.predict, predict.preview),
    *(clusters.clusters, clusters.events, clusters.rename, clusters.merge, clusters.retire),
    *(history.history, history.rollback, history.diff, history.prune, history.check),
    *(predict.report, setup.doctor, bench.bench, paper.paper),
):
    app.command()(_command)
app.command("map")(map.map_rows)
app.add_typer(data.app, name="data")


def _show_version(asked: bool) -> None:
    if asked:
        say(f"dbull {metadata.version('dbull')}")
        raise Exit


@app.callback()
def _root(
    version: Annotated[
        bool, Option("--version", help="Show the version and stop.", callback=_show_version, is_eager=True)
    ] = False,
) -> None:
    pass


def main() -> None:
    """Run the command line of this process."""
    app()
