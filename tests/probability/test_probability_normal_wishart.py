"""Normal-Wishart formulas against scipy, numerical integration, automatic differentiation and sampling."""

import math

import numpy as np
import pytest
import torch
from scipy import integrate, special, stats

from dbull.errors import NumericalError
from dbull.probability import normal_wishart as nw
from wishart import expected_log_density, sample_gaussians

F64 = torch.float64


def random_nw(seed, n_components, n_dims, low_dof=1.0):
    """A Normal-Wishart batch with nothing special about it (dof may be fractional)."""
    rng = np.random.default_rng(seed)
    root = rng.normal(size=(n_components, n_dims, n_dims + 2))
    return nw.NormalWishart(
        torch.tensor(rng.normal(size=(n_components, n_dims)), dtype=F64),
        torch.tensor(rng.uniform(0.2, 5.0, n_components), dtype=F64),
        torch.tensor(n_dims + low_dof + rng.uniform(0.0, 6.0, n_components), dtype=F64),
        torch.tensor(root @ root.transpose(0, 2, 1), dtype=F64),
    )


def wishart_of(q, k):
    """scipy's Wishart distribution of component k."""
    return stats.wishart(df=float(q.dof[k]), scale=np.linalg.inv(q.scale_inv[k].numpy()))


def log_density(q, k, mean, precision):
    """log NW(mean, precision) of component k, put together from scipy's densities."""
    normal = stats.multivariate_normal(
        q.mean[k].numpy(), np.linalg.inv(float(q.mean_precision[k]) * precision)
    )
    return wishart_of(q, k).logpdf(precision) + normal.logpdf(mean)


def assert_mean(draws, expected, n_sigma=5.0):
    """The mean of independent draws is `expected` to within its own standard error."""
    draws = np.asarray(draws)
    error = draws.std(0, ddof=1) / math.sqrt(len(draws))
    assert np.all(np.abs(draws.mean(0) - np.asarray(expected)) <= n_sigma * error + 1e-12)


@pytest.mark.parametrize("n_dims", [1, 2, 5])
def test_log_partition_is_what_scipy_normalises_with(n_dims):
    """-log Z = log density - exponential part, at any point; scipy gives the density."""
    q = random_nw(n_dims, 3, n_dims)
    log_z = nw.log_partition(q, nw.cholesky_scale_inv(q))
    rng = np.random.default_rng(0)
    for k in range(3):
        mean = rng.normal(size=n_dims)
        precision = np.atleast_2d(wishart_of(q, k).rvs(random_state=1))
        offset = mean - q.mean[k].numpy()
        exponent = (
            0.5 * (float(q.dof[k]) - n_dims) * np.linalg.slogdet(precision)[1]
            - 0.5 * np.trace(precision @ q.scale_inv[k].numpy())
            - 0.5 * float(q.mean_precision[k]) * offset @ precision @ offset
        )
        assert float(log_z[k]) == pytest.approx(exponent - log_density(q, k, mean, precision), rel=1e-10)


def test_log_partition_by_multigammaln():
    q = random_nw(7, 4, 3)
    D = 3
    for k in range(4):
        nu, beta = float(q.dof[k]), float(q.mean_precision[k])
        expected = (
            0.5 * D * math.log(2 * math.pi / beta)
            + 0.5 * nu * D * math.log(2)
            + special.multigammaln(0.5 * nu, D)
            - 0.5 * nu * np.linalg.slogdet(q.scale_inv[k].numpy())[1]
        )
        assert float(nw.log_partition(q, nw.cholesky_scale_inv(q))[k]) == pytest.approx(expected, rel=1e-12)


def test_log_partition_by_integration_in_one_dimension():
    """The integral of the exponential part over mean and precision, done numerically, is Z."""
    m, beta, nu, b = 0.4, 1.7, 4.3, 2.2
    q = nw.NormalWishart(
        torch.tensor([[m]], dtype=F64),
        torch.tensor([beta], dtype=F64),
        torch.tensor([nu], dtype=F64),
        torch.tensor([[[b]]], dtype=F64),
    )

    def integrand(mu, lam):
        return lam ** (0.5 * (nu - 1)) * math.exp(-0.5 * lam * b - 0.5 * beta * lam * (mu - m) ** 2)

    z, _ = integrate.dblquad(integrand, 0.0, 40.0, -30.0, 30.0, epsabs=1e-10, epsrel=1e-8)
    assert float(nw.log_partition(q, nw.cholesky_scale_inv(q))[0]) == pytest.approx(math.log(z), rel=1e-6)


@pytest.mark.parametrize("n_dims", [1, 3])
def test_gradient_of_log_partition_is_the_expected_statistics(n_dims):
    """For an exponential family d log Z / d natural parameter = E[sufficient statistic]."""
    q = random_nw(11, 2, n_dims)
    dof = q.dof.clone().requires_grad_()
    linear = (q.mean_precision[:, None] * q.mean).requires_grad_()  # goes with precision @ mean
    beta = q.mean_precision.clone().requires_grad_()  # goes with -1/2 mean^T precision mean
    outer = q.mean_precision[:, None, None] * q.mean[:, :, None] * q.mean[:, None, :]
    quadratic = (q.scale_inv + outer).requires_grad_()  # goes with -1/2 precision
    mean = linear / beta[:, None]
    scale_inv = quadratic - linear[:, :, None] * linear[:, None, :] / beta[:, None, None]
    moved = nw.NormalWishart(mean, beta, dof, scale_inv)
    nw.log_partition(moved, torch.linalg.cholesky(scale_inv)).sum().backward()

    w = torch.linalg.inv(q.scale_inv)
    expected_precision = q.dof[:, None, None] * w
    torch.testing.assert_close(2 * dof.grad, nw.expected_log_det(q, nw.cholesky_scale_inv(q)))
    torch.testing.assert_close(linear.grad, torch.einsum("kij,kj->ki", expected_precision, q.mean))
    torch.testing.assert_close(
        -2 * beta.grad,
        n_dims / q.mean_precision + torch.einsum("ki,kij,kj->k", q.mean, expected_precision, q.mean),
    )
    torch.testing.assert_close(-2 * quadratic.grad, expected_precision)


@pytest.fixture(scope="module")
def drawn():
    """A batch of three components in three dimensions with 20,000 draws from each."""
    q = random_nw(3, 3, 3, low_dof=4.0)
    means, precisions = sample_gaussians(q, 20_000, torch.Generator().manual_seed(0))
    return q, means.numpy(), precisions.numpy()


def test_sampler_has_the_moments_of_scipys_wishart(drawn):
    q, means, precisions = drawn
    for k in range(3):
        reference = wishart_of(q, k)
        assert_mean(precisions[:, k], reference.mean())
        assert_mean((precisions[:, k] - reference.mean()) ** 2, reference.var())
        assert_mean(means[:, k], q.mean[k].numpy())
        # Given the precision, the whitened offset of the mean is standard normal.
        offset = means[:, k] - q.mean[k].numpy()
        square = float(q.mean_precision[k]) * np.einsum("li,lij,lj->l", offset, precisions[:, k], offset)
        assert stats.kstest(square, stats.chi2(3).cdf).pvalue > 1e-4
        assert_mean(
            np.einsum("li,lj->lij", offset, offset),
            nw.expected_covariance(q)[k].numpy() / float(q.mean_precision[k]),
            n_sigma=6.0,
        )


def test_sampler_matches_the_distribution_of_scipys_wishart(drawn):
    """Two samples of the log-determinant and of one entry come from the same distribution."""
    q, _, precisions = drawn
    other = wishart_of(q, 1).rvs(5_000, random_state=5)
    ours = precisions[:5_000, 1]
    assert stats.ks_2samp(np.linalg.slogdet(ours)[1], np.linalg.slogdet(other)[1]).pvalue > 1e-4
    assert stats.ks_2samp(ours[:, 0, 2], other[:, 0, 2]).pvalue > 1e-4


def test_expected_log_det(drawn):
    q, _, precisions = drawn
    expected = nw.expected_log_det(q, nw.cholesky_scale_inv(q)).numpy()
    assert_mean(np.linalg.slogdet(precisions)[1], expected)
    # And digamma is the derivative of multigammaln, which scipy has.
    for k in range(3):
        nu, step = float(q.dof[k]), 1e-5
        slope = (special.multigammaln(nu / 2 + step, 3) - special.multigammaln(nu / 2 - step, 3)) / (2 * step)
        direct = slope + 3 * math.log(2) - np.linalg.slogdet(q.scale_inv[k].numpy())[1]
        assert expected[k] == pytest.approx(direct, rel=1e-8)


@pytest.mark.parametrize("with_variance", [False, True])
def test_expected_log_density(drawn, with_variance):
    q, means, precisions = drawn
    rng = np.random.default_rng(9)
    z = rng.normal(size=(2, 3))
    var = rng.uniform(0.2, 2.0, (2, 3)) if with_variance else None
    got = expected_log_density(
        q, nw.cholesky_scale_inv(q), torch.tensor(z), None if var is None else torch.tensor(var)
    )
    log_det = np.linalg.slogdet(precisions)[1]
    for n in range(2):
        noise = 0.0 if var is None else rng.normal(size=(len(means), 3)) * np.sqrt(var[n])
        for k in range(3):
            offset = z[n] + noise - means[:, k]
            square = np.einsum("li,lij,lj->l", offset, precisions[:, k], offset)
            assert_mean(0.5 * log_det[:, k] - 1.5 * math.log(2 * math.pi) - 0.5 * square, got[n, k])


def test_expected_covariance(drawn):
    q, _, precisions = drawn
    covariances = np.linalg.inv(precisions)
    assert_mean(covariances[:, 0], nw.expected_covariance(q)[0].numpy(), n_sigma=6.0)
    reference = stats.invwishart(df=float(q.dof[1]), scale=q.scale_inv[1].numpy()).mean()
    np.testing.assert_allclose(nw.expected_covariance(q)[1].numpy(), reference, rtol=1e-12)


def test_kl_against_sampling(drawn):
    """KL(q || p) is the mean of log q - log p over draws from q, with scipy's densities."""
    q, means, precisions = drawn
    p = random_nw(21, 3, 3, low_dof=2.0)
    got = nw.kl(q, p)
    n = 1_000
    log_det = np.linalg.slogdet(precisions[:n])[1]

    def log_densities(r, k):
        offset = means[:n, k] - r.mean[k].numpy()
        square = np.einsum("li,lij,lj->l", offset, precisions[:n, k], offset)
        beta = float(r.mean_precision[k])
        normal = 1.5 * math.log(beta / (2 * math.pi)) + 0.5 * log_det[:, k] - 0.5 * beta * square
        return wishart_of(r, k).logpdf(precisions[:n, k].transpose(1, 2, 0)) + normal

    for k in range(3):
        assert log_densities(q, k)[0] == pytest.approx(log_density(q, k, means[0, k], precisions[0, k]))
        assert_mean(log_densities(q, k) - log_densities(p, k), got[k])


@pytest.mark.parametrize("n_dims", [1, 2, 6])
def test_kl_is_zero_only_for_equals(n_dims):
    q, p = random_nw(1, 5, n_dims), random_nw(2, 5, n_dims)
    torch.testing.assert_close(nw.kl(q, q), torch.zeros(5, dtype=F64), atol=1e-9, rtol=0)
    assert bool((nw.kl(q, p) > 0.01).all())
    assert bool((nw.kl(p, q) > 0.01).all())
    alone = nw.NormalWishart(p.mean[:1], p.mean_precision[:1], p.dof[:1], p.scale_inv[:1])
    one_by_one = [
        nw.kl(nw.NormalWishart(q.mean[[k]], q.mean_precision[[k]], q.dof[[k]], q.scale_inv[[k]]), alone)
        for k in range(5)
    ]
    torch.testing.assert_close(nw.kl(q, alone), torch.cat(one_by_one))


@pytest.mark.parametrize("field", ["mean", "mean_precision", "dof", "scale_inv"])
def test_kl_has_its_minimum_at_equality(field):
    """The gradient of KL(q || p) in each field of q vanishes at q = p, and any step away is uphill."""
    p = random_nw(4, 3, 3)
    values = {name: getattr(p, name).clone() for name in ("mean", "mean_precision", "dof", "scale_inv")}
    values[field].requires_grad_()
    nw.kl(nw.NormalWishart(**values), p).sum().backward()
    assert float(values[field].grad.abs().max()) < 1e-9
    for step in (-0.01, 0.01):
        moved = dict(values)
        moved[field] = values[field].detach() * (1 + step) + (step if field == "mean" else 0.0)
        assert bool((nw.kl(nw.NormalWishart(**moved), p) > 1e-7).all())


@pytest.mark.parametrize("n_dims", [1, 4])
def test_student_t_is_scipys(n_dims):
    q = random_nw(5, 3, n_dims)
    z = np.random.default_rng(6).normal(size=(7, n_dims)) * 3
    got = nw.log_student_t(q, nw.cholesky_scale_inv(q), torch.tensor(z)).numpy()
    for k in range(3):
        beta, dof = float(q.mean_precision[k]), float(q.dof[k]) - n_dims + 1
        shape = q.scale_inv[k].numpy() * (beta + 1) / (beta * dof)
        expected = stats.multivariate_t(q.mean[k].numpy(), shape, df=dof).logpdf(z)
        np.testing.assert_allclose(got[:, k], expected, rtol=1e-10)


def test_student_t_is_the_average_gaussian(drawn):
    """Integrating mean and precision out by sampling gives the same density."""
    q, means, precisions = drawn
    z = np.array([0.3, -0.2, 0.5])
    offset = z - means[:, 2]
    square = np.einsum("li,lij,lj->l", offset, precisions[:, 2], offset)
    density = np.exp(0.5 * np.linalg.slogdet(precisions[:, 2])[1] - 0.5 * square) / (2 * math.pi) ** 1.5
    got = nw.log_student_t(q, nw.cholesky_scale_inv(q), torch.tensor(z)[None])[0, 2].exp()
    assert_mean(density, got)


def test_a_scale_that_is_not_positive_definite_is_named():
    q = random_nw(8, 3, 2)
    q.scale_inv[1] = torch.tensor([[1.0, 2.0], [2.0, 1.0]], dtype=F64)
    with pytest.raises(NumericalError, match="component 1 is not positive definite"):
        nw.cholesky_scale_inv(q)
