"""The clusters of `DBULL` as a user handles them: ids that stay, names, merges, retirements, events."""

import numpy as np
import pytest
import torch

from dbull import DBULL
from dbull.errors import SettingsError
from dbull.lifelong.novelty import Calibration
from synthetic import gaussian_clusters

ROWS, TRUTH = gaussian_clusters(np.random.default_rng(0), (90, 70, 50, 40), 3, distance=14.0)


def learned(**parameters):
    """A stream: two clusters, then a third beside an old one, then a fourth."""
    model = DBULL(random_state=0, **parameters)
    for some in ((0, 1), (1, 2), (3,)):
        model.partial_fit(ROWS[np.isin(TRUTH, some)])
    return model


@pytest.fixture(scope="module")
def stream():
    return learned()


@pytest.fixture
def model(stream):
    import copy

    return copy.deepcopy(stream)


@pytest.fixture(scope="module")
def trained():
    """A learner with networks, so that there are imprints and calibrations."""
    X, y = gaussian_clusters(np.random.default_rng(1), (90, 80, 70), 12, distance=14.0)
    model = DBULL(
        encoder="mlp", hidden_dims=(8,), latent_dim=3, epochs=5, joint_epochs=1, join=0.0, random_state=0
    )
    return model.partial_fit(X[y < 2]).partial_fit(X[y == 2]), X, y


def kinds(model):
    return [(event.kind, event.arrival, event.clusters) for event in model.events_]


def test_a_stream_is_written_down(model):
    assert kinds(model) == [
        ("arrival", 1, ()),
        ("birth", 1, (0,)),
        ("birth", 1, (1,)),
        ("arrival", 2, ()),
        ("birth", 2, (2,)),
        ("arrival", 3, ()),
        ("birth", 3, (3,)),
    ]
    arrival, birth = model.events_[3], model.events_[4]
    assert arrival.rows == arrival.evidence["n_rows"] == 120
    assert arrival.evidence["rows_per_cluster"] == {"1": 70, "2": 50}
    assert arrival.evidence["n_clusters"] == 3
    assert birth.rows == 50
    assert birth.evidence["elbo_gain"] > 0
    assert {event.time for event in model.events_} == {None}


def test_the_table_agrees_with_labels_and_weights(model):
    table = model.clusters_
    assert [row["rows"] for row in table] == [90, 140, 50, 40]
    assert [row["id"] for row in table] == model.cluster_ids_.tolist() == [0, 1, 2, 3]
    assert [row["weight"] for row in table] == pytest.approx(model.weights_.tolist())
    assert [(row["first_seen"], row["last_seen"]) for row in table] == [(1, 1), (1, 2), (2, 2), (3, 3)]
    assert {row["status"] for row in table} == {"active"}
    np.testing.assert_array_equal(model.labels_, model.predict(ROWS[TRUTH == 3]))
    assert sum(row["rows"] for row in table) == model.state_.n_rows == 320


def test_the_elbo_of_an_arrival_is_that_of_the_estimator(model):
    assert [e for e in model.events_ if e.kind == "arrival"][-1].evidence["elbo"] == model.elbo_


def test_spread_is_the_distance_of_codes_from_their_mean(model):
    codes = model.transform(ROWS[TRUTH == 3])
    by_hand = np.sqrt(np.square(codes - codes.mean(0)).sum(1).mean())
    assert model.clusters_[3]["spread"] == pytest.approx(by_hand, rel=1e-4)


def test_a_merge_keeps_the_older_id(model):
    before, proba = model.predict(ROWS), model.predict_proba(ROWS)
    model.merge_clusters([2, 0])
    assert model.cluster_ids_.tolist() == [0, 1, 3]
    assert (model.n_clusters_, model.weights_.shape) == (3, (3,))
    np.testing.assert_array_equal(model.predict(ROWS), model.resolve(before))
    together = np.stack([proba[:, 0] + proba[:, 2], proba[:, 1], proba[:, 3]], axis=1)
    np.testing.assert_allclose(model.predict_proba(ROWS), together, atol=1e-12)
    assert model.resolve([0, 1, 2, 3]).tolist() == [0, 1, 0, 3]
    table = model.clusters_
    assert (table[0]["rows"], table[2]["rows"], table[2]["merged_into"]) == (140, 0, 0)
    assert (table[2]["status"], table[2]["spread"]) == ("merged", None)
    assert table[0]["weight"] == pytest.approx(model.weights_[0])
    assert kinds(model)[-1] == ("merge", 3, (0, 2))


def test_ids_go_on_behind_a_gap(model):
    model.merge_clusters([2, 3])
    far = ROWS[TRUTH == 0] + 500.0
    model.partial_fit(np.concatenate([far, ROWS[TRUTH == 1]]))
    assert model.cluster_ids_.tolist() == [0, 1, 2, 4]
    assert set(model.predict(far)) == {4}
    assert set(model.predict(ROWS[TRUTH == 1])) == {1}
    assert set(model.predict(ROWS[TRUTH == 3])) == {2}
    assert model.predict_proba(far).shape == (len(far), 4)
    assert set(model.sample(20, cluster=4)[1]) == {4}
    assert model.prototype(4).shape == (3,)
    assert model.clusters_[4]["rows"] == len(far)


def test_the_newest_id_is_not_given_again_after_a_merge(model):
    model.merge_clusters([0, 3])
    model.partial_fit(ROWS[TRUTH == 0] + 500.0)
    assert model.cluster_ids_.tolist() == [0, 1, 2, 4]


def test_a_merged_cluster_is_recognised_as_one(trained):
    import copy

    model, X, y = trained
    model = copy.deepcopy(model)
    ids = [int(np.bincount(model.predict(X[y == label])).argmax()) for label in range(3)]
    assert len(set(ids)) == 3
    kept = min(ids[0], ids[2])
    model.merge_clusters([ids[0], ids[2]])
    given = model.state_.ledger.ids_given
    model.partial_fit(X)
    answers = model.predict(X)
    assert (answers[y != 1] == kept).mean() > 0.9
    assert (answers[y == 1] == ids[1]).mean() > 0.9
    assert model.state_.ledger.ids_given == given
    assert set(model.state_.calibrations) == set(model.state_.cluster_ids)
    assert model.preview(X).novel_share < 0.3


def test_shifted_scores():
    scores = torch.tensor([1.0, 2.5, -4.0], dtype=torch.float64)
    depths = 3.0 - scores
    shifted = Calibration.of(scores, depths).shifted(-0.7)
    by_hand = Calibration.of(scores - 0.7, depths)
    assert shifted.depths == by_hand.depths
    assert (shifted.n_rows, shifted.total) == (3, pytest.approx(by_hand.total))
    assert shifted.total_squares == pytest.approx(by_hand.total_squares)


def test_names_and_retirement(model):
    model.rename(1, "heels").retire(0)
    table = model.clusters_
    assert (table[1]["name"], table[0]["status"]) == ("heels", "retired")
    assert set(model.predict(ROWS[TRUTH == 0])) == {0}, "rows of a retired cluster keep its id"
    with pytest.raises(SettingsError, match="has the name 'heels'"):
        model.rename(2, "heels")
    with pytest.raises(SettingsError, match="retired already"):
        model.retire(0)


@pytest.mark.parametrize("ids", [[], [1], [1, 1]])
def test_a_merge_needs_two(model, ids):
    with pytest.raises(ValueError, match="at least two"):
        model.merge_clusters(ids)


def test_a_merge_that_fails_changes_nothing(model):
    before = model.clusters_
    with pytest.raises(SettingsError, match="no cluster has the id 17"):
        model.merge_clusters([0, 1, 17])
    assert model.clusters_ == before
    assert model.cluster_ids_.tolist() == [0, 1, 2, 3]


def test_preview_tells_what_would_be_born_and_changes_nothing(model):
    before = kinds(model)
    plan = model.preview(np.concatenate([ROWS[TRUTH == 0], ROWS[TRUTH == 2] + 500.0]))
    assert (list(plan.born), list(plan.grown), plan.n_clusters) == ([4], [], 5)
    assert plan.rows == {0: 90, 1: 0, 2: 0, 3: 0, 4: 50}
    assert kinds(model) == before


def test_fit_begins_a_new_ledger(model):
    with pytest.warns(UserWarning, match="forgets"):
        model.fit(ROWS)
    assert model.cluster_ids_.tolist() == [0, 1, 2, 3]
    assert [row["rows"] for row in model.clusters_] == [90, 70, 50, 40]
    assert model.state_.ledger.n_arrivals == 1
