"""The course of training as curves over epochs, with its stages, births and merges."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dbull.experiments.figures import COLOURS, MAX_MARKED, save_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Stages whose epochs are drawn. Layer-wise pretraining measures another error, of each layer by itself.
STAGES = {"represent": "networks alone", "joint": "networks and clusters in turn"}
SHADES = {"represent": "0.95", "joint": "0.87"}
NARROWEST = 0.3  # a stage's width as a share of all epochs: a few epochs after many must stay readable


Value = Callable[[Any], float | None]  # of the terms of an epoch; None where it has no meaning
# The terms of the objective: title, what is better, and the value.
CURVES: tuple[tuple[str, str, Value], ...] = (
    ("reconstruction", "higher", lambda t: t.reconstruction),
    (
        "fit of codes to clusters: log prior + entropy",
        "higher",
        lambda t: t.log_prior + t.entropy if t.log_prior or t.entropy else None,
    ),
    ("neighbourhood loss: are neighbours still together?", "lower", lambda t: t.neighbourhood or None),
)


@dataclass(frozen=True)
class _Stretch:
    """Epochs of one stage in a row, and where they lie on the axis."""

    stage: str
    epochs: tuple[Any, ...]
    n_before: int
    left: float
    width: float

    def at(self, epoch: int) -> float:
        """Return the place of the end of an epoch, counted from 1 within the stretch."""
        return self.left + self.width * epoch / len(self.epochs)


def draw_training(history: Sequence[Any], target: Path) -> None:
    """Draw what happened while learning, from the `Progress` records of a learner."""
    from matplotlib.figure import Figure

    stretches = _stretches(history)
    terms = [progress.terms for stretch in stretches for progress in stretch.epochs]
    curves = [curve for curve in CURVES if any(curve[2](t) is not None for t in terms)]
    n_panels = len(curves) + 1
    figure = Figure(figsize=(7.5, 1.75 * n_panels + 1.0), layout="constrained")
    panels = figure.subplots(n_panels, 1, sharex=True, squeeze=False)[:, 0]
    for i, (title, better, value) in enumerate(curves):
        _draw_curve(panels[i], stretches, value, COLOURS[i])
        panels[i].set_title(title, fontsize="medium", loc="left")
        panels[i].set_ylabel(f"nats per row\n{better} is better", fontsize="small")
    _draw_components(panels[-1], history, stretches)
    for panel in panels:
        for stretch in stretches:
            right = stretch.at(len(stretch.epochs))
            panel.axvspan(stretch.left, right, color=SHADES[stretch.stage], lw=0, zorder=0)
        panel.spines[["top", "right"]].set_visible(False)
    _label_axis(panels[-1], stretches)
    found = "not complete"
    for progress in history:
        if progress.stage == "done":
            found = f"{progress.n_components} components in {progress.n_clusters} clusters"
    stages = [f"{shade}: {STAGES[stage]}" for stage, shade in (("represent", "light"), ("joint", "dark"))]
    caption = f"\nshading, {'; '.join(stages)}" if stretches else ""
    figure.suptitle(f"Course of training: {found}{caption}", fontsize="medium")
    save_figure(figure, target)


def _stretches(history: Sequence[Any]) -> list[_Stretch]:
    epochs = [progress for progress in history if progress.stage in STAGES and progress.terms is not None]
    stretches: list[_Stretch] = []
    n_before, left = 0, 0.0
    for stage, group in groupby(epochs, key=lambda progress: progress.stage):
        own = tuple(group)
        width = max(float(len(own)), NARROWEST * len(epochs))
        stretches.append(_Stretch(stage, own, n_before, left, width))
        n_before, left = n_before + len(own), left + width
    return stretches


def _draw_curve(panel: "Axes", stretches: Sequence[_Stretch], value: Value, colour: str) -> None:
    """Draw one term; the line breaks between stages, whose losses differ."""
    for stretch in stretches:
        points = [
            (stretch.at(i), known)
            for i, progress in enumerate(stretch.epochs, start=1)
            if (known := value(progress.terms)) is not None
        ]
        if points:
            _draw_line(panel, points, colour)


def _draw_line(panel: "Axes", points: Sequence[tuple[float, float]], colour: str) -> None:
    marker = "o" if len(points) <= MAX_MARKED else None
    panel.plot(*zip(*points, strict=True), color=colour, linewidth=1.5, marker=marker, markersize=3.5)


def _draw_components(panel: "Axes", history: Sequence[Any], stretches: Sequence[_Stretch]) -> None:
    """Draw the number of components and write beside it how many were born and how many went."""
    places = {
        id(progress): stretch.at(i)
        for stretch in stretches
        for i, progress in enumerate(stretch.epochs, start=1)
    }
    at, points = 0.0, []
    for progress in history:
        if progress.stage not in (*STAGES, "search"):
            continue
        at = places.get(id(progress), at)  # a search stands where the epoch before it ended
        points.append((at, progress.n_components))
        born = sum(len(move.born) for move in progress.moves)
        gone = sum(len(move.gone) for move in progress.moves)
        for count, sign, colour, height in ((born, "▲", COLOURS[0], 5), (gone, "▼", COLOURS[1], 16)):
            if count:
                look: dict[str, Any] = {"color": colour, "fontsize": "small", "ha": "center"}
                above = (0, height)
                panel.annotate(f"{sign} {count}", points[-1], above, textcoords="offset points", **look)
    _draw_line(panel, points, "black")
    top = max(number for _, number in points)
    panel.set_ylim(0, 1.5 * top + 1)  # room for the numbers
    panel.set_title("components of the mixture: ▲ born, ▼ merged or dissolved", fontsize="medium", loc="left")
    panel.set_ylabel("number", fontsize="small")


def _label_axis(panel: "Axes", stretches: Sequence[_Stretch]) -> None:
    """Number the epochs through; stages are drawn with widths of their own."""
    if not stretches:
        panel.set_xticks([])
        return
    ticks = {stretches[0].at(1): 1}
    for stretch in stretches:
        n_epochs = len(stretch.epochs)
        for epoch in {-(-n_epochs // 2), n_epochs}:
            ticks[stretch.at(epoch)] = stretch.n_before + epoch
    panel.set_xticks(list(ticks), [str(number) for number in ticks.values()])
    last = stretches[-1]
    panel.set_xlim(0, last.at(len(last.epochs)) * 1.01)
    panel.set_xlabel("epoch")
