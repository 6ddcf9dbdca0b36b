"""Small charts as inline SVG; colours come from the CSS. Texts of other people go through `escape`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from markupsafe import Markup, escape

from dbull.report.data import ArrivalPoint, CodeMap

WIDTH, HEIGHT = 340, 170  # of a chart, in units of its own
LEFT, RIGHT, TOP, BOTTOM = 46, 12, 12, 26
MAP_SIDE, MAP_EDGE, LOWEST_MAP = 720, 44, 300
MOST_PICTURES = 40  # prototypes on the map
PICTURE_SIDE = 42


def hue(cluster: int) -> int:
    """Return the hue of a cluster in degrees: a function of its id, so that its colour never changes."""
    return round(265 + cluster * 137.508) % 360  # the golden angle keeps neighbouring ids apart


def bars(counts: Sequence[int], label: str) -> Markup:
    """Draw rows per arrival; what is said to those who do not see it is the numbers themselves."""
    high, step, top = 36, 200 / max(1, len(counts)), max([*counts, 1])
    gap = min(2.0, step * 0.2)
    parts = [
        f'<svg class="bars" viewBox="0 0 200 {high}" preserveAspectRatio="none" role="img" '
        f'aria-label="{escape(label)}">'
    ]
    for i, count in enumerate(counts):
        tall, none = max(1.5, count / top * high), "" if count else ' class="none"'
        place = f'x="{i * step + gap / 2:.1f}" y="{high - tall:.1f}"'
        parts.append(f'<rect {place} width="{step - gap:.1f}" height="{tall:.1f}"{none}/>')
    return Markup("".join([*parts, "</svg>"]))


@dataclass(frozen=True)
class Scale:
    """A range of values and the places on the paper that it becomes."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        """Return the place of a value."""
        if self.high <= self.low:
            return (self.start + self.end) / 2
        return self.start + (value - self.low) / (self.high - self.low) * (self.end - self.start)


def line_chart(
    arrivals: Sequence[ArrivalPoint],
    value_of: Callable[[ArrivalPoint], float | None],
    say: Callable[[float], str],
    label: str,
    limits: tuple[float | None, float | None] = (None, None),
) -> Markup:
    """Draw one value over the arrivals, a dot for each; arrivals without it are left out."""
    known = [(a.number, value) for a in arrivals if (value := value_of(a)) is not None]
    if not known:
        return Markup(f'<p class="quiet">Not known yet: {escape(label.lower())}.</p>')
    values = [value for _, value in known]
    low = min(values) if limits[0] is None else limits[0]
    high = max(values) if limits[1] is None else limits[1]
    if high <= low:
        pad = abs(low) * 0.05 or 1.0
        low, high = low - (pad if limits[0] is None else 0.0), high + pad
    across = Scale(arrivals[0].number, arrivals[-1].number, LEFT + 6, WIDTH - RIGHT - 6)
    up = Scale(low, high, HEIGHT - BOTTOM, TOP)
    spoken = f"{label}. " + ", ".join(f"arrival {number + 1}: {say(value)}" for number, value in known[-50:])
    parts = [f'<svg class="chart" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(spoken)}">']
    for at in (low, (low + high) / 2, high):
        y = up(at)
        parts.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(f'<text class="tick" x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{say(at)}</text>')
    for number in _some([a.number for a in arrivals], 8):
        place = f'x="{across(number):.1f}" y="{HEIGHT - 8}"'
        parts.append(f'<text class="tick" {place} text-anchor="middle">{number + 1}</text>')
    line = " ".join(f"{across(number):.1f},{up(value):.1f}" for number, value in known)
    parts.append(f'<polyline class="line" points="{line}"/>')
    for number, value in known:
        place = f'cx="{across(number):.1f}" cy="{up(value):.1f}" r="{4 if len(known) <= 40 else 2}"'
        title = f"<title>arrival {number + 1}: {say(value)}</title>"
        parts.append(f'<circle class="dot" {place}>{title}</circle>')
    return Markup("".join([*parts, "</svg>"]))


def code_map(codes: CodeMap, labels: dict[int, str], pictures: dict[int, str]) -> Markup:
    """Draw the codes of clusters in the plane; `pictures` are addresses of prototypes, if there are any."""
    every = np.concatenate(list(codes.points.values()))
    lows, highs = every.min(0), every.max(0)
    across, up = np.maximum(highs - lows, 1e-12).tolist()
    middle = ((lows + highs) / 2).tolist()
    wide, scale = MAP_SIDE, (MAP_SIDE - 2 * MAP_EDGE) / max(across, up)
    tall = max(LOWEST_MAP, round(up * scale) + 2 * MAP_EDGE)

    def place(point: Sequence[float]) -> tuple[float, float]:
        return wide / 2 + (point[0] - middle[0]) * scale, tall / 2 - (point[1] - middle[1]) * scale

    clouds, lines, centres = [], [], []
    middles = {cluster: place(points.mean(0).tolist()) for cluster, points in codes.points.items()}
    seats = _apart(middles, PICTURE_SIDE + 6) if pictures else middles
    for cluster, points in codes.points.items():
        own = f'data-cluster="{cluster}" style="--h:{hue(cluster)}"'
        spots = [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3"/>' for x, y in map(place, points.tolist())]
        clouds.append(f'<g class="cloud" {own}>{"".join(spots)}</g>')
        (x, y), (to_x, to_y) = middles[cluster], seats[cluster]
        lines.append(f'<g class="thread" {own}><path d="M{x:.1f} {y:.1f} L{to_x:.1f} {to_y:.1f}"/></g>')
        title, seal = escape(labels[cluster]), _seal(cluster, pictures.get(cluster))
        moved = f'transform="translate({to_x:.1f} {to_y:.1f})"'
        centres.append(f'<g class="centre" {own} {moved}><title>{title}</title>{seal}</g>')
    spoken = escape(f"Map of {len(codes.points)} clusters: {', '.join(labels.values())}")
    inside = "".join([*clouds, *lines, *centres])
    return Markup(
        f'<svg class="map" viewBox="0 0 {wide} {tall}" role="img" aria-label="{spoken}">{inside}</svg>'
    )


def _seal(cluster: int, picture: str | None) -> str:
    """Mark the middle of a cluster by its prototype, or by its id."""
    if picture is None:
        return f'<circle r="15"/><text y="5" text-anchor="middle">{cluster}</text>'
    side, half, inner = PICTURE_SIDE, PICTURE_SIDE / 2, PICTURE_SIDE - 6
    return (
        f'<rect x="{-half}" y="{-half}" width="{side}" height="{side}" rx="7"/>'
        f'<image x="{3 - half}" y="{3 - half}" width="{inner}" height="{inner}" href="{escape(picture)}"/>'
        f'<circle cx="{half - 3}" cy="{3 - half}" r="10.5"/>'
        f'<text x="{half - 3}" y="{7.5 - half}" text-anchor="middle">{cluster}</text>'
    )


def _apart(places: dict[int, tuple[float, float]], side: float) -> dict[int, tuple[float, float]]:
    """Move squares that cover each other apart, as little as it takes; those of many may still touch."""
    seats = {key: list(place) for key, place in places.items()}
    for _ in range(80):
        for one, other in combinations(seats, 2):
            gaps = [seats[other][axis] - seats[one][axis] for axis in (0, 1)]
            if max(map(abs, gaps)) < side:
                axis = 0 if abs(gaps[0]) >= abs(gaps[1]) else 1
                push = (side - abs(gaps[axis])) / 2 * (1 if gaps[axis] >= 0 else -1)
                seats[one][axis] -= push / 2
                seats[other][axis] += push / 2
    return {key: (x, y) for key, (x, y) in seats.items()}


def _some(numbers: Sequence[int], at_most: int) -> list[int]:
    """Return numbers evenly spread over a sequence, first and last among them."""
    if len(numbers) <= at_most:
        return list(numbers)
    return [numbers[round(i * (len(numbers) - 1) / (at_most - 1))] for i in range(at_most)]
