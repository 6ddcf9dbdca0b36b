"""Tables from result folders: mean and standard error over seeds, as text, Markdown, LaTeX or JSON."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from dbull.errors import ResultsError
from dbull.experiments.results import Result
from dbull.experiments.settings import check_known
from dbull.metrics import SCORE_NAMES

__all__ = ["DEFAULT_COLUMNS", "FORMATS", "Row", "Summary", "column_names", "render", "summarise"]

DEFAULT_COLUMNS = (
    "nmi_geometric",
    "ari",
    "homogeneity",
    "v_measure",
    "accuracy_hungarian",
    "forgetting.nmi_geometric",
    "id_stability",
    "n_clusters",
    "n_classes",
    "seconds",
)
FORMATS = ("text", "markdown", "latex", "json")
LIFELONG = ("average", "forgetting", "backward_transfer")
PLAIN = ("n_clusters", "n_clusters_used", "n_classes", "seconds", "learn_seconds", "peak_memory_mib")
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


@dataclass(frozen=True)
class Summary:
    """Mean of one number over seeds, with standard error s / sqrt(n) where s has n - 1 below the line."""

    mean: float
    standard_error: float | None  # None for a single seed
    n: int


@dataclass(frozen=True)
class Row:
    """One (scenario, method) over its seeds."""

    scenario: str
    method: str
    told_true_k: bool
    seeds: tuple[int, ...]
    columns: dict[str, Summary | None]  # None where the number has no meaning, as forgetting of a batch


def column_names() -> tuple[str, ...]:
    """Every number a table can show."""
    lifelong = tuple(f"{kind}.{score}" for kind in LIFELONG for score in SCORE_NAMES)
    return (*SCORE_NAMES, *lifelong, "id_stability", *PLAIN)


def summarise(results: Sequence[Result], columns: Sequence[str] = DEFAULT_COLUMNS) -> tuple[Row, ...]:
    """Group results by scenario and method and sum each group up over its seeds.

    Refuses to average what is not comparable: one label with two settings, or one (scenario, seed) with two
    fingerprints, which means that methods did not see the same bytes.
    """
    for column in columns:
        check_known("column", column, column_names())
    _refuse_unlike(results)
    groups: dict[tuple[str, str], list[Result]] = {}
    for result in sorted(results, key=lambda r: (r.scenario, r.method, r.seed)):
        groups.setdefault((result.scenario, result.method), []).append(result)
    return tuple(
        Row(
            scenario,
            method,
            any(result.settings["told_true_k"] is not None for result in group),
            tuple(result.seed for result in group),
            {column: _summary([_value(result, column) for result in group]) for column in columns},
        )
        for (scenario, method), group in groups.items()
    )


def render(rows: Sequence[Row], style: str) -> str:
    """Write rows in one of :data:`FORMATS`. Scores are shown in percent; JSON holds them as they are."""
    check_known("format", style, FORMATS)
    if style == "json":
        return json.dumps([asdict(row) for row in rows], indent=2)
    if not rows:
        return "no complete results"
    if style == "text":
        return "\n\n".join(
            _text(name, [row for row in rows if row.scenario == name]) for name in _scenarios(rows)
        )
    head = ["scenario", "method", "seeds", *map(_heading, rows[0].columns)]
    body = [[row.scenario, *_cells(row)] for row in rows]
    return _markdown(head, body) if style == "markdown" else _latex(head, body)


def _refuse_unlike(results: Sequence[Result]) -> None:
    settings: dict[tuple[str, str], tuple[Result, Any]] = {}
    bytes_seen: dict[tuple[str, int], Result] = {}
    runs: dict[tuple[str, str, int], Result] = {}
    for result in results:
        run = (result.scenario, result.method, result.seed)
        if run in runs:
            raise ResultsError(
                f"{result.folder} and {runs[run].folder} hold the same run: name only one of them"
            )
        runs[run] = result
        own = _settings_but_seed(result)
        first, expected = settings.setdefault((result.scenario, result.method), (result, own))
        if own != expected:
            raise ResultsError(
                f"{first.folder} and {result.folder} have the same method label but other settings: "
                "they cannot be averaged; give each its own --label"
            )
        other = bytes_seen.setdefault((result.scenario, result.seed), result)
        if other.settings["scenario_fingerprint"] != result.settings["scenario_fingerprint"]:
            raise ResultsError(
                f"{other.folder} and {result.folder} name the same scenario and seed but saw different data "
                "(fingerprints differ): run one of them again with the same data files and version"
            )


def _settings_but_seed(result: Result) -> dict[str, Any]:
    """Settings that must agree over seeds; what the seed itself decides is left out."""
    kept = {
        key: value for key, value in result.settings.items() if key not in {"seed", "scenario_fingerprint"}
    }
    kept["parameters"] = {
        key: value
        for key, value in kept["parameters"].items()
        if (key, value) != ("random_state", result.seed)
    }
    return kept


def _value(result: Result, column: str) -> float | None:
    final = result.final
    kind, dot, score = column.partition(".")
    if dot:
        value = final["lifelong"][score][kind]
    elif column in SCORE_NAMES:
        value = final["scores"][column]
    elif column == "peak_memory_mib":
        peak = final["cost"]["peak_memory_bytes"]
        value = None if peak is None else peak / 2**20
    elif column in ("seconds", "learn_seconds"):
        value = final["cost"][column]
    else:
        value = final[column]
    return None if value is None else float(value)


def _summary(values: Sequence[float | None]) -> Summary | None:
    known = np.array([value for value in values if value is not None])
    if known.size == 0:
        return None
    error = float(known.std(ddof=1) / np.sqrt(known.size)) if known.size > 1 else None
    return Summary(float(known.mean()), error, int(known.size))


def _heading(column: str) -> str:
    kind, dot, score = column.partition(".")
    return f"{kind.replace('_', ' ')} {HEADINGS[score]}" if dot else HEADINGS.get(column, column)


def _cell(column: str, summary: Summary | None) -> str:
    if summary is None:
        return NONE
    scale, digits = (1, 1) if column in PLAIN else (100, 2)
    text = f"{summary.mean * scale:.{digits}f}"
    return text if summary.standard_error is None else f"{text} ({summary.standard_error * scale:.{digits}f})"


def _cells(row: Row) -> list[str]:
    method = row.method + (" (told K)" if row.told_true_k else "")
    return [method, str(len(row.seeds)), *(_cell(column, value) for column, value in row.columns.items())]


def _scenarios(rows: Sequence[Row]) -> list[str]:
    return sorted({row.scenario for row in rows})


def _text(scenario: str, rows: Sequence[Row]) -> str:
    lines = [["method", "seeds", *map(_heading, rows[0].columns)], *map(_cells, rows)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
    aligned = [
        "  ".join(
            [line[0].ljust(widths[0]), *(c.rjust(w) for c, w in zip(line[1:], widths[1:], strict=True))]
        )
        for line in lines
    ]
    title = f"{scenario}: scores in percent, mean over seeds (standard error)"
    return "\n".join([title, aligned[0], "-" * len(aligned[0]), *aligned[1:]])


def _markdown(head: list[str], body: list[list[str]]) -> str:
    rule = ["---", "---", *["---:"] * (len(head) - 2)]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in [head, rule, *body])


def _latex(head: list[str], body: list[list[str]]) -> str:
    escaped = [[cell.replace("_", r"\_").replace("%", r"\%") for cell in cells] for cells in [head, *body]]
    lines = [" & ".join(cells) + r" \\" for cells in escaped]
    alignment = "ll" + "r" * (len(head) - 2)
    return "\n".join(
        [
            rf"\begin{{tabular}}{{{alignment}}}",
            r"\hline",
            lines[0],
            r"\hline",
            *lines[1:],
            r"\hline",
            r"\end{tabular}",
        ]
    )
