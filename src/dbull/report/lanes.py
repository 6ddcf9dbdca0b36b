"""The timeline: a lane for each id, from its birth on; dots are rows, rings are births, curves are merges."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from markupsafe import Markup, escape

from dbull.report.charts import hue
from dbull.report.data import ArrivalPoint, Lane

LABEL_WIDTH, LANE_HEIGHT, HEAD = 150, 32, 46
WIDE, WIDEST_STEP, NARROWEST_STEP = 880, 150, 16
LARGEST_DOT, SMALLEST_DOT = 11.0, 2.2
MOST_LANES = 60
LONGEST_LABEL = 15


def timeline(lanes: Sequence[Lane], arrivals: Sequence[ArrivalPoint], pictures: Mapping[int, str]) -> Markup:
    """Draw the lives of clusters over the arrivals; of very many those with the most rows.

    `pictures` are addresses of prototypes, where there are any.
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
            for kind, y, text in (("head", 18, arrival.number + 1), ("tick", 34, _short(arrival.rows))):
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
        title = escape(f"{lane.label}, arrival {arrival + 1}: {n:,} rows")
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
