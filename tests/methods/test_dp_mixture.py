"""`DPMixture` as its users see it: scikit-learn's contract, invariances, streams, densities."""

import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch
from scipy import stats
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.utils.estimator_checks import parametrize_with_checks

from dbull import DPMixture
from dbull.methods import dp_mixture as module
from synthetic import gaussian_clusters, skewed_clusters

pytestmark = pytest.mark.usefixtures("quick_module")


@parametrize_with_checks([DPMixture(random_state=0)])
def test_scikit_learns_contract(estimator, check):
    check(estimator)


@pytest.fixture(scope="module")
def data():
    """Three clusters of unequal size in two dimensions, and their true labels."""
    return gaussian_clusters(np.random.default_rng(0), (120, 80, 50), 2)


@pytest.fixture(scope="module")
def fitted(data):
    return DPMixture(random_state=0).fit(data[0])


def same_partition(a, b):
    """The two labellings are the same up to names."""
    return len(set(zip(a, b, strict=True))) == len(set(a)) == len(set(b))


# What comes out of a fit.


def test_finds_the_clusters(fitted, data):
    _, labels = data
    assert fitted.n_clusters_ == 3
    assert same_partition(fitted.labels_, labels)
    assert fitted.cluster_ids_.tolist() == [0, 1, 2]
    assert np.bincount(fitted.labels_).tolist() == [120, 80, 50]  # ids in order of size
    np.testing.assert_allclose(fitted.counts_, [120, 80, 50], atol=0.1)
    assert fitted.n_features_in_ == 2
    assert (fitted.n_rows_seen_, fitted.n_data_sets_) == (250, 1)


def test_parameters_are_those_of_the_clusters(fitted, data):
    X, _ = data
    for k, (mean, covariance) in enumerate(zip(fitted.means_, fitted.covariances_, strict=True)):
        own = X[fitted.labels_ == k]
        error = np.sqrt(np.diag(np.cov(own.T)) / len(own))
        assert np.all(np.abs(mean - own.mean(0)) < error)  # the prior pulls by less than a standard error
        np.testing.assert_allclose(covariance, np.cov(own.T), atol=0.3 * np.abs(np.cov(own.T)).max())
    np.testing.assert_allclose(fitted.weights_, np.array([120, 80, 50]) / 250, atol=0.02)
    assert fitted.weights_.sum() == pytest.approx(1.0)


def test_history_ends_at_the_elbo_of_standardised_columns(fitted, data):
    X = data[0]
    assert fitted.history_[-1].kind == "final"
    spread = len(X) * np.log(X.std(0)).sum()
    assert fitted.elbo_ + spread == pytest.approx(fitted.history_[-1].elbo, rel=1e-9)


def test_elbo_is_in_the_units_of_the_columns(fitted, data):
    """A bound on a log density moves by -N log c when a column is multiplied by c."""
    X = data[0]
    scaled = DPMixture(random_state=0).fit(X * [1000.0, 1.0])
    assert scaled.elbo_ == pytest.approx(fitted.elbo_ - len(X) * np.log(1000.0), rel=1e-9)


def test_history_counts_the_clusters(fitted):
    assert fitted.history_[-1].n_components == 3


# Prediction.


def test_predict_on_the_training_rows_is_labels(fitted, data):
    X, _ = data
    np.testing.assert_array_equal(fitted.predict(X), fitted.labels_)
    np.testing.assert_array_equal(clone(fitted).fit_predict(X), fitted.labels_)


def test_predict_row_by_row(fitted, data):
    X = np.concatenate([data[0][:40], np.random.default_rng(1).uniform(-30, 30, (40, 2))])
    one_by_one = np.concatenate([fitted.predict(row[None]) for row in X])
    np.testing.assert_array_equal(one_by_one, fitted.predict(X))
    np.testing.assert_allclose(
        np.concatenate([fitted.predict_proba(row[None]) for row in X]), fitted.predict_proba(X), atol=1e-10
    )
    np.testing.assert_allclose(
        np.concatenate([fitted.score_samples(row[None]) for row in X]), fitted.score_samples(X), rtol=1e-10
    )


def test_predict_proba(fitted):
    X = np.random.default_rng(2).uniform(-30, 30, (200, 2))
    proba = fitted.predict_proba(X)
    assert proba.shape == (200, 3)
    np.testing.assert_allclose(proba.sum(1), 1.0, rtol=1e-12)
    assert (proba >= 0).all()
    np.testing.assert_array_equal(fitted.cluster_ids_[proba.argmax(1)], fitted.predict(X))
    assert proba.max(1).min() < 0.999  # not all rows are clear


def test_columns_follow_ids_also_when_sizes_overtake():
    """A later data set makes the second cluster the largest: ids stay, and all that is shown follows them."""
    rng = np.random.default_rng(3)
    a, b = rng.normal(0, 1, (120, 2)), rng.normal(30, 3, (60, 2))
    many_b = rng.normal(30, 3, (300, 2))
    estimator = DPMixture(random_state=0).partial_fit(np.concatenate([a, b])).partial_fit(many_b)
    assert estimator.memory_.ids == (1, 0)  # inside, the largest comes first
    assert estimator.cluster_ids_.tolist() == [0, 1]
    np.testing.assert_allclose(estimator.means_, [[0, 0], [30, 30]], atol=0.6)
    np.testing.assert_allclose(estimator.covariances_, [np.eye(2), 9 * np.eye(2)], atol=1.2)
    np.testing.assert_allclose(estimator.counts_, [120, 360], atol=0.5)
    np.testing.assert_allclose(estimator.weights_, [0.25, 0.75], atol=0.02)
    np.testing.assert_allclose(estimator.predict_proba([[0, 0], [30, 30]]), np.eye(2), atol=1e-6)
    assert estimator.predict([[0, 0], [30, 30]]).tolist() == [0, 1]
    rows, ids = estimator.sample(2000)
    assert (ids == 1).mean() == pytest.approx(0.75, abs=0.05)
    for k in range(2):
        np.testing.assert_allclose(rows[ids == k].mean(0), estimator.means_[k], atol=0.5)
        np.testing.assert_allclose(rows[ids == k].std(0), [1 + 2 * k] * 2, rtol=0.2)


# Density.


def test_density_integrates_to_one():
    """In one dimension, on a fine grid in the original units, with tails."""
    rng = np.random.default_rng(4)
    x = 1000.0 + 50.0 * np.concatenate([rng.normal(0, 1, 100), rng.normal(10, 2, 60)])[:, None]
    estimator = DPMixture(random_state=0).fit(x)
    assert estimator.n_clusters_ == 2
    grid = np.linspace(1000 - 20_000, 1000 + 20_000, 200_001)
    density = np.exp(estimator.score_samples(grid[:, None]))
    assert np.trapezoid(density, grid) == pytest.approx(1.0, abs=1e-4)


def test_density_is_the_posterior_predictive(fitted, data):
    """A mixture of Student-t's put together by hand from the memory's statistics, in the original units."""
    X, _ = data
    memory = fitted.memory_.total
    posterior, scale = fitted._posterior, X.std(0)
    beta, nu = posterior.components.mean_precision.numpy(), posterior.components.dof.numpy()
    np.testing.assert_allclose(nu, 4 + memory.counts.numpy())
    density = 0.0
    for k in range(3):
        shape = posterior.components.scale_inv[k].numpy() * np.outer(scale, scale)
        shape = shape * (beta[k] + 1) / (beta[k] * (nu[k] - 1))
        location = posterior.components.mean[k].numpy() * scale + X.mean(0)
        weight = fitted.weights_[np.argsort(np.array(fitted.memory_.ids))][k]
        density = density + weight * stats.multivariate_t(location, shape, df=nu[k] - 1).pdf(X[:20])
    np.testing.assert_allclose(fitted.score_samples(X[:20]), np.log(density), rtol=1e-9)
    assert fitted.score(X) == pytest.approx(fitted.score_samples(X).mean())


def test_density_changes_with_the_units(fitted, data):
    """Change of variables: with y = a x + b the log density falls by sum log |a|."""
    X, _ = data
    a, b = np.array([100.0, 0.01]), np.array([5.0, -3.0])
    moved = clone(fitted).fit(X * a + b)
    np.testing.assert_allclose(
        moved.score_samples(X * a + b), fitted.score_samples(X) - np.log(a).sum(), rtol=1e-6, atol=1e-6
    )
    np.testing.assert_allclose(moved.means_, fitted.means_ * a + b, rtol=1e-6)
    np.testing.assert_allclose(moved.covariances_, fitted.covariances_ * np.outer(a, a), rtol=1e-5)


def test_sample_has_the_moments_it_says(fitted):
    estimator = clone(fitted)
    estimator.__dict__.update(fitted.__dict__)
    rows, ids = estimator.sample(30_000)
    assert set(ids) == {0, 1, 2}
    for k in range(3):
        own = rows[ids == k]
        share = fitted.weights_[k]
        assert len(own) / 30_000 == pytest.approx(share, abs=5 * np.sqrt(share * (1 - share) / 30_000))
        error = np.sqrt(np.diag(fitted.covariances_[k]) / len(own))
        assert np.all(np.abs(own.mean(0) - fitted.means_[k]) < 5 * error)
        np.testing.assert_allclose(
            np.cov(own.T), fitted.covariances_[k], atol=0.08 * np.trace(fitted.covariances_[k])
        )
    again, _ = estimator.sample(30_000)
    np.testing.assert_array_equal(rows, again)  # the seed is an int


# Invariances.


@pytest.mark.parametrize(
    ("factor", "shift"),
    [
        (np.array([1.0, 1.0]), np.array([1e4, -1e3])),
        (np.array([1e-12, 1e-12]), np.zeros(2)),
        (np.array([1e12, 1e12]), np.zeros(2)),
        (np.array([1e-12, 1e12]), np.array([3e-12, -7e12])),
        (np.array([-1.0, 40.0]), np.zeros(2)),
    ],
    ids=["shift", "tiny", "huge", "mixed", "mirrored"],
)
def test_units_change_nothing(fitted, data, factor, shift):
    X, _ = data
    moved = clone(fitted).fit(X * factor + shift)
    assert moved.n_clusters_ == 3
    np.testing.assert_array_equal(moved.labels_, fitted.labels_)
    np.testing.assert_allclose(moved.means_, fitted.means_ * factor + shift, rtol=1e-5)
    np.testing.assert_allclose(moved.covariances_, fitted.covariances_ * np.outer(factor, factor), rtol=1e-4)
    np.testing.assert_array_equal(moved.predict(X * factor + shift), fitted.labels_)


def test_skewed_data_in_other_units():
    """Also where the structure is not clear-cut: powers of two change no bit of the standardised rows."""
    X, _ = skewed_clusters(np.random.default_rng(5), (40, 30), 2)
    a = DPMixture(random_state=0).fit(X)
    b = DPMixture(random_state=0).fit(X * 2.0**40)
    np.testing.assert_array_equal(a.labels_, b.labels_)


def test_linear_maps_change_nothing_much(fitted, data):
    X, labels = data
    rng = np.random.default_rng(6)
    mixing = rng.normal(size=(2, 2)) + 2 * np.eye(2)
    moved = clone(fitted).fit(X @ mixing)
    assert moved.n_clusters_ == 3
    assert same_partition(moved.labels_, labels)


# Same seed, same result; labels do not matter.


def state_of(estimator):
    return {
        name: getattr(estimator, name)
        for name in ("labels_", "weights_", "means_", "covariances_", "counts_", "elbo_", "cluster_ids_")
    }


def assert_identical(a, b):
    for name, value in state_of(a).items():
        np.testing.assert_array_equal(value, state_of(b)[name], err_msg=name)


def test_same_seed_same_bits():
    X = np.random.default_rng(7).standard_t(2, size=(60, 2))  # no clear structure: the seed matters
    once = DPMixture(random_state=3).fit(X)
    assert DPMixture(random_state=0).fit(X).elbo_ != once.elbo_
    assert_identical(once, DPMixture(random_state=3).fit(X))
    assert_identical(once, DPMixture(random_state=np.int64(3)).fit(X))
    stream = [DPMixture(random_state=1).partial_fit(X[:30]).partial_fit(X[30:]) for _ in range(2)]
    assert_identical(*stream)


def test_fit_forgets():
    X, _ = gaussian_clusters(np.random.default_rng(8), (30, 30), 2)
    used = DPMixture(random_state=0).fit(X + 100).partial_fit(X * 3)
    assert_identical(used.fit(X), DPMixture(random_state=0).fit(X))
    assert used.n_data_sets_ == 1


def test_labels_given_change_nothing(fitted, data):
    X, labels = data
    assert_identical(clone(fitted).partial_fit(X, np.random.default_rng(0).permutation(labels)), fitted)
    again = clone(fitted)
    np.testing.assert_array_equal(again.fit_predict(X, labels), fitted.labels_)
    assert_identical(again, fitted)
    assert fitted.score(X, labels) == fitted.score(X)


# What may come in.


@pytest.mark.parametrize(
    "make",
    [
        torch.tensor,
        lambda X: torch.tensor(X, requires_grad=True),
        lambda X: pd.DataFrame(X, columns=["a", "b"]),
        lambda X: pl.DataFrame(X, schema=["a", "b"]),
        lambda X: pl.LazyFrame(X, schema=["a", "b"]),
        lambda X: X.tolist(),
        np.asfortranarray,
    ],
    ids=["torch", "torch with gradient", "pandas", "polars", "polars lazy", "lists", "fortran"],
)
def test_containers(fitted, data, make):
    X = data[0]
    estimator = clone(fitted).fit(make(X))
    assert_identical(estimator, fitted)
    np.testing.assert_array_equal(estimator.predict(make(X)), fitted.labels_)
    np.testing.assert_array_equal(estimator.score_samples(make(X)), fitted.score_samples(X))
    assert isinstance(estimator.labels_, np.ndarray)


def test_single_precision_and_integers(fitted, data):
    X = data[0]
    assert same_partition(clone(fitted).fit(X.astype(np.float32)).labels_, fitted.labels_)
    assert same_partition(clone(fitted).fit(np.round(X * 100).astype(int)).labels_, fitted.labels_)


@pytest.mark.parametrize("frame", [pd.DataFrame, lambda d: pl.DataFrame(d)], ids=["pandas", "polars"])
def test_column_names_are_checked(fitted, data, frame):
    X = data[0]
    table = frame({"height": X[:, 0], "weight": X[:, 1]})
    estimator = clone(fitted).fit(table)
    assert estimator.feature_names_in_.tolist() == ["height", "weight"]
    with pytest.raises(ValueError, match="feature names"):
        estimator.predict(frame({"weight": X[:, 1], "height": X[:, 0]}))
    with pytest.raises(ValueError, match="feature names"):
        estimator.partial_fit(frame({"weight": X[:, 1], "height": X[:, 0]}))


# A life of several data sets.


def test_class_incremental_stream():
    """Two new clusters per data set: 2, 4, 6, 8, each old cluster keeps its id and its rows."""
    rng = np.random.default_rng(9)
    X, labels = gaussian_clusters(rng, [100] * 8, 4, distance=10.0)
    estimator = DPMixture(random_state=0)
    name_of = {}
    for task in range(4):
        part = labels // 2 == task
        estimator.partial_fit(X[part])
        assert estimator.n_clusters_ == 2 * (task + 1)
        assert estimator.cluster_ids_.tolist() == list(range(2 * (task + 1)))
        assert same_partition(estimator.labels_, labels[part])
        seen = labels // 2 <= task
        now = estimator.predict(X[seen])
        assert same_partition(now, labels[seen])
        for label in range(2 * (task + 1)):
            mine = set(now[labels[seen] == label])
            assert mine == {name_of.setdefault(label, mine.copy().pop())}
    np.testing.assert_allclose(estimator.counts_, 100.0, atol=0.5)
    assert estimator.n_rows_seen_ == 800
    assert estimator.counts_.sum() == pytest.approx(800.0)


def test_stream_of_one_mixture_is_as_good_as_the_whole(fitted, data):
    """The same clusters in three pieces: the same three clusters, with all rows remembered."""
    X, labels = data
    estimator = DPMixture(random_state=0)
    for piece in np.array_split(np.arange(250), 3):
        estimator.partial_fit(X[piece])
    assert estimator.n_clusters_ == 3
    assert same_partition(estimator.predict(X), labels)
    np.testing.assert_allclose(estimator.means_, fitted.means_, atol=0.15)
    assert estimator.counts_.sum() == pytest.approx(250.0)


def test_first_partial_fit_is_fit(fitted, data):
    assert_identical(DPMixture(random_state=0).partial_fit(data[0]), fitted)


def test_ids_are_never_reused():
    """Over a stream with births and deaths of newborns, an id always means the same place."""
    rng = np.random.default_rng(10)
    estimator = DPMixture(random_state=0)
    known = {}
    for day in range(4):
        X, _ = skewed_clusters(np.random.default_rng(100 + day), (40, 30), 2)
        estimator.partial_fit(X + rng.normal(size=2) * 15)
        before = dict(known)
        known = dict(zip(estimator.cluster_ids_.tolist(), estimator.counts_.tolist(), strict=True))
        assert set(before) <= set(known)  # the established live on
        assert all(known[i] >= before[i] - 1e-6 for i in before)  # and lose nothing
        assert sorted(known) == list(range(len(known)))  # newborns that went left no gap


def test_one_row_later(fitted, data):
    estimator = DPMixture(random_state=0).partial_fit(data[0])
    estimator.partial_fit(data[0][:1])
    assert estimator.labels_.tolist() == fitted.labels_[:1].tolist()
    assert estimator.n_rows_seen_ == 251
    assert estimator.counts_.sum() == pytest.approx(251.0)


class Interrupted(Exception):
    """Stands for Ctrl-C or a crash."""


@pytest.mark.parametrize("after", [0, 6])
def test_an_interrupted_data_set_does_no_harm(monkeypatch, data, after):
    X, _ = data
    new = np.random.default_rng(11).normal(30, 1, (100, 2))
    estimator = DPMixture(random_state=0).partial_fit(X)
    before = {name: np.copy(value) for name, value in state_of(estimator).items()}
    proba = estimator.predict_proba(X)

    def breaks(*args, fit=module.fit_data_set):
        for i, step in enumerate(fit(*args)):
            if i == after:
                raise Interrupted
            yield step

    with monkeypatch.context() as patch:
        patch.setattr(module, "fit_data_set", breaks)
        with pytest.raises(Interrupted):
            estimator.partial_fit(new)
    for name, value in before.items():
        np.testing.assert_array_equal(getattr(estimator, name), value, err_msg=name)
    np.testing.assert_array_equal(estimator.predict_proba(X), proba)
    assert (estimator.n_data_sets_, estimator.n_rows_seen_) == (1, 250)
    # It goes on as if nothing had been.
    unharmed = DPMixture(random_state=0).partial_fit(X).partial_fit(new)
    assert_identical(estimator.partial_fit(new), unharmed)
    assert estimator.n_clusters_ == 4


def test_an_interrupted_first_fit_leaves_nothing(monkeypatch, fitted, data):
    def breaks(*args):
        raise Interrupted

    estimator = DPMixture(random_state=0)
    with monkeypatch.context() as patch:
        patch.setattr(module, "fit_data_set", breaks)
        with pytest.raises(Interrupted):
            estimator.partial_fit(data[0] * 1000 + 5)
    with pytest.raises(NotFittedError):
        estimator.predict(data[0])
    assert_identical(estimator.partial_fit(data[0]), fitted)


def test_a_failed_refit_keeps_the_old_model(fitted, data):
    """A wrong parameter is noticed before anything is forgotten."""
    X, _ = data
    estimator = DPMixture(random_state=0).fit(X)
    with pytest.raises(ValueError, match="concentration"):
        estimator.set_params(concentration=-1).fit(X * 1000 + 7)
    np.testing.assert_array_equal(estimator.predict(X), fitted.labels_)
    np.testing.assert_array_equal(estimator.score_samples(X), fitted.score_samples(X))


def test_parameters_changed_later_do_not_change_predictions(fitted, data):
    estimator = DPMixture(random_state=0).fit(data[0])
    estimator.set_params(prior="paper", max_evidence=None)
    np.testing.assert_array_equal(estimator.predict([[1e9, 1e9]]), fitted.predict([[1e9, 1e9]]))


# Parameters.


def test_the_papers_prior():
    """On data in its own units: mean 0, mean precision 0.2, D + 2 degrees of freedom, identity."""
    X, labels = gaussian_clusters(np.random.default_rng(12), (100, 80), 2, distance=7.0)
    estimator = DPMixture(prior="paper", random_state=0).fit(X)
    assert same_partition(estimator.labels_, labels)
    for k in range(2):
        own = X[estimator.labels_ == k]
        n = len(own)
        np.testing.assert_allclose(estimator.means_[k], own.sum(0) / (n + 0.2), rtol=1e-3)
        zbar = own.mean(0)
        scatter = (own - zbar).T @ (own - zbar) + 0.2 * n / (0.2 + n) * np.outer(zbar, zbar) + np.eye(2)
        np.testing.assert_allclose(estimator.covariances_[k], scatter / (n + 4 - 3), rtol=2e-3, atol=2e-3)


def test_max_clusters(data):
    X, _ = gaussian_clusters(np.random.default_rng(13), [50] * 5, 2)
    for limit in (1, 2, 4):
        assert DPMixture(max_clusters=limit, random_state=0).fit(X).n_clusters_ == limit


def test_evidence_that_may_speak():
    """Few observations may speak: one cluster. All may: the clusters are told apart."""
    X, _ = gaussian_clusters(np.random.default_rng(14), (60, 60), 2, distance=6.0)
    assert DPMixture(max_evidence=8, random_state=0).fit(X).n_clusters_ == 1
    assert DPMixture(max_evidence=None, random_state=0).fit(X).n_clusters_ == 2


def test_structure_at_low_weight_still_learns_all_rows():
    X, _ = gaussian_clusters(np.random.default_rng(15), (300, 200), 2)
    estimator = DPMixture(max_evidence=100, random_state=0).fit(X)
    np.testing.assert_allclose(estimator.counts_, [300, 200], atol=0.1)  # not 60 and 40


def test_a_large_concentration_expects_more_clusters():
    X = np.random.default_rng(0).standard_t(3, size=(300, 2))
    few = DPMixture(concentration=1e-30, random_state=0).fit(X).n_clusters_
    many = DPMixture(concentration=1000.0, random_state=0).fit(X).n_clusters_
    assert few == 1 < many


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("concentration", 0),
        ("concentration", -1.0),
        ("concentration", float("nan")),
        ("concentration", float("inf")),
        ("concentration", "one"),
        ("concentration", None),
        ("concentration", True),
        ("prior", "flat"),
        ("prior", None),
        ("max_evidence", 0),
        ("max_evidence", -5),
        ("max_evidence", "all"),
        ("max_evidence", float("nan")),
        ("fresh_sizes", (1, 2)),
        ("fresh_sizes", (2.5,)),
        ("fresh_sizes", 5),
        ("fresh_sizes", "10"),
        ("max_clusters", 0),
        ("max_clusters", 2.5),
        ("random_state", -1),
        ("random_state", "seed"),
    ],
)
def test_wrong_parameters_are_named(data, name, value):
    estimator = DPMixture(**{name: value})
    with pytest.raises(ValueError, match=name if value != "seed" else "seed"):
        estimator.fit(data[0])
    with pytest.raises(NotFittedError):
        estimator.predict(data[0])


@pytest.mark.parametrize("n_samples", [0, -1, 2.5, "three"])
def test_wrong_sample_sizes(fitted, n_samples):
    with pytest.raises(ValueError, match="n_samples"):
        fitted.sample(n_samples)
