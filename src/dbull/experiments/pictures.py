"""Pictures of what was learned: prototypes, samples, a map of the codes, the course of training.

Made from rows and the learner alone; labels are never given to these functions.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dbull.experiments.figures import COLOURS, MARKERS, save_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from dbull.methods.dbull import DBULL

Floats = NDArray[np.float64]
Shape = Sequence[int] | None

MAX_CLUSTERS = 30  # of prototypes and samples; the largest are shown
MAX_MAP_ROWS = 3000
FEWEST_FOR_TSNE = 100
FEW_POINTS = 15
N_SAMPLES = 10
N_STRONGEST = 8  # columns in the profile of a cluster
MAX_HEAT_COLUMNS = 40
SURE_DEVIATION = 3.0  # standard deviations at which colours are full


def can_be_pictured(method: object) -> bool:
    """Return whether a method, fitted or not, has what pictures are made from."""
    return all(hasattr(method, name) for name in ("prototype", "sample", "transform"))


def draw_pictures(
    learner: "DBULL", rows: NDArray[Any], folder: Path, image_shape: Shape = None, seed: int = 0
) -> list[Path]:
    """Draw all pictures of a fitted learner into a folder and return their files.

    Held-out rows, (N, d), give the units of the profiles and the points of the map, which `seed` chooses and
    lays out; `image_shape` is (height, width) or (height, width, channels).
    """
    from dbull.experiments.training_picture import draw_training

    files = [folder / f"{name}.png" for name in ("prototypes", "samples", "map", "training")]
    draw_prototypes(learner, rows, files[0], image_shape)
    draw_samples(learner, rows, files[1], image_shape)
    draw_map(learner, rows, files[2], seed)
    draw_training(learner.history_, files[3])
    return files


def draw_prototypes(learner: "DBULL", rows: NDArray[Any], target: Path, image_shape: Shape = None) -> None:
    """Draw the decoded mean of each cluster: as an image, or as a profile of its strongest columns."""
    from matplotlib.figure import Figure

    shown, which = _shown(learner)
    values = np.stack([learner.prototype(cluster) for cluster in shown]).astype(np.float64)
    shape = _drawable(image_shape)
    n_columns = min(8 if shape else 4, len(shown))
    n_rows = -(-len(shown) // n_columns)
    width, height = (1.25, 1.55) if shape else (2.9, 2.3)
    figure = Figure(figsize=(max(6.0, width * n_columns), height * n_rows + 0.9), layout="constrained")
    panels = figure.subplots(n_rows, n_columns, squeeze=False).ravel()
    for panel, (cluster, share) in zip(panels, shown.items(), strict=False):
        panel.set_title(f"cluster {cluster}\n{share} of rows", fontsize="small")
    if shape:
        for panel, image in zip(panels, _brightness(values, rows), strict=False):
            panel.imshow(image.reshape(shape), cmap="gray", vmin=0, vmax=1)
            panel.set(xticks=[], yticks=[])
        note = "each is the centre of a cluster, decoded to an image"
    else:
        deviations = _deviations(values, rows)
        reach = 1.05 * max(1.0, float(np.abs(deviations).max()))
        for panel, profile in zip(panels, deviations, strict=False):
            _draw_profile(panel, profile, reach)
        unit = "standard deviations above (blue) or below (orange) the mean of held-out rows"
        figure.supxlabel(unit, fontsize="small")
        note = "centre of each cluster, decoded: the columns in which it differs most from the average row"
        if values.shape[1] <= N_STRONGEST:
            note = "centre of each cluster, decoded, beside the average row"
    for panel in panels[len(shown) :]:
        panel.set_axis_off()
    figure.suptitle(f"Prototypes of {which}\n{note}", fontsize="medium")
    save_figure(figure, target)


def draw_samples(learner: "DBULL", rows: NDArray[Any], target: Path, image_shape: Shape = None) -> None:
    """Draw a row of decoded samples for each cluster: as images, or as lines of a heat map."""
    from matplotlib.figure import Figure

    shown, which = _shown(learner)
    values = np.stack([learner.sample(N_SAMPLES, cluster)[0] for cluster in shown]).astype(np.float64)
    shape = _drawable(image_shape)
    n_clusters = len(shown)
    if shape:
        tiles, gap = _mosaic(_brightness(values, rows).reshape(n_clusters, N_SAMPLES, *shape))
        high = 6.5 * tiles.shape[0] / tiles.shape[1]  # inches, beside 1.6 for the names of clusters
        figure = Figure(figsize=(8.1, high + 0.8), layout="constrained")
        panel = figure.subplots()
        panel.imshow(tiles, cmap="gray", vmin=0, vmax=1, interpolation="nearest")
        panel.set(yticks=(np.arange(n_clusters) + 0.5) * (shape[0] + gap) - gap / 2 - 0.5)
        note = f"each row: {N_SAMPLES} new images, drawn from one cluster and decoded"
    else:
        deviations = _deviations(values, rows)
        strongest = np.argsort(-np.abs(deviations.mean(1)).max(0), kind="stable")
        columns = np.sort(strongest[:MAX_HEAT_COLUMNS])
        figure = Figure(figsize=(8.0, 0.45 * n_clusters + 1.6), layout="constrained")
        panel = figure.subplots()
        lines, limits = deviations[:, :, columns].reshape(-1, len(columns)), (-SURE_DEVIATION, SURE_DEVIATION)
        heat = panel.imshow(lines, cmap="PuOr", clim=limits, aspect="auto", interpolation="nearest")
        for edge in range(1, n_clusters):
            panel.axhline(edge * N_SAMPLES - 0.5, color="black", linewidth=0.8)
        panel.set(yticks=(np.arange(n_clusters) + 0.5) * N_SAMPLES - 0.5, xlabel="column of the data")
        every = -(-len(columns) // 20)
        panel.set_xticks(np.arange(len(columns))[::every], columns[::every], fontsize="small")
        figure.colorbar(heat, label="standard deviations\nfrom the mean of held-out rows", extend="both")
        note = f"each band: {N_SAMPLES} new rows, drawn from one cluster and decoded"
        if len(columns) < values.shape[2]:
            note += f"\n{len(columns)} of {values.shape[2]} columns: those in which clusters differ most"
    labels = [f"cluster {cluster} ({share})" for cluster, share in shown.items()]
    panel.set_yticklabels(labels, fontsize="small")
    panel.tick_params(left=False, bottom=not shape, labelbottom=not shape)
    panel.spines[:].set_visible(False)
    figure.suptitle(f"Samples of {which}\n{note}", fontsize="medium")
    save_figure(figure, target)


def draw_map(learner: "DBULL", rows: NDArray[Any], target: Path, seed: int = 0) -> None:
    """Draw rows as points in the plane, near where their codes are near, coloured by predicted cluster."""
    from matplotlib.figure import Figure
    from matplotlib.patheffects import withStroke

    if len(rows) > MAX_MAP_ROWS:
        rows = rows[np.sort(np.random.default_rng(seed).permutation(len(rows))[:MAX_MAP_ROWS])]
    ids = np.asarray(learner.predict(rows))
    places, how = _flattened(np.asarray(learner.transform(rows), dtype=np.float64), seed)
    clusters = np.unique(ids)
    figure = Figure(figsize=(7.0, 6.6), layout="constrained")
    panel = figure.subplots()
    size = 12.0 if len(rows) > 1000 else 32.0
    for cluster in clusters:
        own = places[ids == cluster]
        # Colours come back after seven clusters, then with another marker.
        colour, marker = cluster % len(COLOURS), (cluster // len(COLOURS)) % len(MARKERS)
        look: dict[str, Any] = {"color": COLOURS[colour], "marker": MARKERS[marker], "linewidths": 0}
        panel.scatter(own[:, 0], own[:, 1], s=size, alpha=0.75, **look)
    for cluster in clusters:
        own = places[ids == cluster]
        # A point of the cluster itself: the middle of a bent cluster may lie in another one.
        centre = own[((own - np.median(own, axis=0)) ** 2).sum(1).argmin()]
        above = (0, 10 if len(own) < FEW_POINTS else 0)  # the number must not hide them all
        outline = [withStroke(linewidth=3.5, foreground="white")]
        look = {"weight": "bold", "size": 12, "ha": "center", "va": "center", "path_effects": outline}
        panel.annotate(str(cluster), centre, above, textcoords="offset points", **look)
    panel.set(xticks=[], yticks=[])
    panel.spines[:].set_color("0.8")
    title = f"Map of {len(rows):,} held-out rows, {len(clusters)} clusters"
    note = f"a point is a row, colour and number its predicted cluster; {how}"
    figure.suptitle(f"{title}\n{note}", fontsize="medium")
    save_figure(figure, target)


def _shown(learner: "DBULL") -> tuple[dict[int, str], str]:
    """Return the clusters that get a place, in the learner's own order, each with its share, and which."""
    ids, shares = np.asarray(learner.cluster_ids_), np.asarray(learner.weights_, dtype=np.float64)
    order = np.sort(np.argsort(-shares, kind="stable")[:MAX_CLUSTERS])
    which = f"{len(ids)} cluster{'s' if len(ids) > 1 else ''}"
    if len(ids) > MAX_CLUSTERS:
        which = f"the {MAX_CLUSTERS} largest of {len(ids)} clusters"
    percents = ["<1 %" if share < 0.005 else f"{100 * share:.0f} %" for share in shares[order]]
    return dict(zip(ids[order].tolist(), percents, strict=True)), which


def _brightness(values: Floats, rows: NDArray[Any]) -> Floats:
    """Return values as grey or colour, 0 to 1, on one scale for all images: that of the rows."""
    lowest, highest = float(rows.min()), float(rows.max())
    return np.asarray(((values - lowest) / (highest - lowest if highest > lowest else 1.0)).clip(0.0, 1.0))


def _deviations(values: Floats, rows: NDArray[Any]) -> Floats:
    """Return values as standard deviations from the mean of the rows by column; 0 where nothing varies."""
    spread = rows.std(0, dtype=np.float64)
    offsets = values - rows.mean(0, dtype=np.float64)
    return np.where(spread > 0, offsets / np.where(spread > 0, spread, 1.0), 0.0)


def _drawable(image_shape: Shape) -> tuple[int, ...] | None:
    """Return the shape that a picture of one row has; None if a row cannot be shown as an image."""
    if image_shape is None:
        return None
    shape = tuple(int(side) for side in image_shape)
    if len(shape) == 3 and shape[2] == 1:
        shape = shape[:2]
    return shape if len(shape) == 2 or (len(shape) == 3 and shape[2] in (3, 4)) else None


def _draw_profile(panel: "Axes", deviations: Floats, reach: float) -> None:
    """Draw bars for the columns that deviate most, the strongest on top; all in order if they are few."""
    columns = np.arange(len(deviations))
    if len(columns) > N_STRONGEST:
        columns = np.argsort(-np.abs(deviations), kind="stable")[:N_STRONGEST]
    own = deviations[columns]
    panel.barh(np.arange(len(columns)), own, color=np.where(own > 0, COLOURS[0], COLOURS[1]))
    panel.axvline(0, color="0.3", linewidth=0.8)
    panel.set_yticks(np.arange(len(columns)), [f"column {column}" for column in columns], fontsize="x-small")
    panel.invert_yaxis()
    panel.set_xlim(-reach, reach)
    panel.tick_params(axis="x", labelsize="x-small")
    panel.spines[["top", "right"]].set_visible(False)


def _mosaic(images: Floats) -> tuple[Floats, int]:
    """Put images (rows, columns, height, width, ...) side by side with white gaps; return the gap as well."""
    gap = max(1, images.shape[2] // 10)
    around = [(0, 0), (0, 0), (0, gap), (0, gap), *[(0, 0)] * (images.ndim - 4)]
    rows = [np.concatenate(row, axis=1) for row in np.pad(images, around, constant_values=1.0)]
    return np.concatenate(rows)[:-gap, :-gap], gap


def _flattened(codes: Floats, seed: int) -> tuple[Floats, str]:
    """Return a place in the plane for each code, (N, 2), and how it was found."""
    from sklearn.decomposition import PCA
    from sklearn.manifold import TSNE
    from threadpoolctl import threadpool_limits

    n_rows, n_dims = codes.shape
    if n_dims <= 2:
        return np.pad(codes, ((0, 0), (0, 2 - n_dims))), "places are the codes themselves"
    if n_rows < FEWEST_FOR_TSNE:
        plane = PCA(min(2, n_rows), svd_solver="full").fit_transform(codes)
        return np.pad(plane, ((0, 0), (0, 2 - plane.shape[1]))), "PCA of the codes"
    # Half of the usual steps shows the clusters of many rows as well, in half the time.
    # One thread: several add up in an order of their own.
    layout = TSNE(init="pca", max_iter=500 if n_rows > 1000 else 1000, random_state=seed)
    with threadpool_limits(limits=1):
        places: Floats = layout.fit_transform(codes).astype(np.float64)
    return places, "t-SNE of the codes: near means alike"
