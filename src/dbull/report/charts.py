"""Small charts as inline SVG; colours come from the CSS. Texts of other people go through `escape`."""

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import combinations

import numpy as np
from markupsafe import Markup, escape

from dbull.report.data import ArrivalPoint, CodeMap, Lane

WIDTH, HEIGHT = 340, 170  # of a chart, in units of its own
LEFT, RIGHT, TOP, BOTTOM = 46, 12, 12, 26
MAP_SIDE, MAP_EDGE, LOWEST_MAP = 720, 44, 300
MOST_PICTURES = 40  # prototypes on the map
PICTURE_SIDE = 42
LABEL_WIDTH, LANE_HEIGHT, HEAD = 150, 32, 46
WIDE, WIDEST_STEP, NARROWEST_STEP = 880, 150, 16
LARGEST_DOT, SMALLEST_DOT = 11.0, 2.2
MOST_LANES = 60
LONGEST_LABEL = 15


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


def _scale(low: float, high: float, start: float, end: float) -> Callable[[float], float]:
    """Return the function from values to places on the paper."""
    if high <= low:
        return lambda value: (start + end) / 2
    return lambda value: start + (value - low) / (high - low) * (end - start)


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
    across = _scale(arrivals[0].number, arrivals[-1].number, LEFT + 6, WIDTH - RIGHT - 6)
    up = _scale(low, high, HEIGHT - BOTTOM, TOP)
    spoken = f"{label}. " + ", ".join(f"arrival {number}: {say(value)}" for number, value in known[-50:])
    parts = [f'<svg class="chart" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(spoken)}">']
    for at in (low, (low + high) / 2, high):
        y = up(at)
        parts.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(f'<text class="tick" x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{say(at)}</text>')
    for number in _some([a.number for a in arrivals], 8):
        place = f'x="{across(number):.1f}" y="{HEIGHT - 8}"'
        parts.append(f'<text class="tick" {place} text-anchor="middle">{number}</text>')
    line = " ".join(f"{across(number):.1f},{up(value):.1f}" for number, value in known)
    parts.append(f'<polyline class="line" points="{line}"/>')
    for number, value in known:
        place = f'cx="{across(number):.1f}" cy="{up(value):.1f}" r="{4 if len(known) <= 40 else 2}"'
        title = f"<title>arrival {number}: {say(value)}</title>"
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


def timeline(lanes: Sequence[Lane], arrivals: Sequence[ArrivalPoint], pictures: Mapping[int, str]) -> Markup:
    """Draw a lane for each id from its birth on; dots are rows, rings are births, curves are merges.

    Of very many those with the most rows. `pictures` are addresses of prototypes, where there are any.
    """
    drawn = _shown(lanes)
    step = max(NARROWEST_STEP, min(WIDEST_STEP, WIDE / max(1, len(arrivals))))
    across = {a.number: LABEL_WIDTH + (i + 0.5) * step for i, a in enumerate(arrivals)}
    rows_of = {lane.id: HEAD + (i + 0.5) * LANE_HEIGHT for i, lane in enumerate(drawn)}
    width = LABEL_WIDTH + len(arrivals) * step + 12
    height = HEAD + len(drawn) * LANE_HEIGHT + 8
    most = max([n for lane in drawn for n in lane.rows.values()], default=1)
    spoken = f"Timeline of {len(arrivals)} arrivals and {len(lanes)} clusters; the list below says the same."
    style = f"min-width:{min(width * 0.75, 2400):.0f}px;max-width:{width * 1.25:.0f}px"
    parts = [
        f'<svg class="lanes" viewBox="0 0 {width:.0f} {height}" style="{style}" role="img" '
        f'aria-label="{spoken}">',
        _heads(arrivals, across, step, height),
        *(_lane(lane, rows_of, across, most, pictures.get(lane.id)) for lane in drawn),
        "</svg>",
    ]
    return Markup("".join(parts))


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


def _shown(lanes: Sequence[Lane]) -> list[Lane]:
    if len(lanes) <= MOST_LANES:
        return list(lanes)
    largest = sorted(lanes, key=lambda lane: -sum(lane.rows.values()))[:MOST_LANES]
    return sorted(largest, key=lambda lane: lane.id)


def _heads(arrivals: Sequence[ArrivalPoint], across: dict[int, float], step: float, height: float) -> str:
    """Write arrivals across the top; where they are many, some of them."""
    every = math.ceil(44 / step)
    parts = []
    for i, arrival in enumerate(arrivals):
        x = across[arrival.number]
        if i % 2 == 0:
            place = f'x="{x - step / 2:.1f}" y="0" width="{step:.1f}" height="{height}"'
            parts.append(f'<rect class="stripe" {place}/>')
        if i % every == 0:
            for kind, y, text in (("head", 18, arrival.number), ("tick", 34, _short(arrival.rows))):
                parts.append(f'<text class="{kind}" x="{x:.1f}" y="{y}" text-anchor="middle">{text}</text>')
    parts.append('<text class="tick" x="4" y="18">arrival</text><text class="tick" x="4" y="34">rows</text>')
    return "".join(parts)


def _lane(
    lane: Lane, rows_of: dict[int, float], across: dict[int, float], most: int, picture: str | None
) -> str:
    y = rows_of[lane.id]
    start = across.get(lane.first_seen, LABEL_WIDTH)
    end = max(across.values(), default=start) if lane.end is None else across.get(lane.end, start)
    parts = [f'<line class="life" x1="{start:.1f}" x2="{end:.1f}" y1="{y:.1f}" y2="{y:.1f}"/>']
    if lane.into is not None and lane.into in rows_of:
        half = (rows_of[lane.into] - y) / 2
        parts.append(f'<path class="merge" d="M{end:.1f} {y:.1f} q14 0 14 {half:.1f} t-14 {half:.1f}"/>')
    for arrival, n in lane.rows.items():
        radius = max(SMALLEST_DOT, LARGEST_DOT * math.sqrt(n / most))
        centre = f'cx="{across[arrival]:.1f}" cy="{y:.1f}"'
        if arrival == lane.first_seen:
            parts.append(f'<circle class="birth" {centre} r="{radius + 3:.1f}"/>')
        title = escape(f"{lane.label}, arrival {arrival}: {n:,} rows")
        parts.append(f'<circle class="rows" {centre} r="{radius:.1f}"><title>{title}</title></circle>')
    name = lane.label if len(lane.label) <= LONGEST_LABEL else lane.label[: LONGEST_LABEL - 1] + "…"
    key = f'<circle class="key" cx="14" cy="{y:.1f}" r="6"/>'
    if picture is not None:
        key = (
            f'<rect class="key" x="1" y="{y - 13:.1f}" width="26" height="26" rx="5"/>'
            f'<image x="3" y="{y - 11:.1f}" width="22" height="22" href="{escape(picture)}"/>'
        )
    ended = " ended" if lane.end is not None else ""
    return (
        f'<g class="lane{ended}" data-cluster="{lane.id}" style="--h:{hue(lane.id)}">{key}'
        f'<text class="name" x="35" y="{y + 4.5:.1f}">{escape(name)}</text>{"".join(parts)}</g>'
    )


def _short(n: int) -> str:
    """Write a number of rows in four places."""
    for size, unit in ((1_000_000, "M"), (1_000, "k")):
        if n >= 10 * size:
            return f"{n / size:.0f}{unit}"
        if n >= size:
            return f"{n / size:.1f}{unit}"
    return str(n)
