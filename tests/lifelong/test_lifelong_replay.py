"""Replay: drawn from a snapshot, counted per cluster, and never part of the statistics."""

import copy
from dataclasses import replace

import numpy as np
import pytest
import torch

from dbull.lifelong.codes import CodeSearch
from dbull.lifelong.inference import decode_codes, encode_rows
from dbull.lifelong.learn import learn
from dbull.lifelong.neighbourhood import NeighbourGraph
from dbull.lifelong.past import N_PROBES, Imprint, Past
from dbull.lifelong.settings import PastSettings, TrainingSettings
from dbull.lifelong.state import LearnerState
from dbull.lifelong.training import Trainer, TrainingRows
from dbull.mixture.posterior import mean_weights
from dbull.nets.inputs import fit_inputs
from dbull.nets.likelihood import MAX_LOG_VAR, MIN_LOG_VAR
from dbull.nets.vae import VAE, NetworkShape
from dbull.probability.normal_wishart import expected_covariance
from learning import drained, learn_settings
from synthetic import gaussian_clusters

SETTINGS = {
    "epochs": 60,
    "joint_epochs": 1,
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
    return LearnerState.fresh("dense", fit_inputs(rows, "dense", None, False), vae, 0)


@pytest.fixture(scope="module")
def rows():
    return torch.tensor(gaussian_clusters(np.random.default_rng(0), (90, 60, 50), 6, distance=12.0)[0])


@pytest.fixture(scope="module")
def states(rows):
    """What each source leaves after a first data set."""
    return {
        source: drained(learn(make_state(rows), rows, learn_settings(replay=source, **SETTINGS), None))[1]
        for source in ("imprints", "decoded", "none")
    }


@pytest.fixture(params=["imprints", "decoded"])
def past(request, states):
    return Past(states[request.param], request.param, torch.Generator().manual_seed(0))


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def bits(state):
    """Everything of a state that learning could change, as bytes."""
    tensors = [*state.vae.state_dict().values(), *vars(state.memory.overall).values()]
    tensors += [t for i in state.imprints.values() for t in (i.mean, i.factor, i.leftover)]
    return [t.detach().numpy().tobytes() for t in tensors]


# What is drawn.


def test_per_cluster_each_has_as_many(past, states):
    replay = past.replay(PastSettings(n_replay=17), seeded())
    n_clusters = states[past.source].n_clusters
    assert n_clusters > 1
    assert torch.bincount(replay.clusters).tolist() == [17] * n_clusters
    assert len(replay) == len(replay.inputs) == len(replay.values) == len(replay.codes) == 17 * n_clusters


def test_within_a_cluster_components_count_by_size(states):
    """Two components in one cluster: by their share of the rows."""
    state = copy.deepcopy(states["imprints"])
    ids = state.memory.ids
    state.owner = {component_id: int(component_id not in ids[:2]) for component_id in ids}
    past = Past(state, "imprints", seeded())
    drawn = []
    past.rows_of = lambda k, n, generator: drawn.append((k, n)) or Past.rows_of(past, k, n, generator)
    replay = past.replay(PastSettings(n_replay=4000), seeded(1))
    of_first = dict(drawn[:2])
    assert sum(of_first.values()) == 4000
    counts = state.memory.overall.counts[:2]
    share = float(counts[0] / counts.sum())
    assert of_first[0] / 4000 == pytest.approx(share, abs=4 * np.sqrt(share * (1 - share) / 4000))
    assert torch.bincount(replay.clusters).tolist() == [4000, 4000]


def test_in_all_they_follow_the_weights(past, states):
    replay = past.replay(PastSettings(n_replay=3000, per_cluster=False), seeded())
    assert len(replay) == 3000
    state = states[past.source]
    weights = torch.zeros(state.n_clusters, dtype=torch.float64)
    weights.index_add_(0, state.cluster_of, mean_weights(state.posterior))
    got = torch.bincount(replay.clusters, minlength=state.n_clusters) / 3000
    torch.testing.assert_close(got.double(), weights, rtol=0, atol=0.04)


def test_none_of_it(states):
    past = Past(states["none"], "none", seeded())
    assert past.replay(PastSettings(n_replay=10), seeded()) is None
    assert past.carried(states["none"].vae) is states["none"].memory.overall
    with_source = Past(states["imprints"], "imprints", seeded())
    assert with_source.replay(PastSettings(n_replay=0), seeded()) is None


def test_codes_and_values_are_those_of_the_snapshot(past, states):
    replay = past.replay(PastSettings(n_replay=9), seeded())
    vae = states[past.source].vae
    torch.testing.assert_close(replay.codes, encode_rows(vae, replay.inputs)[0].float(), rtol=0, atol=0)
    if past.source == "imprints":
        assert torch.equal(replay.values, decode_codes(vae, replay.codes.double()))
        assert not replay.from_values
    else:
        assert torch.equal(replay.inputs, past.view.inputs(replay.values))
        assert replay.from_values


def test_decoded_rows_come_from_the_mixture(states):
    """Codes before decoding have the moments of the component; here a decoder that gives them back."""
    state = copy.deepcopy(states["decoded"])
    past = Past(state, "decoded", seeded())
    seen = []
    past.vae.decoder.register_forward_pre_hook(lambda module, given: seen.append(given[0].clone()))
    past.rows_of(1, 1024, seeded(3))
    codes = torch.cat(seen).double()
    components = state.posterior.components
    covariance = expected_covariance(components)[1]
    error = (covariance.diagonal() / 1024).sqrt()
    assert bool(((codes.mean(0) - components.mean[1]).abs() < 4 * error).all())
    scale = torch.outer(covariance.diagonal(), covariance.diagonal()).sqrt()
    assert bool(((codes.T.cov() - covariance).abs() < 0.2 * scale).all())


def test_decoded_rows_vary_as_rows_do(states):
    """Around what their codes decode to, by the decoder's variance; without it they would all be smooth."""
    past = Past(copy.deepcopy(states["decoded"]), "decoded", seeded())
    seen = []
    past.vae.decoder.register_forward_hook(lambda module, given, output: seen.append(output.clone()))
    values = past.rows_of(1, 1000, seeded(3))[1]
    smooth = past.vae.likelihood.mean(torch.cat(seen))[:1000]
    log_var = past.vae.likelihood.log_var.detach().clamp(MIN_LOG_VAR, MAX_LOG_VAR)
    assert float((values - smooth).var()) == pytest.approx(float(log_var.exp()), rel=0.1)


def test_replayed_rows_belong_to_the_cluster_they_were_drawn_from(past, states):
    replay = past.replay(PastSettings(n_replay=100), seeded())
    found = states[past.source].log_proba(replay.codes.double()).argmax(1)
    assert float((found == replay.clusters).double().mean()) > 0.9


def test_draws_follow_the_generator(past):
    a, b, c = (past.replay(PastSettings(n_replay=5), seeded(seed)) for seed in (0, 0, 1))
    assert torch.equal(a.inputs, b.inputs)
    assert not torch.equal(a.inputs, c.inputs)


# From a snapshot.


def test_the_networks_under_training_do_not_show_in_it(states, past):
    """Ruin the networks after the snapshot was taken: what is drawn stays the same to the bit."""
    state = copy.deepcopy(states[past.source])
    snapshot = Past(state, past.source, seeded())
    before = snapshot.replay(PastSettings(n_replay=20), seeded(1))
    with torch.no_grad():
        for parameter in state.vae.parameters():
            parameter.fill_(float("nan"))
    after = snapshot.replay(PastSettings(n_replay=20), seeded(1))
    for name in ("inputs", "values", "codes", "clusters"):
        assert torch.equal(getattr(before, name), getattr(after, name)), name


def test_where_the_past_has_gone_is_asked_of_the_encoder_as_it_is_now(states, past):
    state = states[past.source]
    still = past.carried(state.vae)
    for name in ("counts", "sum_z", "sum_zz", "entropy"):
        torch.testing.assert_close(getattr(still, name), getattr(past.overall, name), rtol=1e-9, atol=1e-9)
    moved = copy.deepcopy(state.vae)
    with torch.no_grad():
        moved.mean_head.bias += torch.tensor([3.0, -2.0])
    got = past.carried(moved)
    shift = torch.tensor([3.0, -2.0], dtype=torch.float64)
    want = past.overall.sum_z + past.overall.counts[:, None] * shift
    torch.testing.assert_close(got.sum_z, want, rtol=1e-5, atol=1e-4)
    assert torch.equal(got.counts, past.overall.counts)


def test_probes_are_many(past):
    assert {len(probe) for probe in past._probes} == {N_PROBES}
    assert len(past._probes) == len(past.ids)


# Behind the rows in memory.


def test_replayed_rows_stand_behind_those_in_memory(past):
    values, inputs = torch.zeros(7, 6), torch.ones(7, 6)
    replay = past.replay(PastSettings(n_replay=5), seeded())
    data = TrainingRows.of(values, inputs, replay, 2)
    assert data.n_present == 7
    assert torch.equal(data.values[7:], replay.values)
    assert torch.equal(data.inputs[7:], replay.inputs)
    assert torch.equal(data.values[:7], values)
    assert data.kept_codes is replay.codes
    assert data.augmented == (7 if past.source == "imprints" else 7 + len(replay))
    alone = TrainingRows.of(values, inputs, None, 2)
    assert (alone.n_present, alone.augmented, len(alone.kept_codes)) == (7, 7, 0)


def make_trainer(past, rows, weight, augment=None, replay=None):
    values = past.view.values(rows)
    inputs = past.view.inputs(values)
    replay = past.replay(PastSettings(n_replay=30), seeded()) if replay is None else replay
    data = TrainingRows.of(values, inputs, replay, 2)
    vae = copy.deepcopy(past.vae)
    settings = TrainingSettings(batch_size=64, neighbourhood=0.0, consistency=weight)
    return Trainer(past.view, vae, data, augment, settings, seeded(1))


def test_codes_to_cluster_are_of_the_rows_in_memory_alone(past, rows):
    trainer = make_trainer(past, rows, 0.0)
    mean, var = trainer.encode()
    assert len(mean) == len(var) == len(rows)
    torch.testing.assert_close(mean, encode_rows(past.vae, past.view.inputs(past.view.values(rows)))[0])
    torch.testing.assert_close(trainer.encode_replayed().float(), trainer.rows.kept_codes)


def test_consistency_is_the_distance_of_replayed_codes_per_row(past, rows):
    """At rate 0, with the encoder shifted: each replayed row is as far from its place as the shift says."""
    trainer = make_trainer(past, rows, 1.0)
    with torch.no_grad():
        trainer.vae.mean_head.bias += torch.tensor([0.3, -0.4])
    n_replayed = len(trainer.rows.kept_codes)
    got = trainer.epoch(lambda part: 0.0).consistency
    assert got == pytest.approx(np.log1p(0.25) * n_replayed / (len(rows) + n_replayed), rel=1e-4)
    assert make_trainer(past, rows, 0.0).epoch(lambda part: 0.0).consistency == 0.0


def test_consistency_holds_replayed_codes(past, rows):
    moved = {}
    for weight in (0.0, 1000.0):
        trainer = make_trainer(past, rows.flip(1), weight)  # columns in another order: all is new
        for _ in range(5):
            trainer.epoch(lambda part: 1e-2)
        distance = trainer.encode_replayed().float() - trainer.rows.kept_codes
        moved[weight] = float(distance.square().sum(1).mean())
    assert moved[1000.0] < 0.2 * moved[0.0]


def test_rows_with_places_and_replayed_rows_are_told_apart(past, rows):
    """Every row is off by the same shift; each term has its share of the rows."""
    trainer = make_trainer(past, rows, 1.0)
    data = trainer.rows
    places = encode_rows(trainer.vae, data.inputs)[0].float()
    graph = NeighbourGraph(torch.arange(len(places))[:, None], torch.ones(len(places), 1))  # each its own
    trainer.rows = replace(data, graph=graph, places=places)
    with torch.no_grad():
        trainer.vae.mean_head.bias += torch.tensor([0.3, -0.4])
    got = trainer.epoch(lambda part: 0.0)
    share = len(data.kept_codes) / len(places)
    assert got.consistency == pytest.approx(np.log1p(0.25) * share, rel=1e-4)
    assert got.neighbourhood == pytest.approx(np.log1p(0.25) * (1 - share), rel=1e-4)


def laid_out(state, arrival, monkeypatch, **settings):
    """Learn along the graph; return the rows trained on, and how far replayed codes went."""
    trainers = []
    made = Trainer.__init__
    monkeypatch.setattr(Trainer, "__init__", lambda self, *given: trainers.append(self) or made(self, *given))
    along = {"neighbourhood": 1000.0, "novel_epochs": 30, "n_replay": 30, "novel_joint_epochs": 1, **settings}
    drained(learn(state, arrival, learn_settings(**{**SETTINGS, **along}), None))
    (trainer,) = trainers
    moved = trainer.encode_replayed().float() - trainer.rows.kept_codes
    return trainer.rows, float(moved.square().sum(1).mean().sqrt())


def test_replayed_rows_are_held_where_they_were(states, rows, monkeypatch):
    """Their places are their old codes to the bit, and the encoder keeps to them; 0 lets them go."""
    state = states["imprints"]
    new = rows[:60].flip(1)  # columns in another order: all is new
    data, held = laid_out(state, new, monkeypatch)
    assert torch.equal(data.places[60:], data.kept_codes)
    assert not torch.equal(data.places[:60], encode_rows(state.vae, data.inputs[:60])[0].float())
    _, let_go = laid_out(state, new, monkeypatch, consistency=0.0)
    assert held < 0.5 * let_go


def test_only_rows_whose_values_are_real_are_augmented(past, rows):
    """Replayed inputs of imprints are not those of their values: changing these would replace them."""
    trainer = make_trainer(past, rows, 0.0, augment=lambda values, generator: values + 5.0)
    n = len(trainer.rows.values)
    shown, inputs = trainer.shown(torch.arange(n))
    changed = (shown != trainer.rows.values).all(1)
    assert int(changed.sum()) == trainer.rows.augmented
    assert bool(changed[: len(rows)].all())
    torch.testing.assert_close(inputs[changed], past.view.inputs(shown[changed]))
    assert torch.equal(inputs[~changed], trainer.rows.inputs[~changed])


@pytest.mark.parametrize("source", ["imprints", "decoded"])
def test_learning_trains_on_rows_of_the_past(states, rows, source, monkeypatch):
    """As many of each cluster as were asked for, where the learner that was had them."""
    trained_on = []
    made = Trainer.__init__

    def spy(self, vae, view, data, *more):
        trained_on.append(data)
        made(self, vae, view, data, *more)

    monkeypatch.setattr(Trainer, "__init__", spy)
    state = states[source]
    drained(learn(state, rows[:40], learn_settings(replay=source, n_replay=7, **SETTINGS), None))
    (data,) = trained_on
    assert (data.n_present, len(data.inputs)) == (40, 40 + 7 * state.n_clusters)
    codes = encode_rows(state.vae, data.inputs[40:])[0]
    assert torch.equal(data.kept_codes, codes.float())
    own = torch.arange(state.n_clusters).repeat_interleave(7)
    assert float((state.log_proba(codes).argmax(1) == own).double().mean()) > 0.9


def test_learning_carries_the_past_along_unless_told_not_to(states, rows):
    """New rows move an encoder that nothing holds; the mean codes of the past move with it, or stay."""
    moved = {}
    for carry in (True, False):
        settings = learn_settings(carry=carry, consistency=0.0, **{**SETTINGS, "novel_epochs": 20})
        state = states["imprints"]
        _, after = drained(learn(state, rows[:40].flip(1), settings, None))
        # Of components that got no row of the arrival: what moved these is the carrying alone.
        shift = []
        for k, component_id in enumerate(state.memory.ids):
            place = after.memory.ids.index(component_id)
            if float(after.memory.total.counts[place] - state.memory.total.counts[k]) < 1e-3:
                before = state.memory.total.sum_z[k] / state.memory.total.counts[k]
                now = after.memory.total.sum_z[place] / after.memory.total.counts[place]
                shift.append(float((now - before).norm()))
        assert shift, "no component without a new row"
        moved[carry] = max(shift)
    assert moved[False] < 1e-3
    assert moved[True] > 0.1


# And never in the statistics.


@pytest.mark.parametrize("source", ["imprints", "decoded", "none"])
@pytest.mark.parametrize("n_replay", [5, 200])
def test_statistics_count_the_rows_that_came_and_nothing_else(states, rows, source, n_replay):
    """No row is a stranger here, so all are counted, whatever was replayed beside them."""
    settings = learn_settings(replay=source, n_replay=n_replay, novelty=False, **SETTINGS)
    _, after = drained(learn(states[source], rows[:40], settings, None))
    assert float(after.memory.total.counts.sum()) == pytest.approx(len(rows) + 40, rel=1e-9)
    assert (after.n_rows, after.n_data_sets) == (len(rows) + 40, 2)
    if source == "imprints":
        assert sum(imprint.n_rows for imprint in after.imprints.values()) == len(rows) + 40
    else:
        assert after.imprints == {}


def test_strangers_are_not_counted(states, rows):
    """Rows that an old component takes although they are strange: counted are all others."""
    odd = torch.cat([rows[:60], rows[60:62] + 40.0])
    settings = learn_settings(freeze=True, **SETTINGS)
    _, after = drained(learn(states["imprints"], odd, settings, None))
    known = sum(imprint.n_rows for imprint in after.imprints.values()) - len(rows)
    assert known <= 60
    assert float(after.memory.total.counts.sum()) == pytest.approx(len(rows) + known, rel=1e-9)
    assert after.n_rows == len(rows) + 62  # all were seen
    _, all_in = drained(
        learn(states["imprints"], odd, learn_settings(freeze=True, novelty=False, **SETTINGS), None)
    )
    assert float(all_in.memory.total.counts.sum()) == pytest.approx(len(rows) + 62, rel=1e-9)


def test_the_search_is_given_no_replayed_row(states, rows, monkeypatch):
    given = []
    search = CodeSearch.__call__
    monkeypatch.setattr(
        CodeSearch,
        "__call__",
        lambda self, fit, points, births=True: given.append(len(points)) or search(self, fit, points, births),
    )
    drained(learn(states["imprints"], rows[:40], learn_settings(novel_joint_epochs=1, **SETTINGS), None))
    assert set(given) == {40}


def test_the_state_given_stays_as_it_was(states, rows):
    before = bits(states["imprints"])
    drained(learn(states["imprints"], rows[:40], learn_settings(**SETTINGS), None))
    assert bits(states["imprints"]) == before


def test_imprints_stay_as_small_as_they_were(states, rows):
    state = states["imprints"]
    for _ in range(3):
        _, state = drained(learn(state, rows[:40], learn_settings(freeze=True, **SETTINGS), None))
    for imprint in state.imprints.values():
        assert isinstance(imprint, Imprint)
        assert imprint.factor.shape[0] <= 20
    assert set(state.imprints) == set(state.memory.ids)
