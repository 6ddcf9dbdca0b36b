"""Likelihoods against scipy, their bounds, and their gradients."""

import math

import numpy as np
import pytest
import torch
from scipy import special, stats

from dbull.errors import SettingsError
from dbull.nets.likelihood import LIKELIHOODS, choose_likelihood, make_likelihood


@pytest.fixture
def rng():
    return np.random.default_rng(0)


def as_float(array):
    return torch.tensor(array, dtype=torch.float32)


def test_bernoulli_is_scipys(rng):
    logits, x = rng.normal(size=(7, 4)) * 3, rng.integers(0, 2, (7, 4))
    want = stats.bernoulli(special.expit(logits)).logpmf(x).sum(1)
    likelihood = make_likelihood("bernoulli")
    np.testing.assert_allclose(likelihood.log_prob(as_float(logits), as_float(x)), want, rtol=1e-5)
    np.testing.assert_allclose(likelihood.mean(as_float(logits)), special.expit(logits), rtol=1e-5)


def test_bernoulli_of_grey_values(rng):
    """Between 0 and 1 a value counts as so much of either."""
    logits, x = rng.normal(size=(7, 4)), rng.uniform(size=(7, 4))
    p = special.expit(logits)
    want = (x * np.log(p) + (1 - x) * np.log1p(-p)).sum(1)
    np.testing.assert_allclose(
        make_likelihood("bernoulli").log_prob(as_float(logits), as_float(x)), want, rtol=1e-5
    )


def test_bernoulli_of_extreme_logits_is_finite():
    got = make_likelihood("bernoulli").log_prob(torch.tensor([[1e4, -1e4]]), torch.tensor([[0.0, 1.0]]))
    assert got.tolist() == [-2e4]


@pytest.mark.parametrize(("name", "var"), [("gaussian", 1.0), ("gaussian-fixed", 0.5)])
def test_one_variance_is_scipys(rng, name, var):
    output, x = rng.normal(size=(7, 4)), rng.normal(size=(7, 4)) * 2
    likelihood = make_likelihood(name)
    got = likelihood.log_prob(as_float(output), as_float(x)).detach()
    np.testing.assert_allclose(got, stats.norm(output, math.sqrt(var)).logpdf(x).sum(1), rtol=1e-5)
    torch.testing.assert_close(likelihood.mean(as_float(output)), as_float(output))


def test_only_the_learned_variance_learns():
    assert make_likelihood("gaussian").log_var.requires_grad
    assert not make_likelihood("gaussian-fixed").log_var.requires_grad


def test_learned_variance_finds_that_of_the_data(rng):
    """Maximum likelihood of one variance is the mean square."""
    x = as_float(rng.normal(size=(500, 6)) * 0.3)
    likelihood = make_likelihood("gaussian")
    optimiser = torch.optim.Adam(likelihood.parameters(), lr=0.05)
    for _ in range(300):
        optimiser.zero_grad()
        (-likelihood.log_prob(torch.zeros_like(x), x).mean()).backward()
        optimiser.step()
    assert math.exp(float(likelihood.log_var.detach())) == pytest.approx(float(x.square().mean()), rel=0.02)


@pytest.mark.parametrize(("log_var", "used"), [(-50.0, -6.0), (50.0, 6.0), (-6.5, -6.0), (1.5, 1.5)])
def test_learned_variance_is_clamped(rng, log_var, used):
    x = as_float(rng.normal(size=(3, 4)))
    likelihood = make_likelihood("gaussian")
    with torch.no_grad():
        likelihood.log_var.fill_(log_var)
        got = likelihood.log_prob(torch.zeros_like(x), x)
    np.testing.assert_allclose(got, stats.norm(0, math.exp(used / 2)).logpdf(x).sum(1), rtol=1e-5)


def test_variance_per_value_is_scipys(rng):
    mean, log_var = rng.normal(size=(7, 4)), rng.uniform(-10, 10, (7, 4))
    x = mean + 0.1 * rng.normal(size=(7, 4))
    likelihood = make_likelihood("gaussian-learned")
    assert likelihood.n_outputs == 2
    output = as_float(np.concatenate([mean, log_var], 1))
    want = stats.norm(mean, np.exp(0.5 * log_var.clip(-6, 6))).logpdf(x).sum(1)
    np.testing.assert_allclose(likelihood.log_prob(output, as_float(x)), want, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(likelihood.mean(output), as_float(mean))


def test_clamps_bound_the_density():
    """Data that are constant and known exactly have no infinite density."""
    output = torch.cat([torch.zeros(1, 3), torch.full((1, 3), -1e9)], 1)
    got = float(make_likelihood("gaussian-learned").log_prob(output, torch.zeros(1, 3)))
    assert got == pytest.approx(3 * (3.0 - 0.5 * math.log(2 * math.pi)), rel=1e-6)


@pytest.mark.parametrize("name", LIKELIHOODS)
def test_gradients_by_differences(rng, name):
    likelihood = make_likelihood(name).double()
    output = torch.tensor(rng.normal(size=(2, 3 * likelihood.n_outputs)), requires_grad=True)
    x = torch.tensor(rng.uniform(size=(2, 3)))
    assert torch.autograd.gradcheck(lambda out: likelihood.log_prob(out, x), output)


@pytest.mark.parametrize("name", LIKELIHOODS)
def test_draws_have_the_moments_of_the_density(name):
    """Mean and variance of many draws of one row; those of the densities that scipy was compared with."""
    likelihood = make_likelihood(name)
    outputs = torch.tensor([[-1.5, 0.3, 2.0], [-3.0, 0.7, 9.0]])[: likelihood.n_outputs].flatten()[None]
    mean = likelihood.mean(outputs)[0].detach()
    var = {
        "bernoulli": mean * (1 - mean),
        "gaussian": torch.ones(3),
        "gaussian-fixed": torch.full((3,), 0.5),
        "gaussian-learned": torch.exp(torch.tensor([-3.0, 0.7, 6.0])),  # the last at its bound
    }[name]
    draws = likelihood.sample(outputs.expand(20_000, -1), torch.Generator().manual_seed(0))
    assert draws.shape == (20_000, 3)
    assert not draws.requires_grad
    assert bool(((draws.mean(0) - mean).abs() < 4 * (var / 20_000).sqrt()).all())
    torch.testing.assert_close(draws.var(0), var, rtol=0.06, atol=0)
    if name == "bernoulli":
        assert set(draws.unique().tolist()) == {0.0, 1.0}


def test_names():
    with pytest.raises(SettingsError, match="did you mean 'gaussian'"):
        make_likelihood("gausian")
    assert choose_likelihood(images=True) == "bernoulli"
    assert choose_likelihood(images=False) == "gaussian"
