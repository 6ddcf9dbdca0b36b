"""Numbers of many result folders brought together: mean and standard error over seeds."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import numpy as np

from dbull.errors import ResultsError, check_known
from dbull.experiments.results import Result
from dbull.metrics import SCORE_NAMES

DEFAULT_COLUMNS = (
    *("nmi_geometric", "ari", "homogeneity", "v_measure", "accuracy_hungarian", "forgetting.nmi_geometric"),
    *("id_stability", "n_clusters", "n_classes", "seconds"),
)
LIFELONG = ("average", "forgetting", "backward_transfer")
COUNTS = ("n_clusters", "n_clusters_used", "n_classes")
# Shown as they are; all other columns are scores and shown in percent.
PLAIN = (*COUNTS, "seconds", "learn_seconds", "peak_memory_mib")


@dataclass(frozen=True)
class Summary:
    """Mean of one number over seeds, with standard error s / sqrt(n) where s has n - 1 below the line."""

    mean: float
    standard_error: float | None  # None for a single seed
    n: int


@dataclass(frozen=True)
class Row:
    """One (scenario, method) over its seeds; of a score matrix, one of its rows."""

    scenario: str
    method: str
    told_true_k: bool
    seeds: tuple[int, ...]
    after: str | None  # in a score matrix: the phase after which the row was measured
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
    refuse_unlike(results)
    return tuple(
        _row(group, None, {column: _summary([_value(run, column) for run in group]) for column in columns})
        for group in _groups(results)
    )


def score_matrices(results: Sequence[Result], score: str) -> tuple[Row, ...]:
    """Return the score matrix of every (scenario, method), mean over seeds, one row per phase."""
    check_known("score", score, SCORE_NAMES)
    refuse_unlike(results)
    rows = []
    for group in _groups(results):
        matrices = [result.final["lifelong"][score]["matrix"] for result in group]
        tasks, phases = group[0].final["tasks"], group[0].final["phases"]
        for i, phase in enumerate(phases):
            cells = {
                f"task {task + 1}": _summary([matrix[i][j] for matrix in matrices])
                for j, task in enumerate(tasks)
            }
            rows.append(_row(group, f"task {phase + 1}", cells))
    return tuple(rows)


def refuse_unlike(results: Sequence[Result]) -> None:
    """Raise ResultsError for results that must not be averaged or put side by side."""
    runs: dict[tuple[Any, ...], Result] = {}
    for result in results:
        scenario, method, seed = result.scenario, result.method, result.seed
        run = (scenario, method, seed)
        if run in runs:
            both = f"{result.folder} and {runs[run].folder}"
            raise ResultsError(f"{both} hold the same run: name only one of them")
        runs[run] = result
        other = runs.setdefault((scenario, method), result)
        if _settings_but_seed(other) != _settings_but_seed(result):
            raise ResultsError(
                f"{other.folder} and {result.folder} have the same method label but other settings: "
                "they cannot be averaged; give each its own --label"
            )
        other = runs.setdefault((scenario, seed), result)
        if other.settings["scenario_fingerprint"] != result.settings["scenario_fingerprint"]:
            raise ResultsError(
                f"{other.folder} and {result.folder} name the same scenario and seed but saw different data "
                "(fingerprints differ): run one of them again with the same data files and version"
            )


def _settings_but_seed(result: Result) -> dict[str, Any]:
    """Settings that must agree over seeds; what the seed itself decides is left out."""
    kept = {k: v for k, v in result.settings.items() if k not in {"seed", "scenario_fingerprint"}}
    decided = ("random_state", result.seed)
    kept["parameters"] = {k: v for k, v in kept["parameters"].items() if (k, v) != decided}
    return kept


def _value(result: Result, column: str) -> float | None:
    final = result.final
    kind, dot, score = column.partition(".")
    if dot:
        value = final["lifelong"][score][kind]
    elif column == "peak_memory_mib":
        peak = final["cost"]["peak_memory_bytes"]
        value = None if peak is None else peak / 2**20
    else:
        value = {**final, **final["cost"], **final["scores"]}[column]
    return None if value is None else float(value)


def _summary(values: Sequence[float | None]) -> Summary | None:
    known = np.array([value for value in values if value is not None])
    if known.size == 0:
        return None
    error = float(known.std(ddof=1) / np.sqrt(known.size)) if known.size > 1 else None
    return Summary(float(known.mean()), error, int(known.size))


def _groups(results: Sequence[Result]) -> list[list[Result]]:
    """Results of the same scenario and method together, in order of name and seed."""
    ordered = sorted(results, key=lambda r: (r.scenario, r.method, r.seed))
    return [list(group) for _, group in groupby(ordered, key=lambda r: (r.scenario, r.method))]


def _row(group: Sequence[Result], after: str | None, columns: dict[str, Summary | None]) -> Row:
    told = any(result.settings["told_true_k"] is not None for result in group)
    seeds = tuple(result.seed for result in group)
    return Row(group[0].scenario, group[0].method, told, seeds, after, columns)
