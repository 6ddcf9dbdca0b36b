"""`DBULL` as its users see it: rows stand alone, seeds decide, labels do not, codes and rows go both ways."""

import copy
import pickle

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.metrics import adjusted_rand_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from dbull import DBULL
from dbull.lifelong.inference import CHUNK_ROWS
from dbull.mixture.posterior import log_evidence
from synthetic import gaussian_clusters

pytestmark = pytest.mark.usefixtures("quick_module")

NETWORKS = {"random_state": 0, "hidden_dims": (32,), "latent_dim": 2, "epochs": 40, "joint_epochs": 1}


@pytest.fixture(scope="module")
def data():
    """Three clusters in twelve dimensions, and their true labels."""
    return gaussian_clusters(np.random.default_rng(0), (90, 70, 50), 12, distance=14.0)


@pytest.fixture(scope="module")
def X(data):
    return data[0]


@pytest.fixture(scope="module")
def fitted(X):
    return DBULL(**NETWORKS, learning_rate=1e-2).fit(X)


@pytest.fixture(scope="module")
def images():
    return load_digits().data[:60]


def models():
    """One of each: networks on dense rows, on images through the front end, convolutions, none at all."""
    quick = {"random_state": 0, "hidden_dims": (16,), "latent_dim": 3, "epochs": 4, "joint_epochs": 1}
    digits = load_digits().data[:60]
    X = gaussian_clusters(np.random.default_rng(1), (40, 30), 12)[0]
    counts = np.random.default_rng(2).poisson(0.15, (60, 30)).astype(float)
    counts[:, 0] += 1
    return {
        "dense": (DBULL(**quick), X),
        "front end": (DBULL(**quick, image_shape=(8, 8)), digits),
        "conv": (DBULL(**quick, image_shape=(8, 8), encoder="conv", likelihood="gaussian"), digits),
        "sparse": (DBULL(**quick), counts),
        "paper": (DBULL(**quick, objective="paper", image_shape=(8, 8)), digits),
        "variance per value": (DBULL(**quick, likelihood="gaussian-learned"), X),
        "encoder variance": (DBULL(**quick, use_encoder_variance=True), X),
        "stacked": (DBULL(**quick, pretraining="stacked"), X),
        "identity": (DBULL(random_state=0), X[:, :3]),
    }


@pytest.fixture(scope="module", params=list(models()))
def case(request):
    """A fitted model and its rows."""
    model, rows = models()[request.param]
    return model.fit(rows), rows


def published(model):
    return {
        name: getattr(model, name) for name in ("labels_", "weights_", "elbo_", "cluster_ids_", "n_clusters_")
    }


def assert_identical(a, b, rows):
    for name, value in published(a).items():
        np.testing.assert_array_equal(value, published(b)[name], err_msg=name)
    for method in ("transform", "predict_proba", "score_samples", "reconstruct"):
        np.testing.assert_array_equal(getattr(a, method)(rows), getattr(b, method)(rows), err_msg=method)
    for p, q in zip(a.state_.vae.parameters(), b.state_.vae.parameters(), strict=True):
        assert torch.equal(p, q)


# What comes out of a fit.


def test_finds_the_clusters(fitted, data):
    """Networks on: no true cluster is mixed with another, and each is found."""
    _, labels = data
    assert fitted.chosen_["encoder"] == "mlp"
    assert adjusted_rand_score(labels, fitted.labels_) > 0.95
    sizes = np.bincount(fitted.labels_)
    assert len(sizes) == fitted.n_clusters_ == 3
    assert (np.diff(sizes) <= 0).all()  # ids in order of size


def test_attributes(case):
    model, rows = case
    K = model.n_clusters_
    assert model.labels_.shape == (len(rows),)
    assert model.labels_.dtype == np.int64
    assert model.cluster_ids_.tolist() == list(range(K))
    assert model.weights_.shape == (K,)
    assert model.weights_.sum() == pytest.approx(1.0, abs=1e-9)
    assert np.isfinite(model.elbo_)
    assert model.history_[-1].stage == "done"
    assert model.history_[-1].n_clusters == K
    assert float(model.state_.memory.total.counts.sum()) == pytest.approx(len(rows), rel=1e-9)


def test_labels_are_the_prediction_of_the_rows_learned(case):
    model, rows = case
    np.testing.assert_array_equal(model.predict(rows), model.labels_)
    np.testing.assert_array_equal(clone(model).fit_predict(rows), model.labels_)


def test_probabilities(case):
    model, rows = case
    proba = model.predict_proba(rows)
    assert proba.shape == (len(rows), model.n_clusters_)
    np.testing.assert_allclose(proba.sum(1), 1.0, rtol=1e-9)
    np.testing.assert_array_equal(model.cluster_ids_[proba.argmax(1)], model.predict(rows))
    assert model.score(rows) == pytest.approx(model.score_samples(rows).mean())


def nested():
    """Three heaps far apart, of three smaller ones each."""
    rng = np.random.default_rng(0)
    centres = [(40.0 * a, 5.0 * b) for a in range(3) for b in range(3)]
    return np.concatenate([rng.normal(size=(150, 2)) + centre for centre in centres])


def test_resolution():
    """Coarse finds the heaps, fine what they are made of; a number is so many times the evidence.

    What no neighbour leads to is a cluster at any resolution.
    """
    rows = nested()
    found = [
        DBULL(random_state=0, resolution=resolution).fit(rows).n_clusters_
        for resolution in (1e-3, "coarse", "normal", "fine", 1e3)
    ]
    assert found == sorted(found)
    assert (found[0], found[1], found[3], found[4]) == (3, 3, 9, 9)


@pytest.mark.parametrize("given", [{"max_evidence": 100.0}, {"objective": "paper"}], ids=str)
def test_resolution_says_nothing_where_evidence_is_given(X, given):
    coarse, fine = (
        DBULL(random_state=0, encoder="identity", resolution=resolution, **given).fit(X)
        for resolution in ("coarse", "fine")
    )
    assert_identical(coarse, fine, X)


def test_clusters_of_many_dimensions_are_found_without_networks():
    """A Gaussian of twelve dimensions has four times the parameters of one of five."""
    rows, labels = gaussian_clusters(np.random.default_rng(3), (120,) * 4, 12, distance=14.0)
    found = DBULL(random_state=0, encoder="identity").fit(rows).labels_
    assert len(set(zip(found, labels, strict=True))) == len(set(found)) == 4


# A row's answer is its own.


@pytest.mark.parametrize("method", ["predict", "transform", "predict_proba", "score_samples", "reconstruct"])
def test_a_row_stands_alone(case, method):
    """One by one, in another order, and among many: the same bits."""
    model, rows = case
    answer = getattr(model, method)
    whole = answer(rows)
    # Convolutions round by the place of a row among the others, by an ulp of float32 in a row of hundreds.
    rounding = 1e-5 if model.chosen_["encoder"] == "conv" and method != "predict" else 0.0
    for given, place in (
        (answer(rows[:7]), slice(7)),
        (np.concatenate([answer(row[None]) for row in rows[:10]]), slice(10)),
        (answer(rows[::-1])[::-1], slice(None)),
        (answer(np.tile(rows, (CHUNK_ROWS // len(rows) + 1, 1)))[-len(rows) :], slice(None)),  # two chunks
    ):
        np.testing.assert_allclose(given, whole[place], rtol=rounding, atol=rounding)


# Seeds, labels, state of the world.


def test_same_seed_same_bits(fitted, X):
    again = clone(fitted).fit(X)
    assert_identical(fitted, again, X)
    other = clone(fitted).set_params(random_state=1).fit(X)
    assert other.elbo_ != fitted.elbo_


def test_labels_given_change_nothing(fitted, data):
    X, labels = data
    plain = clone(fitted).set_params(epochs=2).fit(X)
    for y in (labels, np.zeros(len(X))):
        assert_identical(clone(plain).fit(X, y), plain, X)
        assert fitted.score(X, y) == fitted.score(X)


def test_fit_forgets(fitted, X):
    used = clone(fitted).set_params(epochs=2, joint_epochs=0).fit(X[:50] * 3 + 1)
    used.set_params(epochs=40, joint_epochs=1).fit(X)
    assert_identical(used, fitted, X)


def test_global_random_streams_are_untouched(X):
    torch.manual_seed(5)
    np.random.seed(5)  # noqa: NPY002
    torch_before, numpy_before = torch.random.get_rng_state(), np.random.get_state()[1].copy()  # noqa: NPY002
    model = DBULL(**{**NETWORKS, "epochs": 2}).fit(X[:80])
    model.score_samples(X)
    model.sample(5)
    assert torch.equal(torch.random.get_rng_state(), torch_before)
    np.testing.assert_array_equal(np.random.get_state()[1], numpy_before)  # noqa: NPY002


def test_rows_given_are_not_changed(X):
    mine = X[:80].copy()
    DBULL(**{**NETWORKS, "epochs": 1}).fit(mine).predict(mine)
    np.testing.assert_array_equal(mine, X[:80])


def test_global_seed_does_not_matter(X):
    quick = {**NETWORKS, "epochs": 2}
    torch.manual_seed(1)
    a = DBULL(**quick).fit(X[:80])
    torch.manual_seed(2)
    assert_identical(a, DBULL(**quick).fit(X[:80]), X)


def test_copies(fitted, X):
    for other in (pickle.loads(pickle.dumps(fitted)), copy.deepcopy(fitted)):
        assert_identical(other, fitted, X)
    params = clone(fitted).get_params()
    assert params == fitted.get_params()
    assert not hasattr(clone(fitted), "state_")


# Codes and rows.


def test_codes_and_rows_go_both_ways(case):
    model, rows = case
    codes = model.transform(rows)
    assert codes.shape == (len(rows), model.state_.vae.shape.latent_dim)
    back = model.inverse_transform(codes)
    assert back.shape == rows.shape
    np.testing.assert_array_equal(back, model.reconstruct(rows))


def test_without_networks_nothing_is_lost():
    """Whatever the units and kind: rows come back, also those of constant columns and of mostly zeros."""
    rng = np.random.default_rng(3)
    rows = rng.normal(size=(60, 3)) * [1.0, 1e-3, 1e4] + [0.0, 7.0, -5e4]
    constant = np.column_stack([rows, np.full(60, 5.0)])
    sparse = (rng.random((100, 5)) < 0.1) * rng.random((100, 5)) * 9
    for X in (rows, constant, sparse):
        model = DBULL(random_state=0).fit(X)
        assert model.chosen_["encoder"] == "identity"
        np.testing.assert_allclose(model.reconstruct(X), X, atol=1e-6 * X.std(0).max(), rtol=1e-6)


def test_reconstruction_is_in_the_units_of_the_data():
    """With networks too: a model of shifted and scaled columns gives shifted and scaled rows."""
    rng = np.random.default_rng(4)
    X = rng.normal(size=(80, 2)) @ rng.normal(size=(2, 12)) + 0.05 * rng.normal(size=(80, 12))
    quick = {**NETWORKS, "epochs": 200, "joint_epochs": 0, "learning_rate": 1e-2, "neighbourhood": 0.0}
    back = DBULL(**quick).fit(X).reconstruct(X)
    assert ((back - X) ** 2).mean() < 0.2 * X.var(0).mean()
    moved = DBULL(**quick).fit(X * 1000.0 + 5.0)
    np.testing.assert_allclose(moved.reconstruct(X * 1000.0 + 5.0), back * 1000.0 + 5.0, atol=20.0)


def test_images_stay_within_their_range(images):
    model = models()["front end"][0].fit(images * 10 + 3)
    back = model.reconstruct(images * 10 + 3)
    assert back.min() >= 3
    assert back.max() <= 163
    assert model.chosen_["front_end"]


def test_sample_of_a_cluster_is_of_that_cluster(fitted):
    for k in range(fitted.n_clusters_):
        rows, ids = fitted.sample(200, cluster=k)
        assert set(ids) == {k}
        assert rows.shape == (200, 12)
        assert (fitted.predict(rows) == k).mean() > 0.8
        prototype = fitted.prototype(k)
        assert prototype.shape == (12,)
        assert fitted.predict(prototype[None]).item() == k


def test_prototype_is_near_the_rows_of_its_cluster(fitted, X):
    centres = np.array([X[fitted.labels_ == k].mean(0) for k in range(3)])
    for k in range(3):
        assert np.linalg.norm(centres - fitted.prototype(k), axis=1).argmin() == k


def test_sample_follows_the_weights(fitted):
    _, ids = fitted.sample(3000)
    np.testing.assert_allclose(np.bincount(ids, minlength=3) / 3000, fitted.weights_, atol=0.05)
    np.testing.assert_array_equal(ids, fitted.sample(3000)[1])  # the seed is an int


def test_unknown_cluster(fitted):
    for method in (fitted.prototype, lambda k: fitted.sample(1, cluster=k)):
        with pytest.raises(ValueError, match=r"no cluster 17; ids are \[0, 1, 2\]"):
            method(17)


def test_pandas_output(fitted, X):
    table = pd.DataFrame(X, columns=[f"c{i}" for i in range(12)], index=np.arange(len(X)) + 7)
    model = clone(fitted).set_params(epochs=1, joint_epochs=0).set_output(transform="pandas").fit(table)
    codes = model.transform(table)
    assert codes.columns.tolist() == ["dbull0", "dbull1"]
    assert codes.index.tolist() == table.index.tolist()
    assert codes.shape == (len(X), 2)
    with pytest.raises(ValueError, match="feature names"):
        model.predict(table[table.columns[::-1]])


def test_in_a_pipeline(fitted, X):
    steps = make_pipeline(StandardScaler(), clone(fitted).set_params(epochs=1, joint_epochs=0)).fit(X)
    assert steps.transform(X).shape == (len(X), 2)
    assert steps.predict(X).shape == (len(X),)


def test_callback_sees_the_history(fitted, X):
    seen = []
    model = clone(fitted).set_params(callback=seen.append, epochs=2).fit(X[:80])
    assert seen == model.history_


# Densities.


def test_density_without_networks_integrates_to_one():
    rng = np.random.default_rng(5)
    x = 1000.0 + 50.0 * np.concatenate([rng.normal(0, 1, 100), rng.normal(10, 2, 60)])[:, None]
    model = DBULL(random_state=0).fit(x)
    grid = np.linspace(1000 - 20_000, 1000 + 20_000, 100_001)
    assert np.trapezoid(np.exp(model.score_samples(grid[:, None])), grid) == pytest.approx(1.0, abs=1e-3)


def test_density_with_networks_is_below_one_everywhere_summed():
    """A lower bound on a density integrates to at most one, and to something; one column, real units."""
    rng = np.random.default_rng(6)
    x = 30.0 + 4.0 * rng.normal(size=(150, 1))
    model = DBULL(**{**NETWORKS, "latent_dim": 1, "neighbourhood": 0.0, "learning_rate": 1e-2}, encoder="mlp")
    model.fit(x)
    grid = np.linspace(-170, 230, 8001)
    total = np.trapezoid(np.exp(model.score_samples(grid[:, None])), grid)
    assert 0.1 < total <= 1.05  # four draws stand for the expectation, so the bound holds up to their error


def test_units_of_densities(fitted, X):
    """Powers of two change no bit of the scaled rows, so that only the log of the units moves."""
    model = clone(fitted).set_params(epochs=2, joint_epochs=0)
    plain, moved = clone(model).fit(X), clone(model).fit(X * 1024.0)
    np.testing.assert_allclose(
        moved.score_samples(X * 1024.0), plain.score_samples(X) - 12 * np.log(1024.0), rtol=1e-9
    )
    assert moved.elbo_ == pytest.approx(plain.elbo_ - len(X) * 12 * np.log(1024.0), rel=1e-9)


def test_bound_of_a_single_component_is_its_evidence():
    """Then the bound is exact: the evidence of the component, and of all rows choosing the first stick."""
    x = np.random.default_rng(7).normal(size=(30, 2)) * [3.0, 0.1]
    model = DBULL(random_state=0, max_clusters=1).fit(x)
    state = model.state_
    exact = float(log_evidence(state.prior, state.memory.total).sum()) - np.log(31)
    volume = np.log(x.std(0)).sum() + 2 * np.log(state.view.input_scale)
    assert model.elbo_ == pytest.approx(exact - 30 * volume, rel=1e-5)


def test_bound_rises_with_training(X):
    """More epochs, a better bound of the whole."""
    short, long = (
        DBULL(**{**NETWORKS, "epochs": n, "neighbourhood": 0.0, "learning_rate": 1e-2}).fit(X).elbo_
        for n in (1, 30)
    )
    assert long > short


# What may come in.


@pytest.mark.parametrize(
    "make",
    [
        lambda X: X.astype(np.float32),
        np.asfortranarray,
        torch.tensor,
        lambda X: X.tolist(),
        lambda X: np.round(X).astype(int),
        lambda X: X > 0,
    ],
    ids=["float32", "fortran", "torch", "lists", "int", "bool"],
)
def test_containers(X, make):
    model = DBULL(**{**NETWORKS, "epochs": 2, "joint_epochs": 0}).fit(make(X))
    np.testing.assert_array_equal(model.predict(make(X)), model.labels_)
    assert model.transform(make(X)).dtype == np.float64
    assert np.isfinite(model.reconstruct(make(X))).all()


def test_same_bits_from_every_container(X):
    quick = {**NETWORKS, "epochs": 2, "joint_epochs": 0}
    plain = DBULL(**quick).fit(X)
    frozen = X.copy()
    frozen.flags.writeable = False
    for same in (np.asfortranarray(X), torch.tensor(X), X.tolist(), frozen, np.repeat(X, 2, 0)[::2]):
        assert_identical(DBULL(**quick).fit(same), plain, X)
