"""Options that several commands share, and settings: flag > environment > TOML file > default, all known."""

import os
import sys
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Option, confirm

from dbull.cli.output import printable
from dbull.errors import SettingsError, check_known
from dbull.writing import make_parent

PREFIX = "DBULL_"

Model = Annotated[Path, Argument(metavar="MODEL", help="Folder of the model.")]
Data = Annotated[
    list[Path],
    Argument(
        metavar="DATA...",
        help=".csv .tsv .jsonl (also .gz .bz2 .zst) .parquet .arrow .feather .npy .npz, a folder of these or "
        "of images, a pattern such as 'data/*.csv', - for standard input.",
    ),
]
Key = Annotated[str | None, Option("--key", help="Column that names the rows; it is not learned.")]
Generation = Annotated[
    int | None, Option("--generation", "-g", help="An older generation instead of the newest.")
]
Workers = Annotated[
    int | None, Option("--workers", help="Processes that share the blocks; the result is the same.", min=1)
]
Scheduler = Annotated[
    str | None, Option("--scheduler", help="Address of a Dask scheduler, whose workers share the blocks.")
]
AsJson = Annotated[bool, Option("--json", help="As JSON.")]
Quiet = Annotated[bool, Option("--quiet", "-q", help="No progress.")]
AllowDirty = Annotated[
    bool,
    Option(
        "--allow-dirty",
        envvar="DBULL_ALLOW_DIRTY",
        help="Run code that is not as committed; the result tells of it.",
    ),
]


def check_files(model: Path | None, data: Sequence[Path]) -> list[Path]:
    """Return the files that are meant; refuse what is not there before torch is imported (None: no model)."""
    from dbull.data.readers import expand_sources, find_source
    from dbull.store import ModelFolder

    if model is not None:
        ModelFolder(model).number()
    files = expand_sources(data)
    for path in files:
        if str(path) != "-":
            find_source(path)
    return files


def check_folder(target: Path) -> None:
    """Ask whether to make the folder that a file goes to; where nobody can be asked, say what to do."""
    folder = target.parent
    if os.path.lexists(folder):
        return
    told = f"{target}: there is no folder {folder}"
    asked = all(stream is not None and stream.isatty() for stream in (sys.stdin, sys.stderr))
    if not (asked and confirm(f"{printable(told)}; make it?", err=True)):
        raise SettingsError(f"{told}; make it (mkdir -p), or name another")
    make_parent(target)


def read_config(path: Path | None, assignments: Sequence[str], flags: Mapping[str, Any]) -> dict[str, Any]:
    """Gather what a TOML file, the environment, KEY=VALUE texts and flags ask for; the latter wins."""
    from dbull.experiments.settings import parse_assignments, read_toml

    # What cannot be read is told before torch is imported.
    stored = {} if path is None else read_toml(path)
    given = parse_assignments(assignments)
    from dbull.ingest import setting_names

    known = setting_names()
    for name in stored:
        check_known(f"setting in {path}", name, known)
    for name in given:
        check_known("setting", name, known)
    given = _from_environment(known) | given
    if isinstance(columns := given.get("columns"), str):  # a list of one, without brackets
        given["columns"] = [columns]
    return stored | given | {name: value for name, value in flags.items() if value is not None}


def _from_environment(known: Sequence[str]) -> dict[str, Any]:
    from dbull.experiments.settings import parse_assignments

    names = {PREFIX + name.upper(): name for name in known}
    found: dict[str, Any] = {}
    for variable, value in os.environ.items():
        if variable.startswith(PREFIX) and variable not in names:
            # Other tools may have variables of this prefix; what is nearly a setting was meant to be one.
            meant = get_close_matches(variable, names, n=1, cutoff=0.92)
            if meant:
                raise SettingsError(
                    f"{variable} in the environment: there is no such setting; did you mean {meant[0]}?"
                )
        elif variable in names:
            name = names[variable]
            try:
                found |= parse_assignments([f"{name}={value}"])
            except SettingsError:  # a text without quotes, as environments have them
                found[name] = value
    return found
