"""``dbull report``: one HTML page about a model."""

from pathlib import Path
from typing import Annotated

import typer

from dbull.cli.exits import exit_codes
from dbull.cli.options import Generation, Model
from dbull.cli.output import as_text, say

__all__ = ["report"]


def report(
    model: Model,
    out: Annotated[
        Path, typer.Option("--out", "-o", help="Where the page goes; what is there is replaced.")
    ] = Path("report.html"),
    title: Annotated[
        str | None, typer.Option(help="Heading; the name of the folder unless given.", show_default=False)
    ] = None,
    generation: Generation = None,
) -> None:
    """Write one HTML page about a model: clusters, timeline, map, course, settings. It needs no network.

    Prints where the page is. The page holds no row of the data.

    Example: `dbull report model -o report.html`
    """
    with exit_codes():
        from dbull.methods.storage import load_generation, now
        from dbull.report import build_report, check_target, write_report
        from dbull.store import ModelFolder

        check_target(out)
        folder = ModelFolder(model)
        loaded = folder.load(generation)
        learner, manifest = load_generation(folder, loaded, events=True), loaded.manifest
        folder_name = as_text(model.resolve().name)
        facts = {"Folder": folder_name, "Generation": str(manifest.generation)}
        if manifest.time:
            facts["Saved"] = manifest.time
        if manifest.note:
            facts["Note"] = manifest.note
        written_by = ", ".join(f"{name} {version}" for name, version in manifest.versions.items())
        facts["Saved by"] = written_by
        data = build_report(learner, title=as_text(title or folder_name), facts=facts, written=now())
        say(write_report(data, out))
