"""The mixture on the codes: it is searched afresh if it is stuck, and components that no row chooses go."""

import numpy as np
import pytest
import torch

from dbull.lifelong.codes import CodeMixture
from dbull.mixture.memory import StatsMemory
from dbull.mixture.settings import FitSettings, SearchSettings
from dbull.mixture.updates import Points, summarize
from synthetic import gaussian_clusters


@pytest.fixture
def codes():
    rows, _ = gaussian_clusters(np.random.default_rng(0), (90, 60), 3, distance=14.0)
    return torch.tensor(rows)


@pytest.fixture
def mixture(codes):
    found = CodeMixture(StatsMemory.empty(3), FitSettings(), False, torch.Generator().manual_seed(0))
    found.search(codes, None)
    assert found.memory.n_components == 2
    return found


def spread_thinly(mixture, codes, established):
    """Add a component that has a third of every row and is the first choice of none."""
    mixture.memory.add_components(1)
    mixture.memory.established[-1] = established
    third = torch.full((len(codes), 1), 1 / 3)
    mixture.responsibilities = torch.cat([mixture.responsibilities * 2 / 3, third], dim=1)
    mixture.memory.refill([summarize(mixture.responsibilities.double().log(), Points.from_rows(codes))])


def test_nothing_happens_where_all_are_chosen(mixture, codes):
    before = mixture.fitted, mixture.labels, mixture.memory.stream
    mixture.dissolve_unchosen(codes, None)
    assert (mixture.fitted, mixture.labels, mixture.memory.stream) == before


def test_a_newborn_that_no_row_chooses_goes(mixture, codes):
    labels, ids = mixture.labels, mixture.memory.ids
    counts, means = mixture.memory.total.counts, mixture.fitted.posterior.components.mean
    spread_thinly(mixture, codes, established=False)
    mixture.dissolve_unchosen(codes, None)
    assert mixture.memory.ids == ids
    assert torch.equal(mixture.labels, labels)
    assert torch.allclose(mixture.responsibilities.sum(1), torch.ones(len(codes)))
    torch.testing.assert_close(mixture.memory.total.counts, counts, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(mixture.fitted.posterior.components.mean, means, rtol=1e-4, atol=1e-4)


def test_places_follow(mixture, codes):
    """The component that goes is not the last one."""
    spread_thinly(mixture, codes, established=False)
    order = torch.tensor([2, 0, 1])
    mixture.memory.select(order)
    mixture.responsibilities = mixture.responsibilities[:, order]
    before, mixture.labels = mixture.labels, mixture.labels + 1
    mixture.dissolve_unchosen(codes, None)
    assert torch.equal(mixture.labels, before)


def test_the_past_stays_though_no_row_chooses_it(mixture, codes):
    spread_thinly(mixture, codes, established=True)
    mixture.dissolve_unchosen(codes, None)
    assert mixture.memory.n_components == 3


def test_what_is_stuck_is_found_afresh(mixture, codes):
    memory = StatsMemory.empty(3)
    stuck = CodeMixture(memory, FitSettings(), False, torch.Generator().manual_seed(1))
    stuck.search(codes, None, births=False)
    assert memory.n_components == 1
    low = stuck.fitted.bound
    stuck.search_afresh(codes, None, torch.Generator().manual_seed(0), least_gain=10.0)
    assert (memory.n_components, stuck.fitted.bound) == (1, low), "not enough of a gain"
    stuck.search_afresh(codes, None, torch.Generator().manual_seed(0))
    assert stuck.memory is memory
    assert stuck.fitted.bound > low
    assert torch.equal(stuck.labels, mixture.labels)
    assert torch.equal(stuck.responsibilities, mixture.responsibilities)
    assert torch.equal(memory.total.sum_zz, mixture.memory.total.sum_zz)
    assert memory.fold() == {0: 0, 1: 1}
    stuck.search(codes, None)  # and it can go on from there
    assert memory.n_components == 2


def test_what_is_better_stays(mixture, codes):
    """Afresh nothing is found where births are off; the generator of the mixture is not touched."""
    mixture.settings = FitSettings(search=SearchSettings(fresh_sizes=()))
    before = mixture.fitted, mixture.labels, mixture.memory.stream
    numbers = mixture.generator.get_state()
    mixture.search_afresh(codes, None, torch.Generator().manual_seed(0))
    assert (mixture.fitted, mixture.labels, mixture.memory.stream) == before
    assert torch.equal(mixture.generator.get_state(), numbers)


def test_the_bound_is_that_of_the_evidence_that_may_speak(codes):
    """With all evidence it is the bound that the fit reports; with less it is a smaller number of nats."""
    capped = CodeMixture(
        StatsMemory.empty(3), FitSettings(max_evidence=75.0), False, torch.Generator().manual_seed(0)
    )
    free = CodeMixture(
        StatsMemory.empty(3), FitSettings(max_evidence=150.0), False, torch.Generator().manual_seed(0)
    )
    for mixture in (capped, free):
        mixture.search(codes, None)
    assert (capped.fitted.weight, free.fitted.weight) == (0.5, 1.0)
    assert free.fitted.bound == pytest.approx(free.fitted.elbo, rel=1e-4)
    assert capped.fitted.bound == pytest.approx(capped.fitted.elbo / 2, rel=0.1)
