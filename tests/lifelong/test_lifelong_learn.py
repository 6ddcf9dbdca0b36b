"""Learning one data set: what happens in which order, when it stops, and that every row is counted once."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy import stats

from dbull import DBULL
from dbull.errors import NumericalError
from dbull.lifelong import codes as codes_module
from dbull.lifelong import learn as module
from dbull.lifelong.codes import CodeSearch
from dbull.lifelong.inference import CHUNK_ROWS, decode_codes, encode_rows, padded, row_bounds
from dbull.lifelong.learn import decayed, learn
from dbull.lifelong.neighbourhood import NeighbourGraph, build_graph
from dbull.lifelong.objective import FrozenMixture, entropy
from dbull.lifelong.past import Replay
from dbull.lifelong.settings import RECIPES, GraphSettings, TrainingSettings, epochs_for
from dbull.lifelong.state import LearnerState
from dbull.lifelong.training import DECODED_PART, EpochTerms, Trainer, TrainingRows
from dbull.mixture.settings import FitSettings
from dbull.mixture.updates import Points, local_step, log_joint, summarize
from dbull.nets.augment import MaskingNoise
from dbull.nets.inputs import fit_inputs
from dbull.nets.vae import VAE, NetworkShape
from learning import drained, learn_settings, nothing, searched
from synthetic import gaussian_clusters


def make_vae(n_columns, encoder="mlp", seed=0):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        width = n_columns if encoder == "identity" else 2
        return VAE(NetworkShape(n_columns, n_columns, width, encoder, (12,), "gaussian"))


def run(rows, encoder="mlp", augment=None, seed=0, **settings):
    """Learn; return what happened and the state."""
    rows = torch.as_tensor(rows)
    s = learn_settings(**{"epochs": 3, "joint_epochs": 3, "batch_size": 64, **settings})
    view = fit_inputs(rows, "dense", None, False)
    fresh = LearnerState.fresh("dense", view, make_vae(rows.shape[1], encoder), seed)
    return drained(learn(fresh, rows, s, augment))


@pytest.fixture(scope="module")
def rows():
    return gaussian_clusters(np.random.default_rng(0), (90, 60, 50), 6)[0]


@pytest.fixture(scope="module")
def learned(rows):
    return run(rows, neighbourhood=10.0, join=0.05, stacked_epochs=2)


# Order of events.


def test_events_come_in_order(learned):
    history, state = learned
    stages = [step.stage for step in history]
    n_joint = stages.count("joint")
    pretrain = ["pretrain"] * 4  # two epochs for each of two layers
    # Clusters are sought on places, before there are codes, and followed from there.
    assert stages == [
        "graph",
        "search",
        *pretrain,
        *["represent"] * 3,
        "search",
        *["joint"] * n_joint,
        "done",
    ]
    assert 1 <= n_joint <= 3
    assert [step.epoch for step in history if step.stage == "represent"] == [1, 2, 3]
    assert [step.epoch for step in history if step.stage == "joint"] == list(range(1, n_joint + 1))
    assert {step.n_epochs for step in history if step.stage in ("represent", "joint")} == {3}
    assert (np.diff([step.seconds for step in history]) >= 0).all()
    assert history[-1].seconds_left == 0.0
    assert history[-1].n_clusters == state.n_clusters
    assert history[-1].n_components == state.posterior.n_components
    assert history[0].n_components == 1


@pytest.mark.parametrize(
    ("settings", "stages"),
    [
        ({"epochs": 1, "joint_epochs": 0}, ["represent", "search", "done"]),
        ({"epochs": 0, "joint_epochs": 0}, ["search", "done"]),
        ({"epochs": 0, "joint_epochs": 1}, ["search", "joint", "done"]),
        (
            {"epochs": 0, "joint_epochs": 0, "join": 0.1},
            ["graph", "search", "done"],
        ),
        ({"encoder": "identity"}, ["search", "done"]),
        ({"encoder": "identity", "neighbourhood": 1.0}, ["search", "done"]),
        ({"encoder": "identity", "join": 0.1}, ["graph", "search", "done"]),
    ],
)
def test_parts_that_are_off_do_not_happen(rows, settings, stages):
    assert [step.stage for step in run(rows, **settings)[0]] == stages


def test_terms_of_the_history(learned):
    """Finite; of the autoencoder alone before the search, all four under the mixture."""
    for step in learned[0]:
        assert (step.terms is not None) == (step.stage in ("pretrain", "represent", "joint"))
        if step.terms is None:
            continue
        t = step.terms
        assert np.isfinite([t.reconstruction, t.log_prior, t.entropy, t.neighbourhood, t.elbo]).all()
        assert t.elbo == pytest.approx(t.reconstruction + t.log_prior + t.entropy)
        if step.stage == "represent":
            assert t.log_prior == t.entropy == 0.0
            assert t.neighbourhood > 0
        if step.stage == "joint":
            assert t.log_prior != 0.0
            assert t.entropy != 0.0


def test_stages_before_a_search_say_nothing_about_moves(learned):
    for step in learned[0]:
        assert (step.changed_share is not None) == (step.stage in ("search", "joint"))
        assert all(move.accepted for move in step.moves)


# When it stops.


def test_stops_when_nothing_changes(rows):
    """With a rate near 0 codes stand still: the second joint epoch can compare, and is the last."""
    history, _ = run(rows, joint_epochs=9, joint_learning_rate=1e-12, epochs=20)
    joint = [step for step in history if step.stage == "joint"]
    assert len(joint) == 2
    assert joint[-1].changed_share == 0.0


def test_goes_on_while_rows_change_component(rows):
    history, _ = run(rows, joint_epochs=4, joint_learning_rate=1e-12, stable_share=-1.0)
    assert sum(step.stage == "joint" for step in history) == 4


def test_goes_on_while_the_bound_rises(rows):
    history, _ = run(rows, joint_epochs=4, joint_learning_rate=1e-2, stable_gain=-np.inf, stable_share=1.0)
    assert sum(step.stage == "joint" for step in history) == 4


# Every row counts once.


@pytest.mark.parametrize("use_encoder_variance", [False, True])
@pytest.mark.parametrize("joint_epochs", [0, 1, 4])
def test_every_row_is_counted_once(rows, joint_epochs, use_encoder_variance):
    _, state = run(
        rows,
        joint_epochs=joint_epochs,
        stable_share=-1.0,
        use_encoder_variance=use_encoder_variance,
        joint_learning_rate=1e-2,
    )
    memory = state.memory
    assert float(memory.total.counts.sum()) == pytest.approx(len(rows), rel=1e-9)
    assert float(memory.overall.counts.sum()) == pytest.approx(len(rows), rel=1e-9)
    assert float(memory.current.counts.abs().sum()) == 0.0
    assert memory.batches == []
    assert memory.ids == tuple(range(memory.n_components))
    assert (state.n_rows, state.n_data_sets) == (len(rows), 1)


def test_statistics_are_those_of_the_final_codes(rows):
    """First and second moments of the memory are those of the encoder as it is when learning ends."""
    for use_variance in (False, True):
        _, state = run(rows, use_encoder_variance=use_variance, joint_learning_rate=1e-2)
        view = state.view
        mean, var = encode_rows(state.vae, view.inputs(view.values(torch.as_tensor(rows))))
        want = mean.T @ mean + (torch.diag(var.sum(0)) if use_variance else 0)
        torch.testing.assert_close(state.memory.total.sum_z.sum(0), mean.sum(0), rtol=1e-9, atol=1e-7)
        torch.testing.assert_close(state.memory.total.sum_zz.sum(0), want, rtol=1e-9, atol=1e-7)


def test_code_mixture_follows_moved_codes():
    """Codes that move as a whole keep their components, ids and rows; nothing is counted twice."""
    z, labels = gaussian_clusters(np.random.default_rng(1), (60, 50, 40), 2)
    z = torch.tensor(z)
    search = CodeSearch(FitSettings(), torch.Generator().manual_seed(0))
    mixture = search(nothing(2), Points.from_rows(z))
    assert mixture.changed_share == 1.0
    before, ids = mixture.labels.clone(), mixture.memory.ids
    assert mixture.memory.n_components == 3
    for shift in (1.0, 30.0, -200.0):  # further than any component is wide
        mixture = search(mixture, Points.from_rows(z + shift))
        assert mixture.memory.ids == ids
        assert mixture.changed_share == 0.0
        assert torch.equal(mixture.labels, before)
        assert mixture.moves == ()
        assert float(mixture.memory.total.counts.sum()) == pytest.approx(150)
        torch.testing.assert_close(mixture.responsibilities.sum(1), torch.ones(150))
        assert float((mixture.posterior.components.mean.mean(0) - shift).abs().max()) < 20
    assert len(set(zip(before.tolist(), labels.tolist(), strict=True))) == 3


def test_changed_share_counts_rows_that_change_hands():
    z = torch.tensor(gaussian_clusters(np.random.default_rng(2), (60, 40), 2)[0])
    search = CodeSearch(FitSettings(), torch.Generator().manual_seed(0))
    mixture = search(nothing(2), Points.from_rows(z))
    moved = z.clone()
    ten = (mixture.labels == 1).nonzero()[:10, 0]
    moved[ten] = z[mixture.labels == 0][:10]  # ten rows of one cluster go to the place of the other
    assert search(mixture, Points.from_rows(moved)).changed_share == pytest.approx(0.1)


def test_the_same_rows_and_seed_give_the_same_state(rows):
    a, b, c = (run(rows, neighbourhood=1.0, augment=MaskingNoise(), seed=seed)[1] for seed in (0, 0, 1))
    assert torch.equal(a.posterior.components.mean, b.posterior.components.mean)
    for p, q in zip(a.vae.parameters(), b.vae.parameters(), strict=True):
        assert torch.equal(p, q)
    assert any(not torch.equal(p, q) for p, q in zip(a.vae.parameters(), c.vae.parameters(), strict=True))


@pytest.mark.parametrize("encoder", ["mlp", "identity"])
def test_the_order_of_rows_does_not_show_in_the_clusters(encoder):
    """Of clusters that lie apart. Here the rows are sorted by cluster: whoever goes by place finds them."""
    rows, labels = gaussian_clusters(np.random.default_rng(7), (60, 50, 40), 6, distance=14.0)
    rows = rows[np.argsort(labels, kind="stable")]
    shuffled = np.random.default_rng(8).permutation(len(rows))
    settings = {"encoder": encoder, "epochs": 40, "learning_rate": 1e-2}
    found = []
    for order in (np.arange(len(rows)), shuffled):
        _, state = run(rows[order], **settings)
        codes = encode_rows(state.vae, state.view.inputs(state.view.values(torch.as_tensor(rows))))[0]
        found.append(state.assign(codes).tolist())
    assert len(set(found[0])) == len(set(found[1])) == len(set(zip(*found, strict=True))) == 3


@pytest.mark.parametrize(
    ("settings", "afresh"),
    [
        ({"joint_births": True}, 1),
        ({"joint_births": False}, 0),
        ({"joint_births": True, "joint_epochs": 0}, 0),
        ({"encoder": "identity"}, 4),  # few rows as they are: a search is soon stuck
        (
            {"encoder": "identity", "mixture": FitSettings(max_evidence=50.0)},
            0,
        ),  # that count for less: bounds are not alike
    ],
)
def test_a_first_data_set_is_searched_afresh_on_its_last_codes(rows, settings, afresh, monkeypatch):
    given = []
    monkeypatch.setattr(CodeSearch, "afresh", lambda self, fit, points, *_: given.append(points.zt.T) or fit)
    _, state = run(rows, **settings)
    assert len(given) == afresh
    for codes in given:
        inputs = state.view.inputs(state.view.values(torch.as_tensor(rows)))
        assert torch.equal(codes, encode_rows(state.vae, inputs)[0])


# Components become clusters.


def test_pieces_of_one_cluster_are_joined():
    """An even square needs several Gaussians, which share some of their edges; a far blob shares none."""
    rng = np.random.default_rng(9)
    rows = np.concatenate([rng.uniform(-10, 10, (500, 2)), rng.normal(size=(100, 2)) + 40])
    _, state = run(rows, encoder="identity", join=0.01)
    assert state.memory.n_components > 2
    found = state.assign(state.view.inputs(state.view.values(torch.as_tensor(rows))).double()).tolist()
    assert (state.n_clusters, set(found[:500]), set(found[500:])) == (2, {0}, {1})


def test_a_component_that_no_row_chooses_founds_no_cluster(monkeypatch):
    """One that has a third of every row is there when the search ends, and not when the data set does."""
    rows = gaussian_clusters(np.random.default_rng(0), (90, 60), 3, distance=14.0)[0]
    search = CodeSearch.__call__

    def spread_thinly(self, fit, points):
        fit = search(self, fit, points)
        fit.memory.add_components(1)
        third = torch.full((len(points), 1), 1 / 3)
        responsibilities = torch.cat([fit.responsibilities * 2 / 3, third], dim=1)
        fit.memory.refill([summarize(responsibilities.double().log(), points)])
        return replace(fit, responsibilities=responsibilities)

    monkeypatch.setattr(CodeSearch, "__call__", spread_thinly)
    _, state = run(rows, encoder="identity")
    assert state.memory.n_components == state.n_clusters == 2


# The trainer.


def make_trainer(rows, places=None, weight=0.0, augment=None, batch_size=50, vae=None):
    rows = torch.as_tensor(rows)
    view = fit_inputs(rows, "dense", None, False)
    values = view.values(rows)
    inputs = view.inputs(values)
    vae = make_vae(rows.shape[1]) if vae is None else vae
    data = TrainingRows.of(values, inputs, None, vae.shape.latent_dim)
    if places is not None:
        graph = build_graph(inputs, GraphSettings(n_neighbors=5), torch.Generator().manual_seed(0))
        data = replace(data, graph=graph, places=places)
    settings = TrainingSettings(batch_size=batch_size, neighbourhood=weight)
    return Trainer(view, vae, data, augment, settings, torch.Generator().manual_seed(1))


def made_places(rows):
    """Somewhere else for each of three clusters, and a little further for some of its rows."""
    rows = torch.as_tensor(rows, dtype=torch.float32)
    return torch.stack([rows[:, 0] - rows[:, 1], rows[:, 2]], dim=1) / 3


def test_an_epoch_visits_every_row_once(rows):
    seen = []

    def spy(batch, generator):
        seen.append(batch.clone())
        return batch

    trainer = make_trainer(rows, augment=spy, batch_size=64)
    trainer.epoch(lambda part: 1e-3)
    assert [len(batch) for batch in seen] == [64, 64, 64, 8]
    order = torch.cat(seen)
    torch.testing.assert_close(
        order[order[:, 0].argsort()], trainer.rows.values[trainer.rows.values[:, 0].argsort()], rtol=0, atol=0
    )
    assert not torch.equal(order, trainer.rows.values)


def test_terms_of_an_epoch_are_means_per_row(rows):
    """At rate 0 the networks stand still, so that the epoch reports what they make of the rows."""
    trainer = make_trainer(rows, batch_size=64)
    got = trainer.epoch(lambda part: 0.0)
    with torch.no_grad():
        vae = trainer.vae
        output = vae.decode(vae.encode_mean(trainer.rows.inputs))
        want = float(vae.likelihood.log_prob(output, trainer.rows.values).mean())
    assert got.reconstruction == pytest.approx(want, rel=1e-5)
    assert (got.log_prior, got.entropy, got.neighbourhood) == (0.0, 0.0, 0.0)
    assert got.rows_per_second > 0
    assert EpochTerms(1.0, 2.0, 4.0, 8.0).elbo == 7.0


def test_terms_under_a_mixture(rows):
    trainer = make_trainer(rows, batch_size=64)
    mixture = searched(*trainer.encode())
    got = trainer.epoch(lambda part: 0.0, mixture.frozen("cpu"))
    mean, var = trainer.encode()
    log_rho = log_joint(mixture.posterior, Points.from_rows(mean, var))
    assert got.log_prior == pytest.approx(float(torch.logsumexp(log_rho, 1).mean()), rel=1e-4)
    assert got.entropy == pytest.approx(float(entropy(var.log()).mean()), rel=1e-5)
    held = trainer.epoch(lambda part: 0.0, mixture.frozen("cpu"), mixture.responsibilities)
    r = mixture.responsibilities.double()
    want = (r * log_rho + torch.special.entr(r)).sum(1).mean()
    assert held.log_prior == pytest.approx(float(want), rel=1e-4)


def misplaced(trainer, places):
    """The mean of log(1 + squared distance) of codes from their places, by numpy."""
    away = trainer.encode()[0].numpy() - places.numpy()
    return float(np.log1p((away**2).sum(1)).mean())


def test_how_far_codes_are_from_their_places(rows):
    """Under a mixture rows are shown as they are; the term is reported without its weight."""
    places = made_places(rows)
    trainer = make_trainer(rows, places, weight=100.0)
    got = trainer.epoch(lambda part: 0.0, searched(*trainer.encode()).frozen("cpu"))
    assert got.neighbourhood == pytest.approx(misplaced(trainer, places), rel=1e-5)
    assert got.consistency == 0.0  # nothing is replayed


def test_the_encoder_reaches_the_places(rows):
    """With the weight, and without hardly; the decoder learns either way."""
    places = made_places(rows)
    found = {}
    for weight in (100.0, 1e-9):
        trainer = make_trainer(rows, places, weight)
        before = trainer.epoch(lambda part: 0.0).reconstruction
        for _ in range(60):
            last = trainer.epoch(lambda part: 1e-2)
        found[weight] = misplaced(trainer, places)
        assert last.reconstruction > before
    assert found[100.0] < 0.05 < 0.2 * found[1e-9]


def test_where_rows_have_places_the_decoder_does_not_move_codes(rows):
    trainer = make_trainer(rows, made_places(rows), weight=0.0)
    codes = trainer.encode()[0]
    decoder = [p.clone() for p in trainer.vae.decoder.parameters()]
    trainer.epoch(lambda part: 1e-2)
    assert torch.equal(trainer.encode()[0], codes)
    assert any(not torch.equal(p, q) for p, q in zip(trainer.vae.decoder.parameters(), decoder, strict=True))
    free = make_trainer(rows)
    free.epoch(lambda part: 1e-2)
    assert not torch.equal(free.encode()[0], codes)


def test_points_between_neighbours(rows, monkeypatch):
    """Values and places lie between a row's and a neighbour's; as large a part of the inputs is of either."""
    trainer = make_trainer(rows, made_places(rows), weight=1.0)
    data, drawn = trainer.rows, []
    draw = NeighbourGraph.draw

    def spy(graph, rows, generator):
        drawn.append((rows, draw(graph, rows, generator)))
        return drawn[-1][1]

    def seen_by(owner, name, which):
        """Collect what is given to a function of the trainer or of its networks."""
        given, function = [], getattr(owner, name)
        monkeypatch.setattr(owner, name, lambda *args: given.append(args[which]) or function(*args))
        return given

    monkeypatch.setattr(NeighbourGraph, "draw", spy)
    inputs, places = seen_by(trainer.vae, "encode_mean", 0), seen_by(trainer, "_misplaced", 3)
    values = seen_by(trainer.vae.likelihood, "log_prob", 1)
    trainer.epoch(lambda part: 0.0)
    assert sum(len(one) for one, _ in drawn) == len(rows)
    parts = []
    for (one, other), *shown in zip(drawn, values, inputs, places, strict=True):
        assert len(shown[0]) == -(-len(one) // DECODED_PART)  # of which the decoder learns
        assert bool((data.graph.neighbours[one] == other[:, None]).any(1).all())
        longest = (data.places[other] - data.places[one]).abs().argmax(1, keepdim=True)
        part = ((shown[2] - data.places[one]) / (data.places[other] - data.places[one])).gather(1, longest)
        for got, whole in ((shown[0], data.values), (shown[2], data.places)):
            want = whole[one] + part * (whole[other] - whole[one])
            torch.testing.assert_close(got, want[: len(got)], rtol=0, atol=1e-4)
        is_other = shown[1] == data.inputs[other]
        assert bool((is_other | (shown[1] == data.inputs[one])).all())
        parts.append(torch.stack([part[:, 0], is_other.double().mean(1)]))
    part, crossed = torch.cat(parts, dim=1).numpy()
    assert stats.kstest(part, "uniform").pvalue > 1e-3
    assert np.corrcoef(part, crossed)[0, 1] > 0.5  # of few inputs
    assert crossed.mean() == pytest.approx(part.mean(), abs=0.05)


def test_replayed_rows_are_drawn_anew_each_epoch(rows, monkeypatch):
    """The encoder sees those of the epoch, at their own places; the decoder those that were drawn first."""
    trainer = make_trainer(rows, made_places(rows), weight=1.0)
    n_replayed = 20
    first = trainer.rows
    data = replace(first, kept_codes=torch.zeros(n_replayed, 2))
    assert data.n_present == len(rows) - n_replayed
    draws = []

    def redraw():
        inputs = torch.full((n_replayed, first.inputs.shape[1]), 100.0 + len(draws))
        draws.append(inputs)
        return Replay(inputs, inputs[:, :0], torch.full((n_replayed, 2), 7.0), torch.zeros(n_replayed), False)

    trainer.rows = replace(data, redraw=redraw)
    seen, codes, encode, decode = [], [], trainer.vae.encode_mean, trainer.vae.decode
    monkeypatch.setattr(trainer.vae, "encode_mean", lambda inputs: seen.append(inputs) or encode(inputs))
    monkeypatch.setattr(trainer.vae, "decode", lambda given: codes.append(given) or decode(given))
    for epoch in range(2):
        seen.clear()
        trainer.epoch(lambda part: 0.0)
        shown = torch.cat(seen)
        assert int((shown == 100.0 + epoch).all(1).sum()) == n_replayed
    assert len(draws) == 2
    assert 0 < int((torch.cat(codes) == 0.0).all(1).sum()) <= 2 * n_replayed


def test_each_batch_has_its_share_of_replayed_rows(rows):
    trainer = make_trainer(rows, made_places(rows), weight=1.0)
    trainer.rows = replace(trainer.rows, kept_codes=torch.zeros(120, 2))
    n_present = trainer.rows.n_present
    shares, seen = [], []
    for batch, n_here in trainer._batches(trainer.order):
        assert bool((batch[:n_here] < n_present).all() & (batch[n_here:] >= n_present).all())
        shares.append(len(batch) - n_here)
        seen.append(batch)
    assert max(shares) - min(shares) <= 1
    assert torch.cat(seen).sort().values.tolist() == list(range(len(rows)))


@pytest.mark.parametrize(
    ("settings", "laid_out"),
    [
        ({"neighbourhood": 1.0}, True),
        ({"neighbourhood": 0.0, "join": 0.1}, False),
        ({"neighbourhood": 1.0, "epochs": 0}, False),
    ],
)
def test_rows_have_places_if_the_networks_are_trained_by_them(rows, settings, laid_out, monkeypatch):
    given = []
    made = Trainer.__init__
    monkeypatch.setattr(Trainer, "__init__", lambda self, *all: given.append(all) or made(self, *all))
    run(rows, joint_epochs=1, **settings)
    ((_, _, data, *_),) = given
    assert (data.places is not None) == laid_out
    if laid_out:
        assert data.places.shape == (len(rows), 2)


def test_learning_rate_follows_the_epoch(rows):
    asked = []

    def rate(part):
        asked.append(part)
        return 1e-3

    make_trainer(rows, batch_size=50).epoch(rate)
    assert asked == [0.0, 0.25, 0.5, 0.75]
    assert [decayed(2.0, part) for part in (0.0, 0.5, 0.75, 0.95, 1.0)] == pytest.approx(
        [2.0, 2.0, 1.0, 0.2, 0.2]
    )


def test_not_finite_names_the_term(rows):
    trainer = make_trainer(rows)
    frozen = FrozenMixture(torch.full((2, 2), np.nan), torch.zeros(1, 2), torch.ones(1, 2), torch.zeros(1))
    before = [p.clone() for p in trainer.vae.parameters()]
    with pytest.raises(NumericalError, match=r"\(log_prior term, step 0"):
        trainer.epoch(lambda part: 1e-3, frozen)
    for now, then in zip(trainer.vae.parameters(), before, strict=True):
        assert torch.equal(now, then)  # no step was taken on it


# Answers about rows.


def test_chunks_change_nothing(rows):
    vae = make_vae(6)
    many = torch.as_tensor(np.tile(rows, (13, 1)), dtype=torch.float32)
    assert len(many) > 2 * CHUNK_ROWS
    mean, var = encode_rows(vae, many)
    assert mean.dtype == var.dtype == torch.float64
    with torch.no_grad():
        want, log_var = vae.encode(many)
    torch.testing.assert_close(mean, want.double(), rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(var, log_var.exp().double(), rtol=1e-5, atol=1e-6)
    assert torch.equal(encode_rows(vae, many[-1:])[0][0], mean[-1])
    with torch.no_grad():
        torch.testing.assert_close(
            decode_codes(vae, mean), vae.likelihood.mean(vae.decode(want)), rtol=1e-5, atol=1e-6
        )
    assert padded(many[:3]).shape == (CHUNK_ROWS, 6)
    assert float(padded(many[:3])[3:].abs().sum()) == 0.0


def test_row_bounds_are_means_over_draws_in_pairs(rows):
    """For a linear decoder draws of opposite sign cancel in first order; by hand with the same draws."""
    _, state = run(rows)
    view, vae = state.view, state.vae
    values = view.values(torch.as_tensor(rows))
    frozen = FrozenMixture.of(state.posterior)
    got = row_bounds(vae, frozen, values, view.inputs(values), 5)
    half = torch.randn(2, 2, generator=torch.Generator().manual_seed(5))
    with torch.no_grad():
        mean, log_var = vae.encode(view.inputs(values))
        log_lik = torch.stack(
            [
                vae.likelihood.log_prob(vae.decode(mean + (0.5 * log_var).exp() * noise), values)
                for noise in (half[0], half[1], -half[0], -half[1])
            ]
        ).mean(0)
        log_rho = log_joint(state.posterior, Points.from_rows(mean, log_var.exp()))
        want = log_lik.double() + torch.logsumexp(log_rho, 1) + entropy(log_var).double()
    torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-4)
    other = row_bounds(vae, frozen, values, view.inputs(values), 6)
    assert not torch.equal(got, other)


# Clusters of several components.


def grouped(state, cluster_of):
    return replace(state, owner=dict(zip(state.memory.ids, cluster_of, strict=True)))


def test_probability_of_a_cluster_is_the_sum_over_its_components(rows):
    _, state = run(rows, encoder="identity")
    K = state.posterior.n_components
    assert K >= 3
    codes = torch.as_tensor(rows)
    of_components = local_step(state.posterior, Points.from_rows(codes)).exp()
    cluster_of = [0, 1] + [0] * (K - 2)
    got = grouped(state, cluster_of)
    assert got.n_clusters == 2
    want = torch.stack([1 - of_components[:, 1], of_components[:, 1]], 1)
    torch.testing.assert_close(got.log_proba(codes).exp(), want, rtol=1e-9, atol=1e-12)


def test_join_makes_fewer_clusters(rows):
    """At a threshold that every pair reaches there is one cluster; at none, one per component."""
    all_apart = run(rows, encoder="identity")[1]
    assert all_apart.cluster_of.tolist() == list(range(all_apart.posterior.n_components))
    lines = np.random.default_rng(3).uniform(-1, 1, (300, 1)) * [[1.0, 0.5]] * 10
    lines += 0.1 * np.random.default_rng(4).normal(size=lines.shape)
    history, state = run(lines, encoder="identity", join=1e-6, mixture=FitSettings(max_evidence=1e9))
    assert state.posterior.n_components > 1
    assert state.n_clusters == history[-1].n_clusters == 1


# Settings.


def test_epochs_for():
    """The figures of the docstring."""
    assert epochs_for(56_000, 512, 10, 150) == 40
    assert epochs_for(7_400, 512, 10, 150) == pytest.approx(100, abs=5)
    assert epochs_for(10, 256, 10, 150) == 150
    assert epochs_for(250_000, 256, 10, 150) == 17
    assert epochs_for(250_000, 256, 20, 150) == 20
    # More rows ask for no more steps: as many epochs of 250,000 rows.
    assert epochs_for(1_000_000, 256, 10, 150) == 5
    assert epochs_for(1_000_000, 256, 40, 150) == 10
    assert epochs_for(10_000_000, 256, 10, 150) == 1


def test_recipes_are_complete():
    for objective in ("default", "paper"):
        for kind in ("images", "dense", "sparse"):
            assert (objective, kind) in RECIPES
    paper = RECIPES["paper", "images"]
    assert paper.settings.training.neighbourhood == paper.settings.graph.join == 0.0
    assert not paper.front_end
    assert paper.hidden_dims == (500, 500, 2000)


def test_the_search_starts_from_what_rows_were_held(monkeypatch):
    """The start given to the mixture is the summary of the new codes under the old responsibilities."""
    z = torch.tensor(gaussian_clusters(np.random.default_rng(5), (50, 40), 2)[0])
    search = CodeSearch(FitSettings(), torch.Generator().manual_seed(0))
    mixture = search(nothing(2), Points.from_rows(z))
    starts = []

    original = codes_module.fit_data_set

    def spy(memory, points, settings, generator, start):
        starts.append(start)
        return original(memory, points, settings, generator, start)

    monkeypatch.setattr(codes_module, "fit_data_set", spy)
    held = mixture.responsibilities.double()
    search(mixture, Points.from_rows(2 * z))
    want = summarize(held.log(), Points.from_rows(2 * z))
    torch.testing.assert_close(starts[0].sum_z, want.sum_z)
    torch.testing.assert_close(starts[0].counts, want.counts)


def one_of_each(seed, n_rows=400):
    """Rows of twelve choices of five, as counts: no row is between two values."""
    rng = np.random.default_rng(seed)
    likely = np.random.default_rng(0).dirichlet(np.full(5, 0.5), size=12)
    values = np.stack([rng.choice(5, size=n_rows, p=p) for p in likely], axis=1)
    return 2 * np.eye(5)[values].reshape(n_rows, -1)


def test_rows_that_look_like_no_gaussian_are_not_new_for_ever(monkeypatch):
    """Drawn rows lie between the values: among them whatever comes keeps to itself."""
    told = []
    for believed in (False, True):
        if believed:
            monkeypatch.setattr(module, "_alone_usually", lambda *_: 0.0)
        model = DBULL(kind="dense", random_state=0, epochs=5, join=0.1).fit(one_of_each(1))
        told.append((model.state_.alone_usually, model.partial_fit(one_of_each(2)).report_.novel_share))
    assert told[0][0] > module.TELLING
    assert told[0][1] < 0.15
    assert told[1][1] > 0.4


def test_rows_like_gaussians_let_the_graph_tell():
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(300, 12)) + 8 * rng.integers(2, size=300)[:, None]
    assert DBULL(random_state=0, epochs=5).fit(rows).state_.alone_usually < 0.3


@pytest.mark.parametrize(("usually", "told"), [(0.0, True), (0.3, True), (0.9, False)])
def test_where_most_rows_keep_to_themselves_the_graph_is_not_asked(usually, told, monkeypatch):
    rows = np.random.default_rng(0).normal(size=(200, 12))
    model = DBULL(random_state=0, epochs=3).fit(rows[:100])
    monkeypatch.setattr(module, "alone_share", lambda *_: 0.98)
    model.state_.alone_usually = usually
    assert (model.partial_fit(rows[100:]).report_.novel_share > 0.4) == told


def test_a_few_are_asked_among_all(monkeypatch):
    """How alone rows are depends on how many of their kind there are."""
    shares = []
    for n_asked in (60, 600):
        monkeypatch.setattr(module, "PROBED", n_asked)
        model = DBULL(kind="dense", random_state=0, epochs=5).fit(one_of_each(1, 600))
        shares.append(model.state_.alone_usually)
    assert shares[0] == pytest.approx(shares[1], abs=0.15)
    assert shares[1] > module.TELLING
