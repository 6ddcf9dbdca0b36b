"""Bad and extreme input: a clear error, or a result of which is said here what makes it sound."""

import warnings

import numpy as np
import pandas as pd
import pytest
from sklearn.exceptions import NotFittedError

from dbull import DataError, DPMixture
from synthetic import gaussian_clusters


@pytest.fixture(autouse=True)
def _no_warnings():
    """Whatever comes in, nothing may overflow or divide by zero in silence."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


@pytest.fixture(scope="module")
def X():
    return gaussian_clusters(np.random.default_rng(0), (70, 50), 2)[0]


@pytest.fixture(scope="module")
def plain(X):
    """The clusters of X as it is."""
    return DPMixture(random_state=0).fit(X)


def assert_sound(estimator, X):
    """All finite, weights and probabilities normalised, covariances positive definite, rows counted."""
    K = estimator.n_clusters_
    for name in ("weights_", "means_", "covariances_", "counts_", "elbo_"):
        assert np.isfinite(getattr(estimator, name)).all(), name
    assert estimator.weights_.sum() == pytest.approx(1.0)
    assert estimator.counts_.sum() == pytest.approx(estimator.n_rows_seen_)
    spread = np.sqrt(np.diagonal(estimator.covariances_, axis1=1, axis2=2))
    assert (spread > 0).all()
    correlation = estimator.covariances_ / spread[:, :, None] / spread[:, None, :]
    assert (np.linalg.eigvalsh(correlation) > -1e-9).all()
    proba = estimator.predict_proba(X)
    assert proba.shape == (len(X), K)
    np.testing.assert_allclose(proba.sum(1), 1.0)
    np.testing.assert_array_equal(estimator.predict(X), estimator.labels_)
    assert np.isfinite(estimator.score_samples(X)).all()
    rows, ids = estimator.sample(5)
    assert np.isfinite(rows).all()
    assert set(ids) <= set(estimator.cluster_ids_)


@pytest.mark.parametrize(("value", "name"), [(np.nan, "NaN"), (np.inf, "infinity"), (-np.inf, "infinity")])
@pytest.mark.parametrize("method", ["fit", "partial_fit", "predict", "predict_proba", "score_samples"])
def test_not_finite(X, value, name, method):
    bad = X.copy()
    bad[17, 1] = value
    bad[40, 0] = np.nan
    estimator = DPMixture(random_state=0)
    if method in ("predict", "predict_proba", "score_samples"):
        estimator = DPMixture(random_state=0, max_clusters=1).fit(X)
    with pytest.raises(DataError, match=rf"{name}: first at row 17, column 1; 2 of 120 rows"):
        getattr(estimator, method)(bad)


def test_not_finite_in_a_named_column(X):
    table = pd.DataFrame(X.copy(), columns=["age", "dose"])
    table.loc[3, "dose"] = np.nan
    with pytest.raises(DataError, match=r"row 3, column 1 \('dose'\)"):
        DPMixture().fit(table)


def test_finite_although_the_sum_is_not(X):
    """Values whose sum overflows are not taken for infinite: the error is about their size."""
    with pytest.raises(DataError, match="column 0 are too large"):
        DPMixture().fit(np.full((10, 2), 1e308) * [[1.0, 1e-300]] * np.linspace(0.5, 1, 10)[:, None])


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        ((0, 2), "0 sample"),
        ((1, 2), "1 sample"),
        ((5, 0), "0 feature"),
        ((5,), "1D array"),
        ((2, 2, 2), "dim 3"),
    ],
)
def test_impossible_shapes(shape, message):
    with pytest.raises(ValueError, match=message):
        DPMixture().fit(np.zeros(shape))


def test_no_rows_to_predict(X):
    estimator = DPMixture(random_state=0, max_clusters=1).fit(X)
    with pytest.raises(ValueError, match="0 sample"):
        estimator.predict(X[:0])


def test_other_number_of_columns(X):
    estimator = DPMixture(random_state=0, max_clusters=1).fit(X)
    for method in ("predict", "partial_fit", "score_samples"):
        with pytest.raises(ValueError, match="3 features, but DPMixture is expecting 2"):
            getattr(estimator, method)(np.zeros((4, 3)))


def test_text(X):
    with pytest.raises(ValueError, match="could not convert"):
        DPMixture().fit([["a", "b"], ["c", "d"]])


def test_not_fitted(X):
    for method in ("predict", "predict_proba", "score_samples", "score"):
        with pytest.raises(NotFittedError):
            getattr(DPMixture(), method)(X)
    with pytest.raises(NotFittedError):
        DPMixture().sample()


@pytest.mark.parametrize("n_rows", [2, 3, 5])
def test_few_rows(n_rows):
    """Too few to tell clusters apart: one cluster around their mean."""
    rows = np.random.default_rng(1).normal(5, 1, (n_rows, 2))
    estimator = DPMixture(random_state=0).fit(rows)
    assert estimator.n_clusters_ == 1
    np.testing.assert_allclose(estimator.means_[0], rows.mean(0), rtol=1e-9)
    assert_sound(estimator, rows)


def test_one_column(X):
    estimator = DPMixture(random_state=0).fit(np.concatenate([X[:, :1], X[:, :1] + 40]))
    assert estimator.n_clusters_ >= 2
    assert_sound(estimator, np.concatenate([X[:, :1], X[:, :1] + 40]))


@pytest.mark.parametrize("constant", [0.0, 0.1, 1e12])
def test_a_constant_column_changes_nothing(X, plain, constant):
    """It carries no information: the clusters are those found without it."""
    rows = np.column_stack([X, np.full(len(X), constant)])
    estimator = DPMixture(random_state=0).fit(rows)
    np.testing.assert_array_equal(estimator.labels_, plain.labels_)
    assert plain.n_clusters_ == 2
    np.testing.assert_allclose(estimator.means_[:, 2], constant, rtol=1e-9, atol=1e-9)
    assert_sound(estimator, rows)


def test_a_column_of_rounding_is_constant(X, plain):
    """0.3 and 0.1 + 0.2 are not two clusters."""
    column = np.where(np.arange(len(X)) % 2, 0.3, 0.1 + 0.2)
    assert column.std() > 0
    estimator = DPMixture(random_state=0).fit(np.column_stack([X, column]))
    np.testing.assert_array_equal(estimator.labels_, plain.labels_)


@pytest.mark.parametrize("value", [0.0, 0.1, 1e9])
def test_all_rows_equal(value):
    """One cluster at the common value, which then is its most likely place."""
    rows = np.full((30, 3), value)
    estimator = DPMixture(random_state=0).fit(rows)
    assert estimator.n_clusters_ == 1
    np.testing.assert_allclose(estimator.means_[0], value, rtol=1e-9, atol=1e-9)
    assert_sound(estimator, rows)
    assert estimator.score_samples(rows[:1]) > estimator.score_samples(rows[:1] + 1.0)


def test_duplicated_rows():
    """A few values many times each: a cluster for each value."""
    values = np.array([[0.0, 0.0], [5.0, 1.0], [1.0, 6.0], [7.0, 7.0]])
    rows = np.repeat(values, 40, 0)
    estimator = DPMixture(random_state=0).fit(rows)
    assert estimator.n_clusters_ == 4
    for k in range(4):
        assert len(np.unique(rows[estimator.labels_ == k], axis=0)) == 1
    assert_sound(estimator, rows)


def test_every_row_twice(X, plain):
    """Rows seen twice speak twice, so there may be more clusters, but none that cuts across the true ones."""
    rows = np.repeat(X, 2, 0)
    estimator = DPMixture(random_state=0).fit(rows)
    assert_sound(estimator, rows)
    np.testing.assert_array_equal(estimator.labels_[::2], estimator.labels_[1::2])
    assert len(set(zip(estimator.labels_[::2], plain.labels_, strict=True))) == estimator.n_clusters_


def test_columns_that_depend_on_each_other(X, plain):
    """A copy and a sum of columns: singular covariance but for the prior, and the same clusters."""
    rows = np.column_stack([X, X[:, 0], X @ [1.0, 2.0]])
    estimator = DPMixture(random_state=0).fit(rows)
    np.testing.assert_array_equal(estimator.labels_, plain.labels_)
    assert_sound(estimator, rows)


@pytest.mark.parametrize("n_rows", [3, 12])
def test_more_dimensions_than_rows(n_rows):
    rows = np.random.default_rng(2).normal(size=(n_rows, 30))
    estimator = DPMixture(random_state=0).fit(rows)
    assert estimator.n_clusters_ == 1
    assert_sound(estimator, rows)


@pytest.mark.parametrize("scale", [1e-150, 1e150])
def test_extreme_scales(X, plain, scale):
    """As far as squares stay in float64 the clusters are the same."""
    estimator = DPMixture(random_state=0).fit(X * scale)
    np.testing.assert_array_equal(estimator.labels_, plain.labels_)
    assert_sound(estimator, X * scale)


@pytest.mark.parametrize(
    ("scale", "what"), [(1e-200, "small"), (1e-300, "small"), (1e200, "large"), (1e300, "large")]
)
def test_scales_beyond_squares(X, scale, what):
    with pytest.raises(DataError, match=f"column 1 are too {what} to square"):
        DPMixture().fit(X * [1.0, scale])


@pytest.mark.parametrize("prior", ["data", "paper"])
@pytest.mark.parametrize("scale", [1.0, 1e-12])
def test_far_outliers_at_prediction(X, prior, scale):
    """A row beyond everything gets some cluster, probabilities that sum to one, and a very low density."""
    estimator = DPMixture(random_state=0, prior=prior).fit(X * scale)
    far = np.array([[1e300, 0.0], [-1e300, 1e300], [1.7e308, -1.7e308], [1e9, 1e9]])
    assert set(estimator.predict(far)) <= set(estimator.cluster_ids_)
    np.testing.assert_allclose(estimator.predict_proba(far).sum(1), 1.0)
    density = estimator.score_samples(far)
    assert np.isfinite(density).all()
    assert density.max() < estimator.score_samples(X * scale).min() - 50


@pytest.mark.parametrize("value", [1e4, 1e12])
def test_an_outlier_in_the_data(X, value):
    """One row far away does not break learning; the row is counted."""
    rows = np.concatenate([X, [[value, value]]])
    estimator = DPMixture(random_state=0).fit(rows)
    assert_sound(estimator, rows)


def test_a_later_data_set_too_far_away_is_refused(X):
    """Beyond a million spreads of the first data set rows cannot be told apart: say so, and learn nothing."""
    estimator = DPMixture(random_state=0).partial_fit(X)
    before = estimator.predict_proba(X)
    new = X.copy()
    new[5, 1] = 1e9
    with pytest.raises(DataError, match=r"row 5 has 1e\+09 in column 1"):
        estimator.partial_fit(new)
    np.testing.assert_array_equal(estimator.predict_proba(X), before)
    assert estimator.n_data_sets_ == 1
    estimator.partial_fit(X)


def test_a_later_data_set_far_away_is_learned(X):
    estimator = DPMixture(random_state=0).partial_fit(X).partial_fit(X + 1e4)
    assert estimator.n_clusters_ >= 3
    assert set(estimator.predict(X)).isdisjoint(estimator.predict(X + 1e4))
    assert_sound(estimator, X + 1e4)


def test_a_column_that_wakes_up_later(X):
    """Constant in the first data set, informative in the second."""
    first = np.column_stack([X, np.full(len(X), 3.0)])
    second = np.column_stack([X, np.where(np.arange(len(X)) % 2, 3.0, 60.0) + 0.1 * X[:, 0]])
    estimator = DPMixture(random_state=0).partial_fit(first).partial_fit(second)
    assert_sound(estimator, second)
    assert estimator.n_clusters_ > 2
