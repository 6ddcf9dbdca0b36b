"""A page with a map of somebody's own rows: a dot for each, coloured by cluster, with its key."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from markupsafe import Markup, escape
from numpy.typing import NDArray

from dbull.report.charts import hue
from dbull.report.page import check_target, environment, own_text
from dbull.writing import replacing

MOST_DOTS = 6000
SIDE, EDGE, LOWEST = 960, 20, 360  # of the map, in units of its own
TRIMMED = 0.002  # share of rows at each side that may lie beyond the edge


@dataclass(frozen=True)
class MappedRows:
    """Rows on a map."""

    points: NDArray[np.float64]  # (N, 2)
    clusters: NDArray[np.int64]  # (N,)
    keys: NDArray[np.object_]  # (N,) texts
    labels: Mapping[int, str]  # of clusters
    reasons: Mapping[int, str]  # what sets a cluster apart


def write_map(rows: MappedRows, title: str, path: str | os.PathLike[str]) -> Path:
    """Write the page to a file, whole or not at all, and return where it is."""
    check_target(path)
    ids, counts = np.unique(rows.clusters, return_counts=True)
    page = environment().get_template("map.html")
    html = page.render(
        title=title,
        n_rows=len(rows.points),
        n_dots=min(MOST_DOTS, len(rows.points)),
        style=own_text("style.css"),
        map=_dots(rows),
        clusters=sorted(zip(ids.tolist(), counts.tolist(), strict=True), key=lambda pair: -pair[1]),
        labels=rows.labels,
        reasons=rows.reasons,
    )
    with replacing(Path(path)) as handle:
        handle.write(html.encode("utf-8", "backslashreplace"))
    return Path(path)


def _dots(rows: MappedRows) -> Markup:
    """Draw the rows; of very many a sample, the same each time."""
    chosen = np.arange(len(rows.points))
    if len(chosen) > MOST_DOTS:
        chosen = np.sort(np.random.default_rng(0).permutation(len(chosen))[:MOST_DOTS])
    points = rows.points[chosen]
    # A few rows that are far out must not make a dot of all others.
    low, high = np.quantile(points, [TRIMMED, 1 - TRIMMED], axis=0)
    across, up = np.maximum(high - low, 1e-12)
    scale = (SIDE - 2 * EDGE) / max(across, up)
    wide, tall = SIDE, max(LOWEST, round(float(up * scale)) + 2 * EDGE)
    middle = (low + high) / 2
    drawn = np.array([wide, tall]) / 2 + (points - middle) * scale * np.array([1, -1])
    drawn = np.clip(drawn, 4, np.array([wide, tall]) - 4)
    clouds = []
    for cluster in np.unique(rows.clusters[chosen]).tolist():
        mine = np.flatnonzero(rows.clusters[chosen] == cluster)
        spots = [
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3"><title>{escape(rows.keys[chosen[i]])}</title></circle>'
            for i, (x, y) in zip(mine, drawn[mine].tolist(), strict=True)
        ]
        clouds.append(
            f'<g class="cloud" data-cluster="{cluster}" style="--h:{hue(cluster)}">{"".join(spots)}</g>'
        )
    spoken = escape(f"Map of {len(rows.points)} rows in {len(clouds)} clusters")
    return Markup(
        f'<svg class="map" viewBox="0 0 {wide} {tall}" role="img" aria-label="{spoken}">'
        f"{''.join(clouds)}</svg>"
    )
