"""Search for structure: memoized laps, then births, merges and dissolutions, until none is accepted.

The paper's inner loop (Algorithm 1, corrected; docs/algorithm.md). A search yields what happens as it
happens. A fit to one data set searches on a sample, then on all rows, then does laps at full weight.
"""

import math
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from functools import partial

import torch

from dbull.mixture.birth import propose_birth
from dbull.mixture.memory import StatsMemory
from dbull.mixture.merge import merge_candidates, propose_dissolution, propose_merge
from dbull.mixture.moves import MoveRecord, Proposal, TemperedModel, accept, state_under
from dbull.mixture.posterior import MixturePosterior
from dbull.mixture.prior import MixturePrior, adapted_prior
from dbull.mixture.settings import FitSettings
from dbull.mixture.stats import SufficientStats
from dbull.mixture.updates import Points, local_summary, summarize
from dbull.threads import mapped

ADAPTED = 0.05  # relative change of expected variance or of weight that is too small to go on for


@dataclass(frozen=True)
class FitProgress:
    """One thing that happened: a lap, a change of prior and weight, or a move that was decided."""

    kind: str  # "lap", "adapt", "birth", "merge", "dissolve" or "final" (a lap at full weight)
    n_components: int
    elbo: float
    move: MoveRecord | None = None


class Search:
    """The search for structure on one data set; the memory is changed in place as the search goes on.

    `start` are statistics to start from instead of the memory's own, e.g. those of a sample scaled up.
    """

    def __init__(
        self,
        memory: StatsMemory,
        points: Points,
        settings: FitSettings,
        generator: torch.Generator,
        start: SufficientStats | None = None,
    ):
        self.memory = memory
        self.points = points
        self.settings = settings.search
        self.generator = generator
        self.batches = points.batches(max(1, round(len(points) / settings.search.batch_rows)))
        self.adapts = settings.prior is None
        # How many (weighted) observations the adapted prior's expectation of a covariance counts for.
        self.pooled_rows = settings.pooled_rows(len(points), points.n_dims)
        self.weight_at = partial(settings.weight, len(points), points.n_dims)
        begins = memory.n_components == 0
        if begins:
            memory.add_components(1)
            start = summarize(torch.zeros(len(points), 1, dtype=torch.float64), points)
        start = memory.total if start is None else start
        prior = settings.prior or adapted_prior(start, settings.concentration, self.pooled_rows)
        # From many clusters down to as many as hold their ground: from few up, the first may never be found.
        self.model = TemperedModel(prior, self.weight_at(0 if begins else self.n_present))
        self.next_posterior = self.model.posterior(start)
        self.failed: dict[tuple[str, tuple[int, ...]], float] = {}

    def run(self) -> Iterator[FitProgress]:
        """Alternate laps and moves until no move is accepted; then see whether the prior still fits."""
        yield from self.laps()
        n_quiet = 0
        for _ in range(self.settings.max_rounds):
            changed = False
            for moves in (self.births, self.merges, self.dissolutions):
                accepted = False
                for record in moves():
                    accepted |= record.accepted
                    yield FitProgress(record.kind, self.memory.n_components, self.state.elbo, record)
                if accepted:
                    yield from self.laps()
                changed |= accepted
            if changed:
                n_quiet = 0
            elif self.adapt():
                yield from self.laps("adapt")
            else:
                # Births start from random seeds: what failed gets a second chance before the search ends.
                n_quiet += 1
                self.failed = {key: rows for key, rows in self.failed.items() if key[0] != "birth"}
            if n_quiet > self.settings.second_chances:
                break

    def laps(self, first: str = "lap") -> Iterator[FitProgress]:
        """Do memoized laps until the bound stands still, then settle."""
        s, kind = self.settings, first
        for elbo in memoized_laps(
            self.model, self.memory, self.batches, self.next_posterior, s.max_laps, s.tolerance
        ):
            yield FitProgress(kind, self.memory.n_components, elbo)
            kind = "lap"
        self.memory.sort_by_size()
        self.state_under(self.model.posterior(self.memory.total))

    def state_under(self, used: MixturePosterior) -> None:
        """Bring every record under one posterior, so that moves can take rows out exactly."""
        self.memory.refill(mapped(partial(local_summary, used), self.batches))
        self.state = state_under(self.model, self.memory, self.points, used)
        self.next_posterior = self.model.posterior(self.memory.total)

    @property
    def n_present(self) -> int:
        """Components that have rows of this data set; those that only the past had ask for no evidence."""
        return int((self.memory.current.counts >= 1).sum())

    @property
    def min_rows(self) -> float:
        """Rows that a newborn needs to stand."""
        s = self.settings
        return max(s.min_effective_rows, s.min_rows_per_dim * self.points.n_dims) / self.model.weight

    def adapt(self) -> bool:
        """Bring prior and weight in step with what was found; return whether that changed enough to go on."""
        old, weight = self.model.prior, self.weight_at(self.n_present)
        new = adapted_prior(self.memory.total, old.concentration, self.pooled_rows) if self.adapts else old
        log_volume = float(torch.logdet(new.scale_inv) - torch.logdet(old.scale_inv)) / old.n_dims
        if max(abs(log_volume), abs(math.log(weight / self.model.weight))) < ADAPTED:
            return False
        self.model = TemperedModel(new, weight)
        self.next_posterior = self.model.posterior(self.memory.total)
        self.failed.clear()
        return True

    def decide(self, proposal: Proposal, active: Points) -> MoveRecord:
        """Accept or reject a proposal; on acceptance the memory takes its structure and settles under it."""
        record = accept(self.state, proposal, active)
        if record.accepted:
            self.memory.adopt(proposal.memory)
            self.state_under(proposal.posterior)
        return record

    def tried(self, kind: str, ids: tuple[int, ...], rows: float) -> bool:
        """Return whether this has failed before on about the same rows; if not, note that it is tried now."""
        failed_at = self.failed.get((kind, ids))
        if failed_at is not None and abs(failed_at - rows) <= 0.01 * failed_at:
            return True
        self.failed[(kind, ids)] = rows
        return False

    def births(self) -> Iterator[MoveRecord]:
        """Try to expand each component, largest first."""
        s, memory = self.settings, self.memory
        if not s.fresh_sizes:
            return
        for component_id in memory.ids:
            if component_id not in memory.ids:
                continue
            target = memory.ids.index(component_id)
            # A target without a past makes room for one child, but then one child alone is no change.
            newborn = int(not memory.established[target])
            room = s.max_clusters - memory.n_components + newborn
            rows = float(memory.current.counts[target])
            if room < 1 + newborn or rows < s.min_birth_rows or self.tried("birth", (component_id,), rows):
                continue
            sizes = tuple(dict.fromkeys(min(size, room) for size in s.fresh_sizes if room > 1))
            made = propose_birth(self.state, target, sizes, self.min_rows, s, self.generator)
            if made is not None:
                yield self.decide(*made)

    def merges(self) -> Iterator[MoveRecord]:
        """Try the most promising pairs; start over after each success."""
        accepted = True
        while accepted:
            accepted = False
            for a, b in merge_candidates(self.state, self.settings.merge_pairs):
                low, high = sorted((self.memory.ids[a], self.memory.ids[b]))
                if self.tried("merge", (low, high), float(self.memory.total.counts[[a, b]].sum())):
                    continue
                record = self.decide(*propose_merge(self.state, a, b, self.settings.refine_steps))
                yield record
                accepted = record.accepted
                if accepted:
                    break

    def dissolutions(self) -> Iterator[MoveRecord]:
        """Dissolve newborns that hold too little evidence, smallest first."""
        while self.memory.n_components > 1:
            counts = self.memory.total.counts.clone()
            counts[self.memory.established] = torch.inf
            target = int(counts.argmin())
            if float(counts[target]) >= self.min_rows:
                break
            yield self.decide(*propose_dissolution(self.state, target, self.settings.refine_steps))


def memoized_laps(
    model: TemperedModel,
    memory: StatsMemory,
    batches: list[Points],
    posterior: MixturePosterior,
    max_laps: int,
    tolerance: float,
) -> Iterator[float]:
    """Visit the mini-batches lap after lap until the bound stands still; yields the bound after each lap.

    In the first lap all mini-batches are visited under the given posterior. From then on each visit swaps the
    record of its mini-batch and updates the posterior at once (Hughes & Sudderth 2013).
    """
    memory.refill(mapped(partial(local_summary, posterior), batches))
    before = model.elbo(memory.total)
    yield before
    for _ in range(max_laps):
        memory.sort_by_size()
        for i, batch in enumerate(batches):
            memory.replace_batch(i, local_summary(model.posterior(memory.total), batch))
        memory.refill(memory.batches)  # summed anew, so that rounding does not build up over visits
        after = model.elbo(memory.total)
        yield after
        if after - before <= tolerance * abs(after):
            break
        before = after


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
        yield from Search(memory, points.take(chosen), s.without_second_chances(), generator).run()
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
