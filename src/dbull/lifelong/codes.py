"""The mixture on the codes of the data set in memory, followed as the encoder moves."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from dbull.lifelong.objective import FrozenMixture
from dbull.mixture.memory import StatsMemory
from dbull.mixture.moves import MoveRecord
from dbull.mixture.posterior import MixturePosterior, global_step
from dbull.mixture.prior import MixturePrior
from dbull.mixture.search import fit_data_set
from dbull.mixture.settings import FitSettings
from dbull.mixture.stats import SufficientStats
from dbull.mixture.updates import Points, local_step, summarize
from dbull.threads import mapped

THIN = 50.0  # times less dense than usual; clusters of 35 data sets were at most 25 times (docs/log.md)
PIECE_ROWS = 1 << 17  # answered at once
LEAST_SPREAD = 1e-3  # variance of places in any direction; neighbours lie about half a unit apart


@dataclass(frozen=True)
class CodeMixture:
    """A mixture as a search left it, and how it divides the rows."""

    memory: StatsMemory  # statistics of the components; never changed here, searches work on copies
    prior: MixturePrior
    posterior: MixturePosterior
    bound: float  # on the evidence, as it counted when structure was decided
    labels: Tensor  # (N,) most probable component of each row
    responsibilities: Tensor  # (N, K) float32
    moves: tuple[MoveRecord, ...] = ()  # accepted in the search
    changed_share: float = 1.0  # rows that changed component in the search

    @classmethod
    def of_past(cls, memory: StatsMemory, prior: MixturePrior) -> CodeMixture:
        """Return the mixture before any row of the data set: components of the past as they are."""
        rows = torch.zeros(0, memory.n_components)
        posterior = global_step(prior, memory.total)
        return cls(memory, prior, posterior, 0.0, torch.zeros(0, dtype=torch.int64), rows)

    @property
    def holders(self) -> Tensor:
        """Id of the component of each row, (N,)."""
        return torch.tensor(self.memory.ids)[self.labels]

    def responsibilities_with(self, more: Tensor) -> Tensor:
        """Return the responsibilities of the rows and, behind them, those of further codes (R, D)."""
        if len(more) == 0:
            return self.responsibilities
        behind = local_step(self.posterior, Points.from_rows(more)).exp()
        return torch.cat([self.responsibilities, behind.to(torch.float32)])

    def frozen(self, device: torch.device | str) -> FrozenMixture:
        """Return the mixture as the networks see it."""
        return FrozenMixture.of(self.posterior, device)

    def carried(self, ids: tuple[int, ...], overall: SufficientStats) -> CodeMixture:
        """Take in the statistics of the past, named by ids of components, in the present coordinates."""
        place = {component_id: i for i, component_id in enumerate(ids)}
        index = torch.tensor([place.get(component_id, len(ids)) for component_id in self.memory.ids])
        past = overall.with_empty(1).select(index.to(torch.int64))  # newborns have no past
        return replace(self, memory=replace(self.memory, overall=past))

    def joined(self, other: CodeMixture) -> CodeMixture:
        """Take in the components and, behind its own, the rows of another mixture that was searched apart.

        The prior stays: what is far away says nothing about what components are like here.
        """
        mine, theirs = self.memory, other.memory
        # Newborns of both have been numbered from the same number on.
        behind = mine.next_id - mine.n_given
        memory = StatsMemory(
            [],
            mine.current.concat(theirs.current),
            mine.overall.concat(theirs.overall),
            mine.ids + tuple(i if i < theirs.n_given else i + behind for i in theirs.ids),
            torch.cat([mine.established, theirs.established]),
            theirs.next_id + behind,
            mine.n_given,
        )
        return replace(
            self,
            memory=memory,
            posterior=global_step(self.prior, memory.total),
            labels=torch.cat([self.labels, other.labels + mine.n_components]),
            responsibilities=torch.block_diag(self.responsibilities, other.responsibilities),
        )

    def with_copies(self, of: Tensor, points: Points) -> CodeMixture:
        """Take in, behind the rows, copies of some of them, which say nothing new but count.

        `of` are the rows that they are copies of, (C,); `points` are all codes, those of the copies last.
        """
        if len(of) == 0:
            return self
        responsibilities = torch.cat([self.responsibilities, self.responsibilities[of]])
        memory = self.memory.coarse()
        memory.refill([_summary(responsibilities, points, lambda part: torch.log_softmax(part, dim=1))])
        return replace(
            self,
            memory=memory,
            posterior=global_step(self.prior, memory.total),
            labels=torch.cat([self.labels, self.labels[of]]),
            responsibilities=responsibilities,
        )

    def apart(self, islands: Tensor, n_least: int, points: Points) -> CodeMixture:
        """Give islands of the graph components of their own where a newborn component holds several.

        However few its rows are among all, what lies so far from everything is no part of anything else.
        `islands` has the number of each row's, (N,), 0 for none; one needs `n_least` distinct rows.
        """
        sets = torch.zeros_like(self.labels)
        for k in (~self.memory.established).nonzero()[:, 0].tolist():
            found, counts = islands[self.labels == k].unique(return_counts=True)
            if len(found) == 0:  # a component that is no row's first choice
                continue
            whole = (counts >= n_least) & (found > 0)
            whole[counts.argmax()] = False  # the largest stays
            for island in found[whole].tolist():
                rows = ((self.labels == k) & (islands == island)).nonzero()[:, 0]
                if len(points.take(rows).zt.unique(dim=1).T) >= n_least:  # copies know nobody but each other
                    sets[rows] = sets.max() + 1
        return self.with_newborns(sets, points)

    def with_newborns(self, sets: Tensor, points: Points) -> CodeMixture:
        """Give each set of rows a component of its own; `sets` numbers them from 1, (N,), with 0 for none."""
        moved, n_new = sets > 0, int(sets.max()) if len(sets) else 0
        if n_new == 0:
            return self
        labels = torch.where(moved, self.memory.n_components - 1 + sets, self.labels)
        responsibilities = torch.nn.functional.pad(self.responsibilities, (0, n_new))
        responsibilities[moved] = 0.0
        responsibilities[moved, labels[moved]] = 1.0
        memory = self.memory.coarse()
        memory.add_components(n_new)
        memory.refill([_summary(responsibilities, points)])
        posterior = global_step(self.prior, memory.total)
        return replace(
            self, memory=memory, posterior=posterior, labels=labels, responsibilities=responsibilities
        )

    def without_unchosen(self, points: Points) -> CodeMixture:
        """Remove newborn components that are no row's first choice; the others take their share of rows.

        Such a component lies thinly over many rows. It would become a cluster that no row belongs to.
        """
        chosen = torch.bincount(self.labels, minlength=self.memory.n_components) > 0
        return self._keeping(self.memory.established | chosen, points)

    def without_thin(self, points: Points) -> CodeMixture:
        """Remove newborn components that are far less dense than others are; these take their rows.

        A layout draws rows together as closely everywhere. What is `THIN` times as thin as usual lies between
        clusters: a few rows whose places the encoder could not learn, and whatever else fits no cluster.
        """
        now = self.memory.current
        counts = now.counts.clamp_min(torch.finfo(torch.float64).tiny)
        mean = now.sum_z / counts[:, None]
        spread = now.sum_zz / counts[:, None, None] - mean[:, :, None] * mean[:, None, :]
        spread = spread + LEAST_SPREAD * torch.eye(points.n_dims, dtype=torch.float64)
        density = counts.log() - torch.linalg.slogdet(spread).logabsdet / 2
        present = now.counts >= 1
        if int(present.sum()) < 3:  # of two, which is usual?
            return self
        thin = present & (density < density[present].median() - math.log(THIN))
        return self._keeping(self.memory.established | ~thin, points)

    def _keeping(self, kept: Tensor, points: Points) -> CodeMixture:
        """Return the mixture with these of its components, (K,) bool, which take the rows of the others."""
        keep = kept.nonzero()[:, 0]
        if len(keep) == self.memory.n_components:
            return self
        posterior = global_step(self.prior, self.memory.total.select(keep))

        def shared(rows: slice) -> tuple[SufficientStats, Tensor, Tensor]:
            some = points.between(rows.start, rows.stop)
            log_resp = torch.log_softmax(self.responsibilities[rows, keep].to(torch.float64).log(), dim=1)
            lost = log_resp.isnan().any(1)  # by rounding, rows that were wholly of what is gone
            if bool(lost.any()):
                log_resp[lost] = local_step(posterior, some.take(lost.nonzero()[:, 0]))
            return summarize(log_resp, some), log_resp.argmax(1), log_resp.exp().to(torch.float32)

        records, labels, responsibilities = zip(*mapped(shared, _pieces(len(points))), strict=True)
        memory = self.memory.coarse()
        memory.select(keep)
        memory.refill([SufficientStats.total([*records])])
        return replace(
            self,
            memory=memory,
            posterior=global_step(self.prior, memory.total),
            labels=torch.cat(labels),
            responsibilities=torch.cat(responsibilities),
        )


def _pieces(n_rows: int) -> list[slice]:
    """Cut rows into pieces whose responsibilities fit in memory in float64, several times."""
    return [slice(a, min(a + PIECE_ROWS, n_rows)) for a in range(0, max(1, n_rows), PIECE_ROWS)]


def _summary(
    responsibilities: Tensor, points: Points, change: Callable[[Tensor], Tensor] = lambda part: part
) -> SufficientStats:
    """Return the statistics of points for responsibilities (N, K), with their logs changed before."""

    def of(rows: slice) -> SufficientStats:
        logs = change(responsibilities[rows].to(torch.float64).log())
        return summarize(logs, points.between(rows.start, rows.stop))

    return SufficientStats.total(mapped(of, _pieces(len(points))))


@dataclass(frozen=True)
class CodeSearch:
    """Fits mixtures to codes: `search(fit, points)` goes on from what was found before."""

    settings: FitSettings
    generator: torch.Generator

    def __call__(self, fit: CodeMixture, points: Points, births: bool = True) -> CodeMixture:
        """Return the mixture fitted to these codes; with a fit of no rows from its components alone."""
        settings, start = self.settings, None
        if not births:
            settings = replace(settings, search=replace(settings.search, fresh_sizes=()))
        if len(fit.labels):
            # The encoder has moved: components first follow the rows that they hold.
            start = fit.memory.overall + _summary(fit.responsibilities, points)
        memory = replace(fit.memory, batches=list(fit.memory.batches))
        moves = []
        steps = fit_data_set(memory, points, settings, self.generator, start)
        while True:
            try:
                step = next(steps)
            except StopIteration as end:
                found = end.value
                break
            if step.move is not None and step.move.accepted:
                moves.append(step.move)

        def answer(rows: slice) -> tuple[Tensor, Tensor]:
            log_resp = local_step(found.posterior, points.between(rows.start, rows.stop))
            return log_resp.argmax(1), log_resp.exp_().to(torch.float32)

        labels, responsibilities = map(torch.cat, zip(*mapped(answer, _pieces(len(points))), strict=True))
        changed = 1.0
        if len(fit.labels):
            changed = float((torch.tensor(memory.ids)[labels] != fit.holders).double().mean())
        return CodeMixture(
            memory, found.prior, found.posterior, found.bound, labels, responsibilities, tuple(moves), changed
        )

    def afresh(self, fit: CodeMixture, points: Points, least_gain: float, n_th: int = 0) -> CodeMixture:
        """Search from nothing on the codes as they are now; take what is found if its bound is higher.

        A mixture that has followed the encoder may be stuck where the first codes had put it. For a first
        data set only: components of the past cannot be searched again. `least_gain` is the share of the bound
        that must be gained; the `n_th` search has other random numbers than others.
        """
        # With numbers of its own, so that a search in vain changes nothing that follows.
        numbers = torch.Generator().manual_seed((self.generator.initial_seed() + n_th) % 2**63)
        nothing = CodeMixture.of_past(StatsMemory.empty(points.n_dims), fit.prior)
        fresh = replace(self, generator=numbers)(nothing, points)
        return fresh if fresh.bound - fit.bound > least_gain * abs(fit.bound) else fit
