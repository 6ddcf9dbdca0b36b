"""Small charts as inline SVG. `Markup.format` escapes what it is given; colours come from the CSS."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from markupsafe import Markup

from dbull.report.data import ArrivalPoint, CodeMap

__all__ = ["bars", "code_map", "hue", "line_chart"]

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
    n, high = max(1, len(counts)), 36
    step = 200 / n
    gap = min(2.0, step * 0.2)
    top = max([*counts, 1])
    parts = [
        Markup('<rect x="{:.1f}" y="{:.1f}" width="{:.1f}" height="{:.1f}"{}/>').format(
            i * step + gap / 2,
            high - max(1.5, count / top * high),
            step - gap,
            max(1.5, count / top * high),
            Markup("") if count else Markup(' class="none"'),
        )
        for i, count in enumerate(counts)
    ]
    return Markup(
        '<svg class="bars" viewBox="0 0 200 {}" preserveAspectRatio="none" role="img" aria-label="{}">'
        "{}</svg>"
    ).format(high, label, Markup("").join(parts))


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
        return Markup('<p class="quiet">Not known yet: {}.</p>').format(label.lower())
    values = [value for _, value in known]
    low = min(values) if limits[0] is None else limits[0]
    high = max(values) if limits[1] is None else limits[1]
    if high <= low:
        pad = abs(low) * 0.05 or 1.0
        low, high = low - (pad if limits[0] is None else 0.0), high + pad
    across = Scale(arrivals[0].number, arrivals[-1].number, LEFT + 6, WIDTH - RIGHT - 6)
    up = Scale(low, high, HEIGHT - BOTTOM, TOP)
    grid = [
        Markup(
            '<line class="grid" x1="{}" x2="{}" y1="{:.1f}" y2="{:.1f}"/>'
            '<text class="tick" x="{}" y="{:.1f}" text-anchor="end">{}</text>'
        ).format(LEFT, WIDTH - RIGHT, up(at), up(at), LEFT - 6, up(at) + 4, say(at))
        for at in (low, (low + high) / 2, high)
    ]
    ticks = [
        Markup('<text class="tick" x="{:.1f}" y="{}" text-anchor="middle">{}</text>').format(
            across(number), HEIGHT - 8, number + 1
        )
        for number in _some([a.number for a in arrivals], 8)
    ]
    line = " ".join(f"{across(number):.1f},{up(value):.1f}" for number, value in known)
    dots = [
        Markup('<circle class="dot" cx="{:.1f}" cy="{:.1f}" r="{}"><title>{}</title></circle>').format(
            across(number),
            up(value),
            4 if len(known) <= 40 else 2,
            f"arrival {number + 1}: {say(value)}",
        )
        for number, value in known
    ]
    spoken = f"{label}. " + ", ".join(f"arrival {number + 1}: {say(value)}" for number, value in known[-50:])
    return Markup(
        '<svg class="chart" viewBox="0 0 {} {}" role="img" aria-label="{}">{}{}'
        '<polyline class="line" points="{}"/>{}</svg>'
    ).format(
        WIDTH, HEIGHT, spoken, Markup("").join(grid), Markup("").join(ticks), line, Markup("").join(dots)
    )


def code_map(codes: CodeMap, labels: dict[int, str], pictures: dict[int, str]) -> Markup:
    """Draw the codes of clusters in the plane; `pictures` are addresses of prototypes, if there are any."""
    every = np.concatenate(list(codes.points.values()))
    lows, highs = every.min(0), every.max(0)
    across, up = np.maximum(highs - lows, 1e-12).tolist()
    middle = ((lows + highs) / 2).tolist()
    wide, inner = MAP_SIDE, MAP_SIDE - 2 * MAP_EDGE
    scale = inner / max(across, up)
    tall = max(LOWEST_MAP, round(up * scale) + 2 * MAP_EDGE)

    def place(point: Sequence[float]) -> tuple[float, float]:
        return wide / 2 + (point[0] - middle[0]) * scale, tall / 2 - (point[1] - middle[1]) * scale

    clouds, lines, centres = [], [], []
    middles = {cluster: place(points.mean(0).tolist()) for cluster, points in codes.points.items()}
    seats = _apart(middles, PICTURE_SIDE + 6) if pictures else middles
    for cluster, points in codes.points.items():
        attributes = Markup('data-cluster="{}" style="--h:{}"').format(cluster, hue(cluster))
        spots = [Markup('<circle cx="{:.1f}" cy="{:.1f}" r="3"/>').format(*place(p)) for p in points.tolist()]
        clouds.append(Markup('<g class="cloud" {}>{}</g>').format(attributes, Markup("").join(spots)))
        (x, y), (to_x, to_y) = middles[cluster], seats[cluster]
        lines.append(
            Markup('<g class="thread" {}><path d="M{:.1f} {:.1f} L{:.1f} {:.1f}"/></g>').format(
                attributes, x, y, to_x, to_y
            )
        )
        centres.append(
            Markup(
                '<g class="centre" {} transform="translate({:.1f} {:.1f})"><title>{}</title>{}</g>'
            ).format(attributes, to_x, to_y, labels[cluster], _seal(cluster, pictures.get(cluster)))
        )
    spoken = f"Map of {len(codes.points)} clusters: {', '.join(labels.values())}"
    return Markup('<svg class="map" viewBox="0 0 {} {}" role="img" aria-label="{}">{}</svg>').format(
        wide, tall, spoken, Markup("").join([*clouds, *lines, *centres])
    )


def _seal(cluster: int, picture: str | None) -> Markup:
    """Mark the middle of a cluster by its prototype, or by its id."""
    if picture is None:
        return Markup('<circle r="15"/><text y="5" text-anchor="middle">{}</text>').format(cluster)
    half = PICTURE_SIDE / 2
    return Markup(
        '<rect x="{}" y="{}" width="{}" height="{}" rx="7"/>'
        '<image x="{}" y="{}" width="{}" height="{}" href="{}"/>'
        '<circle cx="{}" cy="{}" r="10.5"/><text x="{}" y="{}" text-anchor="middle">{}</text>'
    ).format(
        *(-half, -half, PICTURE_SIDE, PICTURE_SIDE),
        *(3 - half, 3 - half, PICTURE_SIDE - 6, PICTURE_SIDE - 6, picture),
        *(half - 3, 3 - half, half - 3, 7.5 - half, cluster),
    )


def _apart(places: dict[int, tuple[float, float]], side: float) -> dict[int, tuple[float, float]]:
    """Move squares that cover each other apart, as little as it takes; those of many may still touch."""
    seats = {key: list(place) for key, place in places.items()}
    keys = list(seats)
    for _ in range(80):
        for i, one in enumerate(keys):
            for other in keys[i + 1 :]:
                gaps = [seats[other][axis] - seats[one][axis] for axis in (0, 1)]
                if max(map(abs, gaps)) >= side:
                    continue
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
