"""Settings of a command: flag > environment > TOML file > default, all keys known."""

import os
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from dbull.errors import SettingsError, check_known
from dbull.experiments.settings import parse_assignments, tomllib
from dbull.ingest import setting_names

PREFIX = "DBULL_"


def read_config(path: Path | None, assignments: Sequence[str], flags: Mapping[str, Any]) -> dict[str, Any]:
    """Gather what a TOML file, the environment, KEY=VALUE texts and flags ask for; the latter wins."""
    known = setting_names()
    asked = {} if path is None else _from_file(path, known)
    asked |= _from_environment(known)
    given = parse_assignments(assignments)
    for name in given:
        check_known("setting", name, known)
    return asked | given | {name: value for name, value in flags.items() if value is not None}


def _from_file(path: Path, known: Sequence[str]) -> dict[str, Any]:
    try:
        table: dict[str, Any] = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise SettingsError(f"{path}: cannot be read ({error.strerror})") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingsError(f"{path}: not valid TOML ({error})") from error
    for name in table:
        check_known(f"setting in {path}", name, known)
    return table


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
