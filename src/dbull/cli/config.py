"""Settings of a command: flag > environment > TOML file > default, all keys known."""

import os
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from dbull.errors import SettingsError, check_known
from dbull.experiments.settings import parse_assignments, read_toml
from dbull.ingest import setting_names

PREFIX = "DBULL_"


def read_config(path: Path | None, assignments: Sequence[str], flags: Mapping[str, Any]) -> dict[str, Any]:
    """Gather what a TOML file, the environment, KEY=VALUE texts and flags ask for; the latter wins."""
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
