"""The network objective against brute force: loops in numpy, densities of scipy, gradients by differences."""

import math

import numpy as np
import pytest
import torch
from scipy import special
from scipy import stats as scipy_stats

from dbull.lifelong.objective import FrozenMixture, RowTerms, entropy, row_terms
from dbull.mixture.posterior import global_step
from dbull.mixture.prior import MixturePrior
from dbull.mixture.stats import SufficientStats
from dbull.mixture.updates import Points, log_joint, summarize
from dbull.nets.vae import VAE, NetworkShape


def make_posterior(n_dims=3, n_components=4, seed=0):
    """The posterior of a mixture with nothing special about it."""
    rng = np.random.default_rng(seed)
    z = torch.tensor(rng.normal(size=(40, n_dims)) * 3)
    resp = torch.tensor(rng.dirichlet(np.full(n_components, 0.3), 40).clip(1e-9))
    root = rng.normal(size=(n_dims, n_dims + 2))
    prior = MixturePrior(
        1.7, torch.tensor(rng.normal(size=n_dims)), 0.4, n_dims + 2.5, torch.tensor(root @ root.T)
    )
    return global_step(prior, summarize(resp.log(), Points.from_rows(z)))


def make_vae(likelihood="gaussian", seed=0, n_values=5, latent_dim=3):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        vae = VAE(NetworkShape(n_values, n_values, latent_dim, "mlp", (7,), likelihood))
        torch.nn.init.normal_(vae.log_var_head.weight, std=0.3)  # variances that differ from row to row
    return vae


def expected_log_joint(posterior, mean, var):
    """log rho by loops: Bishop 10.46, with the trace of the encoder's variance; sticks by digamma."""
    c, sticks = posterior.components, posterior.sticks
    on, off = sticks.on.numpy(), sticks.off.numpy()
    D = c.n_dims
    log_rho = np.zeros((len(mean), posterior.n_components))
    left = 0.0
    for k in range(posterior.n_components):
        log_pi = special.digamma(on[k]) - special.digamma(on[k] + off[k]) + left
        left += special.digamma(off[k]) - special.digamma(on[k] + off[k])
        nu, beta = float(c.dof[k]), float(c.mean_precision[k])
        W = np.linalg.inv(c.scale_inv[k].numpy())
        log_det = sum(special.digamma((nu - i) / 2) for i in range(D)) + D * math.log(2)
        log_det += np.linalg.slogdet(W)[1]
        for n in range(len(mean)):
            off_mean = mean[n] - c.mean[k].numpy()
            square = nu * off_mean @ W @ off_mean + nu * np.trace(W @ np.diag(var[n])) + D / beta
            log_rho[n, k] = log_pi + 0.5 * (log_det - square - D * math.log(2 * math.pi))
    return log_rho


@pytest.fixture(scope="module")
def codes():
    rng = np.random.default_rng(1)
    return torch.tensor(rng.normal(size=(30, 3)) * 3), torch.tensor(rng.uniform(0.05, 2.0, (30, 3)))


# The frozen mixture.


@pytest.mark.parametrize("with_variance", [False, True], ids=["means", "variances"])
@pytest.mark.parametrize(("n_dims", "n_components"), [(1, 1), (3, 4), (6, 2)])
def test_log_joint_is_that_of_the_mixture(with_variance, n_dims, n_components):
    posterior = make_posterior(n_dims, n_components)
    rng = np.random.default_rng(2)
    mean = torch.tensor(rng.normal(size=(20, n_dims)) * 2)
    var = torch.tensor(rng.uniform(0.1, 1.0, (20, n_dims))) if with_variance else None
    got = FrozenMixture.of(posterior).log_joint(mean.float(), None if var is None else var.float())
    want = log_joint(posterior, Points.from_rows(mean, var))
    assert got.dtype == torch.float32
    torch.testing.assert_close(got.double(), want, rtol=2e-5, atol=2e-4)


def test_log_joint_by_loops(codes):
    posterior = make_posterior()
    mean, var = codes
    got = FrozenMixture.of(posterior).log_joint(mean.float(), var.float())
    want = expected_log_joint(posterior, mean.numpy(), var.numpy())
    np.testing.assert_allclose(got.double().numpy(), want, rtol=2e-5, atol=2e-4)


def test_log_joint_is_an_expectation_over_codes(codes):
    """The trace term is exact: the mean of log rho over many draws of the code."""
    posterior = make_posterior()
    mean, var = codes[0][:1], codes[1][:1]
    draws = mean + var.sqrt() * torch.randn(200_000, 3, generator=torch.Generator().manual_seed(0)).double()
    at_draws = log_joint(posterior, Points.from_rows(draws))
    got = FrozenMixture.of(posterior).log_joint(mean.float(), var.float())[0].double()
    error = at_draws.std(0) / math.sqrt(len(draws))
    assert bool(((got - at_draws.mean(0)).abs() < 5 * error + 1e-4).all())


def test_far_codes_stay_finite():
    got = FrozenMixture.of(make_posterior()).log_joint(torch.full((1, 3), 1e6), torch.ones(1, 3))
    assert bool(torch.isfinite(got).all())
    assert bool((got < -1e6).all())


# The terms.


def test_entropy_is_scipys(codes):
    var = codes[1]
    want = [scipy_stats.multivariate_normal(np.zeros(3), np.diag(v)).entropy() for v in var.numpy()]
    np.testing.assert_allclose(entropy(var.log()).numpy(), want, rtol=1e-12)


def test_terms_add_up():
    one, two, three = torch.tensor([1.0, 2.0]), torch.tensor([10.0, 20.0]), torch.tensor([100.0, 200.0])
    assert RowTerms(one, two, three).elbo.tolist() == [111.0, 222.0]


def setup_rows(likelihood="gaussian", n_rows=6, seed=3):
    rng = np.random.default_rng(seed)
    x = torch.tensor(rng.uniform(size=(n_rows, 5)), dtype=torch.float32)
    noise = torch.tensor(rng.normal(size=(n_rows, 3)), dtype=torch.float32)
    resp = torch.tensor(rng.dirichlet(np.ones(4), n_rows), dtype=torch.float32)
    return make_vae(likelihood), FrozenMixture.of(make_posterior()), x, noise, resp


@pytest.mark.parametrize("likelihood", ["gaussian", "gaussian-fixed", "gaussian-learned", "bernoulli"])
def test_terms_by_loops(likelihood):
    vae, frozen, x, noise, resp = setup_rows(likelihood)
    mean, log_var = (t.detach() for t in vae.encode(x))
    with torch.no_grad():
        got = row_terms(vae, frozen, x, (mean, log_var), noise, resp)
    mean_, var_, x_ = mean.double().numpy(), log_var.double().exp().numpy(), x.double().numpy()
    log_rho = expected_log_joint(make_posterior(), mean_, var_)
    for n in range(len(x)):
        z = mean_[n] + np.sqrt(var_[n]) * noise[n].double().numpy()
        output = vae.decode(torch.tensor(z, dtype=torch.float32)[None])[0].detach().double().numpy()
        if likelihood == "bernoulli":
            p = special.expit(output)
            log_lik = (x_[n] * np.log(p) + (1 - x_[n]) * np.log(1 - p)).sum()
        elif likelihood == "gaussian-learned":
            log_lik = scipy_stats.norm(output[:5], np.exp(0.5 * output[5:])).logpdf(x_[n]).sum()
        else:
            var = 0.5 if likelihood == "gaussian-fixed" else 1.0
            log_lik = scipy_stats.norm(output, math.sqrt(var)).logpdf(x_[n]).sum()
        r = resp[n].double().numpy()
        assert float(got.reconstruction[n]) == pytest.approx(log_lik, rel=1e-4)
        assert float(got.log_prior[n]) == pytest.approx((r * (log_rho[n] - np.log(r))).sum(), rel=1e-4)
        h = scipy_stats.multivariate_normal(np.zeros(3), np.diag(var_[n])).entropy()
        assert float(got.entropy[n]) == pytest.approx(h, rel=1e-4)
        assert float(got.elbo[n]) == pytest.approx(
            log_lik + (r * (log_rho[n] - np.log(r))).sum() + h, rel=1e-4
        )


def test_zero_responsibilities_are_no_nan():
    vae, frozen, x, noise, _ = setup_rows()
    hard = torch.eye(4)[torch.arange(6) % 4]
    mean, log_var = vae.encode(x)
    terms = row_terms(vae, frozen, x, (mean, log_var), noise, hard)
    want = frozen.log_joint(mean, log_var.exp())[torch.arange(6), torch.arange(6) % 4]
    torch.testing.assert_close(terms.log_prior, want)
    terms.elbo.sum().backward()
    assert all(bool(torch.isfinite(p.grad).all()) for p in vae.parameters() if p.grad is not None)


def test_optimal_responsibilities_give_the_largest_bound():
    """None takes the optimum: no responsibilities do better, and those of the softmax do as well."""
    vae, frozen, x, noise, resp = setup_rows()
    mean, log_var = (t.detach() for t in vae.encode(x))
    best = row_terms(vae, frozen, x, (mean, log_var), noise).log_prior
    optimum = torch.softmax(frozen.log_joint(mean, log_var.exp()), 1)
    same = row_terms(vae, frozen, x, (mean, log_var), noise, optimum).log_prior
    torch.testing.assert_close(best, same, rtol=1e-5, atol=1e-5)
    assert bool((row_terms(vae, frozen, x, (mean, log_var), noise, resp).log_prior < best).all())


# Gradients.


def gradient(vae, loss):
    vae.zero_grad()
    loss.backward()
    return torch.cat([p.grad.flatten() for p in vae.parameters() if p.grad is not None])


def test_gradient_with_fixed_responsibilities_is_that_of_the_log_sum():
    """Envelope theorem: at the optimum, holding responsibilities fixed changes no gradient."""
    vae, frozen, x, noise, resp = setup_rows()
    mean, log_var = vae.encode(x)
    through = gradient(vae, row_terms(vae, frozen, x, (mean, log_var), noise).elbo.mean())
    mean, log_var = vae.encode(x)
    fixed = torch.softmax(frozen.log_joint(mean, log_var.exp()), 1).detach()
    held = gradient(vae, row_terms(vae, frozen, x, (mean, log_var), noise, fixed).elbo.mean())
    torch.testing.assert_close(through, held, rtol=1e-4, atol=1e-5)
    mean, log_var = vae.encode(x)
    other = gradient(vae, row_terms(vae, frozen, x, (mean, log_var), noise, resp).elbo.mean())
    assert float((other - held).abs().max()) > 0.01  # other responsibilities do change it


@pytest.mark.parametrize("likelihood", ["gaussian", "gaussian-learned", "bernoulli"])
@pytest.mark.parametrize("fixed", [False, True], ids=["optimal", "fixed"])
def test_gradient_by_differences(likelihood, fixed):
    """In float64, along random directions of all weights at once."""
    vae, frozen, x, noise, resp = setup_rows(likelihood)
    vae = vae.double()
    fields = (frozen.root, frozen.offset, frozen.precision_diagonal, frozen.constant)
    frozen = FrozenMixture(*(t.double() for t in fields))
    x, noise, resp = x.double(), noise.double(), resp.double()

    def bound():
        mean, log_var = vae.encode(x)
        return row_terms(vae, frozen, x, (mean, log_var), noise, resp if fixed else None).elbo.sum()

    vae.zero_grad()
    bound().backward()
    weights = [p for p in vae.parameters() if p.requires_grad]
    assert all(p.grad is not None for p in weights)
    generator = torch.Generator().manual_seed(0)
    for _ in range(3):
        steps = [torch.randn(p.shape, generator=generator, dtype=torch.float64) for p in weights]
        want = sum(float((p.grad * s).sum()) for p, s in zip(weights, steps, strict=True))
        values = []
        for sign in (1e-6, -1e-6):
            with torch.no_grad():
                for p, s in zip(weights, steps, strict=True):
                    p += sign * s
                values.append(float(bound()))
                for p, s in zip(weights, steps, strict=True):
                    p -= sign * s
        assert (values[0] - values[1]) / 2e-6 == pytest.approx(want, rel=1e-5, abs=1e-5)


def test_empty_components_do_no_harm():
    """A component without rows is the prior."""
    prior = MixturePrior(1.0, torch.zeros(2).double(), 1.0, 4.0, torch.eye(2).double())
    frozen = FrozenMixture.of(global_step(prior, SufficientStats.zeros(3, 2)))
    assert bool(torch.isfinite(frozen.log_joint(torch.zeros(4, 2), torch.ones(4, 2))).all())
