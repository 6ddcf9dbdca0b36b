"""Fit the mixture to one data set: structure on a sample, then on all rows, then laps at full weight."""

from __future__ import annotations

import math
from collections.abc import Generator
from dataclasses import dataclass, field, replace
from functools import partial

import torch

from dbull.mixture.memory import StatsMemory
from dbull.mixture.moves import Evidence
from dbull.mixture.posterior import MixturePosterior
from dbull.mixture.prior import MixturePrior, adapted_prior
from dbull.mixture.search import FitProgress, Search, SearchSettings, memoized_laps
from dbull.mixture.stats import SufficientStats
from dbull.mixture.updates import Points, n_features

OBSERVATIONS_PER_PARAMETER = 36.0
MIN_EVIDENCE = 1000.0


@dataclass(frozen=True)
class FitSettings:
    """What to fit and how.

    `prior` None means: in the units of the data, in step with the statistics. `max_evidence` is the number of
    observations that may speak when structure is decided, math.inf for all of them; None means
    `default_evidence`.
    """

    prior: MixturePrior | None = None
    concentration: float = 1.0
    max_evidence: float | None = None
    search_rows: int = 10_000  # structure is searched on a sample of this size first
    final_laps: int = 20
    final_tolerance: float = 1e-6
    pooled_share: float = 0.0  # part of the evidence that the expectation of a covariance counts for
    search: SearchSettings = field(default_factory=SearchSettings)

    def weight(self, n_rows: int, n_dims: int, n_components: int) -> float:
        """Return how much each of `n_rows` observations counts when structure is decided."""
        allowed = default_evidence(n_dims, n_components) if self.max_evidence is None else self.max_evidence
        return min(1.0, allowed / n_rows)

    def pooled_rows(self, n_rows: int, n_dims: int) -> float:
        """Return how many observations, weighted like the others, the expected covariance counts for."""
        return self.pooled_share * n_rows * self.weight(n_rows, n_dims, 1)


@dataclass(frozen=True)
class Fitted:
    """What a fit leaves besides the memory."""

    prior: MixturePrior
    posterior: MixturePosterior  # from all statistics at full weight
    elbo: float  # bound on the evidence of all data, past and present
    weight: float  # what each observation counted when structure was decided
    bound: float  # on the evidence when each observation counts that much


def default_evidence(n_dims: int, n_components: int) -> float:
    """Return the number of observations that may speak for structure when nothing else is said.

    Real clusters are not Gaussian, so evidence that grows with the number of rows always asks for one more
    component. Capping it means: a component must improve the description of the data by more than its own
    cost, measured on a data set of this many rows (a power posterior; Miller & Dunson 2019 call it
    coarsening). The cost of a component grows with its number of parameters, and so does the cap. Beyond
    25 components it grows with the square root of their number, so that many can be told apart without
    splitting feeding itself.
    """
    cap = max(MIN_EVIDENCE, OBSERVATIONS_PER_PARAMETER * n_features(n_dims))
    return cap * math.sqrt(max(1.0, n_components / 25))


def fit_data_set(
    memory: StatsMemory,
    points: Points,
    settings: FitSettings,
    generator: torch.Generator,
    start: SufficientStats | None = None,
) -> Generator[FitProgress, None, Fitted]:
    """Fit the data set in memory, yielding progress; the memory is changed in place, but not folded.

    Structure is searched on a random sample first (a search visits its rows many times), then taken to all
    rows, where rare components get their chance. With `start`, statistics of the memory's components on these
    very rows, the search goes on from there.
    """
    n_rows, s = len(points), settings
    if start is None and n_rows > 1.5 * s.search_rows:
        chosen = torch.randperm(n_rows, generator=generator)[: s.search_rows].sort().values
        sample = points.take(chosen)
        # What fails on the sample gets its second chance on all rows.
        once = replace(s.search, second_chances=0)
        weight_at = partial(s.weight, len(sample), points.n_dims)
        yield from Search(
            memory,
            sample,
            s.prior,
            s.concentration,
            weight_at,
            once,
            generator,
            None,
            s.pooled_rows(len(sample), points.n_dims),
        ).run()
        start = memory.overall + memory.stream.scaled(n_rows / s.search_rows)
    weight_at = partial(s.weight, n_rows, points.n_dims)
    pooled_rows = s.pooled_rows(n_rows, points.n_dims)
    search = Search(
        memory, points, s.prior, s.concentration, weight_at, s.search, generator, start, pooled_rows
    )
    yield from search.run()

    bound = search.evidence.elbo(memory.total)
    prior = search.evidence.prior
    if s.prior is None and pooled_rows > 0:
        # All observations count in full from here, those of the past too, and so does the expectation of a
        # covariance.
        n_times = float(memory.total.counts.sum()) / n_rows
        prior = adapted_prior(memory.total, s.concentration, n_times * pooled_rows / search.evidence.weight)
    full = Evidence(prior)
    for elbo in memoized_laps(
        full, memory, search.batches, full.posterior(memory.total), s.final_laps, s.final_tolerance
    ):
        yield FitProgress("final", memory.n_components, elbo)
    memory.sort_by_size()
    return Fitted(prior, full.posterior(memory.total), full.elbo(memory.total), search.evidence.weight, bound)
