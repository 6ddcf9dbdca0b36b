"""The paper's objective on streams, corrected and as printed."""

from itertools import pairwise

import numpy as np
import pytest
import torch

from dbull import DBULL
from dbull.lifelong.learn import _joint_rate
from dbull.lifelong.settings import FULL_ROWS, RECIPES, evidence_for
from dbull.lifelong.training import Trainer
from dbull.methods.dbull_choices import choose, choose_again
from dbull.mixture.prior import paper_prior
from dbull.mixture.settings import default_evidence
from synthetic import gaussian_clusters

NETWORKS = {
    "objective": "paper",
    "random_state": 0,
    "encoder": "mlp",
    "hidden_dims": (32,),
    "latent_dim": 3,
    "epochs": 40,
    "batch_size": 64,
    "augment": None,
}


@pytest.fixture(scope="module")
def data():
    return gaussian_clusters(np.random.default_rng(0), (150, 150, 150, 150), 12, distance=14.0)


@pytest.fixture(scope="module")
def pair(data):
    """A model that knows two of the clusters."""
    X, y = data
    return DBULL(**NETWORKS).fit(X[y < 2])


def weights_of(model):
    return [part.clone() for part in model.state_.vae.state_dict().values()]


def stages(model):
    return [step.stage for step in model.history_]


# As printed.


def test_the_literal_settings_are_those_of_the_paper():
    X = np.random.default_rng(0).random((1000, 64), dtype=np.float32)
    model = DBULL(objective="paper-literal", image_shape=(8, 8), random_state=0)
    model.n_features_in_ = 64
    chosen = choose(model, torch.from_numpy(X))
    s = chosen.settings
    printed, prior = paper_prior(10), s.mixture.prior
    assert prior.mean_precision == printed.mean_precision == 0.2
    assert prior.dof == printed.dof == 12
    assert torch.equal(prior.scale_inv, torch.eye(10, dtype=torch.float64))
    assert torch.equal(prior.mean, torch.zeros(10, dtype=torch.float64))
    assert s.mixture.search.fresh_sizes == (10,)
    assert s.mixture.search.batch_rows == s.training.batch_size == 500
    assert s.mixture.max_evidence is None
    assert (s.past.replay, s.past.n_replay, s.past.per_cluster, s.past.carry) == (
        "decoded",
        100,
        False,
        False,
    )
    assert s.training.joint_learning_rate == pytest.approx(2e-4)
    assert chosen.state.vae.shape.likelihood == "gaussian-learned"
    assert chosen.state.vae.shape.hidden_dims == (500, 500, 2000)
    assert chosen.augment is None
    assert RECIPES["paper-literal", "dense"].settings.training.joint_learning_rate == pytest.approx(2e-3)
    assert choose_again(model, chosen.state, 60_000)[0].training.batch_size == 1500


def test_the_literal_rate_falls_by_a_tenth_each_epoch():
    s = RECIPES["paper-literal", "images"].settings.training
    rates = [_joint_rate(s, epoch, part, 8) for epoch in range(8) for part in (0.0, 0.9)]
    assert rates == pytest.approx([2e-4 * 0.9**epoch for epoch in range(8) for _ in (0, 1)])


def test_the_literal_objective_learns_a_stream(data):
    X, y = data
    model = DBULL(**{**NETWORKS, "objective": "paper-literal"})
    for label in (0, 1):
        model.partial_fit(X[y == label])
    assert float(model.state_.memory.total.counts.sum()) == pytest.approx(300, rel=1e-9)
    assert model.state_.calibrations == {}


# Corrected.


def test_evidence_grows_with_rows_up_to_the_usual():
    usual = default_evidence(10, 1)
    assert evidence_for(FULL_ROWS, 10, 0.6) == "auto"
    found = [evidence_for(n, 10, 0.6) for n in (100, 1000, 10_000, FULL_ROWS - 1)]
    assert found == sorted(found)
    assert found[-1] == pytest.approx(usual, rel=1e-4)
    assert found[2] / found[1] == pytest.approx(10**0.6)


def test_pretrained_networks_stay_as_they_are(data):
    X, y = data
    model = DBULL(**NETWORKS).pretrain(X)
    before = weights_of(model)
    model.partial_fit(X[y < 2]).partial_fit(X[y >= 2])
    assert all(torch.equal(a, b) for a, b in zip(before, weights_of(model), strict=True))
    assert model.n_clusters_ == 4


def test_pretrained_networks_that_go_on_are_not_trained_before_the_search(data):
    X, y = data
    model = DBULL(**NETWORKS, freeze=False).pretrain(X)
    model.partial_fit(X[y < 2])
    assert "represent" not in stages(model)
    assert "joint" in stages(model)


def test_bounds_tell_what_is_new(data, pair):
    """An arrival of known clusters is trained on briefly, one of new clusters before the search, too."""
    X, y = data
    model = pair.preview(X[y < 2]), pair.preview(X[y >= 2])
    assert model[0].novel_share < 0.1
    assert model[1].novel_share > 0.9
    assert len(model[1].born) >= 1


def test_what_is_usual_adds_up_and_is_stored(data, pair, tmp_path):
    import dbull

    X, y = data
    pair.save(tmp_path / "model")
    model = dbull.load(tmp_path / "model").partial_fit(X[y < 2])
    found = model.state_.calibrations
    assert sum(scale.n_rows for scale in found.values()) == 600
    ids = [int(i) for i in model.cluster_ids_[:2]]
    model.merge_clusters(ids)
    assert sum(scale.n_rows for scale in model.state_.calibrations.values()) == 600


def test_replayed_rows_are_drawn_anew_each_epoch(data, pair, monkeypatch):
    """The networks see others in each epoch, as many; those in memory stay."""
    X, y = data
    seen = []
    epoch = Trainer.epoch

    def watched(self, *given):
        seen.append(self.rows)
        return epoch(self, *given)

    monkeypatch.setattr(Trainer, "epoch", watched)
    pair.preview(X[y >= 2])
    present, replayed = seen[0].n_present, len(seen[0].kept_codes)
    assert present == 300
    assert replayed == 100 * pair.n_clusters_
    for before, after in pairwise(seen):
        assert torch.equal(before.inputs[:present], after.inputs[:present])
        assert before.inputs.shape == after.inputs.shape
        assert not torch.equal(before.inputs[present:], after.inputs[present:])
