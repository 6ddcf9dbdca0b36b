"""The mixture on the codes: components that no row chooses go, and what they held goes to the others."""

import numpy as np
import pytest
import torch

from dbull.lifelong.codes import CodeMixture
from dbull.mixture.fit import FitSettings
from dbull.mixture.memory import StatsMemory
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
