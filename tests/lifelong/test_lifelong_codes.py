"""The mixture on the codes: it is searched afresh if it is stuck, and components that no row chooses go."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from dbull.lifelong.codes import CodeMixture, CodeSearch
from dbull.mixture.memory import StatsMemory
from dbull.mixture.posterior import global_step
from dbull.mixture.prior import adapted_prior
from dbull.mixture.settings import FitSettings, SearchSettings
from dbull.mixture.updates import Points, summarize
from learning import nothing, searched
from synthetic import gaussian_clusters


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


@pytest.fixture
def codes():
    rows, _ = gaussian_clusters(np.random.default_rng(0), (90, 60), 3, distance=14.0)
    return torch.tensor(rows)


@pytest.fixture
def points(codes):
    return Points.from_rows(codes)


@pytest.fixture
def fit(codes):
    found = searched(codes)
    assert found.memory.n_components == 2
    return found


def spread_thinly(fit, points, established):
    """Add a component that has a third of every row and is the first choice of none."""
    memory = fit.memory.coarse()
    memory.add_components(1)
    memory.established[-1] = established
    third = torch.full((len(points), 1), 1 / 3)
    responsibilities = torch.cat([fit.responsibilities * 2 / 3, third], dim=1)
    memory.refill([summarize(responsibilities.double().log(), points)])
    return replace(fit, memory=memory, responsibilities=responsibilities)


def test_nothing_happens_where_all_are_chosen(fit, points):
    assert fit.without_unchosen(points) is fit


def test_a_newborn_that_no_row_chooses_goes(fit, points):
    after = spread_thinly(fit, points, established=False).without_unchosen(points)
    assert after.memory.ids == fit.memory.ids
    assert torch.equal(after.labels, fit.labels)
    assert torch.allclose(after.responsibilities.sum(1), torch.ones(len(points)))
    torch.testing.assert_close(after.memory.total.counts, fit.memory.total.counts, rtol=1e-5, atol=1e-5)
    means = after.posterior.components.mean, fit.posterior.components.mean
    torch.testing.assert_close(*means, rtol=1e-4, atol=1e-4)


def test_places_follow(fit, points):
    """The component that goes is not the last one."""
    thin = spread_thinly(fit, points, established=False)
    order = torch.tensor([2, 0, 1])
    memory = thin.memory.coarse()
    memory.select(order)
    moved = replace(
        thin, memory=memory, responsibilities=thin.responsibilities[:, order], labels=thin.labels + 1
    )
    assert torch.equal(moved.without_unchosen(points).labels, fit.labels)


def test_the_past_stays_though_no_row_chooses_it(fit, points):
    thin = spread_thinly(fit, points, established=True)
    assert thin.without_unchosen(points).memory.n_components == 3


def between_three(spread, established=False):
    """Return three tight clusters, a component of a few rows around all of them, and their mixture."""
    generator = seeded(5)
    centres = torch.tensor([[0.0, 0.0], [20.0, 0.0], [0.0, 20.0]]).repeat_interleave(100, dim=0)
    tight = centres + torch.randn(300, 2, generator=generator)
    around = torch.tensor([7.0, 7.0]) + spread * torch.randn(30, 2, generator=generator)
    points = Points.from_rows(torch.cat([tight, around]).double())
    labels = torch.arange(4).repeat_interleave(100)[:330]
    resp = torch.nn.functional.one_hot(labels, 4).float()
    memory = StatsMemory.empty(2)
    memory.add_components(4)
    memory.established[-1] = established
    memory.refill([summarize(resp.double().log(), points)])
    prior = adapted_prior(memory.total)
    posterior = global_step(prior, memory.total)
    return CodeMixture(memory, prior, posterior, 0.0, labels, resp), points


def test_what_lies_thinly_between_clusters_goes_to_them():
    fit, points = between_three(spread=12.0)
    after = fit.without_thin(points)
    assert after.memory.n_components == 3
    assert torch.equal(after.labels[:300], fit.labels[:300])
    assert torch.allclose(after.responsibilities.sum(1), torch.ones(330))
    nearest = torch.cdist(points.zt.T[300:], after.posterior.components.mean).argmin(1)
    assert (after.labels[300:] == nearest).double().mean() > 0.8
    assert float(after.memory.total.counts.sum()) == pytest.approx(330)


def test_a_small_cluster_that_is_as_dense_stays():
    fit, points = between_three(spread=1.0)
    assert fit.without_thin(points) is fit


def test_the_past_may_lie_thinly():
    fit, points = between_three(spread=12.0, established=True)
    assert fit.without_thin(points) is fit


def test_a_search_changes_nothing_that_it_was_given(fit, points):
    """What was found before stays whole, whatever is found from it."""
    ids, counts = fit.memory.ids, fit.memory.total.counts.clone()
    batches = list(fit.memory.batches)
    moved = Points.from_rows(points.zt.T.flip(0) + 1.0)
    after = CodeSearch(FitSettings(), seeded(3))(fit, moved)
    assert after.memory is not fit.memory
    assert (fit.memory.ids, fit.memory.batches) == (ids, batches)
    assert torch.equal(fit.memory.total.counts, counts)
    assert after.changed_share == float((after.holders != fit.holders).double().mean())


def test_what_is_stuck_is_found_afresh(fit, points, codes):
    stuck = searched(codes, seed=0, births=False)
    assert stuck.memory.n_components == 1
    search = CodeSearch(FitSettings(), seeded(0))
    assert search.afresh(stuck, points, least_gain=10.0) is stuck, "not enough of a gain"
    found = search.afresh(stuck, points, least_gain=0.0)
    assert found.bound > stuck.bound
    assert torch.equal(found.labels, fit.labels)
    assert torch.equal(found.responsibilities, fit.responsibilities)
    assert torch.equal(found.memory.total.sum_zz, fit.memory.total.sum_zz)
    assert search(found, points).memory.n_components == 2  # and it can go on from there


def test_what_is_better_stays(fit, points):
    """Afresh nothing is found where births are off; the generator of the search is not touched."""
    search = CodeSearch(FitSettings(search=SearchSettings(fresh_sizes=())), seeded(0))
    numbers = search.generator.get_state()
    assert search.afresh(fit, points, least_gain=0.0) is fit
    assert torch.equal(search.generator.get_state(), numbers)


def test_before_any_row_the_past_is_as_it_was(fit, points):
    memory = fit.memory.coarse()
    memory.fold()
    before = type(fit).of_past(memory, fit.prior)
    assert (len(before.labels), before.responsibilities.shape) == (0, (0, 2))
    expected = global_step(fit.prior, memory.total)
    assert torch.equal(before.posterior.components.mean, expected.components.mean)
    assert len(nothing(3).memory.ids) == 0


def test_two_that_were_searched_apart_become_one(fit, points, codes):
    """Components and rows of the second stand behind; newborns keep ids of their own."""
    far = searched(codes + 1000.0)
    both = fit.joined(far)
    assert both.memory.ids == (0, 1, 2, 3)
    assert both.prior is fit.prior
    assert torch.equal(both.labels, torch.cat([fit.labels, far.labels + 2]))
    assert both.responsibilities.shape == (2 * len(codes), 4)
    counts = torch.cat([fit.memory.total.counts, far.memory.total.counts])
    assert torch.equal(both.memory.total.counts, counts)


def test_the_bound_is_that_of_the_evidence_that_may_speak(codes):
    """With less evidence it is a smaller number of nats."""
    capped = searched(codes, settings=FitSettings(max_evidence=75.0))
    free = searched(codes, settings=FitSettings(max_evidence=150.0))
    assert torch.equal(free.labels, capped.labels)
    assert capped.bound == pytest.approx(free.bound / 2, rel=0.1)


def test_copies_count_as_the_rows_that_they_copy(fit, codes):
    of = torch.tensor([3, 3, 100, 149, 3])
    points = Points.from_rows(torch.cat([codes, codes[of]]))
    after = fit.with_copies(of, points)
    assert torch.equal(after.labels[len(codes) :], fit.labels[of])
    torch.testing.assert_close(after.memory.total.counts.sum(), torch.tensor(155.0).double())
    counts, more = fit.memory.total.counts, fit.responsibilities[of].double().sum(0)
    torch.testing.assert_close(after.memory.total.counts, counts + more, rtol=1e-5, atol=1e-5)
    assert fit.with_copies(of[:0], Points.from_rows(codes)) is fit
