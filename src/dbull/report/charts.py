"""Small charts as inline SVG. `Markup.format` escapes what it is given; colours come from the CSS."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from dbull.report.data import ArrivalPoint, CodeMap

__all__ = ["bars", "code_map", "hue", "line_chart"]

WIDTH, HEIGHT = 340, 170  # of a chart, in units of its own
LEFT, RIGHT, TOP, BOTTOM = 46, 12, 12, 26
MAP_SIDE, MAP_EDGE = 720, 44
MOST_PICTURES = 40  # prototypes on the map


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
    every = [place for points in codes.points.values() for place in points.tolist()]
    lows, highs = (
        [min(axis) for axis in zip(*every, strict=True)],
        [max(axis) for axis in zip(*every, strict=True)],
    )
    reach = max(highs[0] - lows[0], highs[1] - lows[1], 1e-12)
    wide = MAP_SIDE
    tall = max(300, round((highs[1] - lows[1]) / reach * (MAP_SIDE - 2 * MAP_EDGE)) + 2 * MAP_EDGE)
    scale = min((wide - 2 * MAP_EDGE) / reach, (tall - 2 * MAP_EDGE) / max(highs[1] - lows[1], 1e-12))
    middle = [(low + high) / 2 for low, high in zip(lows, highs, strict=True)]

    def place(point: Sequence[float]) -> tuple[float, float]:
        return wide / 2 + (point[0] - middle[0]) * scale, tall / 2 - (point[1] - middle[1]) * scale

    clouds, centres = [], []
    for cluster, points in codes.points.items():
        dots = Markup("").join(
            Markup('<circle cx="{:.1f}" cy="{:.1f}" r="3"/>').format(*place(point))
            for point in points.tolist()
        )
        clouds.append(
            Markup('<g class="cloud" data-cluster="{}" style="--h:{}">{}</g>').format(
                cluster, hue(cluster), dots
            )
        )
        x, y = place(points.mean(0).tolist())
        centres.append(_centre(cluster, labels[cluster], x, y, pictures.get(cluster)))
    spoken = f"Map of {len(codes.points)} clusters: {', '.join(labels.values())}"
    return Markup('<svg class="map" viewBox="0 0 {} {}" role="img" aria-label="{}">{}{}</svg>').format(
        wide, tall, spoken, Markup("").join(clouds), Markup("").join(centres)
    )


def _centre(cluster: int, label: str, x: float, y: float, picture: str | None) -> Markup:
    """Mark the middle of a cluster by its prototype, or by its id."""
    group = Markup(
        '<g class="centre" data-cluster="{}" style="--h:{}" transform="translate({:.1f} {:.1f})">'
        "<title>{}</title>{}</g>"
    )
    if picture is None:
        drawn = Markup('<circle r="15"/><text y="5" text-anchor="middle">{}</text>').format(cluster)
    else:
        drawn = Markup(
            '<rect x="-22" y="-22" width="44" height="44" rx="7"/>'
            '<image x="-19" y="-19" width="38" height="38" href="{}"/>'
            '<circle cx="20" cy="-20" r="11"/><text x="20" y="-15.5" text-anchor="middle">{}</text>'
        ).format(picture, cluster)
    return group.format(cluster, hue(cluster), x, y, label, drawn)


def _some(numbers: Sequence[int], at_most: int) -> list[int]:
    """Return numbers evenly spread over a sequence, first and last among them."""
    if len(numbers) <= at_most:
        return list(numbers)
    return [numbers[round(i * (len(numbers) - 1) / (at_most - 1))] for i in range(at_most)]
