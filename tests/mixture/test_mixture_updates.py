"""Local step, statistics and global step, against brute force and against scikit-learn."""

import warnings
from dataclasses import replace

import brute_force
import numpy as np
import pytest
import torch
from scipy import special
from scipy import stats as scipy_stats
from sklearn.exceptions import ConvergenceWarning
from sklearn.mixture import BayesianGaussianMixture
from ten_points import make_case

from dbull.mixture import updates
from dbull.mixture.posterior import global_step, mean_weights
from dbull.mixture.prior import MixturePrior, adapted_prior, paper_prior
from dbull.mixture.stats import SufficientStats
from dbull.mixture.updates import Points, local_step, local_summary, log_joint, memberships, summarize
from dbull.probability import stick_breaking as sb
from wishart import expected_log_density

FIELDS = ("counts", "sum_z", "sum_zz", "entropy")


def assert_same(a, b, rtol=1e-10, atol=1e-10):
    for name in FIELDS:
        torch.testing.assert_close(getattr(a, name), getattr(b, name), rtol=rtol, atol=atol, msg=name)


@pytest.mark.parametrize("n_dims", [1, 2, 5])
@pytest.mark.parametrize("with_variance", [False, True])
def test_summarize_by_loops(n_dims, with_variance):
    """Statistics summed point by point; the second moment is the outer product plus the variance."""
    case = make_case(1, 10, n_dims, 3, with_variance)
    got = case.stats
    for k in range(3):
        s2 = sum(case.r[n, k] * (np.outer(case.z[n], case.z[n]) + np.diag(case.var[n])) for n in range(10))
        assert float(got.counts[k]) == pytest.approx(case.r[:, k].sum())
        np.testing.assert_allclose(got.sum_z[k].numpy(), case.r[:, k] @ case.z, rtol=1e-12)
        np.testing.assert_allclose(got.sum_zz[k].numpy(), s2, rtol=1e-12, atol=1e-14)
        assert float(got.entropy[k]) == pytest.approx(-(case.r[:, k] * np.log(case.r[:, k])).sum())


def test_summarize_takes_zero_responsibility():
    """0 log 0 = 0: hard labels have no entropy and no NaN."""
    case = make_case(2)
    hard = torch.where(torch.arange(10)[:, None] % 3 == torch.arange(3), 0.0, -torch.inf).to(torch.float64)
    got = summarize(hard, case.points)
    assert got.counts.tolist() == [4, 3, 3]
    assert got.entropy.tolist() == [0, 0, 0]


@pytest.mark.parametrize("with_variance", [False, True])
@pytest.mark.parametrize("n_dims", [1, 4])
def test_global_step_is_bishops(n_dims, with_variance):
    case = make_case(3, 10, n_dims, 3, with_variance, offset=5.0)
    got = global_step(case.prior, case.stats)
    for k, q in enumerate(brute_force.global_step(case.z, case.var, case.r, case.plain_prior)):
        assert float(got.sticks.on[k]) == pytest.approx(q["on"])
        assert float(got.sticks.off[k]) == pytest.approx(q["off"])
        assert float(got.components.mean_precision[k]) == pytest.approx(q["beta"])
        assert float(got.components.dof[k]) == pytest.approx(q["nu"])
        np.testing.assert_allclose(got.components.mean[k].numpy(), q["m"], rtol=1e-10)
        np.testing.assert_allclose(got.components.scale_inv[k].numpy(), q["B"], rtol=1e-9, atol=1e-11)
        np.testing.assert_allclose(got.factor[k].numpy(), np.linalg.cholesky(q["B"]), rtol=1e-8, atol=1e-10)


def test_global_step_of_an_empty_component_is_the_prior():
    case = make_case(4)
    got = global_step(case.prior, SufficientStats.zeros(2, 2))
    for k in range(2):
        torch.testing.assert_close(got.components.mean[k], case.prior.mean)
        torch.testing.assert_close(got.components.scale_inv[k], case.prior.scale_inv)
    assert got.sticks.on.tolist() == [1.0, 1.0]
    assert got.sticks.off.tolist() == pytest.approx([case.prior.concentration] * 2)


def test_global_step_is_scikit_learns():
    """The same responsibilities and prior give the parameters of BayesianGaussianMixture."""
    case = make_case(5, n_rows=60, n_dims=3, n_components=4, with_variance=False)
    p = case.prior
    reference = BayesianGaussianMixture(
        n_components=4,
        covariance_type="full",
        reg_covar=0.0,
        weight_concentration_prior_type="dirichlet_process",
        weight_concentration_prior=p.concentration,
        mean_precision_prior=p.mean_precision,
        mean_prior=p.mean.numpy(),
        degrees_of_freedom_prior=p.dof,
        covariance_prior=p.scale_inv.numpy(),
        max_iter=1,
        random_state=0,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        reference.fit(case.z)  # only so that it knows its prior
    reference._m_step(case.z, np.log(case.r))
    got = global_step(p, case.stats)
    c = got.components
    np.testing.assert_allclose(c.mean.numpy(), reference.means_, rtol=1e-10)
    np.testing.assert_allclose(c.mean_precision.numpy(), reference.mean_precision_, rtol=1e-10)
    np.testing.assert_allclose(c.dof.numpy(), reference.degrees_of_freedom_, rtol=1e-10)
    expected = reference.covariances_ * reference.degrees_of_freedom_[:, None, None]
    np.testing.assert_allclose(c.scale_inv.numpy(), expected, rtol=1e-9, atol=1e-11)
    on, off = reference.weight_concentration_
    np.testing.assert_allclose(got.sticks.on.numpy(), on, rtol=1e-10)
    np.testing.assert_allclose(got.sticks.off.numpy(), off, rtol=1e-10)
    # And with its parameters the local step gives its responsibilities.
    ours = local_step(got, case.points).exp().numpy()
    np.testing.assert_allclose(
        ours, np.exp(reference._estimate_log_prob_resp(case.z)[1]), rtol=1e-8, atol=1e-12
    )


@pytest.mark.parametrize("with_variance", [False, True])
def test_local_step_by_loops(with_variance):
    """log rho_nk = E log pi_k + E log N(z_n | k) with the trace term, then softmax."""
    case, other = make_case(6, with_variance=with_variance), make_case(7)
    posterior = global_step(other.prior, other.stats)
    q = brute_force.global_step(other.z, other.var, other.r, other.plain_prior)
    rho = np.array(
        [
            [
                brute_force.expected_log_weight(q, k)
                + brute_force.expected_log_likelihood(q[k], case.z[n], case.var[n])
                for k in range(3)
            ]
            for n in range(10)
        ]
    )
    np.testing.assert_allclose(log_joint(posterior, case.points).numpy(), rho, rtol=1e-10)
    expected = np.exp(rho) / np.exp(rho).sum(1, keepdims=True)
    np.testing.assert_allclose(local_step(posterior, case.points).exp().numpy(), expected, rtol=1e-9)


@pytest.mark.parametrize("with_variance", [False, True])
def test_natural_parameters_agree_with_triangular_solves(with_variance):
    """The matrix product with Phi is expected_log_density by another road."""
    case, other = make_case(8, 50, 6, 3, with_variance), make_case(9, 50, 6, 5)
    posterior = global_step(other.prior, other.stats)
    var = torch.tensor(case.var) if with_variance else None
    direct = expected_log_density(posterior.components, posterior.factor, torch.tensor(case.z), var)
    direct = direct + sb.expected_log_weights(posterior.sticks)
    torch.testing.assert_close(log_joint(posterior, case.points), direct, rtol=1e-10, atol=1e-9)


@pytest.mark.parametrize("with_variance", [False, True])
def test_local_summary_is_local_step_then_summarize(with_variance):
    """The entropy for free (lse - Theta . moments) is the entropy of the responsibilities."""
    case, other = make_case(10, 40, 3, 3, with_variance), make_case(11, 40, 3, 4)
    posterior = global_step(other.prior, other.stats)
    log_resp = local_step(posterior, case.points)
    got = local_summary(posterior, case.points)
    assert_same(got, summarize(log_resp, case.points))
    resp = log_resp.exp().numpy()
    np.testing.assert_allclose(got.entropy.numpy(), special.entr(resp).sum(0), rtol=1e-8, atol=1e-10)


def test_mass_counts_each_point_by_its_share():
    """A point with mass w adds w times its statistics and w times the entropy of its assignment."""
    case, other = make_case(12), make_case(13)
    posterior = global_step(other.prior, other.stats)
    mass = torch.linspace(0.0, 1.0, 10, dtype=torch.float64)
    weighted = replace(case.points, mass=mass)
    log_resp = local_step(posterior, weighted)
    torch.testing.assert_close(log_resp, local_step(posterior, case.points))
    resp = log_resp.exp()
    outer = case.points.zt.T[:, :, None] * case.points.zt.T[:, None, :] + torch.diag_embed(
        torch.tensor(case.var)
    )
    direct = SufficientStats(
        torch.einsum("n,nk->k", mass, resp),
        torch.einsum("n,nk,nd->kd", mass, resp, torch.tensor(case.z)),
        torch.einsum("n,nk,nij->kij", mass, resp, outer),
        -torch.einsum("n,nk,nk->k", mass, resp, log_resp),
    )
    assert_same(local_summary(posterior, weighted), direct)
    assert_same(summarize(log_resp, weighted), direct)
    ones = replace(case.points, mass=torch.ones(10, dtype=torch.float64))
    assert_same(local_summary(posterior, ones), local_summary(posterior, case.points))


def test_several_mixtures_at_once_are_each_alone():
    case = make_case(12)
    posteriors = [global_step(c.prior, c.stats) for c in (make_case(13), make_case(14))]
    theta = torch.stack([updates.natural_parameters(q) for q in posteriors])
    together = updates.summary_under(theta, case.points)
    resp = torch.stack([local_step(q, case.points).exp().T for q in posteriors])
    given = updates.summary_of(resp, case.points)
    for g, q in enumerate(posteriors):
        for name in FIELDS:
            alone = getattr(local_summary(q, case.points), name)
            torch.testing.assert_close(getattr(together, name)[g], alone, rtol=1e-10, atol=1e-10)
            torch.testing.assert_close(getattr(given, name)[g], alone, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("with_extras", [False, True])
def test_chunks_change_nothing(monkeypatch, with_extras):
    case, other = make_case(14, 150, 3, 3, with_variance=with_extras), make_case(15, 150, 3, 4)
    points = case.points
    if with_extras:
        points = replace(points, mass=torch.rand(150, dtype=torch.float64, generator=torch.Generator()))
    posterior = global_step(other.prior, other.stats)

    def everything():
        fresh = Points(points.zt, points.vart, points.mass)  # forget the cached features
        rows, values = memberships(posterior, fresh, 0.05)
        return (
            local_summary(posterior, fresh),
            summarize(local_step(posterior, fresh), fresh),
            log_joint(posterior, fresh),
            updates.log_predictive(posterior, fresh),
            updates.most_probable(posterior, fresh),
            torch.cat(rows),
            torch.cat(values),
        )

    whole = everything()
    monkeypatch.setattr(updates, "CHUNK_NUMBERS", 1)
    monkeypatch.setattr(updates, "MIN_CHUNK_ROWS", 7)
    calls = []
    monkeypatch.setattr(
        updates,
        "expected_features",
        lambda p, make=updates.expected_features: calls.append(len(p)) or make(p),
    )
    pieces = everything()
    assert max(calls) == 7  # it did work in pieces
    assert_same(whole[0], pieces[0])
    assert_same(whole[1], pieces[1])
    for a, b in zip(whole[2:], pieces[2:], strict=True):
        torch.testing.assert_close(a, b, rtol=1e-11, atol=1e-11)


def test_most_probable_is_the_largest_responsibility():
    case = make_case(16, 30)
    halves = torch.tensor(case.z[:, :1] > 0) == torch.tensor([False, True])
    log_resp = torch.where(halves, 0.0, -torch.inf).to(torch.float64)
    posterior = global_step(case.prior, summarize(log_resp, case.points))
    got = updates.most_probable(posterior, case.points)
    assert torch.equal(got, local_step(posterior, case.points).argmax(1))
    assert set(got.tolist()) == {0, 1}


def test_memberships_by_loops():
    case, other = make_case(16, 30), make_case(17, 30)
    posterior = global_step(other.prior, other.stats)
    resp = local_step(posterior, case.points).exp()
    rows, values = memberships(posterior, case.points, 0.2)
    assert len(rows) == 3
    for k in range(3):
        expected = [n for n in range(30) if resp[n, k] > 0.2]
        assert rows[k].tolist() == expected
        torch.testing.assert_close(values[k], resp[expected, k])


def test_log_predictive_is_the_mixture_of_scipys_student_ts():
    case, other = make_case(18, 20, 3, with_variance=False), make_case(19, 20, 3)
    posterior = global_step(other.prior, other.stats)
    q = brute_force.global_step(other.z, other.var, other.r, other.plain_prior)
    stick = np.array([c["on"] / (c["on"] + c["off"]) for c in q])
    weights = stick * np.concatenate([[1.0], np.cumprod(1 - stick)[:-1]])
    weights /= weights.sum()
    torch.testing.assert_close(mean_weights(posterior), torch.tensor(weights))
    density = 0.0
    for w, c in zip(weights, q, strict=True):
        dof = c["nu"] - 2
        shape = c["B"] * (c["beta"] + 1) / (c["beta"] * dof)
        density = density + w * scipy_stats.multivariate_t(c["m"], shape, df=dof).pdf(case.z)
    np.testing.assert_allclose(
        updates.log_predictive(posterior, case.points).numpy(), np.log(density), rtol=1e-9
    )


def test_responsibilities_do_not_overflow_far_away():
    other = make_case(20)
    posterior = global_step(other.prior, other.stats)
    far = Points.from_rows(torch.tensor([[1e6, -1e6], [1e7, 1e7]]))
    resp = local_step(posterior, far).exp()
    torch.testing.assert_close(resp.sum(1), torch.ones(2, dtype=torch.float64))
    got = local_summary(posterior, far)
    assert float(got.counts.sum()) == pytest.approx(2.0)
    assert bool(torch.isfinite(got.entropy).all())


def test_points_cut_and_take():
    case = make_case(21, 11)
    mass = torch.arange(11, dtype=torch.float64)
    points = replace(case.points, mass=mass)
    batches = points.batches(4)
    assert sorted(len(b) for b in batches) == [2, 3, 3, 3]
    torch.testing.assert_close(torch.cat([b.zt for b in batches], 1), points.zt)
    torch.testing.assert_close(torch.cat([b.vart for b in batches], 1), points.vart)
    torch.testing.assert_close(torch.cat([b.mass for b in batches]), mass)
    taken = points.take(torch.tensor([4, 1]))
    np.testing.assert_allclose(taken.zt.T.numpy(), case.z[[4, 1]])
    np.testing.assert_allclose(taken.vart.T.numpy(), case.var[[4, 1]])
    assert taken.mass.tolist() == [4.0, 1.0]
    assert len(points.batches(30)) == 11  # never an empty mini-batch


# The prior.


def test_paper_prior():
    p = paper_prior(4, 2.0)
    assert (p.concentration, p.mean_precision, p.dof) == (2.0, 0.2, 6.0)
    assert torch.equal(p.mean, torch.zeros(4, dtype=torch.float64))
    assert torch.equal(p.scale_inv, torch.eye(4, dtype=torch.float64))


def test_adapted_prior_of_one_component_is_the_data_covariance():
    rng = np.random.default_rng(0)
    z = rng.normal(size=(5000, 3)) @ rng.normal(size=(3, 3)) + [4.0, -1.0, 0.0]
    stats = summarize(torch.zeros(5000, 1, dtype=torch.float64), Points.from_rows(torch.tensor(z)))
    p = adapted_prior(stats)
    np.testing.assert_allclose(p.mean.numpy(), z.mean(0), rtol=1e-10)
    np.testing.assert_allclose(p.scale_inv.numpy(), np.cov(z.T, bias=True), rtol=2e-3, atol=2e-3)
    assert p.dof == 5.0  # so that the expected covariance of a component is scale_inv itself
    assert p.mean_precision == 1.0


def test_adapted_prior_of_separated_components():
    """Scale: pooled within-component covariance. Mean precision: within over between."""
    rng = np.random.default_rng(1)
    centres = np.array([[0.0, 0.0], [30.0, 0.0], [0.0, 60.0]])
    labels = rng.integers(0, 3, 6000)
    z = centres[labels] + rng.normal(size=(6000, 2)) * [1.0, 2.0]
    hard = torch.where(torch.tensor(labels)[:, None] == torch.arange(3), 0.0, -torch.inf).to(torch.float64)
    p = adapted_prior(summarize(hard, Points.from_rows(torch.tensor(z))))
    residual = z - np.array([z[labels == k].mean(0) for k in range(3)])[labels]
    within = residual.T @ residual / 6000
    # A millionth of the variance of the data is added, which keeps flat directions alive.
    np.testing.assert_allclose(p.scale_inv.numpy(), within + 1e-6 * np.diag(z.var(0)), rtol=1e-3, atol=1e-3)
    means = np.array([z[labels == k].mean(0) for k in range(3)]) - z.mean(0)
    share = np.bincount(labels) / 6000
    apart = sum(s * m @ np.linalg.inv(within) @ m for s, m in zip(share, means, strict=True))
    assert p.mean_precision == pytest.approx(2 / apart, rel=5e-3)


@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e4])
def test_adapted_prior_follows_the_units(scale):
    case = make_case(22, 80, 2, 2, with_variance=False)
    a = adapted_prior(case.stats)
    moved = Points.from_rows(torch.tensor(case.z * scale + 3.0 * scale))
    b = adapted_prior(summarize(torch.tensor(np.log(case.r)), moved))
    assert b.mean_precision == pytest.approx(a.mean_precision, rel=1e-6)
    torch.testing.assert_close(b.scale_inv, a.scale_inv * scale**2, rtol=1e-6, atol=0.0)
    torch.testing.assert_close(b.mean, (a.mean + 3.0) * scale, rtol=1e-8, atol=0.0)


def test_base_measure_is_the_prior():
    p = MixturePrior(1.0, torch.ones(2, dtype=torch.float64), 0.3, 4.5, 2 * torch.eye(2, dtype=torch.float64))
    assert p.base.mean.tolist() == [[1.0, 1.0]]
    assert (float(p.base.mean_precision), float(p.base.dof)) == (0.3, 4.5)
    assert torch.equal(p.base.scale_inv[0], p.scale_inv)
