"""Stick-breaking formulas against scipy and sampling."""

import math

import numpy as np
import pytest
import torch
from scipy import integrate, special, stats

from dbull.probability import stick_breaking as sb

F64 = torch.float64


@pytest.fixture(scope="module")
def sticks():
    return sb.StickBreaking(
        torch.tensor([3.5, 1.2, 8.0, 1.0], dtype=F64), torch.tensor([6.0, 9.5, 1.4, 0.7], dtype=F64)
    )


@pytest.fixture(scope="module")
def draws(sticks):
    """20,000 draws of the sticks and of the weights they break into."""
    rng = np.random.default_rng(0)
    v = rng.beta(sticks.on.numpy(), sticks.off.numpy(), size=(20_000, 4))
    weights = np.empty_like(v)
    left = np.ones(len(v))
    for k in range(4):
        weights[:, k] = left * v[:, k]
        left = left * (1 - v[:, k])
    return v, weights


def assert_mean(values, expected):
    error = values.std(0, ddof=1) / math.sqrt(len(values))
    assert np.all(np.abs(values.mean(0) - expected.numpy()) <= 5 * error)


def test_expected_log_weights(sticks, draws):
    _, weights = draws
    assert_mean(np.log(weights), sb.expected_log_weights(sticks))


def test_expected_log_sticks(sticks, draws):
    v, _ = draws
    log_on, log_off = sb.expected_log_sticks(sticks)
    assert_mean(np.log(v), log_on)
    assert_mean(np.log1p(-v), log_off)


def test_mean_weights(sticks, draws):
    """Independent sticks: the mean of a product is the product of means, and less than one in all."""
    _, weights = draws
    mean = sb.mean_weights(sticks)
    assert_mean(weights, mean)
    assert float(mean.sum()) == pytest.approx(1 - np.prod(1 - (sticks.on / (sticks.on + sticks.off)).numpy()))
    assert float(mean.sum()) < 1


def test_log_beta_function(sticks):
    expected = special.betaln(sticks.on.numpy(), sticks.off.numpy())
    np.testing.assert_allclose(sb.log_beta_function(sticks.on, sticks.off).numpy(), expected, rtol=1e-12)


@pytest.mark.parametrize("concentration", [0.3, 1.0, 5.0])
def test_kl_to_prior_by_integration(sticks, concentration):
    got = sb.kl_to_prior(sticks, concentration)
    prior = stats.beta(1.0, concentration)
    for k in range(4):
        q = stats.beta(float(sticks.on[k]), float(sticks.off[k]))
        # -E_q log p by integration, E_q log q = -entropy from scipy.
        cross, _ = integrate.quad(lambda v, q=q: -q.pdf(v) * prior.logpdf(v), 0, 1, limit=200)
        expected = cross - q.entropy()
        assert float(got[k]) == pytest.approx(expected, rel=1e-5, abs=1e-7)
        assert float(got[k]) > 0


def test_kl_to_prior_is_zero_for_an_unused_stick():
    """Under nested truncation a stick at its prior costs nothing, so K may be compared with K + 1."""
    unused = sb.StickBreaking(torch.ones(1, dtype=F64), torch.full((1,), 2.5, dtype=F64))
    assert float(sb.kl_to_prior(unused, 2.5)) == pytest.approx(0.0, abs=1e-14)
