"""Proposals: their bound is that of a real assignment of all rows, and only structure is accepted."""

import itertools
from dataclasses import replace

import brute_force
import numpy as np
import pytest
import torch

from dbull.mixture import birth, merge, moves
from dbull.mixture.birth import _sorted, best_fresh, fit_fresh, propose_birth, seed_labels
from dbull.mixture.memory import StatsMemory
from dbull.mixture.merge import merge_candidates, propose_dissolution, propose_merge
from dbull.mixture.moves import Proposal, TemperedModel, accept, refine, state_under
from dbull.mixture.prior import adapted_prior, paper_prior
from dbull.mixture.settings import SearchSettings
from dbull.mixture.updates import Points, local_step, local_summary, summarize
from synthetic import gaussian_clusters

REFINE = 4
K = 4


def hard(labels, n_components):
    mask = torch.as_tensor(labels)[:, None] == torch.arange(n_components)
    return torch.where(mask, 0.0, -torch.inf).to(torch.float64)


class World:
    """A settled state with a past, and everything the engine may forget kept aside.

    Four overlapping blobs now; `n_old` components were learned from a past data set.
    """

    def __init__(self, n_old=2, weight=1.0, n_rows=60, seed=0):
        rng = np.random.default_rng(seed)
        centres = np.array([[0.0, 0.0], [3.5, 0.5], [0.5, 3.5], [5.0, 5.0]])
        self.prior = paper_prior(2, 1.3)
        self.model = TemperedModel(self.prior, weight)
        self.memory = StatsMemory.empty(2)
        self.past_z, self.past_r = np.zeros((0, 2)), np.zeros((0, K))
        if n_old:
            self.memory.add_components(n_old)
            labels = np.arange(30) % 7 % n_old  # not equal in size
            self.past_z = centres[labels] + 0.5 * rng.normal(size=(30, 2))
            soft = 0.9 * np.eye(K)[labels] + 0.1 * np.eye(K)[:n_old].mean(0)
            self.past_r = soft * rng.uniform(0.9, 1.1, (30, K))
            self.past_r /= self.past_r.sum(1, keepdims=True)
            assert (np.diff(self.past_r.sum(0)[:n_old]) < 0).all()  # in order of size, as folding leaves them
            with np.errstate(divide="ignore"):
                log_r = torch.tensor(np.log(self.past_r[:, :n_old]))
            self.memory.refill([summarize(log_r, Points.from_rows(torch.tensor(self.past_z)))])
            self.memory.fold()
        self.z = centres[rng.integers(0, K, n_rows)] + 0.8 * rng.normal(size=(n_rows, 2))
        self.points = Points.from_rows(torch.tensor(self.z))
        self.memory.add_components(K - n_old)
        nearest = ((self.z[:, None] - centres) ** 2).sum(2).argmin(1)
        start = self.memory.overall + summarize(hard(nearest, K), self.points)
        self.used = self.model.posterior(start)
        self.memory.refill([local_summary(self.used, self.points)])
        self.state = state_under(self.model, self.memory, self.points, self.used)
        self.r = local_step(self.used, self.points).exp().numpy()  # what the memory was made with

    def bound(self, r, past_r):
        """The exact bound with every row of past and present in hand."""
        p = self.prior
        z = np.concatenate([self.past_z, self.z])
        both = np.concatenate([past_r, r])
        plain = (p.concentration, p.mean.numpy(), p.mean_precision, p.dof, p.scale_inv.numpy())
        return brute_force.elbo(z, np.zeros_like(z), both, plain, self.model.weight)

    def active_rows(self, active):
        """Row numbers of the active points."""
        return [int(np.flatnonzero((self.z == row).all(1))[0]) for row in active.zt.T.numpy()]


@pytest.fixture
def last_local_posterior(monkeypatch):
    """Catch the posterior of the last local step that a proposal took."""
    caught = {}

    def stepwise(model, rest, active, posterior, n_steps):
        for _ in range(n_steps):
            caught["posterior"] = posterior
            total, posterior = refine(model, rest, active, posterior, 1)
        return total, posterior

    monkeypatch.setattr(birth, "refine", stepwise)
    monkeypatch.setattr(merge, "refine", stepwise)
    return caught


def test_the_settled_state_is_what_it_says():
    world = World()
    assert world.state.elbo == pytest.approx(world.bound(world.r, world.past_r), rel=1e-10)
    for k in range(K):
        assert world.state.members[k].tolist() == np.flatnonzero(world.r[:, k] > 0.01).tolist()


@pytest.mark.parametrize("weight", [1.0, 0.4])
@pytest.mark.parametrize("n_old", [0, 2])
@pytest.mark.parametrize(("target", "leave_one_out"), [(0, False), (2, False), (2, True)])
def test_bound_of_a_birth_is_exact(monkeypatch, last_local_posterior, n_old, target, leave_one_out, weight):
    """Only active rows were assigned again; with all responsibilities written out the bound is the same."""
    world = World(n_old, weight, n_rows=90, seed=3)

    def any_three(model, points, factor, sizes, n_steps, generator):  # whether or not they are better
        return summarize(hard(seed_labels(points.zt.T, 3, generator), 3), points)

    monkeypatch.setattr(birth, "best_fresh", any_three)

    def propose(min_rows):
        generator = torch.Generator().manual_seed(0)
        settings = SearchSettings(fresh_rows=1000, fresh_steps=20, refine_steps=REFINE)
        return propose_birth(world.state, target, (3,), min_rows, settings, generator)

    proposal, active = propose(0.0)
    if leave_one_out:  # the smallest child falls under the limit and goes
        sizes = (
            proposal.memory.total - world.memory.total.with_empty(proposal.memory.n_components - K)
        ).counts
        n_all, (smallest, second) = len(sizes), sizes[K:].sort().values[:2].tolist()
        proposal, active = propose((smallest + second) / 2)
        assert proposal.memory.n_components == n_all - 1
    rows = world.active_rows(active)
    assert sorted(rows) == np.flatnonzero(world.r[:, target] > 0.01).tolist()
    assert 0 < len(rows) < len(world.z)
    n_new = proposal.memory.n_components - K
    assert n_new >= 1
    r = np.concatenate([world.r, np.zeros((len(world.z), n_new))], 1)
    r[rows] = local_step(last_local_posterior["posterior"], active).exp().numpy()
    past = np.concatenate([world.past_r, np.zeros((len(world.past_r), n_new))], 1)
    assert proposal.elbo == pytest.approx(world.bound(r, past), rel=1e-9)
    assert float(proposal.memory.total.counts.sum()) == pytest.approx(len(world.z) + len(world.past_z))
    assert proposal.memory.ids[:K] == world.memory.ids
    assert world.memory.n_components == K  # the present is untouched


@pytest.mark.parametrize("max_rows", [1000, 10])
def test_a_birth_collects_the_rows_of_its_target_by_share(monkeypatch, max_rows):
    """Rows with more than a tenth, each by the share the target has; in all they speak for the target."""
    world = World(0, 0.4, n_rows=90)
    seen = {}

    def look(model, points, factor, sizes, n_steps, generator):
        seen.update(model=model, points=points)
        return summarize(torch.zeros(len(points), 1, dtype=torch.float64), points)

    monkeypatch.setattr(birth, "best_fresh", look)
    settings = SearchSettings(fresh_rows=max_rows, fresh_steps=20, refine_steps=REFINE)
    assert propose_birth(world.state, 1, (2,), 0.0, settings, torch.Generator().manual_seed(0)) is None
    rows = world.active_rows(seen["points"])
    mine = np.flatnonzero(world.r[:, 1] > 0.1).tolist()
    assert set(rows) <= set(mine)
    assert len(rows) == min(max_rows, len(mine))
    np.testing.assert_allclose(seen["points"].mass.numpy(), world.r[rows, 1], rtol=1e-12)
    spoken = seen["model"].weight * float(seen["points"].mass.sum())
    assert spoken == pytest.approx(0.4 * world.r[:, 1].sum())


@pytest.mark.parametrize("weight", [1.0, 0.4])
@pytest.mark.parametrize(("n_old", "pair"), [(0, (0, 1)), (0, (1, 2)), (2, (0, 2)), (2, (2, 1))])
def test_bound_of_a_merge_never_exceeds_the_exact_one(last_local_posterior, n_old, pair, weight):
    world = World(n_old, weight)
    proposal, active = propose_merge(world.state, *pair, REFINE)
    keep, drop = (world.memory.ids.index(i) for i in proposal.subjects)
    assert {keep, drop} == set(pair)
    rows = world.active_rows(active)
    assert len(rows) < len(world.z)  # some rows do not care
    kept = [k for k in range(K) if k != drop]
    r = world.r.copy()
    r[:, keep] += r[:, drop]
    r = r[:, kept]
    r[rows] = local_step(last_local_posterior["posterior"], active).exp().numpy()
    assert world.past_r[:, drop].sum() == 0  # the dropped one has no past
    exact = world.bound(r, world.past_r[:, kept])
    assert proposal.elbo <= exact + 1e-9 * abs(exact)
    assert proposal.elbo == pytest.approx(exact, abs=0.05)
    assert proposal.memory.ids == tuple(world.memory.ids[k] for k in kept)


@pytest.mark.parametrize(("n_old", "pair"), [(0, (0, 1)), (2, (2, 0)), (2, (1, 2))])
def test_merge_with_the_overall_record_is_the_merge_with_all_data(
    monkeypatch, last_local_posterior, n_old, pair
):
    """When every row of the stream is active nothing is bounded: the past alone in the record is exact."""
    monkeypatch.setattr(moves, "ACTIVE_RESPONSIBILITY", -1.0)
    world = World(n_old)
    proposal, active = propose_merge(world.state, *pair, REFINE)
    assert len(active) == len(world.z)
    kept = [k for k in range(K) if world.memory.ids[k] != proposal.subjects[1]]
    r = local_step(last_local_posterior["posterior"], active).exp().numpy()
    r = r[np.argsort(world.active_rows(active))]
    assert proposal.elbo == pytest.approx(world.bound(r, world.past_r[:, kept]), rel=1e-10)


def test_dissolution_never_claims_more_than_the_exact_bound(last_local_posterior):
    """Rows that do not care leave what little the target had of them to its nearest neighbour."""
    for seed in range(4):
        world = World(0, seed=seed)
        target = K - 1
        proposal, active = propose_dissolution(world.state, target, REFINE)
        rows = world.active_rows(active)
        assert len(rows) < len(world.z)
        heir = merge._nearest_component(world.state, target)
        r = world.r.copy()
        r[:, heir] += r[:, target]
        r = r[:, :target]
        r[rows] = local_step(last_local_posterior["posterior"], active).exp().numpy()
        exact = world.bound(r, world.past_r[:, :target])
        assert proposal.required
        assert proposal.elbo <= exact + 1e-9 * abs(exact)
        assert proposal.elbo == pytest.approx(exact, abs=0.1)


def test_candidates_are_ranked_by_gap_and_never_two_established():
    world = World(2)
    pairs = merge_candidates(world.state, 10)
    assert set(pairs) == {(0, 2), (0, 3), (1, 2), (1, 3), (2, 3)}  # (0, 1) both have a past
    everything = replace(
        world.state, memory=replace(world.memory, established=torch.zeros(K, dtype=torch.bool))
    )
    pairs = merge_candidates(everything, 10)
    prior = world.prior
    plain = (
        prior.concentration,
        prior.mean.numpy(),
        prior.mean_precision,
        prior.dof,
        prior.scale_inv.numpy(),
    )
    assert set(pairs) == set(itertools.combinations(range(K), 2))
    zs, rs = np.concatenate([world.past_z, world.z]), np.concatenate([world.past_r, world.r])

    def observation_part(r):
        """log M of fractional points: the bound of one component without allocation and entropy."""
        q = brute_force.global_step(zs, np.zeros_like(zs), r[:, None], plain)
        terms = brute_force.elbo_terms(zs, np.zeros_like(zs), r[:, None], q, plain)
        return terms["likelihood"] + terms["components"]

    gaps = [
        observation_part(rs[:, a] + rs[:, b]) - observation_part(rs[:, a]) - observation_part(rs[:, b])
        for a, b in pairs
    ]
    assert gaps == sorted(gaps, reverse=True)
    assert merge_candidates(everything, 2) == pairs[:2]
    old = replace(world.state, memory=replace(world.memory, established=torch.ones(K, dtype=torch.bool)))
    assert merge_candidates(old, 10) == []


def test_mere_refinement_is_not_accepted():
    """A proposal that only settles further beats the present bound, but not the present equally refined."""
    world = World(0)
    state = world.state
    active = world.points
    rest = state.memory.total - local_summary(state.used, active)
    total, posterior = refine(world.model, rest, active, world.model.posterior(state.memory.total), REFINE)
    memory = state.memory.coarse()
    memory.current = total
    only_refined = Proposal("birth", (0,), memory, posterior, world.model.elbo(total), REFINE)
    assert only_refined.elbo > state.elbo + 1e-3
    record = accept(state, only_refined, active)
    assert not record.accepted
    assert record.elbo_before == pytest.approx(only_refined.elbo, rel=1e-12)
    # By less refinement than the present gets, it is worse; by the bound alone it would have passed.
    better = replace(only_refined, elbo=only_refined.elbo + 1e-3)
    assert accept(state, better, active).accepted
    worse = replace(only_refined, elbo=state.elbo - 1.0)
    assert not accept(state, worse, active).accepted
    assert accept(state, replace(worse, required=True), active).accepted


def test_a_rounding_gain_is_no_gain():
    world = World(0)
    memory = world.memory.coarse()
    elbo = world.state.elbo + 1e-12 * abs(world.state.elbo)
    same = Proposal("merge", (0, 1), memory, world.used, elbo, 0)
    assert not accept(world.state, same, world.points.take(torch.tensor([0]))).accepted


def test_record_names_who_came_and_went():
    world = World(0)
    proposal, active = propose_merge(world.state, 0, 1, REFINE)
    record = accept(world.state, proposal, active)
    assert set(record.subjects) == {0, 1}
    assert record.born == ()
    assert record.gone == (proposal.subjects[1],)


def test_refine_raises_the_bound_step_by_step():
    world = World(2)
    active = world.points.take(torch.arange(0, 60, 2))
    rest = world.state.memory.total - local_summary(world.used, active)
    posterior = world.model.posterior(world.memory.total)
    bounds = [world.state.elbo]
    for n in range(1, 8):
        total, _ = refine(world.model, rest, active, posterior, n)
        bounds.append(world.model.elbo(total))
    assert all(b >= a - 1e-9 for a, b in itertools.pairwise(bounds))
    assert bounds[-1] > bounds[0]


# The small mixture of a birth.


def test_birth_finds_the_two_halves_of_one_component():
    rng = np.random.default_rng(0)
    z, labels = gaussian_clusters(rng, (120, 80), 3, distance=10)
    points = Points.from_rows(torch.tensor(z))
    one = summarize(torch.zeros(200, 1, dtype=torch.float64), points)
    model = TemperedModel(adapted_prior(one))
    memory = StatsMemory.empty(3)
    memory.add_components(1)
    used = model.posterior(one)
    memory.refill([local_summary(used, points)])
    state = state_under(model, memory, points, used)
    settings = SearchSettings(fresh_rows=1000, fresh_steps=40, refine_steps=REFINE)
    proposal, active = propose_birth(state, 0, (2, 3, 5, 10), 5.0, settings, torch.Generator().manual_seed(0))
    assert accept(state, proposal, active).accepted
    assert proposal.memory.n_components == 2
    found = local_step(proposal.posterior, points).argmax(1).numpy()
    assert len(set(zip(found, labels, strict=True))) == 2  # one to one with the truth


def test_no_birth_from_one_gaussian():
    rng = np.random.default_rng(1)
    points = Points.from_rows(torch.tensor(rng.normal(size=(300, 2))))
    one = summarize(torch.zeros(300, 1, dtype=torch.float64), points)
    model = TemperedModel(adapted_prior(one))
    factor = model.posterior(one).factor[0]
    fresh = best_fresh(model, points, factor, (2, 3, 5, 10), 40, torch.Generator().manual_seed(0))
    assert fresh.n_components == 1
    assert float(fresh.counts[0]) == pytest.approx(300.0)


@pytest.mark.parametrize("with_mass", [False, True])
def test_fresh_mixtures_side_by_side_are_each_alone(with_mass):
    """Fitting several mixtures at once gives each the statistics it gets by plain steps on its own."""
    world = World(0, n_rows=80)
    points = world.points
    if with_mass:
        points = replace(points, mass=torch.linspace(0.2, 1.0, 80, dtype=torch.float64))
    generator = torch.Generator().manual_seed(0)
    labels = [seed_labels(points.zt.T, size, generator) for size in (2, 3, 5)]
    together = fit_fresh(world.model, points, labels, 4, -torch.inf)
    for own, got in zip(labels, together, strict=True):
        stats = summarize(hard(own, int(own.max()) + 1), points)
        for _ in range(4):
            stats = local_summary(world.model.posterior(_sorted(stats)), points)
        expected = _sorted(stats)
        for name in ("counts", "sum_z", "sum_zz", "entropy"):
            torch.testing.assert_close(getattr(got, name), getattr(expected, name), rtol=1e-8, atol=1e-8)
    assert [got.n_components for got in together] == [2, 3, 5]


def test_hopeless_fresh_mixtures_are_given_up_and_good_ones_never():
    """Two clear clusters: a bound that is easily reached keeps the mixture, one out of reach ends it."""
    rng = np.random.default_rng(31)
    z, _ = gaussian_clusters(rng, (50, 50), 2, distance=5.0)
    points = Points.from_rows(torch.tensor(z))
    model = TemperedModel(paper_prior(2))
    labels = [torch.arange(100) % 2, torch.arange(100) % 3]  # poor starts, so that the steps matter
    one = model.elbo(summarize(torch.zeros(100, 1, dtype=torch.float64), points))
    for n_steps in (5, 10, 30):  # also when the last step is one at which the bound is looked at
        assert len(fit_fresh(model, points, labels, n_steps, one - 100)) == 2
    assert fit_fresh(model, points, labels, 30, 1e6) == []


def test_a_shared_row_counts_only_by_its_share():
    """Rows that belong half to another component speak with half their weight, for one or for two alike."""
    rng = np.random.default_rng(30)
    z, _ = gaussian_clusters(rng, (60, 60), 2, distance=4.0)
    doubled = Points.from_rows(torch.tensor(np.repeat(z, 2, 0)))
    points_with_mass = replace(doubled, mass=torch.full((240,), 0.5, dtype=torch.float64))
    model = TemperedModel(paper_prior(2))
    factor = torch.eye(2, dtype=torch.float64)
    plain = best_fresh(
        model, Points.from_rows(torch.tensor(z)), factor, (), 30, torch.Generator().manual_seed(0)
    )
    halves = best_fresh(model, points_with_mass, factor, (), 30, torch.Generator().manual_seed(0))
    assert model.elbo(halves) == pytest.approx(model.elbo(plain), rel=1e-10)


def test_seed_labels_of_separated_blobs_and_of_duplicates():
    rng = np.random.default_rng(2)
    z, labels = gaussian_clusters(rng, (40, 40, 40), 2, distance=30)
    got = seed_labels(torch.tensor(z), 3, torch.Generator().manual_seed(0)).numpy()
    assert len(set(zip(got, labels, strict=True))) == 3
    same = seed_labels(torch.ones(9, 2, dtype=torch.float64), 4, torch.Generator().manual_seed(0))
    assert same.tolist() == [0] * 9
    two = torch.tensor([[0.0], [0.0], [1.0], [1.0]], dtype=torch.float64)
    labels = seed_labels(two, 4, torch.Generator().manual_seed(0)).tolist()
    assert labels[0] == labels[1] != labels[2] == labels[3]
    assert set(labels) == {0, 1}
