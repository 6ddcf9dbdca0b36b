"""Fit the mixture to one data set: structure on a sample, then on all rows, then laps at full weight."""

from collections.abc import Generator
from dataclasses import dataclass, replace

import torch

from dbull.mixture.memory import StatsMemory
from dbull.mixture.moves import TemperedModel
from dbull.mixture.posterior import MixturePosterior
from dbull.mixture.prior import MixturePrior, adapted_prior
from dbull.mixture.search import FitProgress, Search, memoized_laps
from dbull.mixture.settings import FitSettings
from dbull.mixture.stats import SufficientStats
from dbull.mixture.updates import Points


@dataclass(frozen=True)
class Fitted:
    """What a fit leaves besides the memory."""

    prior: MixturePrior
    posterior: MixturePosterior  # from all statistics at full weight
    elbo: float  # bound on the evidence of all data, past and present
    bound: float  # on the evidence when each observation counts what it did when structure was decided


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
        # What fails on the sample gets its second chance on all rows.
        once = replace(s, search=replace(s.search, second_chances=0))
        yield from Search(memory, points.take(chosen), once, generator).run()
        start = memory.overall + memory.current.scaled(n_rows / s.search_rows)
    search = Search(memory, points, s, generator, start)
    yield from search.run()

    bound = search.model.elbo(memory.total)
    prior = search.model.prior
    if s.prior is None and search.pooled_rows > 0:
        # All observations count in full from here, those of the past too, and so does the expectation of a
        # covariance.
        n_times = float(memory.total.counts.sum()) / n_rows
        pooled_rows = n_times * search.pooled_rows / search.model.weight
        prior = adapted_prior(memory.total, s.concentration, pooled_rows)
    full = TemperedModel(prior)
    for elbo in memoized_laps(
        full, memory, search.batches, full.posterior(memory.total), s.final_laps, s.final_tolerance
    ):
        yield FitProgress("final", memory.n_components, elbo)
    memory.sort_by_size()
    return Fitted(prior, full.posterior(memory.total), full.elbo(memory.total), bound)
