"""Tables as text, Markdown, LaTeX or JSON, and the paper's table of capabilities."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

from dbull.errors import check_known
from dbull.experiments.registry import build, resolve
from dbull.experiments.settings import MethodChoice
from dbull.experiments.sheet import Sheet, latex, markdown
from dbull.experiments.summary import COUNTS, PLAIN, Row, Summary

if TYPE_CHECKING:
    from dbull.methods.base import Capabilities

FORMATS = ("text", "markdown", "latex", "json")
HEADINGS = {
    "nmi_geometric": "NMI",
    "nmi_arithmetic": "NMI (arith.)",
    "ari": "ARI",
    "homogeneity": "HS",
    "completeness": "CS",
    "v_measure": "VM",
    "accuracy_top": "ACC top",
    "accuracy_hungarian": "ACC",
    "purity": "purity",
    "id_stability": "ids kept",
    "n_clusters": "clusters",
    "n_clusters_used": "clusters used",
    "n_classes": "classes",
    "peak_memory_mib": "MiB",
}
NONE = "-"
PAPER_METHODS = ("dbull", "dec", "vade", "vae-dp", "curl-f", "curl-d")
CAPABILITIES = {
    "learns_representation": "representation learning",
    "learns_k": "learns K",
    "expands": "expansion",
    "remembers": "overcomes forgetting",
}


def render(rows: Sequence[Row], style: str, what: str = "scores", width: int | None = None) -> str:
    """Write rows in one of :data:`FORMATS`. Scores are shown in percent; JSON holds them as they are.

    ``what`` is said in the title line of the text format, which goes on below where it is wider than
    ``width`` characters.
    """
    check_known("format", style, FORMATS)
    if style == "json":
        return json.dumps([asdict(row) for row in rows], indent=2)
    if not rows:
        return "no complete results"
    if style == "text":
        return "\n\n".join(
            _text(f"{name}: {what}", [row for row in rows if row.scenario == name], width)
            for name in dict.fromkeys(row.scenario for row in rows)
        )
    head = ["scenario", *_head(rows)]
    body = [[row.scenario, *_cells(row)] for row in rows]
    for cells in body:  # matrices of scenarios with fewer tasks
        cells.extend([""] * (len(head) - len(cells)))
    sheet = Sheet(head, body)
    return latex(sheet) if style == "latex" else markdown(sheet)


def capabilities_of(name: str) -> "Capabilities | None":
    """Return what a registered method declares, None if it declares nothing."""
    learner = build(resolve(MethodChoice(name=name), seed=0, true_k=2))
    declared: Capabilities | None = getattr(learner, "capabilities", None)
    return declared


def capability_table(names: Sequence[str] = PAPER_METHODS) -> str:
    """Return a Markdown table of the methods that declare their capabilities; those of the paper, usually."""
    body = []
    for name in names:
        declared = capabilities_of(name)
        if declared is not None:
            marks = ["yes" if getattr(declared, column) else "no" for column in CAPABILITIES]
            body.append([f"`{name}`", *marks])
    return markdown(Sheet(["method", *CAPABILITIES.values()], body, n_text=1, centred=True))


def _heading(column: str) -> str:
    kind, dot, score = column.partition(".")
    return f"{kind.replace('_', ' ')} {HEADINGS[score]}" if dot else HEADINGS.get(column, column)


def _cell(column: str, summary: Summary | None) -> str:
    if summary is None:
        return NONE
    if column in COUNTS and summary.mean.is_integer() and not summary.standard_error:
        return f"{summary.mean:.0f}"
    scale, digits = (1, 1) if column in PLAIN else (100, 2)
    text = f"{summary.mean * scale:.{digits}f}"
    return text if summary.standard_error is None else f"{text} ({summary.standard_error * scale:.{digits}f})"


def _head(rows: Sequence[Row]) -> list[str]:
    # Scenarios may differ in their number of tasks; the widest row names all columns.
    columns = max((list(row.columns) for row in rows), key=len)
    after = [] if rows[0].after is None else ["after"]
    return ["method", *after, "seeds", *map(_heading, columns)]


def _cells(row: Row) -> list[str]:
    method = row.method + (" (told K)" if row.told_true_k else "")
    after = [] if row.after is None else [row.after]
    return [method, *after, str(len(row.seeds)), *(_cell(name, value) for name, value in row.columns.items())]


def _text(title: str, rows: Sequence[Row], width: int | None) -> str:
    lines = [_head(rows), *map(_cells, rows)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
    parts = []
    for columns in _parts(widths, width):
        aligned = [
            "  ".join([line[0].ljust(widths[0]), *(line[i].rjust(widths[i]) for i in columns)])
            for line in lines
        ]
        parts.append("\n".join([aligned[0], "-" * len(aligned[0]), *aligned[1:]]))
    return f"{title} in percent, mean over seeds (standard error)\n" + "\n\n".join(parts)


def _parts(widths: Sequence[int], limit: int | None) -> list[list[int]]:
    """Return the columns of each part of a table, of which all have the first, at most `limit` wide."""
    parts: list[list[int]] = [[]]
    used = widths[0]
    for i, width in enumerate(widths[1:], 1):
        if limit is not None and parts[-1] and used + 2 + width > limit:
            parts.append([])
            used = widths[0]
        parts[-1].append(i)
        used += 2 + width
    return parts
