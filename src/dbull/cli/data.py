"""``dbull data``: which data sets there are, where their files lie, and fetching them when asked."""

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Annotated

import typer

from dbull.cli.exits import exit_codes

if TYPE_CHECKING:
    from dbull.data import CatalogueEntry

__all__ = ["app"]

app = typer.Typer(help="Data sets: list them, fetch them, verify them.", no_args_is_help=True)

Names = Annotated[list[str], typer.Argument(metavar="NAME...", help="As `dbull data list` shows them.")]
Folder = Annotated[
    Path | None, typer.Option("--data", help="Folder of data sets; else DBULL_DATA, else the per-user cache.")
]
AsJson = Annotated[bool, typer.Option("--json", help="As JSON.")]
MIB = 2**20
SECONDS_BETWEEN_LINES = 5.0


@app.command("list")
def list_sets(data: Folder = None, as_json: AsJson = False) -> None:
    """List every data set, whether its files are here, and where it comes from."""
    with exit_codes():
        from dbull.data import catalogue

        entries = catalogue(data)
        if as_json:
            typer.echo(json.dumps([asdict(entry) for entry in entries], indent=2, default=str))
            return
        width = max(len(entry.name) for entry in entries)
        for entry in entries:
            typer.echo(f"{entry.name:<{width}}  {_state(entry):<22}  {entry.summary}")


@app.command("get")
def get(
    names: Names,
    data: Folder = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress.")] = False,
) -> None:
    """Download data sets from their official source; an interrupted download goes on where it stopped."""
    with exit_codes():
        from dbull.data import fetch

        _check_names(names)
        for name in names:
            with _download_progress(name, quiet) as progress:
                paths = fetch(name, data, progress)
            for path in paths:
                typer.echo(path)
            if not paths and not quiet:
                typer.echo(f"{name} needs no files", err=True)


@app.command("verify")
def verify_sets(names: Names, data: Folder = None, as_json: AsJson = False) -> None:
    """Compare the files of data sets with their published digests."""
    with exit_codes():
        from dbull.data import verify

        _check_names(names)
        digests = {name: verify(name, data) for name in names}
        if as_json:
            typer.echo(json.dumps(digests, indent=2))
            return
        for name, files in digests.items():
            for file, digest in files.items():
                typer.echo(f"{name}  {file}  {digest}")


def _state(entry: "CatalogueEntry") -> str:
    if not entry.files:
        return "built in"
    if entry.found:
        return "here"
    return f"can be had, {entry.n_bytes / MIB:.1f} MiB" if entry.can_get else "not here"


def _check_names(names: list[str]) -> None:
    """Refuse a wrong name before the first download."""
    from dbull.data import dataset_names
    from dbull.experiments.settings import check_known

    for name in names:
        check_known("data set", name, dataset_names())


@contextmanager
def _download_progress(name: str, quiet: bool) -> Iterator[Callable[[int, int], None] | None]:
    """Say how a download goes: a bar on a terminal, a line every few seconds elsewhere."""
    if quiet:
        yield None
    elif sys.stderr.isatty():
        from rich.console import Console
        from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

        columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
        with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
            task = bar.add_task(name, total=None)
            yield lambda done, total: bar.update(task, completed=done, total=total)
    else:
        yield _lines(name)


def _lines(name: str) -> Callable[[int, int], None]:
    last = monotonic()

    def say(done: int, total: int) -> None:
        nonlocal last
        if monotonic() - last >= SECONDS_BETWEEN_LINES:
            last = monotonic()
            print(f"{name}: {done / MIB:.1f} of {total / MIB:.1f} MiB", file=sys.stderr, flush=True)

    return say
