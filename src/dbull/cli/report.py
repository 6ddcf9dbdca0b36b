"""``dbull report``: one HTML page about a model."""

from pathlib import Path
from typing import Annotated

from typer import Option

from dbull.cli.options import Generation, Model
from dbull.cli.output import say
from dbull.documents import as_text


def report(
    model: Model,
    out: Annotated[
        Path, Option("--out", "-o", help="Where the page goes; what is there is replaced.")
    ] = Path("report.html"),
    title: Annotated[str | None, Option(help="Heading; the name of the folder unless given.")] = None,
    generation: Generation = None,
) -> None:
    """Write one HTML page about a model: clusters, timeline, map, course, settings. It needs no network.

    Prints where the page is. The page holds no row of the data.

    Example: `dbull report model -o report.html`
    """
    from dbull.methods.storage import load_generation, now
    from dbull.report import build_report, check_target, write_report
    from dbull.store import ModelFolder

    check_target(out)
    folder = ModelFolder(model)
    loaded = folder.load(generation)
    learner, manifest = load_generation(folder, loaded, events=True), loaded.manifest
    name = as_text(model.resolve().name)
    facts = {
        "Folder": name,
        "Generation": str(manifest.generation),
        **({"Saved": manifest.time} if manifest.time else {}),
        **({"Note": manifest.note} if manifest.note else {}),
        "Saved by": ", ".join(f"{package} {version}" for package, version in manifest.versions.items()),
    }
    data = build_report(learner, title=as_text(title or name), facts=facts, written=now())
    say(write_report(data, out))
