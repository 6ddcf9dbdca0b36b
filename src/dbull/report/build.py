"""Fill a report from a fitted `DBULL`. No row of the data is needed: all is drawn from the model."""

import platform
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from dbull.methods.dbull import DBULL
from dbull.methods.explanation import Explainer
from dbull.report import data
from dbull.report.data import Cluster, CodeMap, FormerCluster, ReportData
from dbull.report.images import as_picture, drawable_shape
from dbull.store.manifest import package_version

Floats = NDArray[np.float64]

MAX_CARDS = 120  # the largest clusters are shown
MAX_MAP_POINTS = 2400
MOST_DRAWS = 120  # codes of one cluster, for the map and the average
N_SAMPLES = 6
N_TRAITS = 6
N_NEIGHBOURS = 3
KEPT = ("id", "name", "status", "rows", "first_seen", "last_seen", "spread", "exemplars")  # of a record


def build_report(
    model: DBULL,
    *,
    title: str = "A dbull model",
    facts: Mapping[str, str] | None = None,
    written: str | None = None,
) -> ReportData:
    """Return everything that a report says about a model.

    `facts` is what is known of it besides what it knows itself (folder, generation); `written` is when the
    page is made, if it shall say so.
    """
    table, events = model.clusters_, model.events_
    arrivals = data.arrivals_of(events)
    living = [record for record in table if record["status"] != "merged"]
    living.sort(key=lambda record: (-record["rows"], record["id"]))
    shown = living[:MAX_CARDS]
    n_draws = max(20, min(MOST_DRAWS, MAX_MAP_POINTS // len(shown)))
    # The same seed each time: the same model gives the same page.
    codes = {c: model.sample_codes(n_draws, c, random_state=c)[0] for c in (record["id"] for record in shown)}
    brought = data.rows_per_arrival(arrivals, lambda cluster: int(model.resolve([cluster])[0]))
    painter = _Painter(model, codes)
    explain, on_page = Explainer(model), {record["id"] for record in shown}
    former = tuple(
        FormerCluster(one["id"], one["name"], one["first_seen"], int(model.resolve([one["id"]])[0]))
        for one in table
        if one["status"] == "merged"
    )
    clusters = tuple(
        Cluster(
            **{name: record[name] for name in KEPT},
            words=record.get("words", ()) if hasattr(model, "vocabulary_") else (),
            weight=record["weight"] or 0.0,
            parents=tuple(record["parents"]),
            absorbed=tuple(one.id for one in former if one.successor == record["id"]),
            rows_per_arrival=brought.get(record["id"], (0,) * len(arrivals)),
            prototype=painter.prototype(record["id"]),
            samples=painter.samples(record["id"]),
            traits=() if painter.draws else explain(record["id"], N_TRAITS).traits,
            neighbours=explain.nearest(record["id"], on_page)[:N_NEIGHBOURS],
        )
        for record in shown
    )
    given, defaults = _settings(model)
    return ReportData(
        title=title,
        n_rows=int(model.state_.n_rows),
        n_clusters=len(living),
        clusters=clusters,
        former=former,
        lanes=data.lanes_of(table, events, arrivals),
        arrivals=arrivals,
        happenings=tuple(event for event in events if event.kind != "arrival"),
        code_map=_code_map({c: drawn[: MAX_MAP_POINTS // len(shown)] for c, drawn in codes.items()}),
        settings=given,
        defaults=defaults,
        facts={**_facts(model), **(facts or {})},
        versions=_versions(),
        written=written,
    )


class _Painter:
    """Prototypes and samples of clusters as pictures, if rows are any."""

    def __init__(self, model: DBULL, codes: Mapping[int, Floats]):
        self._model = model
        self._shape = drawable_shape(model.image_shape)
        self._codes = codes
        view = model.state_.view
        self._low = float(view.shift.min())
        self._high = float((view.shift + view.scale).max())

    @property
    def draws(self) -> bool:
        """Whether there are pictures."""
        return self._shape is not None

    def prototype(self, cluster: int) -> NDArray[np.uint8] | None:
        return None if self._shape is None else self._picture(self._model.prototype(cluster))

    def samples(self, cluster: int) -> tuple[NDArray[np.uint8], ...]:
        if self._shape is None:
            return ()
        return tuple(map(self._picture, self._model.inverse_transform(self._codes[cluster][:N_SAMPLES])))

    def _picture(self, row: Floats) -> NDArray[np.uint8]:
        assert self._shape is not None
        return as_picture(row, self._shape, self._low, self._high)


def _code_map(codes: Mapping[int, Floats]) -> CodeMap:
    """Return the two principal components of codes; of one column the column itself."""
    together = np.concatenate(list(codes.values()))
    centre = together.mean(0)
    _, singular, axes = np.linalg.svd(together - centre, full_matrices=False)
    axes = axes[:2] * np.sign(axes[:2][np.arange(len(axes[:2])), np.abs(axes[:2]).argmax(1)])[:, None]
    flat = ((0, 0), (0, 2 - len(axes)))
    plane = {cluster: np.pad((drawn - centre) @ axes.T, flat) for cluster, drawn in codes.items()}
    variance = singular**2
    return CodeMap(plane, float(variance[:2].sum() / variance.sum()) if variance.sum() > 0 else 1.0)


def _settings(model: DBULL) -> tuple[dict[str, str], dict[str, str]]:
    """Return the settings that the user gave and all others, as text."""
    usual = type(model)().get_params()
    given: dict[str, str] = {}
    defaults: dict[str, str] = {}
    for name, value in sorted(model.get_params().items()):
        if name != "callback":
            same = type(value) is type(usual[name]) and bool(value == usual[name])
            (defaults if same else given)[name] = getattr(value, "__name__", None) or str(value)
    return given, defaults


def _facts(model: DBULL) -> dict[str, str]:
    state = model.state_
    shape, n_before = state.vae.shape, state.n_pretrain_rows
    networks = " → ".join(map(str, (shape.n_inputs, *shape.hidden_dims, shape.latent_dim)))
    return {
        "Kind of data": state.kind,
        "Columns": f"{model.n_features_in_:,}",
        "Encoder": f"{shape.encoder} ({networks})" if state.vae.learns else shape.encoder,
        "Decoder describes": shape.likelihood,
        "Mixture components": f"{state.memory.n_components:,}",
        **({"Rows the networks saw beforehand": f"{n_before:,}"} if n_before else {}),
        "Kept of rows": "statistics and summaries, see docs/privacy.md",
    }


def _versions() -> dict[str, str]:
    packages = ("dbull", "torch", "numpy", "scikit-learn")
    found = {name: package_version(name) or "not installed as a package" for name in packages}
    return {"Python": platform.python_version(), **found}
