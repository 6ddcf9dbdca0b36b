"""Covariances held together by the prior, and fits that go on from given statistics."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dbull.mixture.memory import StatsMemory
from dbull.mixture.posterior import global_step
from dbull.mixture.prior import adapted_prior
from dbull.mixture.search import Search, fit_data_set
from dbull.mixture.settings import FitSettings
from dbull.mixture.updates import Points, local_step, summarize
from dbull.probability.normal_wishart import expected_covariance
from synthetic import gaussian_clusters


def hard_stats(z, labels, n_components):
    mask = torch.as_tensor(labels)[:, None] == torch.arange(n_components)
    log_resp = torch.where(mask, 0.0, -torch.inf).to(torch.float64)
    return summarize(log_resp, Points.from_rows(torch.as_tensor(z)))


def wide_and_narrow(seed=0, n_dims=3):
    """Two clusters of very different spread."""
    rng = np.random.default_rng(seed)
    z = np.concatenate([rng.normal(0, 1, (60, n_dims)), rng.normal(30, 5, (60, n_dims))])
    return z, np.repeat([0, 1], 60)


def run(memory, z, settings, start=None, seed=0):
    fitting = fit_data_set(
        memory, Points.from_rows(torch.as_tensor(z)), settings, torch.Generator().manual_seed(seed), start
    )
    steps = []
    while True:
        try:
            steps.append(next(fitting))
        except StopIteration as end:
            return steps, end.value


# The prior.


@given(seed=st.integers(0, 10_000), pooled_rows=st.floats(0.0, 1e5), n_dims=st.integers(1, 5))
@settings(max_examples=40)
def test_the_expected_covariance_is_that_without_pooling(seed, pooled_rows, n_dims):
    stats = hard_stats(*wide_and_narrow(seed, n_dims), 2)
    plain, pooled = adapted_prior(stats), adapted_prior(stats, 1.0, pooled_rows)
    torch.testing.assert_close(
        expected_covariance(pooled.base), expected_covariance(plain.base), rtol=1e-9, atol=1e-12
    )
    assert pooled.dof == pytest.approx(plain.dof + pooled_rows)
    assert pooled.mean_precision == plain.mean_precision
    torch.testing.assert_close(pooled.mean, plain.mean)


def test_no_pooled_rows_is_the_plain_prior():
    stats = hard_stats(*wide_and_narrow(), 2)
    plain, pooled = adapted_prior(stats), adapted_prior(stats, 1.0, 0.0)
    assert torch.equal(plain.scale_inv, pooled.scale_inv)
    assert plain.dof == pooled.dof


def test_pooling_brings_covariances_together():
    """The more rows the expectation counts for, the nearer; in the end they are all the expectation."""
    stats = hard_stats(*wide_and_narrow(), 2)
    ratios = []
    for pooled_rows in (0.0, 30.0, 300.0, 1e6):
        prior = adapted_prior(stats, 1.0, pooled_rows)
        narrow, wide = expected_covariance(global_step(prior, stats).components)
        ratios.append(float(torch.logdet(wide) - torch.logdet(narrow)))
    assert ratios == sorted(ratios, reverse=True)
    assert ratios[0] > 5.0
    assert ratios[-1] < 0.05


def test_pooled_rows_are_rows():
    """A component of N rows lies between its own and the expected covariance as N to pooled_rows."""
    z, labels = wide_and_narrow()
    stats = hard_stats(z, labels, 2)
    prior = adapted_prior(stats, 1.0, 60.0)
    expected = expected_covariance(prior.base)[0].numpy()
    got = expected_covariance(global_step(prior, stats).components)[1].numpy()
    own = np.cov(z[labels == 1].T, bias=True)
    np.testing.assert_allclose(np.diag(got), np.diag(0.5 * (own + expected)), rtol=0.1)


# The settings.


def test_pooled_share_is_a_part_of_the_evidence():
    s = FitSettings(pooling=0.1, max_evidence=500.0)
    assert s.pooled_rows(200, 3) == pytest.approx(20.0)
    assert s.pooled_rows(5000, 3) == pytest.approx(50.0)  # 5000 rows count as 500
    assert FitSettings().pooled_rows(5000, 3) == 0.0


def test_pooled_fit_at_full_weight():
    """When all observations count in full again, so does the expectation: as a share of all rows."""
    z = gaussian_clusters(np.random.default_rng(1), (300, 200, 100), 2)[0]
    memory = StatsMemory.empty(2)
    _, fitted = run(memory, z, FitSettings(pooling=0.1, max_evidence=200.0))
    assert fitted.prior.dof == pytest.approx(2 + 2 + 0.1 * 600)
    assert float(memory.total.counts.sum()) == pytest.approx(600)


def test_pooled_fit_finds_clusters_and_evens_out_shapes():
    z, _ = wide_and_narrow(2, 2)
    spreads = {}
    for share in (0.0, 0.5):
        memory = StatsMemory.empty(2)
        _, fitted = run(memory, z, FitSettings(pooling=share))
        assert memory.n_components == 2
        dets = torch.logdet(expected_covariance(fitted.posterior.components))
        spreads[share] = float(dets.max() - dets.min())
    assert spreads[0.5] < spreads[0.0] - 0.5


def test_search_adapts_with_pooling():
    """A changed prior keeps the rows it counts for."""
    z = gaussian_clusters(np.random.default_rng(3), (80, 60), 2)[0]
    pooling = FitSettings(max_evidence=math.inf, pooling=25.0 / len(z))
    points = Points.from_rows(torch.tensor(z))
    search = Search(StatsMemory.empty(2), points, pooling, torch.Generator().manual_seed(0))
    steps = list(search.run())
    assert "adapt" in {step.kind for step in steps}
    assert search.model.prior.dof == pytest.approx(2 + 2 + 25.0)


# Going on from given statistics.


@pytest.fixture
def found():
    """Three clusters, and a memory that has found them."""
    z, labels = gaussian_clusters(np.random.default_rng(4), (90, 60, 50), 2)
    memory = StatsMemory.empty(2)
    run(memory, z, FitSettings())
    assert memory.n_components == 3
    return z, labels, memory


def test_start_goes_on_with_the_given_components(found):
    """All rows moved far away: with statistics of the new places every component keeps its rows and id."""
    z, _, memory = found
    posterior = global_step(adapted_prior(memory.total), memory.total)
    from_rows = Points.from_rows(torch.tensor(z))
    log_resp = local_step(posterior, from_rows)
    ids, counts = memory.ids, memory.total.counts.clone()
    moved = Points.from_rows(torch.tensor(z + 500.0))
    steps, fitted = run(memory, z + 500.0, FitSettings(), summarize(log_resp, moved))
    assert memory.ids == ids
    assert not any(step.move is not None and step.move.accepted for step in steps)
    torch.testing.assert_close(memory.total.counts, counts, rtol=1e-3, atol=1e-3)
    means = fitted.posterior.components.mean
    torch.testing.assert_close(means, memory.total.sum_z / counts[:, None], rtol=1e-2, atol=0.5)


def test_start_does_not_count_rows_twice(found):
    z, _, memory = found
    start = memory.total
    for _ in range(3):
        run(memory, z, FitSettings(), start)
        assert float(memory.total.counts.sum()) == pytest.approx(200)
        start = memory.total


def test_start_skips_the_sample():
    """With a start structure is known: the search begins on all rows at once, not on a sample of them."""
    z, labels = gaussian_clusters(np.random.default_rng(5), (120, 80), 2)
    memory = StatsMemory.empty(2)
    small = FitSettings(search_rows=50)
    steps, _ = run(memory, z, small)
    # A lap over a sample of 50 rows has a smaller bound in absolute value than one over 200.
    assert abs(steps[0].elbo) < 0.5 * abs(steps[-1].elbo)
    again, _ = run(memory, z, small, hard_stats(z, labels, 2) if memory.n_components == 2 else memory.total)
    assert abs(again[0].elbo) > 0.5 * abs(again[-1].elbo)


def test_a_wrong_start_is_repaired(found):
    """Statistics of random halves: the search still finds the clusters."""
    z, _, memory = found
    rng = np.random.default_rng(6)
    run(memory, z, FitSettings(), hard_stats(z, rng.integers(0, 3, len(z)), 3))
    assert memory.n_components == 3
    assert sorted(np.round(memory.total.counts.numpy()).tolist()) == [50, 60, 90]
