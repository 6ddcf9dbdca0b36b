"""VaDE's responsibilities, bound and gradient by enumeration, and what its second stage does."""

import numpy as np
import pytest
import torch
from scipy import stats
from sklearn.metrics import adjusted_rand_score

from dbull.methods.competitors.vade import DiagonalMixture, VaDE, vade_terms
from dbull.nets.vae import VAE, NetworkShape
from synthetic import gaussian_clusters

K, D, N, WIDTH = 3, 2, 6, 5


@pytest.fixture
def parts():
    """Networks, a mixture in float64, and rows in [0, 1] with noise."""
    rng = np.random.default_rng(0)
    torch.manual_seed(0)
    vae = VAE(NetworkShape(WIDTH, WIDTH, D, hidden_dims=(4,), likelihood="bernoulli")).double()
    torch.nn.init.normal_(vae.log_var_head.weight)  # a constant variance would hide mistakes
    mixture = DiagonalMixture(
        np.array([0.5, 0.3, 0.2]), rng.normal(size=(K, D)), rng.uniform(0.3, 2.0, (K, D))
    ).double()
    values = torch.from_numpy(rng.random((N, WIDTH)))
    noise = torch.from_numpy(rng.normal(size=(N, D)))
    return vae, mixture, values, noise


def test_responsibilities_by_bayes(parts):
    _, mixture, _, _ = parts
    z = np.random.default_rng(1).normal(size=(N, D))
    ours = torch.softmax(mixture.log_joint(torch.from_numpy(z)), dim=1).detach().numpy()
    weights, means = mixture.log_weights.exp().detach().numpy(), mixture.means.detach().numpy()
    variances = mixture.log_vars.exp().detach().numpy()
    joint = np.array(
        [weights[k] * stats.multivariate_normal(means[k], np.diag(variances[k])).pdf(z) for k in range(K)]
    ).T
    np.testing.assert_allclose(ours, joint / joint.sum(1, keepdims=True), rtol=1e-10)
    # The weight enters once, not once for each of the D dimensions as in the original code.
    wrong = joint * weights ** (D - 1)
    assert np.abs(ours - wrong / wrong.sum(1, keepdims=True)).max() > 0.01


def test_weights_stay_weights(parts):
    _, mixture, _, _ = parts
    np.testing.assert_allclose(mixture.log_weights.exp().detach(), [0.5, 0.3, 0.2], rtol=1e-6)
    mixture.logits.data += torch.tensor([100.0, -50.0, 3.0])
    assert float(mixture.log_weights.exp().sum().detach()) == pytest.approx(1.0)


def test_bound_is_the_papers_loss_by_enumeration(parts):
    """Equation 12 of the paper, written with loops."""
    vae, mixture, values, noise = parts
    terms = vade_terms(vae, mixture, values, values, noise)
    ours = -terms.elbo.detach().numpy()
    mean, log_var = (t.detach().numpy() for t in vae.encode(values))
    weights = mixture.log_weights.exp().detach().numpy()
    means, variances = mixture.means.detach().numpy(), mixture.log_vars.exp().detach().numpy()
    for n in range(N):
        z = mean[n] + np.exp(0.5 * log_var[n]) * noise[n].numpy()
        decoded = torch.sigmoid(vae.decode(torch.from_numpy(z)[None]))[0].detach().numpy()
        x = values[n].numpy()
        loss = -sum(x * np.log(decoded) + (1 - x) * np.log(1 - decoded))
        joint = [weights[k] * stats.norm(means[k], np.sqrt(variances[k])).pdf(z).prod() for k in range(K)]
        gamma = np.array(joint) / sum(joint)
        for k in range(K):
            ratio = np.exp(log_var[n]) / variances[k] + (mean[n] - means[k]) ** 2 / variances[k]
            loss += 0.5 * gamma[k] * (np.log(variances[k]) + ratio).sum()
            loss -= gamma[k] * np.log(weights[k] / gamma[k])
        loss -= 0.5 * (1 + log_var[n]).sum()
        assert ours[n] == pytest.approx(loss, rel=1e-9)


def test_bound_is_below_the_evidence():
    """One latent dimension, so that the evidence can be integrated; the expectation over z too."""
    rng = np.random.default_rng(2)
    torch.manual_seed(3)
    vae = VAE(NetworkShape(WIDTH, WIDTH, 1, hidden_dims=(4,), likelihood="bernoulli")).double()
    mixture = DiagonalMixture(
        np.array([0.6, 0.4]), rng.normal(size=(2, 1)), np.array([[0.5], [1.0]])
    ).double()
    x = torch.from_numpy(rng.random((1, WIDTH)))
    grid = torch.linspace(-12, 12, 4001, dtype=torch.float64)[:, None]
    log_prior = torch.logsumexp(mixture.log_joint(grid), dim=1)
    log_likelihood = vae.likelihood.log_prob(vae.decode(grid), x.expand(len(grid), -1))
    evidence = float(torch.logsumexp(log_prior + log_likelihood, 0)) + np.log(24 / 4000)
    noise = torch.from_numpy(stats.norm.ppf((np.arange(4000) + 0.5) / 4000))[:, None]
    many = x.expand(4000, -1)
    terms = vade_terms(vae, mixture, many, many, noise)
    bound = float(terms.elbo.mean().detach())
    assert bound < evidence
    assert bound > evidence - 20  # a bound of something else would be anywhere


def test_gradient_by_differences(parts):
    """Of networks and mixture, through the responsibilities."""
    vae, mixture, values, noise = parts
    parameters = [*vae.parameters(), *mixture.parameters()]

    def loss():
        return -vade_terms(vae, mixture, values, values, noise).elbo.mean()

    gradients = torch.autograd.grad(loss(), parameters)
    rng = np.random.default_rng(4)
    for parameter, gradient in zip(parameters, gradients, strict=True):
        flat, where = parameter.data.view(-1), int(rng.integers(parameter.numel()))
        before = float(flat[where])
        sides = []
        for step in (1e-6, -1e-6):
            flat[where] = before + step
            sides.append(float(loss().detach()))
        flat[where] = before
        assert float(gradient.reshape(-1)[where]) == pytest.approx(
            (sides[0] - sides[1]) / 2e-6, rel=1e-4, abs=1e-7
        )


def test_finds_the_clusters_and_raises_the_bound():
    X, y = gaussian_clusters(np.random.default_rng(5), (80, 60, 40), 12)
    model = VaDE(
        3, random_state=0, hidden_dims=(32,), latent_dim=3, epochs=20, learning_rate=1e-2, joint_epochs=15
    )
    model.fit(X)
    assert adjusted_rand_score(y, model.labels_) > 0.95
    assert (np.diff(np.bincount(model.labels_)) <= 0).all()
    np.testing.assert_allclose(model.weights_, np.bincount(y)[[0, 1, 2]] / 180, atol=0.1)
    assert model.weights_.sum() == pytest.approx(1.0)
    bounds = [step.terms.elbo for step in model.history_ if step.stage == "joint"]
    assert bounds[-1] > bounds[0]


def test_starts_from_a_mixture_of_the_codes():
    X, _ = gaussian_clusters(np.random.default_rng(6), (80, 60), 12)
    model = VaDE(2, random_state=0, hidden_dims=(16,), latent_dim=2, epochs=10, joint_epochs=0).fit(X)
    codes = model.transform(X)
    for k in range(2):
        np.testing.assert_allclose(model.means_[k], codes[model.labels_ == k].mean(0), atol=0.1 * codes.std())


def test_fewer_kinds_of_rows_than_clusters():
    for copies in (np.repeat(np.eye(3, 6), 20, axis=0), np.ones((20, 12)), np.full((20, 12), 3.0)):
        model = VaDE(5, epochs=1, joint_epochs=1, hidden_dims=(8,), latent_dim=2, random_state=0).fit(copies)
        assert np.isfinite(model.predict_proba(copies)).all()
