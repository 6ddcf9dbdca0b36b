"""CURL's bound by enumeration over components, its expansion, and its replay on streams."""

import copy
import math

import numpy as np
import pytest
import torch
from scipy import stats
from sklearn.metrics import homogeneity_score

from dbull.methods.competitors.curl import CURL, PoorRows
from dbull.methods.competitors.curl_network import CurlNetwork
from dbull.nets.likelihood import LIKELIHOODS, make_likelihood
from dbull.nets.vae import VAE, NetworkShape

D, N, WIDTH, K, K_MAX = 2, 6, 5, 3, 5


def small_network(latent_dim=D, n_active=K, seed=0):
    rng = np.random.default_rng(seed)
    torch.manual_seed(seed)
    vae = VAE(NetworkShape(WIDTH, WIDTH, latent_dim, hidden_dims=(4,), likelihood="bernoulli"))
    network = CurlNetwork(
        vae,
        K_MAX,
        torch.tensor(rng.normal(size=(n_active, latent_dim)), dtype=torch.float32),
        torch.tensor(rng.normal(size=(n_active, latent_dim)), dtype=torch.float32),
        seed,
    ).double()
    for parameter in network.head_parameters()[:-2]:  # heads that differ from each other
        parameter.data += torch.from_numpy(rng.normal(size=parameter.shape))
    network.counts[:n_active] = torch.arange(1.0, n_active + 1)
    return network


@pytest.fixture
def network():
    return small_network()


@pytest.fixture
def data():
    rng = np.random.default_rng(1)
    return torch.from_numpy(rng.random((N, WIDTH))), torch.from_numpy(rng.normal(size=(N, K, D)))


def log_likelihood(network, z, x):
    decoded = torch.sigmoid(network.vae.decode(torch.as_tensor(z)[None]))[0].detach().numpy()
    return sum(x * np.log(decoded) + (1 - x) * np.log(1 - decoded))


def bound_by_enumeration(network, x, noise, least=0.0):
    """One row's bound, component by component, with scipy's densities and entropies."""
    q = network.posterior(x[None])
    probability = q.log_q[0].exp().detach().numpy()
    probability = np.where(probability >= min(least, probability.max()), probability, 0.0)
    probability /= probability.sum()
    total = 0.0
    for k in range(network.n_active):
        if probability[k] == 0:
            continue
        mean, std = q.mean[0, k].detach().numpy(), np.exp(0.5 * q.log_var[0, k].detach().numpy())
        prior_mean = network.prior_means[k].detach().numpy()
        prior_var = np.exp(network.prior_log_vars[k].detach().numpy())
        # E_q[log p(z | k)] + H[q], the divergence by its two halves
        expected = (
            stats.norm(prior_mean, np.sqrt(prior_var)).logpdf(mean).sum() - 0.5 * (std**2 / prior_var).sum()
        )
        divergence = -expected - stats.norm(mean, std).entropy().sum()
        reconstruction = log_likelihood(network, mean + std * noise[k].numpy(), x.numpy())
        total += probability[k] * (reconstruction - divergence)
        total -= probability[k] * (np.log(probability[k]) - np.log(1 / network.n_active))
    return total


@pytest.mark.parametrize("least", [0.0, 0.25])
def test_bound_by_enumeration(network, data, least):
    """All components, and those above a share: the rest of q is scaled up, so that it is a bound as well."""
    values, noise = data
    ours = network.bounds(values, values, noise, least=least).detach().numpy()
    left_out = (network.posterior(values).log_q.exp() < least).any()
    assert bool(left_out) == (least > 0)  # the case is not empty
    for n in range(N):
        assert ours[n] == pytest.approx(bound_by_enumeration(network, values[n], noise[n], least), rel=1e-9)


def test_leaving_out_the_improbable_changes_little(network, data):
    values, noise = data
    network.class_head.weight.data *= 3
    exact = network.bounds(values, values, noise, least=0.0)
    quick = network.bounds(values, values, noise)
    torch.testing.assert_close(exact, quick, rtol=0, atol=0.1)


def test_bound_is_below_the_evidence():
    """One latent dimension: the evidence integrated, the expectation over z by even quantiles."""
    network = small_network(latent_dim=1, n_active=2, seed=3)
    x = torch.from_numpy(np.random.default_rng(4).random((1, WIDTH)))
    grid = torch.linspace(-15, 15, 6001, dtype=torch.float64)[:, None]
    prior = torch.distributions.Normal(
        network.prior_means[:2, 0], torch.exp(0.5 * network.prior_log_vars[:2, 0])
    )
    log_prior = torch.logsumexp(prior.log_prob(grid), dim=1) - math.log(2)
    likelihood = network.vae.likelihood.log_prob(network.vae.decode(grid), x.expand(len(grid), -1))
    evidence = float(torch.logsumexp(log_prior + likelihood, 0).detach()) + math.log(30 / 6000)
    quantiles = torch.from_numpy(stats.norm.ppf((np.arange(2000) + 0.5) / 2000))
    many = x.expand(2000, -1)
    bound = float(network.bounds(many, many, quantiles[:, None, None].expand(-1, 2, 1)).mean().detach())
    assert evidence - 50 < bound < evidence


def test_gradient_by_differences(network, data):
    values, noise = data
    parameters = network.trained_parameters()

    def loss():
        return -network.bounds(values, values, noise, least=0.0).mean()

    gradients = torch.autograd.grad(loss(), parameters, allow_unused=True)
    for parameter, gradient in zip(parameters, gradients, strict=True):
        flat = parameter.data.view(-1)
        for where in (0, len(flat) // 3):  # the last components are not in use
            before, sides = float(flat[where]), []
            for step in (1e-6, -1e-6):
                flat[where] = before + step
                sides.append(float(loss().detach()))
            flat[where] = before
            by_differences = (sides[0] - sides[1]) / 2e-6
            assert float(gradient.reshape(-1)[where]) == pytest.approx(by_differences, rel=1e-4, abs=1e-7)


def test_bound_of_one_component(network, data):
    """log p(x | z) - KL + log q(y | x) of that component alone."""
    values, noise = data
    ours = network.bounds_of(1, values, values, noise[:, 1]).detach()
    alone = copy.deepcopy(network)
    alone.reorder(torch.tensor([1, 0, 2]))
    alone.n_active = 1
    log_q = network.posterior(values).log_q[:, 1].detach()
    torch.testing.assert_close(ours, alone.bounds(values, values, noise[:, 1:2]).detach() + log_q)


def test_new_component_is_a_copy_of_the_one_that_holds_the_rows(network, data):
    values, _ = data
    before = network.posterior(values)
    best = int(before.log_q.exp().sum(0).argmax())
    new = network.expand(values)
    after = network.posterior(values)
    assert (new, network.n_active) == (K, K + 1)
    torch.testing.assert_close(after.mean[:, new], before.mean[:, best])
    torch.testing.assert_close(after.log_var[:, new], before.log_var[:, best])
    torch.testing.assert_close(after.log_q[:, new], after.log_q[:, best])
    torch.testing.assert_close(after.mean[:, :K], before.mean)
    torch.testing.assert_close(network.prior_means[new], network.prior_means[best])


def test_another_order_is_the_same_model(network, data):
    values, noise = data
    order = torch.tensor([2, 0, 1])
    before, bound = network.posterior(values), network.bounds(values, values, noise, least=0.0)
    network.reorder(order)
    after = network.posterior(values)
    torch.testing.assert_close(after.log_q, before.log_q[:, order])
    torch.testing.assert_close(after.mean, before.mean[:, order])
    assert network.counts[:K].tolist() == [3.0, 1.0, 2.0]
    torch.testing.assert_close(network.bounds(values, values, noise[:, order], least=0.0), bound)


def test_generated_rows_follow_counts_and_components(network):
    """With a decoder that gives back codes: shares, means and variances of what is drawn."""
    network.counts[:K] = torch.tensor([1.0, 3.0, 0.0])
    network.prior_means.data[:2] = torch.tensor([[-20.0, 0.0], [20.0, 5.0]])
    network.prior_log_vars.data[:2] = torch.tensor([[0.0, 1.0], [-1.0, 0.0]])
    network.vae.decoder = torch.nn.Identity()
    network.vae.likelihood.mean = lambda output: output
    drawn = network.float().generate(8000, torch.Generator().manual_seed(0)).numpy()
    first = drawn[:, 0] < 0
    assert first.mean() == pytest.approx(0.25, abs=0.02)
    np.testing.assert_allclose(drawn[first].mean(0), [-20, 0], atol=0.12)
    np.testing.assert_allclose(drawn[~first].var(0), np.exp([-1.0, 0.0]), rtol=0.1)


# Rows that are explained poorly.


def test_poor_rows_are_collected_after_a_while():
    poor = PoorRows(-200.0, n_needed=6, wait_steps=1)
    bounds, values = torch.tensor([-199.0] * 30 + [-201.0] * 3), torch.arange(33.0)[:, None]
    assert not poor.look_at(bounds, values)
    assert poor.n_rows == 0
    assert not poor.look_at(bounds, values)
    assert poor.look_at(bounds, values)
    assert poor.take().flatten().tolist() == [30.0, 31.0, 32.0] * 2
    assert not poor.look_at(bounds, values)  # wait again
    assert poor.n_rows == 0


@pytest.mark.parametrize("name", LIKELIHOODS)
def test_level_of_the_mean_row(name):
    """It is the best that a decoder can do which gives the same for every row."""
    rng = np.random.default_rng(5)
    x = torch.tensor(rng.beta(0.5, 0.5, size=(40, 6)))
    likelihood = make_likelihood(name).double()
    level = likelihood.log_prob_of_mean(x)
    output = torch.zeros(6 * likelihood.n_outputs, dtype=torch.float64, requires_grad=True)
    free = [output, *(p for p in likelihood.parameters() if p.requires_grad)]
    optimiser = torch.optim.LBFGS(free, max_iter=200, line_search_fn="strong_wolfe", tolerance_change=1e-12)

    def loss():
        optimiser.zero_grad()
        value = -likelihood.log_prob(output.expand(40, -1), x).mean()
        value.backward()
        return value

    optimiser.step(loss)
    assert level == pytest.approx(-float(loss()), abs=1e-4)


def test_level_of_rows_that_are_all_alike():
    for name in LIKELIHOODS:
        level = make_likelihood(name).log_prob_of_mean(torch.zeros(9, 4))
        assert np.isfinite(level)


# Streams: two kinds of rows first, then two others.

STREAM = {
    "random_state": 0,
    "hidden_dims": (32,),
    "latent_dim": 3,
    "joint_epochs": 60,
    "learning_rate": 2e-2,
    "buffer_rows": 40,
}
BRIEF = {**STREAM, "epochs": 3, "joint_epochs": 3, "wait_steps": 20}


def kinds(which, n_rows, seed):
    """Rows of some of four kinds in 12 dimensions, and which each is of."""
    centres = 4.0 * np.random.default_rng(0).normal(size=(4, 12))
    rng = np.random.default_rng(seed)
    labels = rng.choice(which, n_rows)
    return centres[labels] + rng.normal(size=(n_rows, 12)), labels


@pytest.fixture(scope="module")
def first():
    return kinds([0, 1], 200, 1)


@pytest.fixture(scope="module")
def second():
    return kinds([2, 3], 200, 2)


@pytest.fixture(scope="module")
def grown(first, second):
    """CURL-D before and after it meets new kinds."""
    before = CURL(**STREAM).partial_fit(first[0])
    return before, copy.deepcopy(before).partial_fit(second[0])


def homogeneity(model, *parts):
    """Return how far components hold rows of one kind each."""
    rows, labels = (np.concatenate(values) for values in zip(*parts, strict=True))
    return homogeneity_score(labels, model.predict(rows))


def test_new_kinds_of_rows_get_components(grown, first, second):
    before, after = grown
    assert after.n_clusters_ > before.n_clusters_
    assert homogeneity(after, first, second) > 0.8
    assert set(after.predict(second[0])) - set(before.predict(first[0]))


def test_what_is_explained_well_makes_no_component(first):
    assert CURL(**{**BRIEF, "threshold": -1e9}).fit(first[0]).n_clusters_ == 1


def test_rows_are_counted_once(grown):
    before, after = grown
    assert (before.n_data_sets_, after.n_data_sets_) == (1, 2)
    for model, n_rows in ((before, 200), (after, 400)):
        assert float(model._network.counts.sum()) == pytest.approx(n_rows)
        assert model.weights_.sum() == pytest.approx(1.0)
        assert len(model.weights_) == model.n_clusters_


def test_room_is_not_exceeded(first, second):
    model = CURL(**{**STREAM, "max_clusters": 2, "threshold": 1e9}).partial_fit(first[0])
    assert model.partial_fit(second[0]).n_clusters_ == 2


def test_fixed_number_stays(first, second):
    model = CURL(3, **{**BRIEF, "threshold": 1e9, "wait_steps": 0}).partial_fit(first[0])
    assert model.n_clusters_ == 3
    assert model.partial_fit(second[0]).n_clusters_ == 3


def test_the_bound_over_the_most_probable_components_by_enumeration(grown, first):
    """What is left, scaled to sum to 1, is a q(y | x) as well."""
    network = grown[1]._network
    values = grown[1]._inputs(torch.from_numpy(first[0]))[:50]
    noise = torch.randn(50, network.n_active, 3, generator=torch.Generator().manual_seed(0))
    q = network.posterior(values)
    log_q = q.log_q
    z = q.mean + torch.exp(0.5 * q.log_var) * noise
    each = torch.stack(
        [
            network.vae.likelihood.log_prob(network.vae.decode(z[:, k]), values)
            for k in range(network.n_active)
        ],
        dim=1,
    )
    gain = each - network.divergence(q) - np.log(network.n_active)
    for most in (1, 2, network.n_active):
        places = log_q.topk(most, dim=1).indices
        share = torch.softmax(log_q.gather(1, places), dim=1)
        expected = (share * (gain.gather(1, places) - share.log())).sum(1)
        ours = network.bounds(values, values, noise, least=0.0, most=most)
        torch.testing.assert_close(ours, expected, rtol=1e-4, atol=1e-4)


def test_replay_keeps_what_was_learned(grown, first, second):
    """Rows of the past are described better with replay, and their components mean more."""
    before, after = grown
    without = copy.deepcopy(before).set_params(replay=False).partial_fit(second[0])

    def level(model):
        inputs = model._inputs(torch.from_numpy(first[0]))
        with torch.no_grad():
            noise = torch.zeros(len(inputs), model.n_clusters_, 3)
            return float(model._network.bounds(inputs, inputs, noise).mean())

    lost, lost_without = (level(before) - level(model) for model in (after, without))
    assert lost_without > 20.0
    assert lost < 0.2 * lost_without
    assert homogeneity(after, first, second) > homogeneity(without, first, second)


def test_no_row_of_the_past_is_kept(grown, second):
    """But for poorly explained ones, of which there are fewer than make a component."""
    _, after = grown
    sizes = [len(t) for t in after._poor.rows]
    assert sum(sizes) < STREAM["buffer_rows"]
    stored = [v for v in vars(after).values() if isinstance(v, torch.Tensor | np.ndarray) and v.ndim == 2]
    assert all(len(v) < 200 for v in stored)


def test_stream_is_repeatable_and_labels_do_nothing(first, second):
    a, b = (CURL(**BRIEF).partial_fit(first[0], y).partial_fit(second[0], y) for y in (None, first[1]))
    np.testing.assert_array_equal(a.predict_proba(first[0]), b.predict_proba(first[0]))
    c = CURL(**BRIEF).fit(first[0]).partial_fit(second[0])
    np.testing.assert_array_equal(a.predict_proba(first[0]), c.predict_proba(first[0]))


def test_failure_in_a_stream_leaves_the_model(first):
    model = CURL(**BRIEF).partial_fit(first[0])
    before = model.predict_proba(first[0])

    def stop(progress):
        raise KeyboardInterrupt

    model.set_params(callback=stop)
    with pytest.raises(KeyboardInterrupt):
        model.partial_fit(first[0])
    np.testing.assert_array_equal(model.predict_proba(first[0]), before)
    assert model.n_data_sets_ == 1
