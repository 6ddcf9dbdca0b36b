"""``dbull init`` and ``dbull doctor``: a settings file to begin with, and what this installation can do."""

import importlib.util
import json
import os
import platform
import re
import sys
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
    "PIL": ("vision", "folders of images"),
}
_NAMES_ROWS = re.compile(r"(^|_)(id|uuid|guid|key|index)$|^unnamed: 0$|^$", re.IGNORECASE)
TEMPLATE = """\
# Settings of a dbull model; use it with: dbull learn MODEL DATA --config dbull.toml
# What stands behind a # is not set; take the # away to set it. A flag wins over a variable such as
# DBULL_EPOCHS in the environment, and that over this file.

# What rows are: "images", "dense", "sparse", or "auto".
{kind}
{image_shape}
# Columns to use, all if absent; and the column that names rows, which is not learned.
{columns}
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
    lines = {
        "kind": f'kind = "{guessed["kind"]}"' if guessed else '#kind = "auto"',
        "image_shape": "#image_shape = [28, 28]" if shape is None else f"image_shape = {shape}",
        "columns": '#columns = ["a", "b"]' if columns is None else f"#columns = {_toml(columns)}",
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

    guessed: dict[str, Any] = {}
    data = find_source(data)
    first = next(iter(table_names(data) or ()), None)
    # Numbers that name rows, and not what is in them, would be learned.
    key = first if first is not None and _NAMES_ROWS.search(first) else None
    try:
        chunk = next(read_chunks(data, ReadSettings(chunk_rows=1000, key=key)))
    except DataError:
        if first is None or key is not None:
            raise
        key = first  # no numbers: most often what the row is called; then its column has a name, as all have
        chunk = next(read_chunks(data, ReadSettings(chunk_rows=1000, key=key)))
    if key is not None:
        guessed["key"] = key
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
    return guessed


def _toml(value: str | list[str]) -> str:
    """Return a text or a list of texts as TOML, whose texts are those of JSON but for one character."""
    text = json.dumps(value, ensure_ascii=False)
    return "".join(c if c.isprintable() else f"\\U{ord(c):08x}" for c in text)
