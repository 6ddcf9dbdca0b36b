"""The page itself: one HTML file with its style, its script and all its pictures inside."""

import os
from datetime import datetime
from functools import cache
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from dbull.ledger import Event
from dbull.methods.traits import shown
from dbull.report.charts import MOST_PICTURES, bars, code_map, hue, line_chart, timeline
from dbull.report.data import ArrivalPoint, Cluster, ReportData, sentence
from dbull.report.images import data_uri, tiled
from dbull.writing import check_place, make_parent, replacing

TEMPLATES = Path(__file__).parent / "templates"
SAMPLE_COLUMNS = 3
MOST_HAPPENINGS = 400  # the latest are listed


def render_report(data: ReportData) -> str:
    """Return the page as HTML."""
    prototypes = {c.id: data_uri(c.prototype) for c in data.clusters if c.prototype is not None}
    labels = {c.id: c.label for c in data.clusters}
    on_map = prototypes if len(data.clusters) <= MOST_PICTURES else {}
    page = environment().get_template("report.html")
    return page.render(
        data=data,
        summary=_summary(data),
        style=own_text("style.css"),
        script=own_text("script.js"),
        prototypes=prototypes,
        samples={c.id: data_uri(tiled(c.samples, SAMPLE_COLUMNS)) for c in data.clusters if c.samples},
        bars={c.id: bars(c.rows_per_arrival, _spoken_rows(c, data.arrivals)) for c in data.clusters},
        map=code_map(data.code_map, labels, on_map),
        timeline=timeline(data.lanes, data.arrivals, prototypes),
        charts=_charts(data.arrivals),
        by_arrival=_by_arrival(data),
        labels=labels,
    )


def check_target(path: str | os.PathLike[str]) -> None:
    """Say before long work that a page could not be written; makes the folder that it goes to."""
    check_place(Path(path))
    make_parent(Path(path))


def write_report(data: ReportData, path: str | os.PathLike[str]) -> Path:
    """Write the page to a file, whole or not at all, and return where it is."""
    check_target(path)
    target, page = Path(path), render_report(data)
    with replacing(target) as handle:
        handle.write(page.encode("utf-8", "backslashreplace"))
    return target


@cache
def environment() -> Environment:
    """Return what fills the templates."""
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,  # names and settings are other people's text
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(hue=hue, percent=_percent, shown=shown, moment=_moment, sentence=sentence)
    return environment


@cache
def own_text(name: str) -> Markup:
    """Return a file of ours, to be put into a page as it is."""
    return Markup((TEMPLATES / name).read_text(encoding="utf-8"))


def _summary(data: ReportData) -> str:
    n_arrivals = len(data.arrivals)
    grown = f", {data.arrivals[-1].rows:,} in the latest" if n_arrivals > 1 else ""
    have = "has" if len(data.former) == 1 else "have"
    former = f" {len(data.former)} more {have} become part of others." if data.former else ""
    return (
        f"{data.n_rows:,} rows came in {n_arrivals} arrival{'' if n_arrivals == 1 else 's'}{grown}. "
        f"{data.n_clusters} cluster{' was' if data.n_clusters == 1 else 's were'} found in them, without "
        f"labels and without being told how many.{former} An id once given is never given again."
    )


def _charts(arrivals: tuple[ArrivalPoint, ...]) -> list[tuple[str, str, Markup]]:
    count = "{:.0f}".format, "Number of clusters", (0.0, None)
    clusters = line_chart(arrivals, lambda a: a.n_clusters, *count)
    novelty = line_chart(arrivals, lambda a: a.novel_share, "{:.0%}".format, "Novelty", (0.0, 1.0))
    shares = "{:.1%}".format, "Outliers", (0.0, None)
    outliers = line_chart(arrivals, lambda a: a.n_outliers / a.rows if a.rows else None, *shares)
    fit = line_chart(arrivals, lambda a: a.elbo_per_row, _number, "Evidence lower bound per row")
    return [
        ("Clusters", "how many there are after each arrival", clusters),
        ("Novelty", "share of rows that the clusters known before find strange", novelty),
        (
            "Outliers",
            "share of rows that are answered but do not count",
            outliers,
        ),
        ("Fit", "evidence lower bound per row of the arrival, in nats; higher is better", fit),
    ]


def _by_arrival(data: ReportData) -> list[tuple[ArrivalPoint | None, int, list[Event]]]:
    """Return arrival, its number, and what happened in it, latest first."""
    points = {a.number: a for a in data.arrivals}
    told: dict[int, list[Event]] = {number: [] for number in points}
    for one in data.happenings[-MOST_HAPPENINGS:]:
        told.setdefault(one.arrival, []).append(one)
    latest = sorted(told, reverse=True)[:MOST_HAPPENINGS]
    return [(points.get(number), number, told[number]) for number in latest]


def _spoken_rows(cluster: Cluster, arrivals: tuple[ArrivalPoint, ...]) -> str:
    brought = zip(arrivals, cluster.rows_per_arrival, strict=True)
    told = [f"arrival {arrival.number}: {n:,}" for arrival, n in brought if n]
    return "Rows per arrival. " + (", ".join(told[-50:]) or "none")


def _percent(share: float) -> str:
    return f"{share:.0%}" if share >= 0.0995 or share == 0 else f"{share:.1%}"


def _number(value: float) -> str:
    if value == 0 or 1e-3 <= abs(value) < 1e6:
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
    return f"{value:.2e}"


def _moment(time: str) -> str:
    """Return a time as people write it; what is no time stays as it is."""
    try:
        return datetime.fromisoformat(time.replace("Z", "+00:00")).strftime("%Y-%m-%d %H:%M")
    except ValueError:
        return time
