"""What the competing systems have in common: rows stand alone, seeds decide, labels do not, errors name."""

import copy
import pickle
from itertools import pairwise

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import clone
from sklearn.datasets import load_digits, make_blobs
from sklearn.exceptions import NotFittedError
from sklearn.metrics import adjusted_rand_score

from dbull.errors import DataError, NumericalError, SettingsError
from dbull.lifelong.objective import entropy, row_terms
from dbull.methods.competitors.curl import CURL
from dbull.methods.competitors.dec import DEC
from dbull.methods.competitors.vade import VaDE
from dbull.methods.competitors.vae_dp import VAEDP, standard_normal
from dbull.nets.vae import VAE, NetworkShape
from dbull.probability.gaussian import kl
from synthetic import gaussian_clusters

pytestmark = pytest.mark.usefixtures("quick_module")

QUICK = {"random_state": 0, "hidden_dims": (16,), "latent_dim": 3, "epochs": 3, "learning_rate": 1e-2}
JOINT = {**QUICK, "joint_epochs": 2}


def models():
    return {
        "dec": DEC(4, **JOINT, n_init=2),
        "vade": VaDE(4, **JOINT, n_init=1),
        "vae-dp": VAEDP(**QUICK),
        "curl-f": CURL(4, **JOINT),
        "curl-d": CURL(**JOINT, wait_steps=3, buffer_rows=10),
    }


NAMES = list(models())


@pytest.fixture(scope="module")
def images():
    return load_digits().data[:150]


@pytest.fixture(scope="module")
def dense():
    return gaussian_clusters(np.random.default_rng(0), (70, 50, 40), 12)


@pytest.fixture(scope="module", params=[f"{name} {kind}" for name in NAMES for kind in ("images", "dense")])
def case(request, images, dense):
    """A fitted model and its rows."""
    name, kind = request.param.split()
    rows = images if kind == "images" else dense[0]
    model = models()[name].set_params(image_shape=(8, 8) if kind == "images" else None)
    return model.fit(rows), rows


def assert_identical(a, b, rows):
    np.testing.assert_array_equal(a.labels_, b.labels_)
    np.testing.assert_array_equal(a.transform(rows), b.transform(rows))
    np.testing.assert_array_equal(a.predict_proba(rows), b.predict_proba(rows))


def test_a_row_stands_alone(case):
    """One by one, in another order, and among many: the same bits."""
    model, rows = case
    for method in ("predict", "transform", "predict_proba"):
        answer = getattr(model, method)
        whole = answer(rows)
        np.testing.assert_array_equal(answer(rows[:7]), whole[:7])
        np.testing.assert_array_equal(np.concatenate([answer(row[None]) for row in rows[:10]]), whole[:10])
        np.testing.assert_array_equal(answer(rows[::-1])[::-1], whole)
        np.testing.assert_array_equal(answer(np.tile(rows, (8, 1)))[-len(rows) :], whole)  # several chunks


def test_answers_agree_with_each_other(case):
    model, rows = case
    proba = model.predict_proba(rows)
    assert proba.shape == (len(rows), model.n_clusters_)
    np.testing.assert_allclose(proba.sum(1), 1.0, rtol=1e-9)
    np.testing.assert_array_equal(proba.argmax(1), model.predict(rows))
    np.testing.assert_array_equal(model.labels_, model.predict(rows))
    assert model.labels_.dtype == np.int64
    assert model.transform(rows).shape == (len(rows), 3)
    sizes = np.bincount(model.labels_, minlength=model.n_clusters_)
    assert (np.diff(sizes) <= 0).all()  # ids in order of size


def test_seed_decides_and_labels_do_not(case):
    model, rows = case
    assert_identical(clone(model).fit(rows, np.arange(len(rows)) % 3), model, rows)
    torch.manual_seed(77)
    np.random.seed(77)  # noqa: NPY002
    assert_identical(clone(model).fit(rows), model, rows)
    other = clone(model).set_params(random_state=1).fit(rows)
    assert not np.array_equal(other.transform(rows), model.transform(rows))


def test_history_is_what_the_callback_saw(case):
    model, rows = case
    seen = []
    watched = clone(model).set_params(callback=seen.append).fit(rows)
    assert seen == watched.history_
    stages = [step.stage for step in seen]
    assert stages[:3] == ["represent"] * 3
    assert stages[-1] == "done"
    assert seen[-1].n_clusters == watched.n_clusters_
    assert [step.epoch for step in seen[:3]] == [1, 2, 3]
    assert all(a.seconds <= b.seconds for a, b in pairwise(seen))


def test_copies(case):
    model, rows = case
    for other in (pickle.loads(pickle.dumps(model)), copy.deepcopy(model)):
        assert_identical(other, model, rows)


@pytest.mark.parametrize("name", NAMES)
def test_nothing_around_is_touched(name, dense):
    torch_before, numpy_before = torch.random.get_rng_state(), np.random.get_state()[1].copy()  # noqa: NPY002
    mine = dense[0].copy()
    models()[name].fit(mine).predict(mine)
    assert torch.equal(torch.random.get_rng_state(), torch_before)
    np.testing.assert_array_equal(np.random.get_state()[1], numpy_before)  # noqa: NPY002
    np.testing.assert_array_equal(mine, dense[0])


@pytest.mark.parametrize("name", NAMES)
def test_failed_fit_leaves_the_estimator(name, dense):
    X = dense[0]
    model = models()[name].fit(X)
    before = model.predict_proba(X)
    bad = X.copy()
    bad[17, 1] = np.nan
    with pytest.raises(DataError, match="row 17, column 1"):
        model.fit(bad)
    model.set_params(learning_rate=1e30)
    with pytest.raises(NumericalError, match=r"learning_rate"):
        model.fit(X * 3)
    np.testing.assert_array_equal(model.predict_proba(X), before)


@pytest.mark.parametrize("name", NAMES)
def test_containers(name, dense):
    X = dense[0]
    model = models()[name].fit(X)
    frozen = X.copy()
    frozen.flags.writeable = False
    for same in (np.asfortranarray(X), torch.tensor(X), X.tolist(), frozen):
        assert_identical(models()[name].fit(same), model, X)
    table = pd.DataFrame(X, columns=[f"c{i}" for i in range(12)])
    codes = models()[name].set_output(transform="pandas").fit(table).transform(table)
    assert codes.shape == (len(X), 3)


@pytest.mark.parametrize("name", NAMES)
def test_not_fitted(name, dense):
    for method in ("predict", "predict_proba", "transform"):
        with pytest.raises(NotFittedError):
            getattr(models()[name], method)(dense[0])


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("kind", "text"),
        ("likelihood", "poisson"),
        ("likelihood", "bernoulli"),  # not for rows beyond [0, 1]
        ("pretraining", "none"),
        ("latent_dim", 0),
        ("hidden_dims", 16),
        ("hidden_dims", (16, 0)),
        ("epochs", -1),
        ("batch_size", 0),
        ("learning_rate", 0.0),
        ("image_shape", (3, 3)),
        ("front_end", "yes"),
        ("augment", 3),
        ("callback", 3),
        ("device", "nowhere"),
        ("random_state", -1),
    ],
)
def test_wrong_settings_are_named(name, setting, value, dense):
    with pytest.raises(ValueError, match=setting.replace("kind", "kind of data")):
        models()[name].set_params(**{setting: value}).fit(dense[0])


@pytest.mark.parametrize(
    ("model", "setting", "value"),
    [
        (DEC(), "n_clusters", 0),
        (DEC(), "dof", 0.0),
        (DEC(), "n_init", 0),
        (DEC(), "update_interval", 0),
        (DEC(), "tolerance", -1.0),
        (DEC(), "joint_learning_rate", 0.0),
        (DEC(), "joint_epochs", 1.5),
        (VaDE(), "n_clusters", 2.5),
        (VaDE(), "n_init", 0),
        (VaDE(), "joint_learning_rate", -1.0),
        (VAEDP(), "concentration", 0.0),
        (VAEDP(), "max_evidence", 0),
        (VAEDP(), "max_clusters", 0),
        (CURL(), "n_clusters", 0),
        (CURL(), "max_clusters", 0),
        (CURL(), "threshold", "low"),
        (CURL(), "buffer_rows", 0),
        (CURL(), "wait_steps", -1),
        (CURL(), "replay", "often"),
    ],
    ids=lambda value: type(value).__name__ if hasattr(value, "fit") else str(value),
)
def test_wrong_settings_of_their_own_are_named(model, setting, value, dense):
    quick = {key: value for key, value in JOINT.items() if key in model.get_params()}
    with pytest.raises(ValueError, match=setting):
        clone(model).set_params(**{**quick, setting: value}).fit(dense[0])


@pytest.mark.parametrize("name", ["dec", "vade", "curl-f"])
def test_more_clusters_than_rows(name, dense):
    with pytest.raises(ValueError, match="minimum of 4 is required"):
        models()[name].fit(dense[0][:3])


def test_image_kind_needs_a_shape(dense):
    with pytest.raises(SettingsError, match="image_shape"):
        DEC(2, **JOINT, kind="images").fit(dense[0])


@pytest.mark.parametrize("name", NAMES)
def test_stacked_pretraining_and_front_end(name, images):
    stacked = models()[name].set_params(image_shape=(8, 8), pretraining="stacked").fit(images)
    assert stacked.history_[0].stage == "pretrain"
    featured = models()[name].set_params(image_shape=(8, 8), front_end=True).fit(images)
    assert featured._view.front_end is not None
    assert featured.predict(images).shape == (150,)


@pytest.mark.parametrize(
    "model", [DEC(3), VaDE(3), VAEDP(), CURL(3)], ids=["dec", "vade", "vae-dp", "curl-f"]
)
def test_defaults_are_sound_on_fifty_rows_of_two_columns(model):
    X, y = make_blobs(n_samples=50, random_state=1)
    model = clone(model).set_params(random_state=0).fit(X)
    assert adjusted_rand_score(y, model.labels_) > 0.5


def test_prior_of_the_plain_autoencoder():
    """log prior + entropy is minus the divergence from N(0, I)."""
    rng = np.random.default_rng(0)
    mean, log_var = (torch.tensor(rng.normal(size=(5, 3)), dtype=torch.float32) for _ in range(2))
    vae = VAE(NetworkShape(4, 4, 3, hidden_dims=(4,)))
    terms = row_terms(vae, standard_normal(3), torch.rand(5, 4), (mean, log_var), torch.zeros(5, 3))
    expected = -kl(mean, log_var, torch.zeros(3), torch.zeros(3))
    torch.testing.assert_close(terms.log_prior + entropy(log_var), expected)


def test_vae_dp_asks_its_mixture(dense):
    X, y = dense
    model = VAEDP(random_state=0, hidden_dims=(32,), latent_dim=3, epochs=40, learning_rate=1e-2).fit(X)
    assert adjusted_rand_score(y, model.labels_) > 0.8
    assert model.n_clusters_ == model.mixture_.n_clusters_
    theirs = model.mixture_.predict(model.transform(X))
    assert adjusted_rand_score(theirs, model.labels_) == 1.0
