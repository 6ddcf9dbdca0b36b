"""Search for structure: memoized laps, then births, merges and dissolutions, until none is accepted.

The paper's inner loop (Algorithm 1, corrected; docs/algorithm.md). A search yields what happens as it
happens.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch

from dbull.mixture.birth import propose_birth
from dbull.mixture.memory import StatsMemory
from dbull.mixture.merge import merge_candidates, propose_dissolution, propose_merge
from dbull.mixture.moves import Evidence, MoveRecord, Proposal, accept, settle
from dbull.mixture.posterior import MixturePosterior
from dbull.mixture.prior import MixturePrior, adapted_prior
from dbull.mixture.stats import SufficientStats
from dbull.mixture.updates import Points, local_summary, summarize

ADAPTED = 0.05  # relative change of expected variance or of weight that is too small to go on for


@dataclass(frozen=True)
class SearchSettings:
    """How hard to look for structure. The paper's values where the paper has one."""

    fresh_sizes: tuple[int, ...] = (2, 3, 5, 10)  # fresh components per birth; the paper: 10; () for none
    fresh_rows: int = 800  # points collected for a birth, at most
    fresh_steps: int = 30
    refine_steps: int = 4  # local and global steps before a proposal is compared
    merge_pairs: int = 8  # pairs tried per round of merges
    min_birth_rows: float = 4.0  # a component with fewer rows is not expanded
    min_effective_rows: float = 5.0  # newborns with less evidence than this are dissolved,
    min_rows_per_dim: float = 0.5  # and with less than this per dimension
    max_components: int = 1000
    max_rounds: int = 30
    second_chances: int = 1  # quiet rounds in which failed births are tried again with other seeds
    max_laps: int = 50
    tolerance: float = 1e-5  # relative gain of the bound per lap at which laps stop
    batch_rows: int = 20_000


@dataclass(frozen=True)
class FitProgress:
    """One thing that happened: a lap, a change of prior and weight, or a move that was decided."""

    kind: str  # "lap", "adapt", "birth", "merge", "dissolve" or "final" (a lap at full weight)
    n_components: int
    elbo: float
    move: MoveRecord | None = None


class Search:
    """The search for structure on one data set.

    Parameters
    ----------
    memory
        What is known so far; changed in place as the search goes on.
    points
        The data set in memory.
    prior
        A fixed prior, or None to take it from the statistics and keep it in step with them.
    weight_at
        How much each observation counts when structure is decided, given the number of components.
    start
        Statistics to start from instead of the memory's own, e.g. those of a sample scaled up.
    pooled_rows
        How many (weighted) observations the adapted prior's expectation of a covariance counts for.
    """

    def __init__(
        self,
        memory: StatsMemory,
        points: Points,
        prior: MixturePrior | None,
        concentration: float,
        weight_at: Callable[[int], float],
        settings: SearchSettings,
        generator: torch.Generator,
        start: SufficientStats | None = None,
        pooled_rows: float = 0.0,
    ):
        self.memory = memory
        self.points = points
        self.settings = settings
        self.generator = generator
        self.batches = points.batches(max(1, round(len(points) / settings.batch_rows)))
        self.adapts = prior is None
        self.pooled_rows = pooled_rows
        if memory.n_components == 0:
            memory.add_components(1)
            start = summarize(torch.zeros(len(points), 1, dtype=torch.float64), points)
        start = memory.total if start is None else start
        self.weight_at = weight_at
        weight = weight_at(memory.n_components)
        self.evidence = Evidence(prior or adapted_prior(start, concentration, pooled_rows), weight)
        self.next_posterior = self.evidence.posterior(start)
        self.failed: dict[tuple[str, tuple[int, ...]], float] = {}

    def run(self) -> Iterator[FitProgress]:
        """Alternate laps and moves until no move is accepted; then see whether the prior still fits."""
        yield from self.laps()
        n_quiet = 0
        for _ in range(self.settings.max_rounds):
            changed = False
            for kind, moves in (
                ("birth", self.births),
                ("merge", self.merges),
                ("dissolve", self.dissolutions),
            ):
                accepted = False
                for record in moves():
                    accepted |= record.accepted
                    yield self.progress(kind, self.state.elbo, record)
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
            self.evidence, self.memory, self.batches, self.next_posterior, s.max_laps, s.tolerance
        ):
            yield self.progress(kind, elbo)
            kind = "lap"
        self.memory.sort_by_size()
        self.settle(self.evidence.posterior(self.memory.total))

    def settle(self, used: MixturePosterior) -> None:
        """Bring every record under one posterior, so that moves can take rows out exactly."""
        self.memory.refill([local_summary(used, batch) for batch in self.batches])
        self.state = settle(self.evidence, self.memory, self.points, used)
        self.next_posterior = self.evidence.posterior(self.memory.total)

    @property
    def min_rows(self) -> float:
        """Rows that a newborn needs to stand."""
        s = self.settings
        return max(s.min_effective_rows, s.min_rows_per_dim * self.points.n_dims) / self.evidence.weight

    def adapt(self) -> bool:
        """Bring prior and weight in step with what was found; return whether that changed enough to go on."""
        old, weight = self.evidence.prior, self.weight_at(self.memory.n_components)
        new = adapted_prior(self.memory.total, old.concentration, self.pooled_rows) if self.adapts else old
        log_volume = float(torch.logdet(new.scale_inv) - torch.logdet(old.scale_inv)) / old.n_dims
        if max(abs(log_volume), abs(math.log(weight / self.evidence.weight))) < ADAPTED:
            return False
        self.evidence = Evidence(new, weight)
        self.next_posterior = self.evidence.posterior(self.memory.total)
        self.failed.clear()
        return True

    def progress(self, kind: str, elbo: float, move: MoveRecord | None = None) -> FitProgress:
        """Describe the present moment."""
        return FitProgress(kind, self.memory.n_components, elbo, move)

    def decide(self, proposal: Proposal, active: Points) -> MoveRecord:
        """Accept or reject a proposal; on acceptance the memory takes its structure and settles under it."""
        record = accept(self.state, proposal, active)
        if record.accepted:
            self.memory.adopt(proposal.memory)
            self.settle(proposal.posterior)
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
            room = s.max_components - memory.n_components + newborn
            rows = float(memory.stream.counts[target])
            if room < 1 + newborn or rows < s.min_birth_rows or self.tried("birth", (component_id,), rows):
                continue
            made = propose_birth(
                self.state,
                target,
                tuple(dict.fromkeys(min(size, room) for size in s.fresh_sizes if room > 1)),
                s.fresh_rows,
                s.fresh_steps,
                s.refine_steps,
                self.min_rows,
                self.generator,
            )
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
    evidence: Evidence,
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
    memory.refill([local_summary(posterior, batch) for batch in batches])
    before = evidence.elbo(memory.total)
    yield before
    for _ in range(max_laps):
        memory.sort_by_size()
        for i, batch in enumerate(batches):
            memory.replace_batch(i, local_summary(evidence.posterior(memory.total), batch))
        memory.rebuild_stream()
        after = evidence.elbo(memory.total)
        yield after
        if after - before <= tolerance * abs(after):
            break
        before = after
