"""The command line. Only this room prints: results on standard output, progress and errors on standard error.

Nothing heavy is imported until a command needs it, so that ``dbull --help`` answers at once.
"""

from importlib import metadata
from typing import Annotated

import typer

from dbull.cli import bench, clusters, data, demo, history, learn, predict, report, setup

__all__ = ["app", "main"]

app = typer.Typer(
    help="Unsupervised lifelong clustering.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
)
for _command in (
    *(demo.demo, setup.init, learn.learn, learn.watch, predict.predict, predict.preview),
    *(clusters.clusters, clusters.events, clusters.rename, clusters.merge, clusters.retire),
    *(
        history.history,
        history.rollback,
        history.diff,
        history.prune,
        history.check,
        report.report,
        setup.doctor,
        bench.bench,
    ),
):
    app.command()(_command)
app.add_typer(data.app, name="data")


def _show_version(asked: bool) -> None:
    if asked:
        typer.echo(f"dbull {metadata.version('dbull')}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool,
        typer.Option("--version", help="Show the version and stop.", callback=_show_version, is_eager=True),
    ] = False,
) -> None:
    pass


def main() -> None:
    """Run the command line of this process."""
    app()
