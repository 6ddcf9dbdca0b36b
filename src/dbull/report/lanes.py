"""The timeline: a lane for each id, from its birth on; dots are rows, rings are births, curves are merges."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from markupsafe import Markup

from dbull.report.charts import hue
from dbull.report.data import ArrivalPoint, Lane

__all__ = ["timeline"]

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
    parts = [_heads(arrivals, across, step, height)]
    parts += [_lane(lane, rows_of, across, most, pictures.get(lane.id)) for lane in drawn]
    spoken = f"Timeline of {len(arrivals)} arrivals and {len(lanes)} clusters; the list below says the same."
    return Markup(
        '<svg class="lanes" viewBox="0 0 {:.0f} {}" style="min-width:{:.0f}px;max-width:{:.0f}px" role="img" '
        'aria-label="{}">{}</svg>'
    ).format(width, height, min(width * 0.75, 2400), width * 1.25, spoken, Markup("").join(parts))


def _shown(lanes: Sequence[Lane]) -> list[Lane]:
    if len(lanes) <= MOST_LANES:
        return list(lanes)
    largest = sorted(lanes, key=lambda lane: -sum(lane.rows.values()))[:MOST_LANES]
    return sorted(largest, key=lambda lane: lane.id)


def _heads(arrivals: Sequence[ArrivalPoint], across: dict[int, float], step: float, height: float) -> Markup:
    """Write arrivals across the top; where they are many, some of them."""
    every = math.ceil(44 / step)
    parts = []
    for i, arrival in enumerate(arrivals):
        x = across[arrival.number]
        if i % 2 == 0:
            parts.append(
                Markup('<rect class="stripe" x="{:.1f}" y="0" width="{:.1f}" height="{}"/>').format(
                    x - step / 2, step, height
                )
            )
        if i % every == 0:
            parts.append(
                Markup(
                    '<text class="head" x="{:.1f}" y="18" text-anchor="middle">{}</text>'
                    '<text class="tick" x="{:.1f}" y="34" text-anchor="middle">{}</text>'
                ).format(x, arrival.number + 1, x, _short(arrival.rows))
            )
    parts.append(
        Markup('<text class="tick" x="4" y="18">arrival</text><text class="tick" x="4" y="34">rows</text>')
    )
    return Markup("").join(parts)


def _lane(
    lane: Lane, rows_of: dict[int, float], across: dict[int, float], most: int, picture: str | None
) -> Markup:
    y = rows_of[lane.id]
    start = across.get(lane.first_seen, LABEL_WIDTH)
    end = max(across.values(), default=start) if lane.end is None else across.get(lane.end, start)
    parts = [
        Markup('<line class="life" x1="{:.1f}" x2="{:.1f}" y1="{:.1f}" y2="{:.1f}"/>').format(
            start, end, y, y
        )
    ]
    if lane.into is not None and lane.into in rows_of:
        parts.append(
            Markup('<path class="merge" d="M{:.1f} {:.1f} q14 0 14 {:.1f} t-14 {:.1f}"/>').format(
                end, y, (rows_of[lane.into] - y) / 2, (rows_of[lane.into] - y) / 2
            )
        )
    for arrival, n in lane.rows.items():
        radius = max(SMALLEST_DOT, LARGEST_DOT * math.sqrt(n / most))
        x = across[arrival]
        if arrival == lane.first_seen:
            parts.append(
                Markup('<circle class="birth" cx="{:.1f}" cy="{:.1f}" r="{:.1f}"/>').format(x, y, radius + 3)
            )
        parts.append(
            Markup(
                '<circle class="rows" cx="{:.1f}" cy="{:.1f}" r="{:.1f}"><title>{}</title></circle>'
            ).format(x, y, radius, f"{lane.label}, arrival {arrival + 1}: {n:,} rows")
        )
    name = lane.label if len(lane.label) <= LONGEST_LABEL else lane.label[: LONGEST_LABEL - 1] + "…"
    ended = " ended" if lane.end is not None else ""
    key = Markup('<circle class="key" cx="14" cy="{:.1f}" r="6"/>').format(y)
    if picture is not None:
        key = Markup(
            '<rect class="key" x="1" y="{:.1f}" width="26" height="26" rx="5"/>'
            '<image x="3" y="{:.1f}" width="22" height="22" href="{}"/>'
        ).format(y - 13, y - 11, picture)
    return Markup(
        '<g class="lane{}" data-cluster="{}" style="--h:{}">{}'
        '<text class="name" x="35" y="{:.1f}">{}</text>{}</g>'
    ).format(ended, lane.id, hue(lane.id), key, y + 4.5, name, Markup("").join(parts))


def _short(n: int) -> str:
    """Write a number of rows in four places."""
    for size, unit in ((1_000_000, "M"), (1_000, "k")):
        if n >= 10 * size:
            return f"{n / size:.0f}{unit}"
        if n >= size:
            return f"{n / size:.1f}{unit}"
    return str(n)
