"""The bound and the marginal likelihood, against brute force and against each other."""

import itertools
from dataclasses import replace

import brute_force
import numpy as np
import pytest
import torch
from scipy import stats as scipy_stats
from scipy.special import gammaln, logsumexp
from ten_points import make_case

from dbull.mixture import elbo as elbo_module
from dbull.mixture.elbo import elbo_terms
from dbull.mixture.posterior import global_step, log_evidence, merge_gaps
from dbull.mixture.stats import SufficientStats
from dbull.mixture.updates import local_step, local_summary, summarize


def elbo_after_global_step(prior, stats):
    """The closed form as a plain number."""
    return float(elbo_module.elbo_after_global_step(prior, stats))


CASES = [
    pytest.param(seed, D, K, with_variance, id=f"seed{seed}-D{D}-K{K}{'-var' if with_variance else ''}")
    for seed, (D, K, with_variance) in enumerate(itertools.product((1, 2, 4), (1, 3), (False, True)))
]


@pytest.mark.parametrize(("seed", "n_dims", "n_components", "with_variance"), CASES)
def test_ten_points_by_brute_force(seed, n_dims, n_components, with_variance):
    """Term by term and in all, against sums over single points written with scipy only."""
    case = make_case(seed, 10, n_dims, n_components, with_variance)
    q = brute_force.global_step(case.z, case.var, case.r, case.plain_prior)
    expected = brute_force.elbo_terms(case.z, case.var, case.r, q, case.plain_prior)
    got = elbo_terms(case.prior, global_step(case.prior, case.stats), case.stats)
    assert got.log_likelihood == pytest.approx(expected["likelihood"], rel=1e-10)
    assert got.assignment == pytest.approx(expected["assignment"], rel=1e-10)
    assert got.entropy == pytest.approx(expected["entropy"], rel=1e-10, abs=1e-12)
    assert got.minus_stick_divergence == pytest.approx(expected["sticks"], rel=1e-9)
    assert got.minus_component_divergence == pytest.approx(expected["components"], rel=1e-9)
    assert got.total == pytest.approx(sum(expected.values()), rel=1e-10)


@pytest.mark.parametrize(("seed", "n_dims", "n_components", "with_variance"), CASES)
def test_closed_form_after_a_global_step(seed, n_dims, n_components, with_variance):
    case = make_case(seed, 10, n_dims, n_components, with_variance)
    terms = elbo_terms(case.prior, global_step(case.prior, case.stats), case.stats)
    assert elbo_after_global_step(case.prior, case.stats) == pytest.approx(terms.total, rel=1e-11)
    expected = brute_force.elbo(case.z, case.var, case.r, case.plain_prior)
    assert elbo_after_global_step(case.prior, case.stats) == pytest.approx(expected, rel=1e-10)


def test_term_by_term_when_posterior_and_statistics_do_not_belong_together():
    """The aggregated form holds for any posterior, not only right after the global step."""
    case, other = make_case(3), make_case(4)
    posterior = global_step(other.prior, other.stats)
    q = brute_force.global_step(other.z, other.var, other.r, other.plain_prior)
    expected = brute_force.elbo_terms(case.z, case.var, case.r, q, case.plain_prior)
    got = elbo_terms(case.prior, posterior, case.stats)
    assert got.log_likelihood == pytest.approx(expected["likelihood"], rel=1e-10)
    assert got.total == pytest.approx(sum(expected.values()), rel=1e-10)
    assert got.total < elbo_after_global_step(case.prior, case.stats)


def test_aggregated_likelihood_is_the_sum_over_points():
    """E log p(z | y, components) from statistics = sum of r_nk E log N(z_n | k) over points."""
    case, other = make_case(5), make_case(6)
    posterior = global_step(other.prior, other.stats)
    q = brute_force.global_step(other.z, other.var, other.r, other.plain_prior)
    by_point = sum(
        case.r[n, k] * brute_force.expected_log_likelihood(q[k], case.z[n], case.var[n])
        for n in range(10)
        for k in range(3)
    )
    assert elbo_terms(case.prior, posterior, case.stats).log_likelihood == pytest.approx(by_point, rel=1e-11)


@pytest.mark.parametrize("n_dims", [1, 3])
@pytest.mark.parametrize("n_rows", [1, 2, 10])
def test_log_evidence_is_the_marginal_likelihood(n_dims, n_rows):
    """By the multivariate gamma formula, and by the chain rule of Student-t predictives."""
    case = make_case(1, n_rows, n_dims, 1, with_variance=False)
    got = float(log_evidence(case.prior, case.stats))
    assert got == pytest.approx(brute_force.log_marginal(case.z, case.plain_prior), rel=1e-10)
    chain = 0.0
    for n in range(n_rows):
        past = case.z[:n]
        q = brute_force.global_step(past, np.zeros_like(past), np.ones((n, 1)), case.plain_prior)[0]
        dof = q["nu"] - n_dims + 1
        shape = q["B"] * (q["beta"] + 1) / (q["beta"] * dof)
        chain += scipy_stats.multivariate_t(q["m"], shape, df=dof).logpdf(case.z[n])
    assert got == pytest.approx(chain, rel=1e-9)


def test_evidence_of_nothing_is_one():
    """An empty component changes neither the evidence nor the bound (nested truncation)."""
    case = make_case(2)
    grown = case.stats.with_empty(2)
    assert log_evidence(case.prior, grown)[-2:].tolist() == pytest.approx([0.0, 0.0], abs=1e-10)
    assert elbo_after_global_step(case.prior, grown) == pytest.approx(
        elbo_after_global_step(case.prior, case.stats), rel=1e-12
    )


def test_merge_gaps():
    """log M(a+b) - log M(a) - log M(b), against evidences of hard assignments from the formula."""
    case = make_case(8, n_rows=12, n_components=3, with_variance=False)
    hard = np.zeros((12, 3))
    hard[np.arange(12), np.arange(12) % 3] = 1.0
    stats = summarize(torch.tensor(np.where(hard > 0, 0.0, -np.inf)), case.points)
    gaps = merge_gaps(case.prior, stats)
    single = [brute_force.log_marginal(case.z[k::3], case.plain_prior) for k in range(3)]
    for a, b in itertools.permutations(range(3), 2):
        rows = (hard[:, a] + hard[:, b]) > 0
        pair = brute_force.log_marginal(case.z[rows], case.plain_prior)
        assert float(gaps[a, b]) == pytest.approx(pair - single[a] - single[b], rel=1e-9)
    assert torch.equal(torch.diagonal(gaps), torch.full((3,), -torch.inf, dtype=torch.float64))
    empty = merge_gaps(case.prior, stats.with_empty(1))
    assert empty[3, :3].tolist() == pytest.approx([0.0] * 3, abs=1e-9)


def test_pooled_bound_needs_the_pair_entropy():
    """Pooling two components: statistics add, the entropy is that of the summed responsibilities."""
    case = make_case(9)
    together = np.column_stack([case.r[:, 0] + case.r[:, 2], case.r[:, 1]])
    pair = -(together[:, 0] * np.log(together[:, 0])).sum()
    pooled = case.stats.pooled(0, 2, pair)
    direct = summarize(torch.tensor(np.log(together)), case.points)
    for name in ("counts", "sum_z", "sum_zz", "entropy"):
        torch.testing.assert_close(getattr(pooled, name), getattr(direct, name))
    assert elbo_after_global_step(case.prior, pooled) == pytest.approx(
        brute_force.elbo(case.z, case.var, together, case.plain_prior), rel=1e-10
    )


@pytest.mark.parametrize("seed", range(4))
def test_descending_size_is_the_best_order_of_all(seed):
    case = make_case(seed, n_components=4)
    bounds = {
        order: elbo_after_global_step(case.prior, case.stats.select(torch.tensor(order)))
        for order in itertools.permutations(range(4))
    }
    by_size = tuple(torch.argsort(case.stats.counts, descending=True).tolist())
    assert bounds[by_size] == pytest.approx(max(bounds.values()), rel=1e-12)
    assert min(bounds.values()) < max(bounds.values()) - 1e-6


def test_no_posterior_or_assignment_is_better_than_the_steps():
    """Each step is the exact optimum of its factor: any other value of it lowers the bound."""
    case = make_case(12)
    posterior = global_step(case.prior, case.stats)
    best = elbo_terms(case.prior, posterior, case.stats).total
    rng = np.random.default_rng(0)
    for scale in (0.01, 0.1, 0.5):
        nudged = case.r * np.exp(scale * rng.normal(size=case.r.shape))
        nudged /= nudged.sum(1, keepdims=True)
        other = global_step(case.prior, summarize(torch.tensor(np.log(nudged)), case.points))
        assert elbo_terms(case.prior, other, case.stats).total < best
    optimum = elbo_terms(case.prior, posterior, local_summary(posterior, case.points)).total
    assert optimum > best
    log_resp = local_step(posterior, case.points)
    for scale in (0.01, 0.1, 0.5):
        noise = torch.tensor(scale * rng.normal(size=case.r.shape))
        moved = summarize(torch.log_softmax(log_resp + noise, 1), case.points)
        assert elbo_terms(case.prior, posterior, moved).total < optimum


def partitions(items):
    """Yield every partition of a list into blocks."""
    if not items:
        yield []
        return
    head, rest = items[0], items[1:]
    for smaller in partitions(rest):
        for i, block in enumerate(smaller):
            yield [*smaller[:i], [head, *block], *smaller[i + 1 :]]
        yield [[head], *smaller]


def test_bound_and_the_evidence_of_the_infinite_mixture():
    """For three points the evidence is a sum over the five partitions (Chinese restaurant times log M).

    With hard labels the bound is log p(points, labels) itself, so over all labels on enough sticks it sums to
    the same evidence: nested truncation bounds the infinite model and no other. Soft labels stay below.
    """
    case = make_case(20, n_rows=3, n_components=2, with_variance=False)
    alpha, n_sticks = 0.4, 9
    prior = replace(case.prior, concentration=alpha)
    logs = [
        len(blocks) * np.log(alpha)
        + sum(gammaln(len(b)) + brute_force.log_marginal(case.z[b], case.plain_prior) for b in blocks)
        + gammaln(alpha)
        - gammaln(alpha + 3)
        for blocks in partitions([0, 1, 2])
    ]
    model = logsumexp(logs)
    hard = torch.where(torch.eye(n_sticks) > 0, 0.0, -torch.inf).to(torch.float64)
    joint = [
        elbo_after_global_step(prior, summarize(hard[list(labels)], case.points))
        for labels in itertools.product(range(n_sticks), repeat=3)
    ]
    assert logsumexp(joint) < model
    assert logsumexp(joint) == pytest.approx(model, abs=1e-3)
    for seed in range(3):
        stats = make_case(seed, 3, n_components=2, with_variance=False).r
        stats = summarize(torch.tensor(np.log(stats)), case.points)
        for _ in range(20):
            stats = local_summary(global_step(prior, stats), case.points)
        assert elbo_after_global_step(prior, stats) < model


def test_several_mixtures_side_by_side():
    """A leading dimension over mixtures gives each its own bound."""
    cases = [make_case(seed) for seed in range(3)]
    prior = cases[0].prior
    stack = [c.stats for c in cases]
    together = SufficientStats(
        torch.stack([s.counts for s in stack]),
        torch.stack([s.sum_z for s in stack]),
        torch.stack([s.sum_zz for s in stack]),
        torch.stack([s.entropy for s in stack]),
    )
    got = elbo_module.elbo_after_global_step(prior, together)
    assert got.tolist() == pytest.approx([elbo_after_global_step(prior, s) for s in stack], rel=1e-12)
