"""The bound by other roads: parameters and codes drawn, quadrature, and the evidence it must stay below."""

import math

import numpy as np
import pytest
import torch
from scipy import stats
from scipy.special import digamma

from dbull import NumericalError
from dbull.lifelong.inference import encode_rows, row_bounds
from dbull.lifelong.objective import FrozenMixture, entropy, row_terms
from dbull.lifelong.settings import TrainingSettings
from dbull.lifelong.training import Trainer, TrainingRows
from dbull.mixture.elbo import elbo_terms
from dbull.mixture.posterior import global_step
from dbull.mixture.prior import MixturePrior, paper_prior
from dbull.mixture.updates import Points, summarize
from dbull.nets.inputs import fit_inputs
from dbull.nets.vae import VAE, NetworkShape
from wishart import sample_gaussians

N_DIMS = 3


@pytest.fixture(scope="module")
def posterior():
    """Four components of 40 points, responsibilities at random: nothing about it is special."""
    generator = torch.Generator().manual_seed(1)
    z = 2 * torch.randn(40, N_DIMS, dtype=torch.float64, generator=generator)
    log_resp = torch.log_softmax(3 * torch.randn(40, 4, dtype=torch.float64, generator=generator), dim=1)
    return global_step(paper_prior(N_DIMS, 1.5), summarize(log_resp, Points.from_rows(z)))


@pytest.fixture(scope="module")
def mixture(posterior):
    return FrozenMixture.of(posterior)


@pytest.fixture(scope="module")
def vae():
    torch.manual_seed(0)
    return VAE(NetworkShape(6, 6, N_DIMS, "mlp", (8,), "gaussian"))


def encoded(n_rows=12, seed=0):
    generator = torch.Generator().manual_seed(seed)
    mean = 2 * torch.randn(n_rows, N_DIMS, generator=generator)
    log_var = torch.randn(n_rows, N_DIMS, generator=generator) - 1
    noise = torch.randn(n_rows, N_DIMS, generator=generator)
    values = torch.randn(n_rows, 6, generator=generator)
    return values, mean, log_var, noise


def double(mixture):
    return FrozenMixture(*(getattr(mixture, name).double() for name in mixture.__dataclass_fields__))


def test_the_trace_term_is_felt(mixture):
    _, mean, log_var, _ = encoded()
    assert (mixture.log_joint(mean, None) > mixture.log_joint(mean, log_var.exp()) + 1e-3).all()


def test_expected_log_joint_by_draws_of_codes_and_of_parameters(posterior, mixture):
    """E over q(z) and over the Normal-Wishart and Beta posteriors, each drawn; scipy has the densities."""
    n_draws = 4000
    _, mean, log_var, _ = encoded(3)
    rng = np.random.default_rng(0)
    sticks = rng.beta(
        posterior.sticks.on.numpy(), posterior.sticks.off.numpy(), (n_draws, posterior.n_components)
    )
    rest = np.cumprod(np.concatenate([np.ones((n_draws, 1)), 1 - sticks[:, :-1]], axis=1), axis=1)
    log_weights = np.log(sticks * rest)
    means, precisions = sample_gaussians(posterior.components, n_draws, torch.Generator().manual_seed(1))
    codes = mean.numpy() + np.exp(0.5 * log_var.numpy()) * rng.normal(size=(n_draws, 3, N_DIMS))
    off = codes[:, :, None] - means.numpy()[:, None]  # (draw, row, component, dimension)
    square = np.einsum("lnki,lkij,lnkj->lnk", off, precisions.numpy(), off)
    log_det = np.linalg.slogdet(precisions.numpy())[1]
    draws = log_weights[:, None] + 0.5 * (log_det[:, None] - N_DIMS * math.log(2 * math.pi) - square)
    error = draws.std(0) / math.sqrt(n_draws)
    found = mixture.log_joint(mean, log_var.exp()).numpy()
    assert (np.abs(found - draws.mean(0)) < 5 * error).all()
    assert (error < 0.25 * np.abs(found)).all()  # else the comparison would say nothing


def test_reconstruction_on_average_over_noise(vae, mixture):
    """The mean over draws of the code is the expectation, here by Gauss-Hermite along one direction."""
    values, mean, log_var, _ = encoded(1)
    log_var = torch.full_like(log_var, -60.0)
    log_var[0, 0] = -1.0  # uncertain along the first latent direction alone
    nodes, weights = np.polynomial.hermite_e.hermegauss(60)
    at_nodes = torch.zeros(60, N_DIMS)
    at_nodes[:, 0] = torch.tensor(nodes)
    with torch.no_grad():
        exact = float(
            (
                torch.tensor(weights / weights.sum())
                * row_terms(
                    vae,
                    mixture,
                    values.expand(60, -1),
                    (mean.expand(60, -1), log_var.expand(60, -1)),
                    at_nodes,
                ).reconstruction
            ).sum()
        )
        n = 20_000
        noise = torch.randn(n, N_DIMS, generator=torch.Generator().manual_seed(0))
        drawn = row_terms(
            vae, mixture, values.expand(n, -1), (mean.expand(n, -1), log_var.expand(n, -1)), noise
        ).reconstruction
    assert abs(float(drawn.mean()) - exact) < 5 * float(drawn.std()) / math.sqrt(n)


def test_encoder_variance_at_rest_is_no_larger_than_the_clusters(posterior, mixture):
    """With one sure cluster, prior and entropy balance at var = 1 / E[precision]; data make it smaller."""
    exact = double(mixture)
    r = torch.zeros(1, 4, dtype=torch.float64)
    r[0, 2] = 1.0
    mean = posterior.components.mean[2:3]
    bound_of = exact.precision_diagonal[2].reciprocal()

    def at_rest(weight_of_data):
        log_var = torch.zeros(1, N_DIMS, dtype=torch.float64, requires_grad=True)
        optimiser = torch.optim.LBFGS([log_var], max_iter=200, line_search_fn="strong_wolfe")

        def loss():
            optimiser.zero_grad()
            prior = (r * exact.log_joint(mean, log_var.exp())).sum()
            # A linear decoder with unit weights: the expected squared error grows with the variance.
            value = -(prior + entropy(log_var).sum() - 0.5 * weight_of_data * log_var.exp().sum())
            value.backward()
            return value

        optimiser.step(loss)
        return log_var.detach().exp()[0]

    torch.testing.assert_close(at_rest(0.0), bound_of, rtol=1e-4, atol=0.0)
    torch.testing.assert_close(at_rest(2.0), 1 / (1 / bound_of + 2.0), rtol=1e-4, atol=0.0)
    assert (at_rest(2.0) < bound_of).all()


def test_bound_of_rows_and_divergences_is_below_the_evidence():
    """One cluster and a linear decoder: the evidence is a Gaussian integral, done here by quadrature.

    x = w z + b + noise with z ~ N(mu, 1/lambda) and (mu, lambda) Normal-gamma. Any encoder and any posterior
    of (mu, lambda) gives a bound; with good ones it is tight.
    """
    rng = np.random.default_rng(0)
    n_rows, w, b, log_var = 6, np.array([1.0, -0.5]), np.array([0.3, 0.1]), -1.0
    x = rng.normal(size=(n_rows, 1)) * w + b + rng.normal(size=(n_rows, 2)) * math.exp(0.5 * log_var)
    beta0, nu0, scale_inv0 = 0.5, 3.0, 2.0

    # log p(x) by quadrature over precision and mean: x_n | mu, lambda is Gaussian.
    lambdas = stats.gamma(nu0 / 2, scale=2 / scale_inv0).ppf((np.arange(400) + 0.5) / 400)
    log_p = []
    for precision in lambdas:
        mus = stats.norm(0, 1 / math.sqrt(beta0 * precision)).ppf((np.arange(400) + 0.5) / 400)
        covariance = np.outer(w, w) / precision + math.exp(log_var) * np.eye(2)
        inverse, log_det = np.linalg.inv(covariance), np.linalg.slogdet(covariance)[1]
        off = x[None] - (mus[:, None, None] * w + b)
        square = np.einsum("mni,ij,mnj->mn", off, inverse, off)
        log_p.append(-0.5 * (square + log_det + 2 * math.log(2 * math.pi)).sum(1))
    evidence = float(torch.logsumexp(torch.tensor(np.array(log_p)).flatten(), 0)) - 2 * math.log(400)

    vae = VAE(NetworkShape(2, 2, 1, "mlp", (), "gaussian"))
    precision_of_data = w @ w * math.exp(-log_var)
    var = 1 / (precision_of_data + 1.0)
    with torch.no_grad():
        vae.decoder[0].weight.copy_(torch.tensor(w[:, None]))
        vae.decoder[0].bias.copy_(torch.tensor(b))
        vae.likelihood.log_var.fill_(log_var)
        encoder = var * math.exp(-log_var) * w  # the exact posterior of a code under N(0, 1)
        vae.mean_head.weight.copy_(torch.tensor(encoder[None]))
        vae.mean_head.bias.fill_(-float(encoder @ b))
        vae.log_var_head.bias.fill_(math.log(var))
    codes, variance = encode_rows(vae, torch.tensor(x, dtype=torch.float32))
    f64 = torch.float64
    prior = MixturePrior(1.0, torch.zeros(1, dtype=f64), beta0, nu0, torch.tensor([[scale_inv0]], dtype=f64))
    points = Points.from_rows(codes, variance)
    posterior = global_step(prior, summarize(torch.zeros(n_rows, 1, dtype=f64), points))
    divergence = elbo_terms(prior, posterior, summarize(torch.zeros(n_rows, 1, dtype=f64), points))
    values = torch.tensor(x, dtype=torch.float32)
    # The expectation over codes is that of a few draws: the mean over many seeds is the bound itself.
    bounds = [
        float(row_bounds(vae, FrozenMixture.of(posterior), values, values, seed).sum()) for seed in range(300)
    ]
    # A single cluster for sure: the expected log of its weight and the divergence of its stick stand for the
    # chance that the process opens another, which the evidence above does not know.
    bound = np.mean(bounds) + divergence.minus_component_divergence - n_rows * expected_log_weight(posterior)
    error = np.std(bounds) / math.sqrt(300)
    assert bound < evidence + 3 * error
    assert bound > evidence - 1.5


def expected_log_weight(posterior):
    a, b = float(posterior.sticks.on[0]), float(posterior.sticks.off[0])
    return digamma(a) - digamma(a + b)


def test_codes_that_are_not_finite_are_noticed_before_the_search():
    """The last step of an epoch may leave what no loss has seen."""
    rows = torch.randn(30, 6, generator=torch.Generator().manual_seed(0))
    view = fit_inputs(rows, "dense", None, False)
    values = view.values(rows)
    vae = VAE(NetworkShape(6, 6, N_DIMS, "mlp", (8,), "gaussian"))
    data = TrainingRows.of(values, view.inputs(values), None, N_DIMS)
    trainer = Trainer(view, vae, data, None, TrainingSettings(batch_size=16), torch.Generator())
    trainer.encode()
    with torch.no_grad():
        vae.mean_head.weight.fill_(math.nan)
    with pytest.raises(NumericalError, match=r"codes are not finite.*learning_rate"):
        trainer.encode()
