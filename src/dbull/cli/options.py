"""Options that several commands share, and settings: flag > environment > TOML file > default, all known."""

import os
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Option

from dbull.errors import SettingsError, check_known

PREFIX = "DBULL_"

Model = Annotated[Path, Argument(metavar="MODEL", help="Folder of the model.")]
Data = Annotated[
    list[Path],
    Argument(
        metavar="DATA...",
        help=".csv .tsv .jsonl (also .gz .bz2 .zst) .parquet .arrow .feather .npy .npz, a folder of these or "
        "of images, a pattern such as 'data/*.csv'.",
    ),
]
Key = Annotated[str | None, Option("--key", help="Column that names the rows; it is not learned.")]
Generation = Annotated[
    int | None, Option("--generation", "-g", help="An older generation instead of the newest.")
]
AsJson = Annotated[bool, Option("--json", help="As JSON.")]
Quiet = Annotated[bool, Option("--quiet", "-q", help="No progress.")]


def read_config(path: Path | None, assignments: Sequence[str], flags: Mapping[str, Any]) -> dict[str, Any]:
    """Gather what a TOML file, the environment, KEY=VALUE texts and flags ask for; the latter wins."""
    from dbull.experiments.settings import parse_assignments, read_toml
    from dbull.ingest import setting_names

    known = setting_names()
    stored = {} if path is None else read_toml(path)
    for name in stored:
        check_known(f"setting in {path}", name, known)
    given = parse_assignments(assignments)
    for name in given:
        check_known("setting", name, known)
    asked = {name: value for name, value in flags.items() if value is not None}
    return stored | _from_environment(known) | given | asked


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
            except SettingsError:  # a word without quotes, as environments have them
                found[name] = value
    return found
