"""All tables and figures as files, and one HTML page with all of them inside."""

import base64
import io
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from dbull.experiments.paper.drawings import FIGURES
from dbull.experiments.paper.plan import EXHIBITS, Runs
from dbull.experiments.paper.published import SOURCE
from dbull.experiments.paper.sheets import TABLES, Table
from dbull.experiments.results import Result, commits_of
from dbull.experiments.sheet import latex, markdown, spans
from dbull.writing import make_parent, replacing

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TEMPLATES = Path(__file__).parent / "templates"
PAGE = "index.html"


@dataclass(frozen=True)
class Exhibit:
    """One table or figure as it stands on the page."""

    name: str
    number: str  # as the paper has it
    title: str
    table: Table | None
    images: tuple[str, ...]  # PNG as data addresses
    files: tuple[str, ...]


def write_paper(runs: Runs, out: Path) -> Iterator[Path]:
    """Write every exhibit that is asked for, then the page; yield each file."""
    exhibits = []
    for name in runs.plan.only:
        table, images, files = None, [], []
        if name in TABLES:
            table = TABLES[name](runs)
            files = [
                _write(out / f"{name}.tex", _latex(name, table)),
                _write(out / f"{name}.md", _markdown(table)),
            ]
        else:
            for suffix, figure in FIGURES[name](runs).items():
                for kind in ("png", "pdf"):
                    content = _drawn(figure, kind)
                    files.append(_write(out / f"{name}{suffix}.{kind}", content))
                    if kind == "png":
                        images.append("data:image/png;base64," + base64.b64encode(content).decode())
        yield from files
        told = tuple(path.name for path in files)
        exhibits.append(Exhibit(name, number_of(name), EXHIBITS[name], table, tuple(images), told))
    page = (
        _environment()
        .get_template("paper.html")
        .render(
            exhibits=exhibits,
            plan=runs.plan,
            spans=spans,
            source=SOURCE,
            made=provenance(runs.all_of(runs.plan.only)),
        )
    )
    yield _write(out / PAGE, page.encode())


def number_of(name: str) -> str:
    """Return what the paper calls a table or figure."""
    return name.replace("table", "Table ").replace("fig", "Figure ").replace("streams", "Beyond the paper")


def provenance(results: list[Result]) -> list[tuple[str, int, float]]:
    """Return which code made how many runs in how many hours; "" stands for code of no commit."""
    made: dict[str, list[Result]] = {}
    for result in results:
        made.setdefault(commits_of(result)[-1], []).append(result)
    return [
        (commit, len(own), sum(_seconds(result) for result in own) / 3600)
        for commit, own in sorted(made.items())
    ]


def _seconds(result: Result) -> float:
    cost = result.final["cost"]
    return float(cost.get("cpu_seconds", cost["seconds"]))


def _drawn(figure: "Figure", kind: str) -> bytes:
    buffer = io.BytesIO()
    told = {"CreationDate": None} if kind == "pdf" else None  # the same runs give the same bytes
    figure.savefig(buffer, format=kind, dpi=150, metadata=told)
    return buffer.getvalue()


def _markdown(table: Table) -> bytes:
    return "\n\n".join([markdown(table.sheet), *table.notes]).encode() + b"\n"


def _latex(name: str, table: Table) -> bytes:
    notes = "".join(f"% {note}\n" for note in table.notes)
    return f"% {number_of(name)}: {EXHIBITS[name]}\n{notes}{latex(table.sheet)}\n".encode()


def _write(path: Path, content: bytes) -> Path:
    make_parent(path)
    with replacing(path) as handle:
        handle.write(content)
    return path


@cache
def _environment() -> Environment:
    return Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
