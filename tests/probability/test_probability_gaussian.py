"""Diagonal Gaussians against scipy and against sums over many draws."""

import numpy as np
import pytest
import torch
from scipy import integrate, stats

from dbull.probability.gaussian import expected_log_density, kl, log_density


@pytest.fixture
def pair():
    """A diagonal Gaussian q and another one, three dimensions."""
    rng = np.random.default_rng(0)
    return [torch.from_numpy(rng.normal(size=3)) for _ in range(4)]


def test_density_is_that_of_scipy():
    rng = np.random.default_rng(1)
    z, means, log_vars = rng.normal(size=(5, 3)), rng.normal(size=(4, 3)), rng.normal(size=(4, 3))
    ours = log_density(torch.from_numpy(z)[:, None], torch.from_numpy(means), torch.from_numpy(log_vars))
    assert ours.shape == (5, 4)
    for k in range(4):
        theirs = stats.multivariate_normal(means[k], np.diag(np.exp(log_vars[k]))).logpdf(z)
        np.testing.assert_allclose(ours[:, k], theirs, rtol=1e-12)


def test_expectation_by_quadrature(pair):
    """Dimension by dimension, since both are products."""
    q_mean, q_log_var, mean, log_var = (t.numpy() for t in pair)
    expected, divergence = 0.0, 0.0
    for d in range(3):
        q = stats.norm(q_mean[d], np.exp(0.5 * q_log_var[d]))
        p = stats.norm(mean[d], np.exp(0.5 * log_var[d]))
        expected += integrate.quad(lambda z: q.pdf(z) * p.logpdf(z), -30, 30, limit=200)[0]  # noqa: B023
        divergence += integrate.quad(lambda z: q.pdf(z) * (q.logpdf(z) - p.logpdf(z)), -30, 30, limit=200)[0]  # noqa: B023
    assert float(expected_log_density(*pair)) == pytest.approx(expected, rel=1e-7)
    assert float(kl(*pair)) == pytest.approx(divergence, rel=1e-7)


def test_divergence_is_zero_from_itself_alone(pair):
    q_mean, q_log_var, mean, log_var = pair
    assert float(kl(q_mean, q_log_var, q_mean, q_log_var)) == pytest.approx(0.0, abs=1e-12)
    assert float(kl(q_mean, q_log_var, mean, log_var)) > 0
