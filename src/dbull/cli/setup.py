"""``dbull init`` and ``dbull doctor``: a settings file to begin with, and what this installation can do."""

import importlib.util
import json
import os
import platform
import re
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from importlib import metadata
from pathlib import Path
from typing import Annotated, Any

from typer import Exit, Option

from dbull.cli.exits import ExitCode
from dbull.cli.options import AsJson
from dbull.cli.output import say, show_json

MANY_PIECES = 1000  # of work, enough for as many threads as there may be
NEEDED = ("torch", "numpy", "scipy", "scikit-learn", "safetensors", "typer", "rich")
EXTRAS = {
    "pyarrow": ("io", "Parquet and Arrow files"),
    "matplotlib": ("plot", "figures"),
    "umap": ("umap", "maps by UMAP"),
    "faiss": ("scale", "neighbour graphs of many rows"),
    "PIL": ("vision", "folders of images"),
    "fsspec": ("remote", "addresses such as s3://"),
    "anndata": ("cells", ".h5ad files"),
    "confluent_kafka": ("kafka", "logs of messages, kafka://"),
}
LOOKED_AT = 10_000  # rows
ROLES_TOLD = """\
# Columns, as their first rows look: role, then type, missing share, and what of it is learned. To give one
# another role, take its # away: "number", "flag", "category", "date", "text", "vector", "key" or "ignore".\
"""
TEMPLATE = """\
# Settings of a dbull model; use it with: dbull learn MODEL DATA --config dbull.toml
# What stands behind a # is not set; take the # away to set it. A flag wins over a variable such as
# DBULL_EPOCHS in the environment, and that over this file.

# What rows are: "images", "dense", "sparse", "text", or "auto".
{kind}
{image_shape}
{columns}
# The column that names rows, which is not learned.
{key}
# Rows that are learned at once; longer files are several arrivals.
#arrival_rows = 10000

# The seed: the same data and the same seed give the same model on the same machine.
#random_state = 0

# How long to learn, by the size of the data unless given.
#epochs = "auto"
#joint_epochs = "auto"

# How many clusters there may be at most; how many there are is found out.
#max_clusters = 1000
"""


def init(
    data: Annotated[Path | None, Option("--from", help="Look at the first rows of this file.")] = None,
) -> None:
    """Write a settings file, with comments, to standard output; guessed from data if some are given.

    Example: `dbull init --from monday.csv > dbull.toml`
    """
    guessed = {} if data is None else _guess(data)
    shape, columns = guessed.get("image_shape"), guessed.get("columns")
    said = "# Columns to use, all if absent.\n"
    said += '#columns = ["a", "b"]' if columns is None else f"#columns = {_toml(columns)}"
    if "roles" in guessed:
        said = "\n".join([ROLES_TOLD, *guessed["roles"]])
    lines = {
        "kind": f'kind = "{guessed["kind"]}"' if guessed else '#kind = "auto"',
        "image_shape": "#image_shape = [28, 28]" if shape is None else f"image_shape = {shape}",
        "columns": said,
        "key": f"key = {_toml(guessed['key'])}" if "key" in guessed else '#key = "id"',
    }
    say(TEMPLATE.format(**lines).rstrip("\n"), lines=True)


def doctor(as_json: AsJson = False) -> None:
    """Show versions, what each extra is for and whether it is here, threads and devices.

    Example: `dbull doctor`
    """
    from dbull.store.manifest import package_version
    from dbull.threads import number_of_threads

    found: dict[str, Any] = {
        "dbull": metadata.version("dbull"),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "packages": {name: package_version(name) for name in NEEDED},
        "extras": {name: importlib.util.find_spec(name) is not None for name in EXTRAS},
        "processors": os.cpu_count(),
    }
    ok = sys.version_info >= (3, 10) and all(found["packages"].values())
    if found["packages"]["torch"]:
        import torch

        found["threads"] = number_of_threads(MANY_PIECES)
        found["cuda"] = torch.cuda.is_available()
    if as_json:
        show_json({**found, "ok": ok})
    else:
        say(f"dbull {found['dbull']}, Python {found['python']}, {found['platform']}")
        for name, version in found["packages"].items():
            say(f"  {name:<14}{version or 'MISSING: pip install ' + name}")
        for name, here in found["extras"].items():
            extra, purpose = EXTRAS[name]
            state = "here" if here else f"not here: pip install dbull[{extra}]"
            say(f"  {name:<14}{state} ({purpose})")
        threads, cuda = found.get("threads"), found.get("cuda")
        say(f"  {threads} threads at most (DBULL_THREADS), {found['processors']} processors, CUDA: {cuda}")
    if not ok:
        raise Exit(ExitCode.FAULT)


def _guess(data: Path) -> dict[str, Any]:
    """Tell kind, shape of images, columns and key from the first rows."""
    from dbull.data.readers import ReadSettings, find_source, read_chunks, table_names
    from dbull.errors import DataError
    from dbull.tables import proposed_keys

    data = data if str(data) == "-" else find_source(data)
    look = ReadSettings(chunk_rows=LOOKED_AT)
    if str(data) == "-":  # which can be looked at only once
        return _guess_columns(next(read_chunks(data, replace(look, mixed=True))).x.columns)
    try:
        chunk = next(read_chunks(data, look))
    except DataError as error:
        first = next(iter(table_names(data) or ()), None)
        for key in dict.fromkeys((None, first)):  # a name that is asked for tells a header from a row
            with suppress(DataError):
                chunk = next(read_chunks(data, replace(look, mixed=True, key=key)))
                return _guess_columns(chunk.x.columns) | ({} if key is None else {"key": key})
        raise error
    guessed: dict[str, Any] = {}
    shape = list(chunk.sample_shape)
    if data.is_dir():  # whose readers have the channels of colours first
        guessed |= {"kind": "images", "image_shape": [*shape[-2:], *shape[:-2]]}
    elif len(shape) in (2, 3):
        guessed |= {"kind": "images", "image_shape": shape}
    else:
        mostly_zero = float((chunk.x == 0).mean()) >= 0.8 and float(chunk.x.min()) >= 0
        guessed["kind"] = "sparse" if mostly_zero else "dense"
    if chunk.names is not None:
        guessed["columns"] = list(chunk.columns)
        keys = proposed_keys(next(read_chunks(data, replace(look, mixed=True))).x.columns)
        if keys and len(keys) < len(chunk.columns):
            guessed["key"] = keys[0]
            guessed["columns"] = [name for name in chunk.columns if name not in keys]
    return guessed


def _guess_columns(columns: Mapping[str, Any]) -> dict[str, Any]:
    """Propose a role for each column of a table that is not numbers alone."""
    from dbull.tables import propose_roles

    roles = propose_roles(columns)
    lines = [
        (
            f"#columns.{_toml_key(role.name)} = {_toml(role.role)}",
            f"{role.seen.removesuffix(' as text')}, {100 * role.missing_share:.3g} % missing; "
            f"{role.becomes or 'left out: ' + role.reason}",
        )
        for role in roles
    ]
    width = max(len(setting) for setting, _ in lines)
    told = [f"{setting:<{width}}  # {_one_line(meaning)}" for setting, meaning in lines]
    key = next((role.name for role in roles if role.role == "key"), None)
    return {"kind": "auto", "roles": told, **({} if key is None else {"key": key})}


def _one_line(text: str) -> str:
    return "".join(c if c.isprintable() else " " for c in text)


def _toml_key(name: str) -> str:
    """Return a name as a key of TOML."""
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else _toml(name)


def _toml(value: str | list[str]) -> str:
    """Return a text or a list of texts as TOML, whose texts are those of JSON but for one character."""
    text = json.dumps(value, ensure_ascii=False)
    return "".join(c if c.isprintable() else f"\\U{ord(c):08x}" for c in text)
