"""Rows that fit no cluster and are too few to found one wait for others like them."""

import numpy as np
import pytest
import torch

import dbull
from dbull import DBULL
from dbull.lifelong import learn as module
from dbull.lifelong.few_rows import MOST_ALONE, MOST_WAITING, FewRows

CENTRES = np.random.default_rng(4).normal(size=(4, 5)) * 6


def rows_of(kinds, seed):
    return CENTRES[kinds] + np.random.default_rng(seed).normal(size=(len(kinds), 5))


@pytest.fixture(scope="module")
def known():
    """Three kinds, well learned."""
    return DBULL(random_state=0).fit(rows_of(np.arange(600) % 3, 0))


def trickle(model, n_arrivals, per_arrival=3):
    """Learn small arrivals, each with a few rows of the fourth kind."""
    found = []
    for day in range(n_arrivals):
        kinds = np.concatenate([np.full(per_arrival, 3), np.arange(17) % 3])
        model.partial_fit(rows_of(kinds, 10 + day))
        found.append(model.n_clusters_)
    return found


@pytest.fixture(scope="module")
def found(known, tmp_path_factory):
    """The model, and after how many arrivals it knew the fourth kind; stored and read before that."""
    path = tmp_path_factory.mktemp("waiting") / "model"
    model = dbull.load(known.save(path).origin_.path)
    return model, trickle(model, 9)


def test_a_kind_that_comes_three_rows_at_a_time_is_found(found):
    model, n_clusters = found
    assert n_clusters[-1] == 4
    assert n_clusters[4] == 3, "fifteen rows are not enough"
    born = model.predict(rows_of(np.full(50, 3), 1))
    assert (born == 3).mean() > 0.95
    assert (model.predict(rows_of(np.arange(300) % 3, 2)) < 3).mean() > 0.98
    assert [event.clusters for event in model.events_ if event.kind == "birth"][-1] == (3,)
    waiting = model.state_.waiting
    assert waiting is None or waiting.n_rows < 10, "what was found waits no longer"


def test_without_waiting_it_would_not(known, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "FEW", 0)
    model = dbull.load(known.save(tmp_path / "model").origin_.path)
    assert set(trickle(model, 9)) == {3}


def test_a_row_is_told_once(found):
    """Rows that waited were reported when they came; what they found counts, and no row counts twice."""
    model, _ = found
    assert sum(one["rows"] for one in model.clusters_) == 600 + 9 * 20
    assert model.report_.n_rows == 20
    assert len(model.labels_) == 20
    assert model.state_.n_rows == 780
    assert float(model.state_.memory.overall.counts.sum()) <= 780 + 1e-6


def test_more_of_the_same_founds_nothing(known, tmp_path):
    model = dbull.load(known.save(tmp_path / "model").origin_.path)
    assert set(trickle(model, 12, per_arrival=0)) == {3}
    waiting = model.state_.waiting
    assert waiting is None or waiting.n_rows <= 20


def test_stored_while_rows_wait_it_goes_on_to_the_bit(known, tmp_path):
    through = dbull.load(known.save(tmp_path / "known").origin_.path)
    trickle(through, 2)
    assert through.state_.waiting.n_rows >= 4
    stopped = dbull.load(through.save(tmp_path / "model").origin_.path)
    assert torch.equal(through.state_.waiting.means, stopped.state_.waiting.means)
    assert trickle(through, 6) == trickle(stopped, 6)
    assert torch.equal(through.state_.memory.overall.sum_zz, stopped.state_.memory.overall.sum_zz)


def test_few_wait_and_the_oldest_go(known):
    rows = torch.from_numpy(rows_of(np.full(30, 3), 5))
    view = known.state_.view
    few = FewRows.none(rows)
    assert few.fitting(view) is None
    for _ in range(10):
        few = few.followed_by(rows).fitting(view)
        assert few.n_rows <= MOST_WAITING
        assert int((few.counts == 1).sum()) <= MOST_ALONE
    assert few.n_tried > 0, "what was forgotten was tried"


def test_a_huge_row_waits_and_harms_nothing(known, tmp_path):
    model = dbull.load(known.save(tmp_path / "model").origin_.path)
    for day in range(20):
        rows = rows_of(np.arange(10) % 3, 100 + day)
        rows[0] *= 10.0 ** (4 + day % 4)
        model.partial_fit(rows)
    assert (model.predict(rows_of(np.arange(300) % 3, 2)) < 3).mean() > 0.98
    assert bool(model.state_.memory.overall.sum_zz.isfinite().all())
