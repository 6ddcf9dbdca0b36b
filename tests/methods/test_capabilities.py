"""Each claim of the table of capabilities, shown on data; and that what is not claimed is not there."""

import copy

import numpy as np
import pytest
import torch
from sklearn.metrics import homogeneity_score

from dbull.methods.competitors.curl import CURL
from dbull.methods.competitors.dec import DEC
from dbull.methods.competitors.vade import VaDE
from dbull.methods.competitors.vae_dp import VAEDP
from dbull.methods.dbull import DBULL

QUICK = {"random_state": 0, "hidden_dims": (32,), "latent_dim": 3, "epochs": 30, "learning_rate": 5e-3}
STREAM = {**QUICK, "joint_epochs": 40}
METHODS = {
    "dbull": DBULL(**QUICK, encoder="mlp"),
    "dec": DEC(3, **QUICK, joint_epochs=5),
    "vade": VaDE(3, **QUICK, joint_epochs=5),
    "vae-dp": VAEDP(**QUICK),
    "curl-f": CURL(4, **STREAM),
    "curl-d": CURL(**STREAM, wait_steps=20, buffer_rows=40),
}


def kinds(which, n_rows, seed):
    """Rows of some of four kinds, well apart in 12 dimensions, and which each is of."""
    centres = 4.0 * np.random.default_rng(0).normal(size=(4, 12))
    rng = np.random.default_rng(seed)
    labels = rng.choice(which, n_rows)
    return centres[labels] + rng.normal(size=(n_rows, 12)), labels


OLD, OLD_KINDS = kinds([0, 1], 200, 1)
NEW = kinds([2, 3], 200, 2)[0]


@pytest.fixture(scope="module", params=METHODS)
def learned(request):
    """A method after two kinds, and after four: by `partial_fit` of the new ones, else anew from all rows."""
    before = copy.deepcopy(METHODS[request.param]).fit(OLD)
    if hasattr(before, "partial_fit"):
        return before, copy.deepcopy(before).partial_fit(NEW)
    return before, copy.deepcopy(before).fit(np.concatenate([OLD, NEW]))


def test_codes_are_learned(learned):
    """They are narrower than the rows, follow the data, and tell the kinds apart by a line."""
    before, after = learned
    assert before.capabilities.learns_representation
    assert before.transform(OLD).shape == (200, 3)
    assert np.abs(before.transform(OLD) - after.transform(OLD)).max() > 1e-3
    rows, labels = kinds([0, 1], 200, 9)
    codes = before.transform(rows)
    apart = codes[labels == 0].mean(0) - codes[labels == 1].mean(0)
    side = (codes - codes.mean(0)) @ apart > 0
    assert max((side == (labels == 0)).mean(), (side == (labels == 1)).mean()) > 0.95


def test_number_of_clusters_is_found_or_told(learned):
    """Found: two kinds of rows and four, each learned at once, get numbers of their own. Told: the same."""
    before, after = learned
    if hasattr(before, "partial_fit"):
        after = copy.deepcopy(before).fit(np.concatenate([OLD, NEW]))
    assert before.capabilities.learns_k == (before.n_clusters_ != after.n_clusters_)
    if not before.capabilities.learns_k:
        assert before.n_clusters_ == before.n_clusters


def test_expansion(learned):
    """New kinds bring clusters exactly where that is claimed."""
    before, after = learned
    assert before.capabilities.expands == (after.n_clusters_ > before.n_clusters_)


def level(model):
    """The mean bound of the old rows, without noise."""
    inputs = model._inputs(torch.from_numpy(OLD))
    with torch.no_grad():
        return float(
            model._network.bounds(inputs, inputs, torch.zeros(len(OLD), model.n_clusters_, 3)).mean()
        )


def test_forgetting_is_overcome_or_old_rows_are_needed(learned):
    """Claimed: the next data set is learned without the rows of the first, and these are still known.

    Their kinds are as well apart as before, and their bound falls by less than half of what it falls by
    without the claim. Components may change places: CURL promises no more (docs/competitors.md).
    """
    before, after = learned
    assert before.capabilities.remembers == hasattr(before, "partial_fit")
    if isinstance(before, DBULL):  # promises more: not only is a kind known, it keeps its id
        assert (before.predict(OLD) == after.predict(OLD)).mean() > 0.98
    elif before.capabilities.remembers:
        without = copy.deepcopy(before).set_params(replay=False).partial_fit(NEW)
        apart = [homogeneity_score(OLD_KINDS, model.predict(OLD)) for model in (before, after)]
        assert apart[1] > apart[0] - 0.1
        assert level(before) - level(after) < 0.5 * (level(before) - level(without))


def test_without_replay_nothing_is_claimed():
    assert not CURL(replay=False).capabilities.remembers
