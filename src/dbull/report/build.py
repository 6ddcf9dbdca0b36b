"""Fill a report from a fitted `DBULL`. No row of the data is needed: all is drawn from the model."""

import platform
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from dbull.methods.dbull import DBULL
from dbull.report import data
from dbull.report.data import Cluster, CodeMap, Feature, FormerCluster, ReportData
from dbull.report.images import as_picture, drawable_shape
from dbull.store.manifest import package_version

Floats = NDArray[np.float64]

MAX_CARDS = 120  # the largest clusters are shown
MAX_MAP_POINTS = 2400
MOST_DRAWS = 120  # codes of one cluster, for the map and the average
N_SAMPLES = 6
N_FEATURES = 6
N_NEIGHBOURS = 3
KEPT = ("id", "name", "status", "rows", "first_seen", "last_seen", "spread")  # of a record as it is


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
    painter = _Painter(model, codes, {record["id"]: record["weight"] or 0.0 for record in shown})
    near = _neighbours(codes, {record["id"]: record["spread"] for record in shown})
    former = tuple(
        FormerCluster(one["id"], one["name"], one["first_seen"], int(model.resolve([one["id"]])[0]))
        for one in table
        if one["status"] == "merged"
    )
    clusters = tuple(
        Cluster(
            **{name: record[name] for name in KEPT},
            weight=record["weight"] or 0.0,
            parents=tuple(record["parents"]),
            absorbed=tuple(one.id for one in former if one.successor == record["id"]),
            rows_per_arrival=brought.get(record["id"], (0,) * len(arrivals)),
            prototype=painter.prototype(record["id"]),
            samples=painter.samples(record["id"]),
            features=painter.features(record["id"]),
            neighbours=near[record["id"]],
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
    """Prototypes and samples of clusters as pictures, or as columns that stand out."""

    def __init__(self, model: DBULL, codes: Mapping[int, Floats], weights: Mapping[int, float]):
        self._model = model
        self._shape = drawable_shape(model.image_shape)
        self._codes = codes
        view = model.state_.view
        self._low = float(view.shift.min())
        self._high = float((view.shift + view.scale).max())
        if self._shape is None:
            n_values = model.state_.vae.shape.n_values
            self._names = model.value_names_ or [f"column {i}" for i in range(n_values)]
            self._mean, self._std = _average(
                [model.inverse_transform(drawn) for drawn in codes.values()],
                [weights[cluster] for cluster in codes],
            )

    def prototype(self, cluster: int) -> NDArray[np.uint8] | None:
        return None if self._shape is None else self._picture(self._model.prototype(cluster))

    def samples(self, cluster: int) -> tuple[NDArray[np.uint8], ...]:
        if self._shape is None:
            return ()
        return tuple(map(self._picture, self._model.inverse_transform(self._codes[cluster][:N_SAMPLES])))

    def features(self, cluster: int) -> tuple[Feature, ...]:
        """Return the columns in which the prototype differs most from the average, in units of spread."""
        if self._shape is not None:
            return ()
        values = self._model.prototype(cluster)
        deviations = (values - self._mean) / self._std
        strongest = np.argsort(-np.abs(deviations), kind="stable")[:N_FEATURES]
        return tuple(Feature(self._names[i], float(values[i]), float(deviations[i])) for i in strongest)

    def _picture(self, row: Floats) -> NDArray[np.uint8]:
        assert self._shape is not None
        return as_picture(row, self._shape, self._low, self._high)


def _average(rows: Sequence[Floats], weights: Sequence[float]) -> tuple[Floats, Floats]:
    """Return mean and standard deviation of each column over clusters with these weights."""
    shares = np.asarray(weights) + 1e-12
    shares = shares / shares.sum()
    means = np.stack([part.mean(0) for part in rows])
    mean = shares @ means
    var = shares @ np.stack([part.var(0) for part in rows]) + shares @ (means - mean) ** 2
    # A column that is the same everywhere makes no cluster stand out.
    return mean, np.where(var > 0, np.sqrt(var), np.inf)


def _neighbours(
    codes: Mapping[int, Floats], spreads: Mapping[int, float]
) -> dict[int, tuple[tuple[int, float], ...]]:
    """Return the clusters whose centres are nearest, with the distance over the sum of both spreads."""
    ids = list(codes)
    centres = np.stack([codes[cluster].mean(0) for cluster in ids])
    spread = np.array([spreads[cluster] for cluster in ids])
    distances = np.linalg.norm(centres[:, None] - centres[None], axis=2)
    gaps = distances / np.maximum(spread[:, None] + spread[None], np.finfo(float).tiny)
    np.fill_diagonal(gaps, np.inf)
    nearest = np.argsort(gaps, axis=1, kind="stable")[:, : min(N_NEIGHBOURS, len(ids) - 1)]
    return {cluster: tuple((ids[j], float(gaps[i, j])) for j in nearest[i]) for i, cluster in enumerate(ids)}


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
