"""DEC's soft assignment, target distribution and gradient by hand, and what its second stage does."""

import numpy as np
import pytest
import torch
from scipy import stats
from sklearn.metrics import adjusted_rand_score
from torch.nn import functional as F

from dbull.methods.competitors.dec import DEC, log_soft_assignment, target_distribution
from synthetic import gaussian_clusters

QUICK = {"random_state": 0, "hidden_dims": (32,), "latent_dim": 3, "epochs": 20, "learning_rate": 1e-2}


@pytest.fixture
def codes_and_centres():
    rng = np.random.default_rng(0)
    return rng.normal(size=(7, 3)), rng.normal(size=(4, 3))


def assignment_by_hand(codes, centres, dof):
    """Equation 1, one number at a time."""
    q = np.empty((len(codes), len(centres)))
    for n, z in enumerate(codes):
        for k, c in enumerate(centres):
            q[n, k] = (1 + sum((z - c) ** 2) / dof) ** (-(dof + 1) / 2)
        q[n] /= q[n].sum()
    return q


def target_by_hand(q):
    """Equation 3, one number at a time."""
    p = np.empty_like(q)
    for n in range(len(q)):
        for k in range(q.shape[1]):
            p[n, k] = q[n, k] ** 2 / sum(q[m, k] for m in range(len(q)))
        p[n] /= p[n].sum()
    return p


@pytest.mark.parametrize("dof", [1.0, 2.5])
def test_assignment_by_hand(codes_and_centres, dof):
    codes, centres = codes_and_centres
    ours = log_soft_assignment(torch.from_numpy(codes), torch.from_numpy(centres), dof).exp()
    np.testing.assert_allclose(ours, assignment_by_hand(codes, centres, dof), rtol=1e-12)


def test_kernel_is_student_t_in_one_dimension():
    """One latent dimension: proportional to scipy's density of the distance."""
    codes, centres = np.array([[0.3], [5.0]]), np.array([[0.0], [1.0], [-4.0]])
    for dof in (1.0, 3.0):
        density = stats.t(dof).pdf(codes - centres.T)
        ours = log_soft_assignment(torch.from_numpy(codes), torch.from_numpy(centres), dof).exp()
        np.testing.assert_allclose(ours, density / density.sum(1, keepdims=True), rtol=1e-12)


def test_far_away_codes_keep_finite_assignments():
    q = log_soft_assignment(torch.full((1, 3), 1e15), torch.zeros(2, 3))
    assert torch.isfinite(q).all()
    np.testing.assert_allclose(q.exp(), 0.5)


def test_target_by_hand(codes_and_centres):
    q = assignment_by_hand(*codes_and_centres, 1.0)
    np.testing.assert_allclose(target_distribution(torch.from_numpy(q)), target_by_hand(q), rtol=1e-12)


def test_target_is_sharper_and_lifts_small_clusters():
    q = torch.tensor([[0.6, 0.4]] * 8 + [[0.4, 0.6]] * 2)
    p = target_distribution(q)
    assert float(p[-1].max()) > 0.6
    ratio = (p[0, 1] / p[0, 0]) / (q[0, 1] / q[0, 0]) ** 2
    assert float(ratio) == pytest.approx(float(q[:, 0].sum() / q[:, 1].sum()))  # the smaller one gains


def test_gradient_is_the_papers():
    """Equations 4 and 5, dof a: (a + 1) / a * sum (1 + d^2 / a)^-1 (p - q)(z - c), for the summed loss."""
    rng = np.random.default_rng(1)
    codes = torch.from_numpy(rng.normal(size=(6, 2))).requires_grad_()
    centres = torch.from_numpy(rng.normal(size=(3, 2))).requires_grad_()
    for dof in (1.0, 2.0):
        log_q = log_soft_assignment(codes, centres, dof)
        q = log_q.exp().detach()
        p = target_distribution(q)
        loss = F.kl_div(log_q, p, reduction="sum")
        assert float(loss.detach()) == pytest.approx(float((p * (p / q).log()).sum()))
        by_codes, by_centres = torch.autograd.grad(loss, (codes, centres))
        apart = (codes[:, None] - centres).detach()
        pull = (dof + 1) / dof * (p - q) / (1 + apart.square().sum(2) / dof)
        torch.testing.assert_close(by_codes, (pull[:, :, None] * apart).sum(1))
        torch.testing.assert_close(by_centres, -(pull[:, :, None] * apart).sum(0))


def test_gradient_by_differences():
    rng = np.random.default_rng(2)
    codes = torch.from_numpy(rng.normal(size=(5, 2))).requires_grad_()
    centres = torch.from_numpy(rng.normal(size=(3, 2))).requires_grad_()
    p = target_distribution(torch.softmax(torch.from_numpy(rng.normal(size=(5, 3))), dim=1))
    assert torch.autograd.gradcheck(
        lambda z, c: F.kl_div(log_soft_assignment(z, c), p, reduction="batchmean"), (codes, centres)
    )


def test_second_stage_sharpens_and_keeps_the_clusters():
    X, y = gaussian_clusters(np.random.default_rng(3), (80, 60, 40), 12)
    start = DEC(3, **QUICK, joint_epochs=0).fit(X)
    end = DEC(3, **QUICK, joint_epochs=30, joint_learning_rate=0.1).fit(X)
    assert adjusted_rand_score(y, end.labels_) > 0.95
    assert end.predict_proba(X).max(1).mean() > start.predict_proba(X).max(1).mean() + 0.02
    sizes = np.bincount(end.labels_)
    assert (np.diff(sizes) <= 0).all()


def test_stops_when_no_row_changes():
    X, _ = gaussian_clusters(np.random.default_rng(4), (60, 60), 12, distance=30.0)
    model = DEC(2, **QUICK, joint_epochs=500).fit(X)
    assert sum(step.stage == "joint" for step in model.history_) < 30
    restless = DEC(2, **QUICK, joint_epochs=40, tolerance=0.0, update_interval=1, joint_learning_rate=1e-9)
    assert (
        sum(step.stage == "joint" for step in restless.fit(X).history_) == 0
    )  # the second target is the first


def test_decoder_is_left_alone():
    """Only encoder and centres follow the clusters."""
    X, _ = gaussian_clusters(np.random.default_rng(5), (40, 40), 12)
    start, end = (DEC(2, **QUICK, joint_epochs=n, tolerance=0.0).fit(X) for n in (0, 5))
    for a, b in zip(start._vae.decoder.parameters(), end._vae.decoder.parameters(), strict=True):
        assert torch.equal(a, b)
    assert not torch.equal(next(start._vae.trunk.parameters()), next(end._vae.trunk.parameters()))
