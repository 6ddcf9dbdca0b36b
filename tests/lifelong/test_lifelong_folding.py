"""The end of a data set: each row is folded in once, in one place, and old clusters keep what they are."""

from dataclasses import astuple, replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from dbull.errors import NumericalError
from dbull.lifelong import folding, placing
from dbull.lifelong.inference import encode_rows
from dbull.lifelong.learn import FEWEST_TO_TRAIN, _schedule, learn, pretrain
from dbull.lifelong.novelty import (
    Calibration,
    Strangeness,
    Triage,
    cluster_peak,
    cluster_scores,
    strangeness,
)
from dbull.lifelong.past import encoder_fingerprint
from dbull.lifelong.settings import ALONE_SHARE, FAMILIAR_ROUNDS, NOVEL_SHARE, ROUNDS, Schedule
from dbull.lifelong.state import LearnerState
from dbull.mixture.posterior import global_step
from dbull.nets.inputs import fit_inputs
from dbull.nets.vae import VAE, NetworkShape
from dbull.probability.normal_wishart import expected_covariance
from learning import drained, learn_settings
from synthetic import gaussian_clusters

SETTINGS = {
    "epochs": 20,
    "joint_epochs": 0,
    "novel_epochs": 3,
    "familiar_epochs": 2,
    "batch_size": 64,
    "learning_rate": 1e-2,
}


def make_state(rows, encoder="mlp"):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        n, width = rows.shape[1], rows.shape[1] if encoder == "identity" else 2
        vae = VAE(NetworkShape(n, n, width, encoder, (12,), "gaussian"))
    view = fit_inputs(rows, "dense", None, False, as_they_are=encoder == "identity")
    return LearnerState.fresh("dense", view, vae, 0)


def codes_of(state, rows):
    return encode_rows(state.vae, state.view.inputs(state.view.values(rows)))


@pytest.fixture(scope="module")
def data():
    rows, labels = gaussian_clusters(np.random.default_rng(0), (90, 80, 70, 60), 4, distance=14.0)
    return torch.tensor(rows), labels


@pytest.fixture(scope="module")
def rows(data):
    return data[0]


@pytest.fixture(scope="module")
def trained(rows):
    """Networks that saw the domain, and no cluster."""
    return drained(pretrain(make_state(rows), rows, learn_settings(**SETTINGS), None))[1]


# Exact over arrivals.


@pytest.mark.parametrize("encoder", ["identity", "mlp"])
@pytest.mark.parametrize("use_variance", [False, True])
def test_with_a_fixed_encoder_arrivals_add_up_to_one_shot(rows, trained, encoder, use_variance, monkeypatch):
    """Whatever was born in between: all moments are those of all rows at once, each counted once."""
    monkeypatch.setattr(folding, "FEWEST_ROWS", 0)  # what small components hide is another test's matter
    state = make_state(rows, "identity") if encoder == "identity" else trained
    settings = learn_settings(freeze=True, novelty=False, use_encoder_variance=use_variance, **SETTINGS)
    for part in rows.split(110):
        state = drained(learn(state, part, settings, None))[1]
    mean, var = codes_of(state, rows)
    counted = torch.diag(var.sum(0)) if use_variance and encoder == "mlp" else 0.0
    total = state.memory.total
    assert float(total.counts.sum()) == pytest.approx(len(rows), rel=1e-9)
    torch.testing.assert_close(total.sum_z.sum(0), mean.sum(0), rtol=1e-8, atol=1e-6)
    torch.testing.assert_close(total.sum_zz.sum(0), mean.T @ mean + counted, rtol=1e-8, atol=1e-6)
    assert (state.n_data_sets, state.n_rows) == (3, len(rows))


@pytest.mark.parametrize("encoder", ["identity", "mlp"])
def test_each_component_has_the_moments_of_its_rows(data, trained, encoder, monkeypatch):
    """Clusters far apart, so that rows are wholly in one: per component as by hand, over three arrivals."""
    monkeypatch.setattr(folding, "FEWEST_ROWS", 0)
    rows, labels = data
    state = make_state(rows, "identity") if encoder == "identity" else trained
    settings = learn_settings(freeze=True, novelty=False, **SETTINGS)
    for part in rows.split(110):
        state = drained(learn(state, part, settings, None))[1]
    codes = codes_of(state, rows)[0]
    own = state.log_proba(codes).argmax(1)
    if encoder == "identity":
        assert state.n_clusters == 4
        assert len(set(zip(own.tolist(), labels.tolist(), strict=True))) == 4
    by_id = dict(zip(state.memory.ids, range(len(state.memory.ids)), strict=True))
    hard = float(state.log_proba(codes).exp().max(1).values.min())
    tolerance = 1e-6 if hard > 1 - 1e-9 else 0.05
    if encoder == "identity":
        assert tolerance == 1e-6
    for component_id, cluster in state.owner.items():
        k, mine = by_id[component_id], codes[own == cluster]
        assert float(state.memory.total.counts[k]) == pytest.approx(len(mine), rel=tolerance)
        torch.testing.assert_close(
            state.memory.total.sum_zz[k], mine.T @ mine, rtol=tolerance, atol=tolerance * 100
        )


@pytest.mark.parametrize("encoder", ["identity", "mlp"])
def test_small_components_keep_count_and_mean_alone(rows, trained, encoder):
    """Their covariance is the one that the prior expects of any component, whatever their rows."""
    state = make_state(rows, "identity") if encoder == "identity" else trained
    few = torch.cat([rows[:120], rows[:12] + 60.0])
    state = drained(learn(state, few, learn_settings(freeze=True, **SETTINGS), None))[1]
    total = state.memory.total
    small = (total.counts < folding.FEWEST_ROWS).nonzero()[:, 0].tolist()
    assert small
    expected = expected_covariance(state.prior.base)[0]
    for k in small:
        mean = total.sum_z[k] / total.counts[k]
        torch.testing.assert_close(total.sum_zz[k] / total.counts[k] - torch.outer(mean, mean), expected)


def test_after_an_arrival_nothing_of_it_is_left_beside_the_statistics(rows, trained):
    settings = learn_settings(**SETTINGS)
    state = drained(learn(trained, rows[:150], settings, None))[1]
    state = drained(learn(state, rows[150:], settings, None))[1]
    memory = state.memory
    assert memory.batches == []
    assert float(memory.current.counts.abs().sum()) == 0.0
    assert bool(memory.established.all())
    assert memory.next_id == memory.n_given == memory.n_components
    assert set(state.owner) == set(state.imprints) == set(memory.ids)
    assert set(state.owner.values()) == set(range(state.n_clusters))
    assert state.fingerprint == encoder_fingerprint(state.vae)
    again = global_step(state.prior, memory.total)
    assert torch.equal(again.components.mean, state.posterior.components.mean)
    assert torch.equal(again.sticks.on, state.posterior.sticks.on)


# Old ones stay.


@pytest.mark.parametrize("encoder", ["identity", "mlp"])
def test_components_with_a_past_never_go(data, trained, encoder):
    """Over four arrivals, one true cluster each: ids and owners stay, and only newborns come and go."""
    rows, labels = data
    state = make_state(rows, "identity") if encoder == "identity" else trained
    settings = learn_settings(join=0.03, **SETTINGS)
    moves = []
    for label in range(4):
        before = state
        history, state = drained(learn(state, rows[labels == label], settings, None))
        for component_id, cluster in before.owner.items():
            assert state.owner[component_id] == cluster
        for step in history:
            for move in step.moves:
                assert all(i >= before.memory.n_given for i in move.gone), move
                moves.append(move)
        assert state.n_clusters >= before.n_clusters
        counts = dict(zip(state.memory.ids, state.memory.total.counts.tolist(), strict=True))
        for i, count in zip(before.memory.ids, before.memory.total.counts.tolist(), strict=True):
            assert counts[i] >= count - 1e-6  # what was counted stays counted
    if encoder == "identity":
        assert state.n_clusters == 4
        assert {move.kind for move in moves} >= {"birth"}


def test_births_are_told_with_their_evidence(data):
    rows, labels = data
    state = make_state(rows, "identity")
    for label in range(4):
        state = drained(learn(state, rows[labels == label], learn_settings(**SETTINGS), None))[1]
    births = [event for event in state.ledger.events if event.kind == "birth"]
    first = births[0].arrival
    assert [(e.arrival - first, e.clusters) for e in births] == [(i, (i,)) for i in range(4)]
    for event, n_rows in zip(births, (90, 80, 70, 60), strict=True):
        assert event.rows == n_rows
        assert event.evidence["elbo_gain"] > 0 or event.arrival == first
        assert (event.evidence["nearest"] is None) == (event.arrival == first)


def test_statistics_of_different_encoders_are_not_added(rows, trained):
    state = drained(learn(trained, rows[:100], learn_settings(freeze=True, **SETTINGS), None))[1]
    with torch.no_grad():
        state.vae.mean_head.bias += 1e-3
    with pytest.raises(NumericalError, match="encoder is not the one that the statistics were made with"):
        next(learn(state, rows[100:], learn_settings(**SETTINGS), None))


# Which rows count.


@pytest.fixture(scope="module")
def known(rows, trained):
    """A learner of one cluster, with its scale of strangeness."""
    state = drained(learn(trained, rows[:150], learn_settings(freeze=True, **SETTINGS), None))[1]
    assert state.calibrations
    return state


def test_scales_of_strangeness_are_of_the_rows_learned(known, rows):
    """First from halves that score each other; then the usual ones of each arrival are added."""
    assert sum(c.n_rows for c in known.calibrations.values()) <= 150
    settings = learn_settings(freeze=True, **SETTINGS)
    after = drained(learn(known, rows[150:], settings, None))[1]
    inputs = known.view.inputs(known.view.values(rows[150:]))
    own = after.log_proba(codes_of(after, rows[150:])[0]).argmax(1)
    for cluster, before in known.calibrations.items():
        if before.n_rows == 0 or after.n_clusters > known.n_clusters:
            continue
        scores = cluster_scores(inputs[own == cluster], known.imprints_of(cluster))
        usual = scores[scores >= before.threshold(3.0)]
        want = before + Calibration.of(usual, cluster_peak(known.imprints_of(cluster)) - usual)
        assert after.calibrations[cluster].depths == want.depths
        assert after.calibrations[cluster].n_rows == want.n_rows
        assert after.calibrations[cluster].total == pytest.approx(want.total, rel=1e-9)


def test_an_arrival_of_strangers_alone_changes_no_statistics(known, rows):
    """One row, far from all: too few to found a cluster, too strange to count."""
    settings = learn_settings(freeze=True, **SETTINGS)
    after = drained(learn(known, rows[:1] + 30.0, settings, None))[1]
    assert after.n_rows == 151
    assert float(after.memory.total.counts.sum()) == pytest.approx(150, rel=1e-9)
    assert sum(i.n_rows for i in after.imprints.values()) == 150
    assert after.calibrations == known.calibrations
    order = torch.tensor([after.memory.ids.index(i) for i in known.memory.ids])
    got, want = after.memory.total.select(order), known.memory.total
    torch.testing.assert_close(got.counts, want.counts, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(got.sum_zz, want.sum_zz, rtol=1e-8, atol=1e-8)


def test_novelty_of_what_is_known_and_of_what_is_not(known, rows):
    near = known.view.inputs(known.view.values(rows[150:]))
    far = known.view.inputs(known.view.values(rows[150:] + 30.0))
    assert strangeness(known, near).novel_share() < 0.3
    assert strangeness(known, far).novel_share() == 1.0


def test_novelty_when_clusters_cannot_say(known, rows):
    inputs = known.view.inputs(known.view.values(rows[:9]))
    assert strangeness(replace(known, imprints={}), inputs) is None
    # Clusters without a scale find nothing strange.
    seen = strangeness(replace(known, calibrations={}), inputs + 30.0)
    assert seen.novel_share() == 0.0
    assert not bool(seen.strange_to_all(3.0).any())
    # One without a scale takes that of the others.
    first = min(known.calibrations)
    seen = strangeness(replace(known, calibrations={first: known.calibrations[first]}), inputs + 30.0)
    assert bool(seen.strange_to_all(3.0).all())


def test_little_new_is_learned_gently(known, rows):
    """A familiar arrival takes few epochs at a low rate, a new one more."""
    settings = learn_settings(**{**SETTINGS, "novel_epochs": 5, "familiar_epochs": 1})
    for part, n_epochs in ((rows[150:], 1), (rows[150:] + 30.0, 5)):
        history, _ = drained(learn(known, part, settings, None))
        assert history[0].stage == "past"
        assert sum(step.stage == "represent" for step in history) == n_epochs
        assert (history[0].novel_share > 0.15) == (n_epochs == 5)


@pytest.mark.parametrize(
    ("first", "novel_share", "alone", "given", "want"),
    [
        (True, 1.0, 0.0, {}, (20, 2, 1.0, ROUNDS)),
        (False, 0.5, 0.0, {}, (7, 3, 1.0, ROUNDS)),
        (False, 0.15, 0.0, {}, (2, 1, 0.25, FAMILIAR_ROUNDS)),
        (False, 0.15, ALONE_SHARE, {}, (2, 1, 0.25, FAMILIAR_ROUNDS)),
        (False, 0.15, 0.9, {}, (7, 3, 1.0, ROUNDS)),  # nothing is strange, yet rows keep to themselves
        (False, 0.15, 0.0, {"novelty": False}, (7, 3, 1.0, ROUNDS)),
        (True, 1.0, 0.0, {"freeze": True}, (20, 2, 1.0, ROUNDS)),  # somebody must train them first
        (False, 0.0, 0.9, {"freeze": True}, (0, 0, 0.0, 0)),
    ],
)
def test_schedule(first, novel_share, alone, given, want, data):
    state = make_state(data[0])
    state.n_data_sets = 0 if first else 1
    more = {
        "novel_epochs": 7,
        "novel_joint_epochs": 3,
        "familiar_epochs": 2,
        "familiar_joint_epochs": 1,
        **given,
    }
    settings = learn_settings(epochs=20, joint_epochs=2, learning_rate=1.0, **more)
    parts = replace(Triage.all_near(50, novel_share), near_novel_share=novel_share)
    assert astuple(_schedule(state, parts, alone, settings)) == want
    state.n_pretrain_rows, pretrained = 100, learn_settings(freeze=True, epochs=20)
    assert _schedule(state, parts, alone, pretrained) == Schedule()
    few = replace(parts, near=torch.arange(FEWEST_TO_TRAIN - 1))
    assert _schedule(state, few, alone, settings).epochs == (20 if first and not given else 0)


def test_rows_that_keep_to_themselves_are_learned_as_new(known, rows):
    """A heap in the middle of a cluster: no row is strange, but none has a replayed neighbour."""
    heap = rows[150:151] + 1e-3 * torch.tensor(np.random.default_rng(0).normal(size=(50, rows.shape[1])))
    lengths = {"novel_epochs": 5, "familiar_epochs": 1, "neighbourhood": 10.0, "n_replay": 30}
    for part, n_epochs in ((rows[150:], 1), (heap, 5)):
        history, _ = drained(learn(known, part, learn_settings(**{**SETTINGS, **lengths}), None))
        assert history[0].novel_share <= NOVEL_SHARE
        assert sum(step.stage == "represent" for step in history) == n_epochs


# Copies, of which the graph says that they touch nothing.


def flood(rows, n_distinct, times):
    return rows[:n_distinct].repeat(times, 1)


def test_a_flood_of_copies_that_a_cluster_finds_usual_founds_none(data):
    rows, labels = data
    settings = learn_settings(join=0.1, freeze=True, **SETTINGS)
    state = drained(pretrain(make_state(rows), rows, settings, None))[1]
    old = rows[torch.tensor(labels) < 2]
    state = drained(learn(state, old, settings, None))[1]
    before = state.n_clusters
    known, strange = rows[torch.tensor(labels) == 0], rows[torch.tensor(labels) == 3]
    after = drained(learn(state, flood(known, 10, 80), settings, None))[1]
    assert (after.n_clusters, after.memory.n_components > before) == (before, True)
    grown = [event for event in after.ledger.events if event.kind == "growth"]
    assert [(event.evidence["nearest"], event.evidence["copies"]) for event in grown] == [
        (int(after.assign(codes_of(after, known[:1])[0])[0]), True)
    ]
    assert drained(learn(state, flood(strange, 10, 80), settings, None))[1].n_clusters > before


@pytest.mark.parametrize(("narrow", "want"), [(-5.0, {}), (-1.0, {2: 7}), (-25.0, {2: 3})])
def test_copies_go_to_the_nearest_cluster_or_to_none(narrow, want, monkeypatch):
    """To cluster 7 scores down to -2 are usual, to cluster 3, which is broad, those down to -100."""
    n_rows = 40
    scales = (Calibration(100.0, 100.0, 200.0), Calibration(100.0, -1000.0, 100.0 * (100 + 900)))
    scores = torch.tensor([[narrow, -20.0]], dtype=torch.float64).repeat(n_rows, 1)
    seen = Strangeness((7, 3), scores, (2.0, 0.0), scales)
    assert seen.thresholds(placing.USUAL_STD).tolist() == pytest.approx([-2.0, -100.0], abs=1.0)
    monkeypatch.setattr(placing, "strangeness", lambda state, rows: seen)
    memory = SimpleNamespace(established=torch.tensor([True, True, False]))
    fit = SimpleNamespace(memory=memory, labels=torch.full((n_rows,), 2))
    graph = SimpleNamespace(neighbours=torch.zeros(n_rows, 15))
    arrival = SimpleNamespace(graph=graph, inputs=torch.ones(n_rows, 4))
    assert placing._familiar_copies(SimpleNamespace(imprints={1: None}), fit, arrival) == want
    few = SimpleNamespace(graph=graph, inputs=torch.arange(n_rows * 4.0).reshape(n_rows, 4))
    assert placing._familiar_copies(SimpleNamespace(imprints={1: None}), fit, few) == {}  # no copies


def test_a_flood_of_known_copies_counts_and_trains_little(data):
    """It is no news, whatever the graph says, and leaves other rows where they were."""
    rows, labels = data
    lengths = {"novel_epochs": 50, "familiar_epochs": 1, "neighbourhood": 10.0, "n_replay": 30}
    settings = learn_settings(**{**SETTINGS, **lengths}, join=0.1)
    state = drained(learn(make_state(rows), rows, settings, None))[1]
    one = rows[torch.tensor(labels) == 0][:1]
    history, after = drained(learn(state, one.repeat(500, 1), settings, None))
    assert sum(step.stage == "represent" for step in history) == 1
    assert after.n_rows == state.n_rows + 500
    grown = after.memory.total.counts.sum() - state.memory.total.counts.sum()
    assert float(grown) == pytest.approx(500, rel=1e-6)
    assert after.n_clusters == state.n_clusters


@pytest.mark.parametrize("n_few", [1, 3])
def test_imprints_follow_the_mean_of_small_arrivals(data, trained, n_few):
    rows, labels = data
    rows = rows[labels == 0]
    inner = (
        (rows - rows.mean(0)).norm(dim=1).argsort()[:-4].sort().values
    )  # what counts for nothing is left out
    rows, state = rows[inner], trained
    for part in (rows[:60], rows[60 : 60 + n_few]):
        state = drained(learn(state, part, learn_settings(freeze=True, **SETTINGS), None))[1]
    counted = sum(imprint.n_rows for imprint in state.imprints.values())
    mean = sum(imprint.n_rows * imprint.mean for imprint in state.imprints.values()) / counted
    seen = state.view.inputs(state.view.values(rows[: 60 + n_few]))
    assert counted == 60 + n_few
    torch.testing.assert_close(mean, seen.mean(0), rtol=1e-4, atol=1e-5)
