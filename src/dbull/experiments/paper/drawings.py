"""The paper's figures 3 to 7, drawn from the steps of streams."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dbull.experiments.figures import by_method, draw_cluster_counts, draw_curve, shade_task, task_curves
from dbull.experiments.generated import N_SAMPLES, Phase, read_generated
from dbull.experiments.paper import published
from dbull.experiments.paper.plan import CURVES, OWN, TITLES, Runs
from dbull.experiments.results import Result
from dbull.experiments.tables import HEADINGS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Steps = list[list[dict[str, Any]]]  # of each seed
CAPTION = "mean over seeds; band: one standard error; shaded: the task's own arrivals"
WIDE = 11.0  # inches


def draw_scores(runs: Runs, scores: Sequence[str]) -> "dict[str, Figure]":
    """Draw a row of panels for each score and a column for each task (Figures 3 and 4)."""
    from matplotlib.figure import Figure

    methods = _curves(runs)
    if not methods:
        return {}
    first = next(iter(methods.values()))[0]
    tasks = sorted({step["task"] for step in first})
    figure = Figure(figsize=(WIDE, 2.0 * len(scores) + 0.9), layout="constrained")
    panels = figure.subplots(len(scores), len(tasks), squeeze=False, sharex=True, sharey=True)
    for score, row in zip(scores, panels, strict=True):
        for task, panel in zip(tasks, row, strict=True):
            for i, (title, steps) in enumerate(methods.items()):
                draw_curve(panel, task_curves(steps, task, score), title, i)
            shade_task(panel, first, task)
            _plain(panel, len(first))
        row[0].set_ylabel({"ari": "ARI (ARS)"}.get(score, HEADINGS[score]))
    for task, panel in zip(tasks, panels[0], strict=True):
        panel.set_title(f"task {task + 1}", fontsize="medium")
    panels[0, 0].set_ylim(-0.02, 1.02)
    figure.supxlabel(f"arrivals learned; {CAPTION}", fontsize="small")
    _legend(figure, panels[0, 0])
    return {"": figure}


def draw_counts(runs: Runs) -> "dict[str, Figure]":
    """Draw the number of clusters (Figure 5), the printed numbers as open marks at the ends of tasks."""
    from matplotlib.figure import Figure

    methods = _curves(runs)
    if not methods:
        return {}
    first = next(iter(methods.values()))[0]
    figure = Figure(figsize=(8.0, 4.2), layout="constrained")
    panel = figure.subplots()
    draw_cluster_counts(panel, methods, first)
    if not runs.plan.quick:
        ends = [
            i for i in range(1, len(first) + 1) if i == len(first) or first[i]["task"] != first[i - 1]["task"]
        ]
        look: dict[str, Any] = {"linestyle": "none", "fillstyle": "none", "color": "0.35", "markersize": 7}
        panel.plot(ends, published.STREAM_CLUSTERS, marker="s", label="printed: DBULL", **look)
        for i, (task, (low, high)) in enumerate(published.STREAM_CLUSTERS_CURL.items()):
            label = None if i else "printed: CURL-D, lowest and highest"
            panel.plot([ends[task]] * 2, [low, high], marker="^", label=label, **look)
    panel.autoscale(axis="y")
    panel.set_ylim(bottom=0)
    panel.set(title="", xlabel="arrivals learned", ylabel="clusters")
    _plain(panel, len(first))
    panel.legend(frameon=False, fontsize="small")
    return {"": figure}


def draw_generated(runs: Runs) -> "dict[str, Figure]":
    """Draw what clusters look like after each task (Figure 6), of the first seed that has kept it."""
    figures = {}
    for suffix, method in _own():
        for result in runs.of(runs.plan.stream, method):
            phases = read_generated(result.folder)
            if phases:
                figures[suffix] = _mosaic(phases, f"{TITLES[method]}, seed {result.seed}")
                break
    return figures


def draw_classes(runs: Runs) -> "dict[str, Figure]":
    """Draw precision and recall of each class (Figure 7)."""
    figures = {}
    for suffix, method in _own():
        results = runs.of(runs.plan.stream, method)
        if results:
            (steps,) = by_method(results).values()
            figures[suffix] = _classes(steps, f"{TITLES[method]}, {_seeds(results)}")
    return figures


FIGURES: dict[str, Callable[[Runs], "dict[str, Figure]"]] = {
    "fig3": lambda runs: draw_scores(runs, ("ari", "completeness")),
    "fig4": lambda runs: draw_scores(runs, ("homogeneity", "nmi_geometric", "v_measure")),
    "fig5": draw_counts,
    "fig6": draw_generated,
    "fig7": draw_classes,
}


def _own() -> list[tuple[str, str]]:
    """Return the methods that have a figure each, and what is added to its name."""
    return [("", OWN[0]), ("-paper", OWN[1])]


def _curves(runs: Runs) -> dict[str, Steps]:
    """Return the steps of each method that has runs, by its title."""
    results = [result for method in CURVES for result in runs.of(runs.plan.stream, method)]
    if not results:
        return {}
    found = by_method(results)
    return {TITLES[method]: found[method] for method in CURVES if method in found}


def _seeds(results: Sequence[Result]) -> str:
    return f"{len(results)} seed{'s' if len(results) > 1 else ''}"


def _plain(panel: "Axes", n_arrivals: int) -> None:
    from matplotlib.ticker import MaxNLocator

    panel.set_xlim(0.5, n_arrivals + 0.5)
    panel.xaxis.set_major_locator(MaxNLocator(5, integer=True))
    panel.spines[["top", "right"]].set_visible(False)


def _legend(figure: "Figure", panel: "Axes") -> None:
    handles, labels = panel.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=len(labels), frameon=False)


def _mosaic(phases: Sequence[Phase], title: str) -> "Figure":
    """Put the images of each phase side by side: a column for each cluster, oldest first, its mean on top."""
    from matplotlib.figure import Figure

    height, width = phases[0].images.shape[2:]
    gap = max(1, height // 10)
    most = max(len(phase.shares) for phase in phases)
    tile = min(0.45, (WIDE - 1.5) / most)  # inches
    tall = tile * (1 + N_SAMPLES)
    figure = Figure(
        figsize=(max(5.0, tile * most + 1.5), (tall + 0.42) * len(phases) + 0.4), layout="constrained"
    )
    panels = figure.subplots(len(phases), 1, squeeze=False)[:, 0]
    for panel, phase in zip(panels, phases, strict=True):
        n_clusters, n_images = phase.images.shape[:2]
        sheet = np.full((n_images * (height + gap), most * (width + gap)), 255, dtype=np.uint8)
        for column, images in enumerate(phase.images):
            for row, image in enumerate(images):
                top, left = row * (height + gap), column * (width + gap)
                sheet[top : top + height, left : left + width] = image
        panel.imshow(sheet, cmap="gray", vmin=0, vmax=255, interpolation="nearest")
        middles = [(row + 0.5) * (height + gap) for row in (0, 2)]
        panel.set_yticks(middles, ["mean", "samples"], fontsize="small")
        panel.set(xticks=[])
        panel.tick_params(left=False)
        panel.spines[:].set_visible(False)
        number = f"{n_clusters} cluster{'s' if n_clusters > 1 else ''}"
        panel.set_title(f"after task {phase.task + 1}: {number}", fontsize="medium", loc="left")
    figure.suptitle(title, fontsize="medium")
    return figure


def _classes(steps: Steps, title: str) -> "Figure":
    from matplotlib.figure import Figure

    labels = sorted({entry["label"] for run in steps for step in run for entry in step["per_class"]})
    n_columns = min(5, len(labels))
    n_rows = -(-len(labels) // n_columns)
    figure = Figure(figsize=(WIDE, 2.1 * n_rows + 0.9), layout="constrained")
    panels = figure.subplots(n_rows, n_columns, squeeze=False, sharex=True, sharey=True).ravel()
    for panel, label in zip(panels, labels, strict=False):
        for i, name in enumerate(("precision", "recall")):
            draw_curve(panel, _of_class(steps, label, name), name, i)
        panel.set_title(f"digit {label}", fontsize="medium")
        _plain(panel, len(steps[0]))
    for panel in panels[len(labels) :]:
        panel.set_axis_off()
    panels[0].set_ylim(-0.02, 1.02)
    figure.supxlabel(f"arrivals learned; {title}; clusters of one majority digit united", fontsize="small")
    _legend(figure, panels[0])
    return figure


def _of_class(steps: Steps, label: int, name: str) -> NDArray[np.float64]:
    """Return precision or recall of a class after each arrival, (seeds, arrivals), NaN where there is none.

    A class without a cluster of its own has no precision; it counts as 0.
    """
    values = []
    for run in steps:
        found = [{entry["label"]: entry[name] for entry in step["per_class"]} for step in run]
        values.append([np.nan if label not in one else one[label] or 0.0 for one in found])
    return np.array(values, dtype=np.float64)
