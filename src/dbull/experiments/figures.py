"""Figures from result folders: one panel per task over arrivals, and clusters against true classes."""

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dbull.errors import ResultsError, SettingsError, check_known
from dbull.experiments.results import Result, read_steps
from dbull.experiments.summary import refuse_unlike
from dbull.experiments.tables import HEADINGS
from dbull.metrics import SCORE_NAMES
from dbull.writing import check_place, make_parent, replacing

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Colours that stay apart for most colour-blind readers (Okabe and Ito's set without yellow).
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
MAX_COLUMNS = 3
CAPTION = "shaded: the task's own arrivals; band: one standard error"
MAX_MARKED = 20  # arrivals; more markers would run into each other
SUFFIXES = (".png", ".pdf", ".svg")


def draw_streams(results: Sequence[Result], target: Path, score: str = "nmi_geometric") -> None:
    """Draw the results of one scenario: mean over seeds of each method, with a band of one standard error."""
    check_known("score", score, SCORE_NAMES)
    check_target(target)
    from matplotlib.figure import Figure

    methods = by_method(results)
    first = next(iter(methods.values()))[0]
    tasks = sorted({step["task"] for step in first})
    n_panels = len(tasks) + 1
    n_columns = min(MAX_COLUMNS, n_panels)
    n_rows = -(-n_panels // n_columns)
    figure = Figure(figsize=(3.6 * n_columns, 2.7 * n_rows + 0.7), layout="constrained")
    panels = figure.subplots(n_rows, n_columns, squeeze=False).ravel()
    for panel, task in zip(panels, tasks, strict=False):
        for i, (label, runs) in enumerate(methods.items()):
            draw_curve(panel, task_curves(runs, task, score), label, i)
        shade_task(panel, first, task)
        lowest = min(0.0, *(line.get_ydata().min() for line in panel.get_lines()))  # ARI may be negative
        panel.set(title=f"task {task + 1}", ylim=(lowest - 0.02, 1.02), ylabel=HEADINGS[score])
    draw_cluster_counts(panels[len(tasks)], methods, first)
    for panel in panels[n_panels:]:
        panel.set_axis_off()
    for panel in panels[:n_panels]:
        panel.set(xlabel="arrivals learnt", xlim=(0.5, len(first) + 0.5))
        panel.xaxis.get_major_locator().set_params(integer=True)
        panel.spines[["top", "right"]].set_visible(False)
    handles, labels = panels[len(tasks)].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=min(4, len(labels)), frameon=False)
    figure.suptitle(f"{results[0].scenario}\n{CAPTION}", fontsize="medium")
    save_figure(figure, target)


def check_target(target: Path) -> None:
    """Refuse a figure that could not be written in the end."""
    if target.suffix not in SUFFIXES:
        raise SettingsError(f"{target}: a figure is written as {', '.join(SUFFIXES)}")
    check_place(target)
    check_matplotlib("figures")


def check_matplotlib(what: str) -> None:
    """Refuse what needs matplotlib where it is missing."""
    if find_spec("matplotlib") is None:
        raise SettingsError(f"{what} need matplotlib: pip install 'dbull[plot]'")


def save_figure(figure: "Figure", target: Path) -> None:
    """Write a figure, and the folder for it."""
    make_parent(target)
    with replacing(target) as handle:
        figure.savefig(handle, format=target.suffix[1:], dpi=150)


def shade_task(panel: "Axes", steps: Sequence[dict[str, Any]], task: int) -> None:
    """Shade the arrivals in which a task itself was being learnt."""
    for position, step in enumerate(steps, start=1):
        if step["task"] == task:
            panel.axvspan(position - 0.5, position + 0.5, color="0.92", linewidth=0, zorder=0)


def task_curves(runs: Sequence[Sequence[dict[str, Any]]], task: int, score: str) -> NDArray[np.float64]:
    """Return the score of one task's held-out data after each arrival, (seeds, arrivals), NaN until met."""
    values = [[step["tasks"].get(str(task), {}).get(score, np.nan) for step in steps] for steps in runs]
    return np.array(values, dtype=np.float64)


def by_method(results: Sequence[Result]) -> dict[str, list[list[dict[str, Any]]]]:
    """Read the steps of every run; refuse runs that cannot share a figure."""
    if not results:
        raise ResultsError("there are no complete results to draw")
    scenarios = sorted({result.scenario for result in results})
    if len(scenarios) > 1:
        raise ResultsError(
            f"a figure shows one scenario, these folders hold {', '.join(scenarios)}: name one's folder"
        )
    refuse_unlike(results)
    methods: dict[str, list[list[dict[str, Any]]]] = {}
    for result in sorted(results, key=lambda r: (r.method, r.seed)):
        methods.setdefault(result.method, []).append(read_steps(result))
    return methods


def draw_curve(panel: "Axes", values: NDArray[np.float64], label: str, index: int) -> None:
    """Draw mean and standard error over the first axis, from the first arrival that has a value."""
    n_arrivals = values.shape[1]
    known = ~np.isnan(values).any(axis=0)
    marker = MARKERS[index % len(MARKERS)] if n_arrivals <= MAX_MARKED else None
    at = np.arange(1, n_arrivals + 1)[known]
    values = values[:, known]
    mean = values.mean(axis=0)
    colour = COLOURS[index % len(COLOURS)]
    panel.plot(at, mean, color=colour, marker=marker, markersize=3.5, linewidth=1.3, label=label)
    if len(values) > 1:
        error = values.std(axis=0, ddof=1) / np.sqrt(len(values))
        panel.fill_between(at, mean - error, mean + error, color=colour, alpha=0.2, linewidth=0)


def draw_cluster_counts(
    panel: "Axes", methods: dict[str, list[list[dict[str, Any]]]], first: Sequence[dict[str, Any]]
) -> None:
    """Draw the number of clusters after each arrival beside that of true classes."""
    for i, (label, runs) in enumerate(methods.items()):
        counts = np.array([[step["n_clusters"] for step in run] for run in runs], dtype=np.float64)
        seeds = f"{len(runs)} seed{'s' if len(runs) > 1 else ''}"
        draw_curve(panel, counts, f"{label}, {seeds}", i)
    at = np.arange(1, len(first) + 1)
    truth = [step["n_classes"] for step in first]
    panel.step(at, truth, where="mid", color="0.2", linestyle="--", linewidth=1.6, label="true classes seen")
    panel.set(title="clusters", ylabel="number")
    panel.set_ylim(bottom=0)
