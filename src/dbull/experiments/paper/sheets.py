"""The paper's tables, with what was found here beside what was printed."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from dbull.data import load
from dbull.experiments.paper import published
from dbull.experiments.paper.plan import TITLES, Runs, counts_itself
from dbull.experiments.registry import METHODS, resolve
from dbull.experiments.results import Result, read_steps
from dbull.experiments.settings import MethodChoice
from dbull.experiments.sheet import SPANNED, Sheet
from dbull.experiments.summary import Summary, summarise
from dbull.experiments.tables import CAPABILITIES, capabilities_of

QUALITY = {"nmi_geometric": "NMI", "ari": "ARI", "homogeneity": "HS", "v_measure": "VM"}
NOTHING = "–"
LABELS_NOTE = (
    "No method here is given a label, nor is any setting or stopping rule. Of the printed rows: the code "
    "released with the paper starts DBULL from weights called “supervised”, which its authors' other "
    "repository makes with labels; which weights the printed tables were made with is not known "
    "(docs/errata.md)."
)


@dataclass(frozen=True)
class Table:
    """A table with what must be said of it."""

    sheet: Sheet
    notes: tuple[str, ...]


def data_sets(runs: Runs) -> Table:
    """Table 2."""
    body = []
    for source in runs.plan.sources:
        printed = published.DATA.get(source.printed or "")
        if source.dataset in runs.plan.missing:
            here = [f"not here: needs {source.dataset}", SPANNED, SPANNED]
        else:
            loaded = load(source.dataset, runs.plan.data_folder)
            assert loaded.y_true is not None
            here = [f"{n:,}" for n in (*loaded.x.shape, len(set(loaded.y_true.tolist())))]
        shown = [NOTHING] * 3 if printed is None else [f"{n:,}" for n in printed]
        body.append([source.title, source.note or NOTHING, *here, *shown])
    head = ("data", "remark", "samples", "dimensions", "classes")
    printed_head = ("printed samples", "printed dimensions", "printed classes")
    return Table(Sheet((*head, *printed_head), body), ())


def capabilities(runs: Runs) -> Table:
    """Table 3; what classes declare is shown on data by tests."""
    names = [name for name in runs.plan.methods(runs.plan.sources[0]) if capabilities_of(name) is not None]
    body = [
        [title, *("yes" if getattr(capabilities_of(name), column) else "no" for name in names)]
        for column, title in CAPABILITIES.items()
    ]
    body.append(["told the true number", *("yes" if _told(name) else "no" for name in names)])
    body.append(["given labels", *("no" for _ in names)])
    note = "What the classes declare, each claim shown on data by a test; it agrees with the printed table."
    return Table(Sheet(["", *(TITLES[name] for name in names)], body, n_text=1, centred=True), (note,))


def quality(runs: Runs) -> Table:
    """Table 4."""
    body = []
    for source in runs.plan.sources:
        for method in runs.plan.methods(source):
            results = runs.of(source.scenario, method)
            printed = published.QUALITY.get(source.printed or "", {}).get(method, (NOTHING,) * 4)
            here = [_percent(value) for value in _columns(results, tuple(QUALITY))]
            counts = [_range(results, key) for key in ("n_clusters", "n_clusters_used")]
            cells = [*here, *counts, str(len(results))]
            if not results:
                cells = [runs.absence(source.scenario), *[SPANNED] * (len(cells) - 1)]
            body.append([source.title, TITLES[method], _given(method), *cells, *printed])
    shown = [f"printed {title}" for title in QUALITY.values()]
    head = ["data", "method", "given", *QUALITY.values(), "K", "in use", "seeds", *shown]
    notes = [f"{source.title}: {source.note}." for source in runs.plan.sources if source.note]
    first = (
        "Percent, mean over seeds (standard error), on the 20 % of rows held out. Given: what a method has "
        "beside unlabelled rows. K: clusters that it says it has; in use: those that held-out rows get. The "
        "printed DBULL stands beside ours with the paper's objective."
    )
    return Table(Sheet(head, body, n_text=3), (first, LABELS_NOTE, *notes))


def numbers_of_clusters(runs: Runs) -> Table:
    """Table 5."""
    body = []
    for source in runs.plan.sources:
        for method in runs.plan.methods(source):
            if not counts_itself(method):
                continue
            results = runs.of(source.scenario, method)
            printed = published.CLUSTERS.get(source.printed or "", {}).get(method, NOTHING)
            truth = str(results[0].final["n_classes"]) if results else NOTHING
            counts = [_range(results, key) for key in ("n_clusters", "n_clusters_used")]
            cells = [truth, *counts, str(len(results))]
            if not results:
                cells = [runs.absence(source.scenario), *[SPANNED] * (len(cells) - 1)]
            body.append([source.title, TITLES[method], *cells, printed])
    head = ("data", "method", "classes", "K", "in use", "seeds", "printed")
    note = "CURL-D may have at most 40 clusters on Reuters10k, as printed, and 50 elsewhere."
    return Table(Sheet(head, body), () if runs.plan.quick else (note,))


def accuracy(runs: Runs) -> Table:
    """Table 6."""
    source = runs.plan.sources[0]
    body = []
    for method in runs.plan.methods(source):
        results = runs.of(source.scenario, method)
        best, mean = published.ACCURACY.get(method, (NOTHING, NOTHING)) if source.printed else (NOTHING,) * 2
        scores = [result.final["scores"]["accuracy_top"] for result in results]
        (average,) = _columns(results, ("accuracy_top",))
        cells = [runs.absence(source.scenario), SPANNED, SPANNED]
        if scores:
            cells = [f"{100 * max(scores):.2f}", _percent(average), str(len(results))]
        body.append([TITLES[method], _given(method), *cells, best or NOTHING, mean or NOTHING])
    head = ("method", "given", "best", "mean", "seeds", "printed best", "printed mean")
    note = (
        f"{source.title}. Rows of the majority class of the ten largest clusters, divided by all held-out "
        "rows. The printed figures of DEC, VaDE and CURL-F are quoted there from other papers, of other "
        "protocols; a best of several seeds says little."
    )
    return Table(Sheet(head, body), (note,))


def streams(runs: Runs) -> Table:
    """Where the streams of Figures 3 to 5 end."""
    body = []
    name = runs.plan.stream
    columns = (*QUALITY, "forgetting.nmi_geometric", "id_stability")
    for method in runs.plan.stream_methods:
        results = runs.of(name, method)
        here = [_percent(value) for value in _columns(results, columns)]
        counts = [_counts_after_tasks(results), _range(results, "n_clusters_used")]
        cells = [*here, *counts, str(len(results))]
        if not results:
            cells = [runs.absence(name), *[SPANNED] * (len(cells) - 1)]
        body.append([TITLES[method], _given(method), *cells])
    head = [
        *("method", "given", *QUALITY.values()),
        *("forgetting", "ids kept", "K after each task", "in use", "seeds"),
    ]
    note = (
        "After the last arrival, on held-out rows of all classes; percent, mean over seeds (standard error). "
        "Forgetting: mean loss of NMI on earlier tasks. Given later rows: the networks saw all rows that are "
        "not held out before the stream began, without labels."
    )
    printed = (
        "Printed: DBULL 4, 6, 8, 10, 12 clusters after the tasks; CURL-D 14-16 after the first, 23-25 after "
        "the last; scores only as curves."
    )
    return Table(Sheet(head, body), (note,) if runs.plan.quick else (note, printed))


TABLES: dict[str, Callable[[Runs], Table]] = {
    "table2": data_sets,
    "table3": capabilities,
    "table4": quality,
    "table5": numbers_of_clusters,
    "table6": accuracy,
    "streams": streams,
}


def _told(method: str) -> bool:
    return resolve(MethodChoice(name=method), seed=0, true_k=2).told_true_k is not None


def _given(method: str) -> str:
    """Return what a method has beside the rows that it learns; never labels."""
    given = ["K"] * _told(method) + ["later rows"] * METHODS[method].warm
    return ", ".join(given) or "nothing"


def _columns(results: Sequence[Result], columns: tuple[str, ...]) -> list[Summary | None]:
    if not results:
        return [None] * len(columns)
    (row,) = summarise(results, columns)
    return [row.columns[column] for column in columns]


def _percent(value: Summary | None) -> str:
    if value is None:
        return NOTHING
    spread = "" if value.standard_error is None else f" ({100 * value.standard_error:.2f})"
    return f"{100 * value.mean:.2f}{spread}"


def _range(results: Sequence[Result], key: str) -> str:
    return between([result.final[key] for result in results]) if results else NOTHING


def _counts_after_tasks(results: Sequence[Result]) -> str:
    """Return the numbers of clusters at the end of each phase, as ranges over seeds."""
    if not results:
        return NOTHING
    ends = []
    for result in results:
        steps = read_steps(result)
        last = {step["task"]: step["n_clusters"] for step in steps}
        ends.append(list(last.values()))
    return " ".join(between(counts) for counts in zip(*ends, strict=True))


def between(counts: Sequence[int]) -> str:
    """Return whole numbers as a range."""
    low, high = min(counts), max(counts)
    return str(low) if low == high else f"{low}-{high}"
