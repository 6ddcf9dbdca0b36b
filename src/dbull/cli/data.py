"""``dbull data``: which data sets there are, where their files lie, and fetching them when asked."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option, Typer

from dbull.cli.options import AsJson, Quiet
from dbull.cli.output import say, show_json, show_table
from dbull.cli.progress import MIB, download_progress
from dbull.errors import check_known

if TYPE_CHECKING:
    from dbull.data import CatalogueEntry

app = Typer(help="Data sets: list them, fetch them, verify them.", no_args_is_help=True)

Names = Annotated[list[str], Argument(metavar="NAME...", help="As `dbull data list` shows them.")]
Folder = Annotated[
    Path | None, Option("--data", help="Folder of data sets; else DBULL_DATA, else the per-user cache.")
]


@app.command("list")
def list_sets(data: Folder = None, as_json: AsJson = False) -> None:
    """List every data set and whether its files are here; --json tells files, source and licence too."""
    from dbull.data import catalogue

    entries = catalogue(data)
    if as_json:
        show_json([asdict(entry) for entry in entries])
        return
    rows = [{"name": e.name, "files": _state(e), "what": e.summary} for e in entries]
    show_table(rows, ("name", "files", "what"))


@app.command("get")
def get(names: Names, data: Folder = None, quiet: Quiet = False) -> None:
    """Download data sets from their official source; an interrupted download goes on where it stopped."""
    from dbull.data import fetch

    _check_names(names)
    for name in names:
        with download_progress(name, quiet) as progress:
            paths = fetch(name, data, progress)
        for path in paths:
            say(path)
        if not paths and not quiet:
            say(f"{name} needs no files", err=True)


@app.command("verify")
def verify_sets(names: Names, data: Folder = None, as_json: AsJson = False) -> None:
    """Compare the files of data sets with their published digests."""
    from dbull.data import verify

    _check_names(names)
    digests = {name: verify(name, data) for name in names}
    if as_json:
        show_json(digests)
        return
    for name, files in digests.items():
        if not files:
            say(f"{name} needs no files", err=True)
        for file, digest in files.items():
            say(f"{name}  {file}  {digest}")


def _state(entry: "CatalogueEntry") -> str:
    if not entry.files:
        return "built in"
    if entry.found:
        return "here"
    return f"to get, {entry.n_bytes / MIB:.1f} MiB" if entry.can_get else "not here"


def _check_names(names: list[str]) -> None:
    """Refuse a wrong name before the first download."""
    from dbull.data import dataset_names

    for name in names:
        check_known("data set", name, dataset_names())
