"""The search: its bound never falls, its memory equals recomputation, and it finds the structure."""

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch
from records import assert_same

from dbull.mixture import search as search_module
from dbull.mixture.memory import StatsMemory
from dbull.mixture.moves import TemperedModel
from dbull.mixture.prior import adapted_prior, paper_prior
from dbull.mixture.search import Search, fit_data_set, memoized_laps
from dbull.mixture.settings import MANY_CLUSTERS, FitSettings, SearchSettings, default_evidence
from dbull.mixture.updates import Points, local_step, local_summary, summarize
from synthetic import gaussian_clusters, skewed_clusters


def points_of(z):
    return Points.from_rows(torch.tensor(z))


def hard(labels, n_components):
    mask = torch.as_tensor(labels)[:, None] == torch.arange(n_components)
    return torch.where(mask, 0.0, -torch.inf).to(torch.float64)


@dataclass(frozen=True)
class Weighed(FitSettings):
    """Settings under which an observation counts by the number of components alone."""

    rule: Callable[[int], float] = lambda n_components: 1.0

    def weight(self, n_rows, n_dims, n_components):
        return self.rule(n_components)


def make_search(z, memory=None, prior=None, weight=1.0, seed=0, start=None, **settings):
    memory = StatsMemory.empty(z.shape[1]) if memory is None else memory
    generator = torch.Generator().manual_seed(seed)
    chosen = Weighed(prior, rule=lambda K: weight, search=SearchSettings(**settings))
    return Search(memory, points_of(z), chosen, generator, start)


def assert_settled(search):
    """The memory is exactly what the present posterior makes of all rows, mini-batch by mini-batch."""
    fresh = local_summary(search.state.used, search.points)
    assert_same(search.memory.current, fresh, tolerance=1e-8)
    assert_same(search.memory.total, search.memory.overall + fresh, tolerance=1e-8)
    assert len(search.memory.batches) == len(search.batches)
    for record, batch in zip(search.memory.batches, search.batches, strict=True):
        assert_same(record, local_summary(search.state.used, batch), tolerance=1e-8)
    assert search.state.elbo == pytest.approx(search.model.elbo(search.memory.overall + fresh), rel=1e-10)


def assert_never_falls(progress):
    """The bound rises or stays at every lap and move; a changed measure or a required move may lower it."""
    last = -np.inf
    for step in progress:
        slack = 1e-9 * abs(step.elbo)
        if step.move is not None and step.move.accepted and step.move.kind != "dissolve":
            assert step.move.elbo_after > step.move.elbo_before >= last - slack
            assert step.elbo >= step.move.elbo_after - slack
        if step.kind not in ("adapt", "dissolve"):
            assert step.elbo >= last - slack, step
        last = step.elbo


def data_set(name):
    rng = np.random.default_rng(5)
    if name == "separated":
        return gaussian_clusters(rng, (120, 80, 60, 30), 2)[0]
    if name == "overlapping":
        return gaussian_clusters(rng, (100, 80, 60), 3, distance=3.0)[0]
    if name == "skewed":
        return skewed_clusters(rng, (150, 100), 3)[0]
    if name == "heavy tails":
        return rng.standard_t(2.0, size=(250, 2))
    return rng.uniform(size=(250, 2))


@pytest.mark.parametrize(
    ("name", "how"),
    [
        ("separated", {}),
        ("separated", {"batch_rows": 90}),
        ("separated", {"prior": paper_prior(2)}),
        ("overlapping", {"batch_rows": 90}),
        ("skewed", {"batch_rows": 60}),
        ("skewed", {"weight": 0.3}),
        ("skewed", {"prior": paper_prior(3)}),
        ("heavy tails", {}),
        ("heavy tails", {"weight": 0.5, "batch_rows": 90}),
        ("uniform", {"batch_rows": 90}),
    ],
    ids=lambda v: v if isinstance(v, str) else "-".join(v) or "one batch",
)
def test_the_bound_never_falls(name, how):
    z = data_set(name)
    search = make_search(z, **how)
    progress = []
    for step in search.run():
        progress.append(step)
        if step.move is not None and step.move.accepted:
            assert_settled(search)
        assert step.n_components == search.memory.n_components
        assert float(search.memory.total.counts.sum()) == pytest.approx(len(z))
    assert_never_falls(progress)
    assert_settled(search)
    kinds = {step.kind for step in progress}
    if name != "uniform":
        assert {"lap", "birth", "merge"} <= kinds
    if "prior" in how:
        assert "adapt" not in kinds  # a fixed prior stays


def test_the_bound_never_falls_over_a_stream():
    """With a past: laps, births next to established components, merges into them."""
    rng = np.random.default_rng(6)
    z, labels = skewed_clusters(rng, (80, 80, 80, 80), 2)
    memory = StatsMemory.empty(2)
    for part in (labels < 2, labels >= 1):
        search = make_search(z[part], memory, batch_rows=100)
        progress = list(search.run())
        assert_never_falls(progress)
        assert_settled(search)
        memory.fold()
    assert any(s.kind == "merge" for s in progress)
    assert float(memory.overall.counts.sum()) == pytest.approx(80 * 5)


def test_random_sequences_of_moves_equal_recomputation():
    """Births, merges, dissolutions and laps in any order; after each, memory = recomputation."""
    rng = np.random.default_rng(7)
    z, labels = gaussian_clusters(rng, (90, 70, 60, 50), 2, distance=4.0)
    memory = StatsMemory.empty(2)
    first = make_search(z[labels < 2], memory)
    list(first.run())
    memory.fold()
    n_accepted = 0
    for seed in range(3):
        search = make_search(z[labels >= 1], memory.coarse(), seed=seed, batch_rows=50)
        list(search.laps())
        for _ in range(6):
            kind = rng.choice(["births", "merges", "dissolutions", "laps"])
            search.failed.clear()
            for record in getattr(search, kind)():
                n_accepted += bool(getattr(record, "accepted", False))
            assert_settled(search)
            assert len(set(search.memory.ids)) == search.memory.n_components
            assert set(memory.ids) <= set(search.memory.ids)
    assert n_accepted >= 4
    assert memory.n_components == len(memory.ids) == 2  # the searches worked on copies


def test_sorting_never_lowers_the_bound():
    rng = np.random.default_rng(8)
    z, labels = gaussian_clusters(rng, (10, 40, 20), 2)
    memory = StatsMemory.empty(2)
    memory.add_components(3)
    memory.refill([summarize(hard(labels, 3), points_of(z))])
    model = TemperedModel(paper_prior(2))
    before = model.elbo(memory.total)
    assert memory.sort_by_size()
    assert model.elbo(memory.total) > before
    assert memory.ids == (1, 2, 0)
    assert not memory.sort_by_size()


def test_laps_count_every_row_once():
    """However many laps and mini-batches, overall gets each row once."""
    rng = np.random.default_rng(9)
    z = rng.normal(size=(230, 2))
    model = TemperedModel(paper_prior(2))
    memory = StatsMemory.empty(2)
    memory.add_components(3)
    start = summarize(hard(rng.integers(0, 3, 230), 3), points_of(z))
    batches = points_of(z).batches(4)
    bounds = list(memoized_laps(model, memory, batches, model.posterior(start), 12, 0.0))
    assert len(bounds) > 5
    assert all(b >= a - 1e-9 * abs(a) for a, b in itertools.pairwise(bounds))
    memory.fold()
    assert float(memory.overall.counts.sum()) == pytest.approx(230.0)
    np.testing.assert_allclose(memory.overall.sum_z.sum(0).numpy(), z.sum(0), rtol=1e-9)
    np.testing.assert_allclose(memory.overall.sum_zz.sum(0).numpy(), z.T @ z, rtol=1e-9)


def test_laps_converge_to_a_fixed_point_of_both_steps():
    rng = np.random.default_rng(10)
    z, labels = gaussian_clusters(rng, (60, 50, 40), 2, distance=3.5)
    model = TemperedModel(paper_prior(2), 0.7)
    memory = StatsMemory.empty(2)
    memory.add_components(3)
    start = summarize(hard(labels, 3), points_of(z))
    for _ in memoized_laps(model, memory, points_of(z).batches(3), model.posterior(start), 500, 0.0):
        pass
    again = local_summary(model.posterior(memory.total), points_of(z))
    assert_same(memory.total, again, tolerance=1e-4)


def test_over_split_start_is_undone_by_refined_merges():
    """Two clusters cut at random into eight fragments: merges alone bring them back."""
    rng = np.random.default_rng(11)
    z, labels = gaussian_clusters(rng, (200, 150), 3)
    fragments = labels * 4 + rng.integers(0, 4, len(z))
    memory = StatsMemory.empty(3)
    memory.add_components(8)
    start = summarize(hard(fragments, 8), points_of(z))
    search = make_search(z, memory, start=start, fresh_sizes=())
    assert memory.n_components == 8
    progress = list(search.run())
    assert not any(s.kind == "birth" for s in progress)
    assert memory.n_components == 2
    found = local_step(search.state.used, search.points).argmax(1).numpy()
    assert len(set(zip(found, labels, strict=True))) == 2


def test_fragments_by_slices_are_undone():
    """Fragments with different means (slices of one Gaussian) are harder; still one cluster remains."""
    rng = np.random.default_rng(12)
    z = rng.normal(size=(300, 2)) * [3.0, 1.0]
    slices = np.digitize(z[:, 0], [-2.0, 2.0])
    memory = StatsMemory.empty(2)
    memory.add_components(3)
    search = make_search(z, memory, start=summarize(hard(slices, 3), points_of(z)), fresh_sizes=())
    list(search.run())
    assert memory.n_components == 1


CASES = [
    pytest.param((300, 200), 2, id="D2-K2"),
    pytest.param((150, 100, 80, 60, 50, 40), 2, id="D2-K6"),
    pytest.param((300, 200, 100), 5, id="D5-K3"),
    pytest.param((200, 180, 150, 120, 100), 10, id="D10-K5"),
    pytest.param((300, 250, 200), 20, id="D20-K3"),
]


@pytest.mark.parametrize(("sizes", "n_dims"), CASES)
def test_exact_number_of_components_from_one(sizes, n_dims):
    rng = np.random.default_rng(13)
    z, labels = gaussian_clusters(rng, sizes, n_dims, distance=10.0)
    memory = StatsMemory.empty(n_dims)
    _, fitted = run_fit(memory, z)
    found = local_step(fitted.posterior, points_of(z)).argmax(1).numpy()
    assert memory.n_components == len(sizes)
    assert len(set(zip(found, labels, strict=True))) == len(sizes)
    assert sorted(memory.total.counts.tolist()) == pytest.approx(sorted(sizes), abs=0.5)


def test_one_gaussian_is_one_component():
    rng = np.random.default_rng(14)
    search = make_search(rng.normal(size=(500, 4)) @ rng.normal(size=(4, 4)))
    list(search.run())
    assert search.memory.n_components == 1


def test_max_components_is_never_exceeded():
    rng = np.random.default_rng(15)
    z, _ = gaussian_clusters(rng, [60] * 6, 2)
    for limit in (1, 2, 4):
        search = make_search(z, max_clusters=limit)
        sizes = [step.n_components for step in search.run()]
        assert max(sizes) == limit


def test_established_components_are_never_merged_nor_dissolved():
    """Two halves of one cluster and a tiny component, all with a past, survive whatever comes."""
    rng = np.random.default_rng(16)
    z = rng.normal(size=(200, 2))
    labels = rng.integers(0, 2, 200)
    labels[:2] = 2
    memory = StatsMemory.empty(2)
    memory.add_components(3)
    memory.refill([summarize(hard(labels, 3), points_of(z))])
    memory.fold()
    ids = set(memory.ids)
    assert float(memory.total.counts.min()) < SearchSettings().min_effective_rows
    new = np.concatenate([rng.normal(size=(150, 2)), rng.normal(12.0, 1.0, (100, 2))])
    search = make_search(new, memory)
    progress = list(search.run())
    assert ids <= set(memory.ids)
    assert memory.n_components == 4
    for step in progress:
        if step.move is not None and step.move.accepted:
            assert not set(step.move.gone) & ids
        if step.kind == "merge":
            assert not set(step.move.subjects) <= ids
    # The same fragments as newborns are put together: it is their past that protects them.
    fresh = StatsMemory.empty(2)
    fresh.add_components(3)
    list(make_search(z, fresh, start=summarize(hard(labels, 3), points_of(z))).run())
    assert fresh.n_components == 1


def test_tiny_newborns_are_dissolved():
    rng = np.random.default_rng(17)
    z = np.concatenate([rng.normal(size=(200, 2)), rng.normal(40.0, 0.1, (3, 2))])
    labels = np.repeat([0, 1], [200, 3])
    memory = StatsMemory.empty(2)
    memory.add_components(2)
    search = make_search(
        z, memory, prior=paper_prior(2), start=summarize(hard(labels, 2), points_of(z)), fresh_sizes=()
    )
    progress = list(search.run())
    assert memory.n_components == 1
    assert [s.move.gone for s in progress if s.kind == "dissolve"] == [(1,)]
    assert float(memory.total.counts[0]) == pytest.approx(203.0)
    assert_settled(search)


def test_a_failed_birth_is_not_tried_again_on_the_same_rows(monkeypatch):
    calls = []
    monkeypatch.setattr(search_module, "propose_birth", lambda state, target, *rest: calls.append(target))
    z = np.random.default_rng(18).normal(size=(50, 2))
    search = make_search(z, second_chances=0)
    list(search.run())
    assert calls == [0]
    calls.clear()
    list(make_search(z, second_chances=2).run())
    assert calls == [0, 0, 0]


def test_prior_in_step_with_the_components():
    """After the search the prior is that of the components found, not that of the whole cloud."""
    rng = np.random.default_rng(19)
    z, _ = gaussian_clusters(rng, (300, 300, 300), 2, distance=25.0)
    search = make_search(z)
    wide = search.model.prior
    steps = list(search.run())
    assert "adapt" in {s.kind for s in steps}
    now = adapted_prior(search.memory.total)
    assert float(torch.logdet(search.model.prior.scale_inv)) == pytest.approx(
        float(torch.logdet(now.scale_inv)), abs=2 * search_module.ADAPTED
    )
    assert float(torch.logdet(wide.scale_inv)) > float(torch.logdet(now.scale_inv)) + 2.0


# One data set from start to end.


def run_fit(memory, z, **settings):
    """Drain the generator; return the progress and what the fit leaves."""
    progress = []
    fitting = fit_data_set(memory, points_of(z), FitSettings(**settings), torch.Generator().manual_seed(0))
    while True:
        try:
            progress.append(next(fitting))
        except StopIteration as end:
            return progress, end.value


def test_fit_counts_every_row_and_ends_at_full_weight():
    rng = np.random.default_rng(20)
    z, _ = gaussian_clusters(rng, (200, 150, 150), 2)
    memory = StatsMemory.empty(2)
    progress, fitted = run_fit(memory, z, max_evidence=100.0)
    assert memory.n_components == 3
    assert float(memory.total.counts.sum()) == pytest.approx(500.0)
    assert fitted.elbo == pytest.approx(TemperedModel(fitted.prior).elbo(memory.total), rel=1e-12)
    torch.testing.assert_close(
        fitted.posterior.components.dof, fitted.prior.dof + memory.total.counts, rtol=1e-12, atol=0.0
    )
    final = [s.elbo for s in progress if s.kind == "final"]
    assert all(b >= a - 1e-9 * abs(a) for a, b in itertools.pairwise(final))
    memory.fold()
    assert float(memory.overall.counts.sum()) == pytest.approx(500.0)


def test_fit_searches_a_sample_first_and_then_all_rows():
    """The structure of the sample is taken to all rows; nothing of the sample is counted twice."""
    rng = np.random.default_rng(21)
    z, labels = gaussian_clusters(rng, (400, 250, 40), 2)
    memory = StatsMemory.empty(2)
    _, fitted = run_fit(memory, z, search_rows=120, max_evidence=math.inf)
    assert float(memory.total.counts.sum()) == pytest.approx(690.0)
    np.testing.assert_allclose(memory.total.sum_z.sum(0).numpy(), z.sum(0), rtol=1e-9)
    assert memory.n_components == 3
    found = local_step(fitted.posterior, points_of(z)).argmax(1).numpy()
    assert len(set(zip(found, labels, strict=True))) == 3


def test_how_much_each_observation_counts():
    assert FitSettings(max_evidence=math.inf).weight(10**6, 2, 1) == 1.0
    assert FitSettings(max_evidence=1000.0).weight(500, 2, 1) == 1.0
    assert FitSettings(max_evidence=1000.0).weight(4000, 2, 1) == 0.25
    assert FitSettings().weight(10**6, 10, 7) == pytest.approx(default_evidence(10, 7) / 10**6)


def test_evidence_per_cluster():
    """As much for each cluster; while none is known, that of many, so that the first can be found.

    A component of many dimensions has more parameters to pay for.
    """
    settings = FitSettings(evidence_per_cluster=30.0)
    assert settings.weight(10**4, 5, 1) == settings.weight(10**4, 2, 1) == pytest.approx(30 / 10**4)
    assert settings.weight(10**4, 5, 7) == pytest.approx(7 * settings.weight(10**4, 5, 1))
    assert settings.weight(10**4, 12, 1) == pytest.approx((1 + 12 + 78) / (1 + 5 + 15) * 30 / 10**4)
    assert settings.weight(10**4, 5, 0) == settings.weight(10**4, 5, MANY_CLUSTERS)
    assert settings.weight(20, 5, 1) == 1.0  # never more than there is
    shared = FitSettings(evidence_per_cluster=30.0, most_weight=0.3)  # each tells of its neighbours too
    assert shared.weight(200, 5, 7) == 0.3
    assert shared.weight(50, 5, 7) == pytest.approx(30 / 50)  # but all of them as one cluster at least
    assert shared.weight(10**4, 5, 7) == settings.weight(10**4, 5, 7)
    assert replace(shared, max_evidence=1000.0).weight(500, 2, 1) == 1.0  # as much as was asked for
    assert FitSettings(evidence_per_cluster=30.0, max_evidence=1000.0).weight(4000, 2, 1) == 0.25
    assert FitSettings(evidence_per_cluster=30.0, max_evidence=None).weight(4000, 2, 1) == 1.0


def test_default_evidence_grows_with_parameters_and_slowly_with_components():
    assert default_evidence(1, 1) == 1000.0
    assert default_evidence(40, 1) == pytest.approx(36 * (1 + 40 + 820))
    assert default_evidence(40, 25) == default_evidence(40, 1)
    assert default_evidence(40, 100) == pytest.approx(2 * default_evidence(40, 1))


def test_weight_in_step_with_the_components():
    """The search begins at the weight of none, and ends at that of as many as it ends with."""
    rng = np.random.default_rng(24)
    z, _ = gaussian_clusters(rng, (80, 80, 80, 80), 2)
    memory = StatsMemory.empty(2)
    settings = Weighed(rule=lambda n_components: 0.3 + 0.1 * n_components)
    search = Search(memory, points_of(z), settings, torch.Generator().manual_seed(0))
    assert search.model.weight == pytest.approx(0.3)
    assert_never_falls(search.run())
    assert memory.n_components == search.n_present == 4
    assert search.model.weight == pytest.approx(0.7)


def test_components_that_only_the_past_had_ask_for_no_evidence():
    rng = np.random.default_rng(24)
    z, labels = gaussian_clusters(rng, (80, 80, 80, 80), 2)
    memory = StatsMemory.empty(2)
    settings = Weighed(rule=lambda n_components: 0.3 + 0.1 * n_components)
    for rows in (z, z[labels < 2]):
        search = Search(memory, points_of(rows), settings, torch.Generator().manual_seed(0))
        assert_never_falls(search.run())
        n_present, weight = search.n_present, search.model.weight
        memory.fold()
    assert (memory.n_components, n_present) == (4, 2)
    assert weight == pytest.approx(0.5)


def test_capped_evidence_holds_the_number_of_components_down():
    """Skewed clusters: with all evidence more and more components, with a cap not."""
    rng = np.random.default_rng(22)
    z, _ = skewed_clusters(rng, (300, 300), 2)
    found = {}
    for cap in (math.inf, 60.0):
        memory = StatsMemory.empty(2)
        run_fit(memory, z, max_evidence=cap)
        found[cap] = memory.n_components
    assert found[60.0] < found[math.inf]


def test_point_variances_are_learned_from():
    """Rows known with a variance: the covariance learned is that of the true points plus that variance."""
    rng = np.random.default_rng(23)
    z = rng.normal(size=(2000, 2))
    var = np.full((2000, 2), 3.0)
    memory = StatsMemory.empty(2)
    points = Points.from_rows(torch.tensor(z), torch.tensor(var))
    search = Search(memory, points, Weighed(paper_prior(2)), torch.Generator().manual_seed(0))
    list(search.run())
    assert memory.n_components == 1
    total = memory.total
    mean = (total.sum_z / total.counts[:, None])[0].numpy()
    second = (total.sum_zz / total.counts[:, None, None])[0].numpy() - np.outer(mean, mean)
    np.testing.assert_allclose(second, np.cov(z.T, bias=True) + 3.0 * np.eye(2), rtol=1e-9, atol=1e-9)
