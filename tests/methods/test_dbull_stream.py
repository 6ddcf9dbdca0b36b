"""`DBULL` over a stream: what was learned stays, what is new is found, and a failure changes nothing."""

import copy
import pickle
import warnings
from dataclasses import replace

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.metrics import adjusted_rand_score

from dbull import DBULL, DataError, NumericalError
from dbull.lifelong.few_rows import MOST_WAITING
from quick import quick_learning
from synthetic import gaussian_clusters

NETWORKS = {
    "random_state": 0,
    "encoder": "mlp",
    "hidden_dims": (24,),
    "latent_dim": 2,
    "epochs": 40,
    "joint_epochs": 1,
    "batch_size": 128,
    "learning_rate": 1e-2,
    "n_neighbors": 15,
    "n_replay": 40,
}
QUICK = {**NETWORKS, "hidden_dims": (8,), "epochs": 2, "joint_epochs": 0}


@pytest.fixture(autouse=True)
def _no_warnings():
    """Whatever arrives, nothing may overflow, divide by zero or warn in silence."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


@pytest.fixture(autouse=True)
def _short_arrivals(request):
    """Whoever starts from a model that is hardly trained has short arrivals, too."""
    if {"quick", "model"} & set(request.fixturenames):
        request.getfixturevalue("quick_learning")


@pytest.fixture(scope="module")
def data():
    """Four clusters in twelve dimensions, and their true labels."""
    return gaussian_clusters(np.random.default_rng(0), (120, 120, 120, 120), 12, distance=14.0)


@pytest.fixture(scope="module")
def half(data):
    """Two of them, and their true labels: what a search costs grows with its clusters."""
    return tuple(part[data[1] < 2] for part in data)


@pytest.fixture(scope="module")
def X(half):
    return half[0]


@pytest.fixture(scope="module")
def quick(X):
    """Hardly trained: for what does not depend on how well it is learned."""
    with quick_learning():
        return DBULL(**QUICK).fit(X[:100])


@pytest.fixture(scope="module")
def second(quick, X):
    """The same after one more data set."""
    with quick_learning():
        return copy.deepcopy(quick).partial_fit(X[100:180])


ATTRIBUTES = ("labels_", "weights_", "elbo_", "cluster_ids_", "n_clusters_", "n_data_sets_", "events_")


def assert_identical(a, b, rows):
    """To the bit: attributes, answers, networks, statistics, imprints and scales."""
    for name in ATTRIBUTES:
        np.testing.assert_array_equal(getattr(a, name), getattr(b, name), err_msg=name)
    for method in ("transform", "predict_proba", "score_samples", "reconstruct"):
        np.testing.assert_array_equal(getattr(a, method)(rows), getattr(b, method)(rows), err_msg=method)
    assert fingerprint(a.state_) == fingerprint(b.state_)


def fingerprint(state):
    """Everything that a learner knows, as bytes and numbers that can be compared."""
    tensors = [*state.vae.state_dict().values(), *vars(state.memory.overall).values()]
    for key in sorted(state.imprints):
        imprint = state.imprints[key]
        tensors += [imprint.mean, imprint.factor, imprint.leftover, torch.tensor(imprint.n_rows)]
    tensors += [
        state.posterior.components.mean,
        state.posterior.components.scale_inv,
        state.posterior.sticks.off,
    ]
    return (
        [t.detach().numpy().tobytes() for t in tensors],
        state.memory.ids,
        state.owner,
        state.calibrations,
        state.ledger.to_json(),
        state.fingerprint,
        (state.n_data_sets, state.n_rows, state.n_pretrain_rows, state.seed),
    )


def assert_sound(model, rows):
    """All finite, normalised, rows of this arrival labelled with clusters that there are."""
    assert np.isfinite(model.elbo_)
    assert model.weights_.sum() == pytest.approx(1.0)
    assert model.labels_.shape == (len(rows),)
    np.testing.assert_array_equal(model.predict(rows), model.labels_)
    assert set(model.labels_) <= set(model.cluster_ids_)
    np.testing.assert_allclose(model.predict_proba(rows).sum(1), 1.0)
    for answer in (model.transform(rows), model.score_samples(rows), model.reconstruct(rows)):
        assert np.isfinite(answer).all()
    state = model.state_
    assert float(state.memory.total.counts.sum()) <= state.n_rows * (1 + 1e-9)
    for record in vars(state.memory.total).values():
        assert bool(torch.isfinite(record).all())


# The same bits.


def test_the_first_partial_fit_is_fit(quick, X):
    assert_identical(DBULL(**QUICK).partial_fit(X[:100]), quick, X)


@pytest.mark.parametrize("save", [copy.deepcopy, lambda model: pickle.loads(pickle.dumps(model))])
def test_going_on_from_a_saved_model_is_the_straight_run(quick, second, X, save):
    straight = copy.deepcopy(second).partial_fit(X[180:240])
    resumed = save(save(quick).partial_fit(X[100:180]))
    assert_identical(resumed, second, X)
    assert_identical(save(resumed.partial_fit(X[180:240])), straight, X)


def test_labels_given_change_nothing(quick, second, half):
    X, labels = half
    for y in (labels[100:180], np.zeros(80)):
        assert_identical(copy.deepcopy(quick).partial_fit(X[100:180], y), second, X)


def test_global_random_streams_do_not_matter_and_are_untouched(quick, second, X):
    torch.manual_seed(5)
    before = torch.random.get_rng_state()
    assert_identical(copy.deepcopy(quick).partial_fit(X[100:180]), second, X)
    assert torch.equal(torch.random.get_rng_state(), before)


def test_rows_given_are_not_changed(quick, X):
    mine = X[100:130].copy()
    copy.deepcopy(quick).partial_fit(mine)
    np.testing.assert_array_equal(mine, X[100:130])


def test_arrivals_have_random_streams_of_their_own(quick):
    state = quick.state_
    assert state.n_data_sets == 1
    later = copy.deepcopy(quick)
    later.state_.n_data_sets = 2
    a, b = (torch.rand(5, generator=s.new_generator()) for s in (state, later.state_))
    assert not torch.equal(a, b)
    assert torch.equal(a, torch.rand(5, generator=state.new_generator()))


# Failure.


def test_an_arrival_that_fails_changes_nothing(quick, second, X):
    model = copy.deepcopy(quick)
    before, attributes = fingerprint(model.state_), dict(model.__dict__)
    bad = X[100:180].copy()
    bad[3, 4] = np.nan
    with pytest.raises(DataError, match=r"NaN: first at row 3, column 4"):
        model.partial_fit(bad)
    with pytest.raises(ValueError, match="11 features, but DBULL is expecting 12"):
        model.partial_fit(X[:, :11])
    with pytest.raises(ValueError, match="0 sample"):
        model.partial_fit(X[:0])
    with pytest.raises(NumericalError, match="not finite"):
        model.set_params(learning_rate=1e30).partial_fit(X[100:180] + 50)
    model.set_params(learning_rate=1e-2)
    assert model.__dict__ == attributes
    assert fingerprint(model.state_) == before
    assert_identical(model.partial_fit(X[100:180]), second, X)


@pytest.mark.parametrize("stage", ["past", "graph", "represent", "search", "done"])
def test_an_interrupted_arrival_changes_nothing(quick, X, stage):
    """Wherever it is stopped; the arrival after it is as if nothing had been."""
    model = copy.deepcopy(quick)
    before, attributes = fingerprint(model.state_), {k: v for k, v in model.__dict__.items() if k[-1] == "_"}
    seen = []

    def interrupt(progress):
        seen.append(progress.stage)
        if progress.stage == stage:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        model.set_params(callback=interrupt).partial_fit(X[100:180])
    assert seen[-1] == stage
    assert {k: v for k, v in model.__dict__.items() if k[-1] == "_"} == attributes
    assert fingerprint(model.state_) == before


def test_a_first_arrival_that_fails_is_no_model(X):
    model = DBULL(**{**QUICK, "learning_rate": 1e30})
    with pytest.raises(NumericalError):
        model.partial_fit(X)
    with pytest.raises(NotFittedError):
        model.predict(X)
    assert not hasattr(model, "n_features_in_")


def test_fit_says_that_it_forgets_a_stream(quick, second, X):
    model = copy.deepcopy(second)
    with pytest.warns(UserWarning, match="forgets the 2 data sets"):
        model.fit(X[:100])
    assert_identical(model, quick, X)


# A look ahead.


def test_preview_changes_no_bit_and_says_what_will_happen(quick, X):
    model = copy.deepcopy(quick)
    before, attributes = fingerprint(model.state_), dict(model.__dict__)
    new = X[100:140] + 40.0
    preview = model.preview(new)
    assert model.__dict__ == attributes
    assert fingerprint(model.state_) == before
    model.partial_fit(new)
    assert preview.rows == dict(enumerate(np.bincount(model.labels_, minlength=model.n_clusters_).tolist()))
    assert tuple(preview.events(quick.n_data_sets_ + 1)) == model.events_[len(quick.events_) :]
    assert replace(preview, seconds=0.0) == replace(model.report_, seconds=0.0)
    assert preview.novel_share == model.history_[0].novel_share


def test_preview_needs_a_model(X):
    with pytest.raises(NotFittedError):
        DBULL().preview(X)


# Networks trained beforehand.


def test_pretrained_networks_stay_and_are_recorded(X, quick_learning):
    model = DBULL(**QUICK).pretrain(X[:200])
    assert model.state_.n_pretrain_rows == 200
    assert model.state_.n_data_sets == model.n_data_sets_ == 0
    assert model.state_.memory.n_components == 0
    with pytest.raises(NotFittedError):
        model.predict(X)
    weights = [p.clone() for p in model.state_.vae.parameters()]
    for part in (X[:100], X[100:180]):
        model.partial_fit(part)
        for now, then in zip(model.state_.vae.parameters(), weights, strict=True):
            assert torch.equal(now, then)
        assert not any(step.stage in ("represent", "joint") for step in model.history_)
    assert model.state_.n_pretrain_rows == 200
    assert model.state_.n_rows == 180
    with pytest.raises(ValueError, match="before the first data set"):
        model.pretrain(X)


def test_pretrained_networks_go_on_if_asked(X, quick_learning):
    model = DBULL(**QUICK, freeze=False).pretrain(X[:200])
    before = copy.deepcopy(model.state_.vae.state_dict())
    model.partial_fit(X[:100])
    after = model.state_.vae.state_dict()
    assert any(not torch.equal(before[name], after[name]) for name in before)


def test_nothing_to_pretrain_without_networks(X):
    model = DBULL(encoder="identity")
    with pytest.raises(ValueError, match="no networks to pretrain"):
        model.pretrain(X)
    assert not hasattr(model, "state_")


def test_frozen_networks_stay(quick, X):
    model = copy.deepcopy(quick).set_params(freeze=True)
    before = copy.deepcopy(model.state_.vae.state_dict())
    model.partial_fit(X[100:180])
    for name, tensor in model.state_.vae.state_dict().items():
        assert torch.equal(tensor, before[name])


# Odd arrivals.


MODELS = {
    "imprints": {},
    "decoded": {"replay": "decoded"},
    "none": {"replay": "none"},
    "identity": {"encoder": "identity", "latent_dim": "auto"},
    "joined": {"join": 0.03},
    "paper": {"objective": "paper"},
    "images": {"image_shape": (3, 4)},
    "encoder variance": {"use_encoder_variance": True},
}


@pytest.fixture(scope="module", params=list(MODELS))
def model(request, X):
    """One of each way to remember, after a first data set."""
    with quick_learning():
        return DBULL(**{**QUICK, **MODELS[request.param]}).fit(X[:100])


@pytest.mark.parametrize(
    "arrival",
    [
        lambda X: X[100:101],
        lambda X: X[100:102],
        lambda X: np.repeat(X[100:101], 30, 0),
        lambda X: np.repeat(X[100:103], 30, 0),
        lambda X: np.zeros((40, 12)),
        lambda X: np.full((1, 12), 1e9),
        lambda X: np.concatenate([X[100:140], np.full((1, 12), -1e30)]),
        lambda X: X[100:140] * 1e-9,
    ],
    ids=["one", "two", "one many times", "three many times", "zeros", "one far", "outlier", "tiny"],
)
def test_odd_arrivals(model, X, arrival):
    warnings.filterwarnings("ignore", message="columns")  # of another scale, as some are
    rows = arrival(X)
    after = copy.deepcopy(model).partial_fit(rows)
    assert_sound(after, rows)
    assert after.n_data_sets_ == 2
    assert after.state_.n_rows == 100 + len(rows)
    assert after.n_clusters_ >= model.n_clusters_
    again = after.partial_fit(X[140:150])
    assert_sound(again, X[140:150])


def test_one_row_after_pretraining(X, quick_learning):
    for freeze in ("auto", False):
        model = DBULL(**QUICK, freeze=freeze).pretrain(X).partial_fit(X[:1])
        assert_sound(model, X[:1])
        assert model.n_clusters_ == 1


def test_sparse_rows(quick_learning):
    rng = np.random.default_rng(2)
    topics = rng.dirichlet(np.full(30, 0.05), 3)
    rows = np.concatenate([rng.multinomial(12, topic, 60) for topic in topics]).astype(float)
    model = DBULL(**QUICK).fit(rows[:120])
    assert model.chosen_["kind"] == "sparse"
    for part in (rows[120:], rows[::3], np.zeros((5, 30))):  # documents without a word, too
        assert_sound(model.partial_fit(part), part)


@pytest.mark.parametrize("first", ["decoded", "none"])
def test_what_was_not_kept_cannot_be_replayed(X, first, quick_learning):
    """Imprints that no data set left: an error that says so, and the model stays as it was."""
    model = DBULL(**QUICK, replay=first).fit(X[:100])
    before = fingerprint(model.state_)
    with pytest.raises(ValueError, match="imprints"):
        model.set_params(replay="imprints").partial_fit(X[100:180])
    assert fingerprint(model.state_) == before
    assert_sound(model.set_params(replay=first).partial_fit(X[100:180]), X[100:180])


def test_replay_can_be_left_out_for_an_arrival(quick, X):
    model = copy.deepcopy(quick).set_params(replay="none").partial_fit(X[100:180] + 40.0)
    assert_sound(model.partial_fit(X[180:240]), X[180:240])


# What a stream is for.


def by_class(data, labels):
    X, y = data
    return [X[y == label] for label in labels]


def test_each_new_cluster_is_found_and_old_ones_keep_their_ids(data):
    """One true cluster after the other, networks learning all the while."""
    X, y = data
    model = DBULL(**NETWORKS)
    ids = {}
    for n_seen, label in enumerate(range(4), 1):
        model.partial_fit(X[y == label])
        assert model.n_clusters_ == n_seen
        assert (model.labels_ == n_seen - 1).mean() > 0.95
        ids[label] = n_seen - 1
        assert model.events_[-1].kind == "birth"
        assert model.events_[-1].clusters == (n_seen - 1,)
        for old, cluster in ids.items():  # rows of the past are still called what they were
            assert (model.predict(X[y == old]) == cluster).mean() > 0.95, (n_seen, old)
    assert adjusted_rand_score(y, model.predict(X)) > 0.95


def test_a_class_that_comes_back_gets_no_second_cluster(data):
    X, y = data
    model = DBULL(**NETWORKS)
    for label in (0, 1, 2):
        model.partial_fit(X[y == label][:80])
    assert model.n_clusters_ == 3
    for label in (0, 1, 2, 0):
        model.partial_fit(X[y == label][80:])
        assert model.n_clusters_ == 3
        assert (model.labels_ == label).mean() > 0.9


def test_more_of_the_same_brings_no_clusters(half):
    """Twelve arrivals without anything new: the number of clusters does not creep."""
    X, y = half
    rng = np.random.default_rng(3)
    model = DBULL(**NETWORKS).fit(X[:120])
    assert model.n_clusters_ == 2
    for _ in range(12):
        model.partial_fit(X[rng.choice(len(X), 30, replace=False)])
    assert 2 <= model.n_clusters_ <= 3
    assert adjusted_rand_score(y, model.predict(X)) > 0.9


def test_memory_does_not_grow_with_the_stream(X, quick_learning):
    """Sixty small arrivals: as large as after ten, but for what new components need.

    The log of what happened grows with arrivals, as a log must, by a few numbers each.
    """
    rng = np.random.default_rng(4)
    model = DBULL(**{**QUICK, "freeze": True, "n_replay": 10}).fit(X[:120])
    sizes, log = {}, {}
    for arrival in range(1, 61):
        model.partial_fit(X[rng.choice(len(X), 8, replace=False)])
        if arrival in (10, 60):
            learned = replace(model.state_, ledger=None, waiting=None)
            waiting = model.state_.waiting  # rows that fit no cluster
            assert waiting is None or waiting.n_rows <= MOST_WAITING
            # A factor has up to twenty rows, now more and now fewer: counted as if all were full.
            empty = sum(max(0, 20 - len(imprint.factor)) for imprint in learned.imprints.values())
            sizes[arrival] = (len(pickle.dumps(learned)) + 4 * 12 * empty, learned.memory.n_components)
            log[arrival] = len(pickle.dumps(model.state_.ledger))
    assert model.n_data_sets_ == 61
    assert model.state_.n_rows == 120 + 480
    (early, k_early), (late, k_late) = sizes[10], sizes[60]
    per_component = 4 * 12 * 23 + 2000  # an imprint, statistics, posterior, an event
    histograms = model.n_clusters_ * 64 * 8  # bins that later rows were the first to reach
    assert late <= early * 1.01 + (k_late - k_early) * per_component + histograms
    assert k_late <= k_early + 2
    assert log[60] - log[10] < 50 * 200


def test_without_networks_the_stream_is_as_good_as_one_shot(data):
    X, y = data
    model = DBULL(random_state=0, encoder="identity")
    for part in np.array_split(X, 4):
        model.partial_fit(part)
    whole = DBULL(random_state=0, encoder="identity").fit(X)
    assert model.n_clusters_ == whole.n_clusters_ == 4
    assert adjusted_rand_score(y, model.predict(X)) == adjusted_rand_score(y, whole.labels_) == 1.0
    assert float(model.state_.memory.total.counts.sum()) == pytest.approx(len(X), rel=1e-9)


def test_the_papers_objective_learns_a_stream(data):
    """Decoded replay in all, no imprints, statistics as they were: each row counts once."""
    X, y = data
    model = DBULL(**{**NETWORKS, "n_replay": 100}, objective="paper")
    for label in (0, 1, 2):
        model.partial_fit(X[y == label])
    assert model.state_.imprints == {}
    assert float(model.state_.memory.total.counts.sum()) == pytest.approx(360, rel=1e-9)
    assert_sound(model, X[y == 2])


def test_the_papers_replay_keeps_what_the_networks_knew(data):
    """Steps enough on new clusters that networks forget old ones without it, by several times as much."""
    X, y = data
    old, new = X[y < 2], X[y >= 2]
    steps = {"batch_size": 16, "latent_dim": 4, "hidden_dims": (64,), "augment": None, "n_replay": 100}
    first = DBULL(**{**NETWORKS, **steps}, objective="paper").fit(old)

    def error(model):
        return float(np.square(model.reconstruct(old) - old).mean())

    lost = {
        replay: error(copy.deepcopy(first).set_params(replay=replay).partial_fit(new)) - error(first)
        for replay in ("auto", "none")
    }
    assert lost["none"] > error(first)
    assert lost["auto"] < 0.4 * lost["none"]


def test_settings_of_a_clone_start_anew(quick):
    assert not hasattr(clone(quick), "state_")
    assert clone(quick).get_params() == quick.get_params()
