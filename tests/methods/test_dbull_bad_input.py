"""Bad and extreme input of `DBULL`: a clear error, or a result of which is said here what makes it sound."""

import copy
import warnings

import numpy as np
import pandas as pd
import pytest
from sklearn.exceptions import NotFittedError

from dbull import DBULL, DataError, NumericalError
from dbull.nets.likelihood import _Gaussian
from synthetic import gaussian_clusters

pytestmark = pytest.mark.usefixtures("quick_module")

QUICK = {
    "random_state": 0,
    "encoder": "mlp",
    "hidden_dims": (8,),
    "latent_dim": 2,
    "epochs": 2,
    "joint_epochs": 1,
}
QUICKER = {**QUICK, "joint_epochs": 0}


@pytest.fixture(autouse=True)
def _no_warnings():
    """Whatever comes in, nothing may overflow, divide by zero or warn in silence."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


@pytest.fixture(scope="module")
def X():
    return gaussian_clusters(np.random.default_rng(0), (40, 30), 12)[0]


@pytest.fixture(scope="module")
def fitted(X):
    return DBULL(**QUICK).fit(X)


def assert_sound(model, X):
    """All finite, weights and probabilities normalised, rows counted, rows of the right shape given back."""
    assert np.isfinite(model.elbo_)
    assert model.weights_.sum() == pytest.approx(1.0)
    assert float(model.state_.memory.total.counts.sum()) == pytest.approx(len(X))
    np.testing.assert_allclose(model.predict_proba(X).sum(1), 1.0)
    np.testing.assert_array_equal(model.predict(X), model.labels_)
    assert set(model.labels_) <= set(model.cluster_ids_)
    for answer in (model.transform(X), model.score_samples(X), model.reconstruct(X), model.sample(3)[0]):
        assert np.isfinite(answer).all()
    assert np.isfinite(model.prototype(0)).all()
    for step in model.history_:
        if step.terms is not None:
            assert np.isfinite([step.terms.elbo, step.terms.neighbourhood]).all()


# Errors say what and where.


@pytest.mark.parametrize(("value", "name"), [(np.nan, "NaN"), (np.inf, "infinity"), (-np.inf, "infinity")])
@pytest.mark.parametrize("method", ["fit", "predict", "predict_proba", "score_samples", "transform"])
def test_not_finite(fitted, X, value, name, method):
    bad = X.copy()
    bad[17, 1] = value
    bad[40, 0] = np.nan
    model = DBULL(**QUICK) if method == "fit" else fitted
    with pytest.raises(DataError, match=rf"{name}: first at row 17, column 1; 2 of 70 rows"):
        getattr(model, method)(bad)


def test_not_finite_in_a_named_column(X):
    table = pd.DataFrame(X.copy(), columns=[f"dose {i}" for i in range(12)])
    table.loc[3, "dose 4"] = np.inf  # NaN is what tables have for missing
    with pytest.raises(DataError, match=r"row 3, column 4 \('dose 4'\)"):
        DBULL(**QUICK).fit(table)


@pytest.mark.parametrize(
    ("shape", "message"),
    [((0, 2), "0 sample"), ((1, 2), "1 sample"), ((5, 0), "0 feature"), ((5,), "1D array")],
)
def test_impossible_shapes(shape, message):
    with pytest.raises(ValueError, match=message):
        DBULL().fit(np.zeros(shape))


def test_other_number_of_columns(fitted):
    for method in ("predict", "transform", "score_samples", "reconstruct", "predict_proba"):
        with pytest.raises(ValueError, match="3 features, but DBULL is expecting 12"):
            getattr(fitted, method)(np.zeros((4, 3)))
    with pytest.raises(ValueError, match="codes have 2 columns, got 3"):
        fitted.inverse_transform(np.zeros((4, 3)))
    with pytest.raises(ValueError, match="NaN"):
        fitted.inverse_transform([[0.0, np.nan]])


def test_not_fitted(X):
    for method in (
        "predict",
        "predict_proba",
        "score_samples",
        "score",
        "transform",
        "reconstruct",
        "inverse_transform",
    ):
        with pytest.raises(NotFittedError):
            getattr(DBULL(), method)(X)
    with pytest.raises(NotFittedError):
        DBULL().sample()
    with pytest.raises(NotFittedError):
        DBULL().prototype(0)


@pytest.mark.parametrize("shape", [(4, 4), (12,), (3, 4, 2), (1, 3, 4, 1)])
def test_image_shape_that_does_not_fit(X, shape):
    with pytest.raises(DataError, match=r"image_shape .* does not fit rows of 12 values"):
        DBULL(**QUICK, image_shape=shape).fit(X)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("objective", "papr"),
        ("objective", None),
        ("kind", "words"),
        ("kind", 3),
        ("columns", "shop"),
        ("columns", {3: "category"}),
        ("encoder", "transformer"),
        ("encoder", None),
        ("image_shape", "34"),
        ("image_shape", 12),
        ("image_shape", (3, 4.0)),
        ("image_shape", (3, -4)),
        ("image_shape", (-3, -4)),
        ("latent_dim", 0),
        ("latent_dim", 2.5),
        ("latent_dim", True),
        ("hidden_dims", "wide"),
        ("hidden_dims", 16),
        ("hidden_dims", (16, 0)),
        ("hidden_dims", (16.5,)),
        ("likelihood", "poisson"),
        ("front_end", "no"),
        ("front_end", 3),
        ("augment", "flip"),
        ("augment", 3),
        ("pretraining", "none"),
        ("neighbourhood", -1.0),
        ("neighbourhood", "yes"),
        ("neighbourhood", np.inf),
        ("n_neighbors", 0),
        ("n_neighbors", 2.5),
        ("join", -0.1),
        ("join", "x"),
        ("resolution", "finer"),
        ("resolution", 0.0),
        ("resolution", None),
        ("use_encoder_variance", "no"),
        ("concentration", 0.0),
        ("concentration", np.nan),
        ("max_evidence", 0),
        ("max_evidence", "all"),
        ("pooling", -1),
        ("max_clusters", 0),
        ("epochs", -1),
        ("epochs", 2.5),
        ("epochs", None),
        ("joint_epochs", -1),
        ("batch_size", 0),
        ("learning_rate", 0.0),
        ("learning_rate", -1e-3),
        ("learning_rate", np.nan),
        ("random_state", -1),
        ("callback", 3),
    ],
)
def test_bad_parameters_are_named(X, name, value):
    with pytest.raises(ValueError, match=name.replace("_", ".")) as caught:
        DBULL(**{**QUICK, name: value}).fit(X)
    # Of several widths or sides the wrong one is shown.
    assert repr(value) in str(caught.value) or isinstance(value, tuple)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"kind": "images"}, "needs image_shape"),
        ({"encoder": "conv"}, "conv.*needs image_shape"),
        ({"likelihood": "bernoulli"}, "bernoulli.*for images"),
        ({"pretraining": "stacked", "encoder": "conv", "image_shape": (3, 4)}, "stacked pretraining is for"),
        ({"pretraining": "stacked", "image_shape": (3, 4), "front_end": True}, "front_end=False"),
        ({"pretraining": "stacked", "likelihood": "gaussian-learned"}, "one output per value"),
    ],
)
def test_parameters_that_do_not_go_together(X, given, message):
    with pytest.raises(ValueError, match=message):
        DBULL(**{**QUICK, **given}).fit(X)


# A loss that leaves the range of numbers.


def answers(model, X):
    return [model.predict_proba(X), model.score_samples(X), model.reconstruct(X), np.array(model.elbo_)]


def test_a_fit_that_fails_leaves_the_earlier_one(fitted, X):
    model = copy.deepcopy(fitted)
    before, history = answers(model, X), model.history_
    with pytest.raises(NumericalError, match=r"not finite \(.*reconstruction.* term, step 0"):
        model.set_params(learning_rate=1e30).fit(X[:, :11])  # other columns, too
    for now, then in zip(answers(model, X), before, strict=True):
        np.testing.assert_array_equal(now, then)
    assert model.history_ is history
    assert model.n_features_in_ == 12
    with pytest.raises(DataError):
        model.fit(np.full((5, 3), np.nan))
    np.testing.assert_array_equal(answers(model, X)[0], before[0])
    model.set_params(learning_rate="auto").fit(X)
    np.testing.assert_array_equal(answers(model, X)[1], before[1])


def test_an_interrupted_fit_leaves_the_earlier_one(fitted, X):
    model = copy.deepcopy(fitted)
    before = answers(model, X)

    def interrupt(progress):
        if progress.stage == "joint":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        model.set_params(callback=interrupt).fit(X[:, :11] + 1)
    for now, then in zip(answers(model, X), before, strict=True):
        np.testing.assert_array_equal(now, then)


def test_a_first_fit_that_fails_is_no_fit(X):
    model = DBULL(**QUICK, learning_rate=1e30)
    with pytest.raises(NumericalError):
        model.fit(X)
    with pytest.raises(NotFittedError):
        model.predict(X)


def test_the_term_is_named(X, monkeypatch):
    """Whichever term turns bad: here the reconstruction alone, after some steps."""
    calls = []

    def broken(self, output, x):
        calls.append(1)
        return output.sum(1) * (np.nan if len(calls) == 3 else 1.0)

    monkeypatch.setattr(_Gaussian, "log_prob", broken)
    with pytest.raises(NumericalError, match=r"\(reconstruction term, step 0 of the epoch\).*learning_rate"):
        DBULL(**{**QUICK, "epochs": 5}).fit(X)


def test_the_last_step_is_looked_at_too(X):
    """One epoch of one step: the weights are ruined after the only loss that was computed."""
    with pytest.raises(NumericalError, match=r"codes are not finite.*learning_rate"):
        DBULL(**{**QUICK, "epochs": 1, "joint_epochs": 0}, learning_rate=1e30, batch_size=100).fit(X)


# Extreme but possible.


@pytest.mark.parametrize("scale", [1e-30, 1e30, 1e-140, 1e140])
def test_huge_and_tiny(fitted, X, scale):
    """As far as squares stay in float64: the same answers, in other units."""
    unit = 2.0 ** round(np.log2(scale))
    model = DBULL(**QUICK).fit(X * unit)
    np.testing.assert_array_equal(model.labels_, fitted.labels_)
    np.testing.assert_allclose(model.score_samples(X * unit), fitted.score_samples(X) - 12 * np.log(unit))
    assert_sound(model, X * unit)


@pytest.mark.parametrize("scale", [1e-30, 1e30])
@pytest.mark.parametrize("kind", ["dense", "sparse", "images"])
def test_huge_and_tiny_in_single_precision(X, scale, kind):
    """Squares leave the range of float32; the statistics of the columns may not."""
    shape = (3, 4) if kind == "images" else None
    rows = np.abs(X) * (np.arange(12) % 6 == 0) if kind == "sparse" else X
    unit = 2.0 ** round(np.log2(scale))
    plain = DBULL(**QUICKER, kind=kind, image_shape=shape).fit(rows.astype(np.float32))
    model = DBULL(**QUICKER, kind=kind, image_shape=shape).fit((rows * unit).astype(np.float32))
    np.testing.assert_array_equal(model.labels_, plain.labels_)
    assert_sound(model, (rows * unit).astype(np.float32))


@pytest.mark.parametrize("scale", [1e-200, 1e200, 1e-300, 1e300])
@pytest.mark.parametrize("encoder", ["mlp", "identity"])
def test_beyond_squares(X, scale, encoder):
    """Either an error that names the column, or a sound result; never infinity in silence."""
    rows = X.copy()
    rows[:, 1] *= scale
    try:
        model = DBULL(**{**QUICK, "encoder": encoder}).fit(rows)
    except DataError as error:
        assert "column 1" in str(error)  # noqa: PT017
    else:
        assert_sound(model, rows)


def test_far_rows_at_prediction(fitted):
    far = np.full((4, 12), 1.0) * np.array([1e9, -1e30, 1e300, -1e308])[:, None]
    assert set(fitted.predict(far)) <= set(fitted.cluster_ids_)
    np.testing.assert_allclose(fitted.predict_proba(far).sum(1), 1.0)
    assert np.isfinite(fitted.score_samples(far)).all()


@pytest.mark.parametrize("value", [1e4, 1e9, 1e30])
def test_an_outlier_in_the_data(X, value):
    rows = np.concatenate([X, np.full((1, 12), value)])
    assert_sound(DBULL(**QUICK).fit(rows), rows)


@pytest.mark.parametrize("n_rows", [2, 3, 20])
@pytest.mark.parametrize("kind", ["dense", "images", "identity", "conv", "paper"])
def test_few_rows(X, n_rows, kind):
    given = {
        "dense": {},
        "images": {"image_shape": (3, 4)},
        "identity": {"encoder": "identity"},
        "conv": {"image_shape": (3, 4), "encoder": "conv"},
        "paper": {"objective": "paper", "image_shape": (3, 4)},
    }[kind]
    model = DBULL(**{**QUICK, **given}).fit(X[:n_rows])
    assert_sound(model, X[:n_rows])
    if n_rows < 4:
        assert model.n_clusters_ == 1


@pytest.mark.parametrize("value", [0.0, 1.0, -3.7, 1e6])
@pytest.mark.parametrize(
    "given",
    [{}, {"image_shape": (3, 4)}, {"encoder": "identity"}, {"objective": "paper"}, {"kind": "sparse"}],
)
def test_identical_rows(value, given):
    rows = np.full((40, 12), value)
    model = DBULL(**{**QUICK, **given}).fit(rows)
    assert model.n_clusters_ == 1
    assert_sound(model, rows)


def test_duplicated_rows():
    """More equal rows than neighbours: all distances in the graph are 0."""
    rows = np.repeat(np.random.default_rng(1).normal(size=(3, 12)), 40, 0)
    model = DBULL(**QUICKER).fit(rows)
    assert_sound(model, rows)
    for value in range(3):
        assert len(set(model.labels_[40 * value : 40 * value + 40])) == 1


def test_constant_columns(X):
    """They carry nothing, and come back as what they are where nothing is compressed."""
    rows = np.column_stack([X[:, :3], np.full(len(X), 1e8), np.zeros(len(X))])
    model = DBULL(random_state=0).fit(rows)
    assert model.chosen_["encoder"] == "identity"
    assert_sound(model, rows)
    np.testing.assert_allclose(model.reconstruct(rows)[:, 3:], rows[:, 3:], rtol=1e-12)
    wide = np.column_stack([X, np.full(len(X), 1e8), np.zeros(len(X))])
    assert_sound(DBULL(**QUICK).fit(wide), wide)


def test_constant_pixels(X):
    images = np.column_stack([X, np.zeros((len(X), 13))])
    assert_sound(DBULL(**QUICKER, image_shape=(5, 5)).fit(images), images)


def test_blank_images_among_others(X):
    images = X - X.min()
    images[:5] = 0.0
    model = DBULL(**QUICKER, image_shape=(3, 4)).fit(images)
    assert_sound(model, images)
    assert len(set(model.labels_[:5])) == 1


@pytest.mark.parametrize("shape", [(1, 12), (12, 1), (2, 2, 3), (1, 1, 12)])
def test_odd_images(X, shape):
    images = X - X.min()
    for encoder in ("mlp", "conv"):
        assert_sound(DBULL(**{**QUICKER, "encoder": encoder}, image_shape=shape).fit(images), images)


def test_many_columns_and_few_rows():
    rows = np.random.default_rng(2).normal(size=(60, 20_000))
    model = DBULL(**{**QUICKER, "epochs": 1}).fit(rows)
    assert_sound(model, rows)


def test_more_neighbours_than_rows(X):
    assert_sound(DBULL(**QUICKER, n_neighbors=500).fit(X), X)


@pytest.mark.parametrize(
    "given",
    [
        {"epochs": 0},
        {"joint_epochs": 0},
        {"epochs": 0, "joint_epochs": 0},
        {"hidden_dims": ()},
        {"batch_size": 1},
        {"max_clusters": 1},
        {"neighbourhood": 0, "join": 0.05},
        {"join": 1.0},
        {"pooling": 0},
        {"pooling": 100.0},
        {"max_evidence": None},
        {"max_evidence": 10},
        {"resolution": 1e-6},
        {"resolution": 1e6},
        {"resolution": "fine", "objective": "paper"},
    ],
    ids=str,
)
def test_edges_of_parameters(X, given):
    assert_sound(DBULL(**{**QUICK, **given}).fit(X), X)


def test_read_only_rows(X):
    rows = X.copy()
    rows.flags.writeable = False
    model = DBULL(**QUICKER).fit(rows)
    assert_sound(model, rows)
