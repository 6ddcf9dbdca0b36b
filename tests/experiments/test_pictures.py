"""Pictures show what the learner says, are the same each time, and are refused before a run, not after it."""

import dataclasses
import json
from types import SimpleNamespace

import numpy as np
import pytest
from sklearn.datasets import load_digits

from dbull.errors import SettingsError
from dbull.experiments import figures, pictures, run, training_picture
from dbull.experiments.pictures import draw_map, draw_pictures, draw_prototypes, draw_samples
from dbull.experiments.settings import BenchSettings, MethodChoice
from dbull.experiments.training_picture import draw_training
from dbull.methods.dbull import DBULL

matplotlib = pytest.importorskip("matplotlib", reason="needs the extra dbull[plot]")

NAMES = ["map.png", "prototypes.png", "samples.png", "training.png"]
SMALL = {"epochs": 3, "joint_epochs": 1, "hidden_dims": (32,), "max_clusters": 6, "random_state": 0}


@pytest.fixture(scope="module")
def digits():
    """A learner of some digits, and other digits."""
    x = load_digits().data.astype(np.float32)
    return DBULL(image_shape=(8, 8), **SMALL).fit(x[:400]), x[400:550]


@pytest.fixture(scope="module")
def blobs():
    """A learner of three far clusters in 12 columns of very different units, one of them constant."""
    rng = np.random.default_rng(0)
    centres = 4 * rng.normal(size=(3, 12))
    x = centres[rng.integers(3, size=420)] + rng.normal(size=(420, 12))
    x = (x * np.logspace(-3, 3, 12)).astype(np.float32)
    x[:, 5] = 7.0
    learner = DBULL(**SMALL | {"epochs": 10}).fit(x[:300])
    assert learner.n_clusters_ == 3
    return learner, x[300:]


@pytest.fixture
def drawn(monkeypatch):
    """Figures in the order in which they would have been saved."""
    kept = []
    for module in (pictures, training_picture):
        monkeypatch.setattr(module, "save_figure", lambda figure, target: kept.append(figure))
    return kept


def pixels(path):
    return matplotlib.image.imread(path)[..., :3]


@pytest.mark.parametrize("kind", ["digits", "blobs"])
def test_files_are_pictures_and_the_same_each_time(kind, tmp_path, request):
    learner, rows = request.getfixturevalue(kind)
    shape = learner.image_shape
    files = draw_pictures(learner, rows, tmp_path / "a", shape, seed=0)
    assert sorted(path.name for path in files) == NAMES
    assert sorted((tmp_path / "a").iterdir()) == sorted(files)
    draw_pictures(learner, rows, tmp_path / "b", shape, seed=0)
    for path in files:
        image = pixels(path)
        assert min(image.shape[:2]) > 200
        assert image.std() > 0.02, "not all of one colour"
        np.testing.assert_array_equal(image, pixels(tmp_path / "b" / path.name))


def test_prototypes_of_images_are_the_learners_on_the_scale_of_the_rows(digits, drawn, tmp_path):
    learner, rows = digits
    draw_prototypes(learner, rows, tmp_path / "p.png", (8, 8))
    panels = [panel for panel in drawn[0].axes if panel.get_title()]
    assert len(panels) == learner.n_clusters_
    for panel, cluster, weight in zip(panels, learner.cluster_ids_, learner.weights_, strict=True):
        name, share = panel.get_title().split("\n")
        assert name == f"cluster {cluster}"
        assert float(share.split()[0].lstrip("<")) == pytest.approx(100 * weight, abs=1.0)
        (image,) = panel.get_images()
        assert (image.norm.vmin, image.norm.vmax) == (0, 1)
        by_hand = np.clip(learner.prototype(cluster).reshape(8, 8) / 16, 0, 1)  # digits go from 0 to 16
        np.testing.assert_allclose(image.get_array(), by_hand, atol=1e-12)


def test_profiles_show_the_strongest_columns_in_standard_deviations(blobs, drawn, tmp_path):
    learner, rows = blobs
    draw_prototypes(learner, rows, tmp_path / "p.png")
    panels = [panel for panel in drawn[0].axes if panel.get_title()]
    assert len(panels) == learner.n_clusters_ > 1
    spread = rows.std(0, dtype=np.float64)
    for panel, cluster in zip(panels, learner.cluster_ids_, strict=True):
        offset = learner.prototype(cluster) - rows.mean(0, dtype=np.float64)
        z = np.divide(offset, spread, out=np.zeros(12), where=spread > 0)
        strongest = sorted(range(12), key=lambda column: -abs(z[column]))[:8]
        assert [label.get_text() for label in panel.get_yticklabels()] == [f"column {c}" for c in strongest]
        np.testing.assert_allclose([bar.get_width() for bar in panel.patches], z[strongest], rtol=1e-9)
        assert "column 5" not in [label.get_text() for label in panel.get_yticklabels()], "it never varies"


def test_each_row_of_samples_is_of_its_cluster(digits, blobs, drawn, tmp_path):
    learner, rows = digits
    draw_samples(learner, rows, tmp_path / "s.png", (8, 8))
    (panel,) = drawn[0].axes
    (image,) = panel.get_images()
    for row, cluster in enumerate(learner.cluster_ids_):
        assert panel.get_yticklabels()[row].get_text().startswith(f"cluster {cluster} (")
        samples, ids = learner.sample(10, cluster)
        assert (ids == cluster).all()
        middle = panel.get_yticks()[row]
        top = round(middle - 3.5)
        for column in range(10):
            tile = image.get_array()[top : top + 8, 9 * column : 9 * column + 8]
            np.testing.assert_allclose(tile, np.clip(samples[column].reshape(8, 8) / 16, 0, 1), atol=1e-12)
    learner, rows = blobs
    draw_samples(learner, rows, tmp_path / "s.png")
    heat = drawn[1].axes[0].get_images()[0].get_array()
    assert heat.shape == (10 * learner.n_clusters_, 12)
    expected = (learner.sample(10, 1)[0][:, 0] - rows[:, 0].mean()) / rows[:, 0].std()
    np.testing.assert_allclose(heat[10:20, 0], expected, rtol=1e-3)


def test_map_has_a_point_per_row_and_writes_each_id_on_its_cluster(digits, drawn, tmp_path):
    learner, rows = digits
    draw_map(learner, rows, tmp_path / "m.png")
    (panel,) = drawn[0].axes
    ids = learner.predict(rows)
    used = np.unique(ids)
    assert [len(points.get_offsets()) for points in panel.collections] == [(ids == c).sum() for c in used]
    assert [text.get_text() for text in panel.texts] == [str(cluster) for cluster in used]
    for text, points in zip(panel.texts, panel.collections, strict=True):
        assert np.abs(points.get_offsets() - text.xy).sum(1).min() < 1e-9, "on a point of its own"


class Flat:
    """Codes are the rows themselves; clusters by sign of the first column."""

    cluster_ids_ = np.arange(2)
    weights_ = np.array([0.5, 0.5])

    def transform(self, X):
        return X

    def predict(self, X):
        return (X[:, 0] > 0).astype(np.int64)


@pytest.mark.parametrize(("n_rows", "n_dims", "how"), [(5000, 2, "themselves"), (40, 6, "PCA"), (40, 1, "")])
def test_map_of_few_dimensions_few_rows_and_many_rows(n_rows, n_dims, how, drawn, tmp_path):
    rows = np.random.default_rng(1).normal(size=(n_rows, n_dims)) * np.arange(1, n_dims + 1)
    draw_map(Flat(), rows, tmp_path / "m.png", seed=3)
    (panel,) = drawn[0].axes
    points = np.concatenate([np.asarray(part.get_offsets()) for part in panel.collections])
    assert len(points) == min(n_rows, 3000)
    assert how in drawn[0].get_suptitle()
    if how == "PCA":
        variances = np.sort(np.linalg.eigvalsh(np.cov(rows.T)))[::-1][:2]
        np.testing.assert_allclose(points.var(axis=0, ddof=1), variances, rtol=1e-9)
    elif how == "themselves":
        assert {tuple(point) for point in points} <= {tuple(row) for row in rows}


def test_no_two_clusters_of_a_map_look_alike(drawn, tmp_path):
    rows = np.random.default_rng(0).normal(size=(90, 2))
    ten = SimpleNamespace(transform=lambda x: x, predict=lambda x: np.arange(len(x)) % 10)
    draw_map(ten, rows, tmp_path / "m.png")
    parts = drawn[0].axes[0].collections
    looks = {(tuple(part.get_facecolor()[0]), part.get_paths()[0].vertices.tobytes()) for part in parts}
    assert len(looks) == len(parts) == 10


def test_only_the_largest_of_many_clusters_are_shown(drawn, tmp_path):
    many = SimpleNamespace(
        cluster_ids_=np.arange(45),
        weights_=np.arange(45) / 990,
        prototype=lambda cluster: np.full(4, cluster),
    )
    draw_prototypes(many, np.random.default_rng(0).normal(size=(50, 4)), tmp_path / "p.png")
    titles = [panel.get_title().split("\n")[0] for panel in drawn[0].axes if panel.get_title()]
    assert titles == [f"cluster {cluster}" for cluster in range(15, 45)]
    assert "the 30 largest of 45 clusters" in drawn[0].get_suptitle()


def curve(panel):
    return np.concatenate([line.get_ydata() for line in panel.get_lines()])


def test_training_shows_the_history(digits, drawn, tmp_path):
    learner, _ = digits
    draw_training(learner.history_, tmp_path / "t.png")
    epochs = [progress for progress in learner.history_ if progress.stage in ("represent", "joint")]
    assert len(epochs) == 4
    reconstruction, fit, neighbourhood, components = drawn[0].axes
    terms = [progress.terms for progress in epochs]
    np.testing.assert_array_equal(curve(reconstruction), [t.reconstruction for t in terms])
    np.testing.assert_array_equal(curve(fit), [terms[-1].log_prior + terms[-1].entropy])
    np.testing.assert_array_equal(curve(neighbourhood), [t.neighbourhood for t in terms])
    searched = [progress for progress in learner.history_ if progress.stage == "search"]
    on_places, on_codes = (progress.n_components for progress in searched)
    expected = [*[on_places] * 4, on_codes, epochs[-1].n_components]
    np.testing.assert_array_equal(curve(components), expected)
    born = sum(len(move.born) for move in searched[0].moves)
    gone = sum(len(move.gone) for move in searched[0].moves)
    assert 1 + born - gone == searched[0].n_components, "births and merges account for all components"
    written = [text.get_text() for text in components.texts]
    assert written[0] == f"▲ {born}"
    assert (f"▼ {gone}" in written) == (gone > 0)
    shaded = [patch.get_facecolor() for patch in components.patches]
    assert len(set(shaded)) == 2, "a shade for each of the two stages"


def test_training_without_networks_and_without_a_neighbourhood(drawn, tmp_path):
    rows = np.random.default_rng(0).normal(size=(80, 3)) + 9 * np.arange(80)[:, None] % 18
    learner = DBULL(encoder="identity", random_state=0).fit(rows)
    draw_training(learner.history_, tmp_path / "t.png")
    assert len(drawn[0].axes) == 1, "components alone"
    assert curve(drawn[0].axes[0])[-1] == learner.history_[-1].n_components
    history = [
        dataclasses.replace(progress, terms=dataclasses.replace(progress.terms, neighbourhood=0.0))
        for progress in DBULL(**SMALL, neighbourhood=0).fit(rows @ np.ones((3, 12))).history_
        if progress.terms is not None
    ]
    draw_training(history, tmp_path / "t.png")
    assert [panel.get_title(loc="left").split(":")[0] for panel in drawn[1].axes] == [
        "reconstruction",
        "fit of codes to clusters",
        "components of the mixture",
    ]


DBULL_ON_DIGITS = MethodChoice(
    path="dbull.methods.dbull:DBULL",
    parameters={
        "image_shape": [8, 8],
        "epochs": 2,
        "joint_epochs": 1,
        "hidden_dims": [16],
        "max_clusters": 4,
    },
)


def test_runner_draws_when_asked_and_never_hands_over_labels(tmp_path, monkeypatch):
    given = []
    monkeypatch.setattr(run, "draw_pictures", lambda *args: given.append(args) or [tmp_path / "x.png"])
    heard = []
    settings = BenchSettings("batch-digits", (DBULL_ON_DIGITS,), out=tmp_path)
    *_, done = run.bench(settings, pictures=True, watch=heard.append)
    assert done.pictures == (tmp_path / "x.png",)
    ((learner, rows, folder, shape, seed),) = given
    assert isinstance(learner, DBULL)
    assert rows.shape == (359, 64)
    assert not rows.flags.writeable
    assert (folder, tuple(shape), seed) == (done.folder / "pictures", (8, 8), 0)
    assert [event.progress for event in heard] == learner.history_
    assert {(event.method, event.arrival, event.n_arrivals) for event in heard} == {("DBULL", 0, 1)}
    assert "callback" not in json.loads((done.folder / "settings.json").read_text())["parameters"]
    *_, again = run.bench(settings, pictures=True)
    assert (again.was_done, again.pictures, len(given)) == (True, (), 1)


def test_own_callback_is_left_alone(make_stream, tmp_path):
    choice = MethodChoice(path="toy_methods:Calling", parameters={"callback": "mine"})
    *_, done = run.run(make_stream((0,)), choice, tmp_path, watch=lambda event: pytest.fail("not asked"))
    assert "callback" not in json.loads((done.folder / "settings.json").read_text())["parameters"]


def test_refused_before_the_run(tmp_path, monkeypatch):
    kmeans = BenchSettings("batch-digits", (MethodChoice(name="kmeans"),), out=tmp_path / "r")
    with pytest.raises(SettingsError, match="no picture can be made of kmeans"):
        next(run.bench(kmeans, pictures=True))
    monkeypatch.setattr(figures, "find_spec", lambda name: None)
    with pytest.raises(SettingsError, match=r"pictures need matplotlib: pip install 'dbull\[plot\]'"):
        next(run.bench(BenchSettings("batch-digits", (DBULL_ON_DIGITS,), out=tmp_path / "r"), pictures=True))
    assert not (tmp_path / "r").exists()


def test_folder_in_the_way_is_named(digits, tmp_path):
    learner, rows = digits
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(SettingsError, match=r"prototypes\.png: cannot be written"):
        draw_prototypes(learner, rows, tmp_path / "file" / "prototypes.png", (8, 8))
