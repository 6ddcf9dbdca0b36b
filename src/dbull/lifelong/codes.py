"""The mixture on the codes of the data set in memory, followed as the encoder moves."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from dbull.lifelong.objective import FrozenMixture
from dbull.mixture.fit import Fitted, fit_data_set
from dbull.mixture.memory import StatsMemory
from dbull.mixture.moves import MoveRecord
from dbull.mixture.posterior import global_step
from dbull.mixture.prior import MixturePrior
from dbull.mixture.settings import FitSettings
from dbull.mixture.stats import SufficientStats
from dbull.mixture.updates import Points, local_step, summarize

__all__ = ["CodeMixture"]


class CodeMixture:
    """A mixture that is fitted to codes again and again, each time from what was found before.

    Attributes
    ----------
    memory
        Statistics of the components; changed in place.
    labels
        Most probable component of each row, (N,).
    responsibilities
        (N, K) float32.
    moves
        Accepted moves of the latest search.
    changed_share
        Share of rows that changed component in the latest search.
    """

    def __init__(
        self, memory: StatsMemory, settings: FitSettings, use_variance: bool, generator: torch.Generator
    ) -> None:
        self.memory = memory
        self.settings = settings
        self.use_variance = use_variance
        self.generator = generator
        self.moves: tuple[MoveRecord, ...] = ()
        self.changed_share = 1.0
        self.labels = torch.zeros(0, dtype=torch.int64)
        self.responsibilities: Tensor | None = None
        self._fitted: Fitted | None = None
        self._held_by: Tensor | None = None  # id of each row's component

    @property
    def fitted(self) -> Fitted:
        """What the latest search left."""
        assert self._fitted is not None, "search first"
        return self._fitted

    def responsibilities_with(self, more: Tensor) -> Tensor:
        """Return the responsibilities of the rows and, behind them, those of further codes (R, D)."""
        assert self.responsibilities is not None, "search first"
        if len(more) == 0:
            return self.responsibilities
        behind = local_step(self.fitted.posterior, Points.from_rows(more)).exp()
        return torch.cat([self.responsibilities, behind.to(torch.float32)])

    def frozen(self, device: torch.device | str) -> FrozenMixture:
        """Return the mixture as the networks see it."""
        return FrozenMixture.of(self.fitted.posterior, device)

    def carry(self, ids: tuple[int, ...], overall: SufficientStats) -> None:
        """Take in the statistics of the past, named by ids of components, in the present coordinates."""
        place = {component_id: i for i, component_id in enumerate(ids)}
        index = torch.tensor([place.get(component_id, len(ids)) for component_id in self.memory.ids])
        self.memory.overall = overall.with_empty(1).select(index.to(torch.int64))  # newborns have no past

    def search(self, mean: Tensor, var: Tensor | None, births: bool = True) -> None:
        """Fit the mixture to codes (N, D), from what was found before; the very first time from nothing."""
        settings = self.settings
        if not births:
            settings = replace(settings, search=replace(settings.search, fresh_sizes=()))
        points = Points.from_rows(mean, var if self.use_variance else None)
        start = None
        if self.responsibilities is not None:
            # The encoder has moved: components first follow the rows that they hold.
            start = self.memory.overall + summarize(self.responsibilities.to(torch.float64).log(), points)
        moves = []
        fitting = fit_data_set(self.memory, points, settings, self.generator, start)
        while True:
            try:
                step = next(fitting)
            except StopIteration as end:
                self._fitted = end.value
                break
            if step.move is not None and step.move.accepted:
                moves.append(step.move)
        self.moves = tuple(moves)
        log_resp = local_step(self.fitted.posterior, points)
        self.labels = log_resp.argmax(1)
        self.responsibilities = log_resp.exp_().to(torch.float32)
        held_by = torch.tensor(self.memory.ids)[self.labels]
        if self._held_by is not None:
            self.changed_share = float((held_by != self._held_by).double().mean())
        self._held_by = held_by

    def search_afresh(
        self, mean: Tensor, var: Tensor | None, generator: torch.Generator, least_gain: float = 0.0
    ) -> None:
        """Search from nothing on the codes as they are now; keep what is found if its bound is higher.

        A mixture that has followed the encoder may be stuck where the first codes had put it. For a first
        data set only: components of the past cannot be searched again. `least_gain` is the share of the bound
        that must be gained.
        """
        assert not bool(self.memory.established.any()), "components of the past are there"
        fresh = CodeMixture(StatsMemory.empty(mean.shape[1]), self.settings, self.use_variance, generator)
        fresh.search(mean, var)
        if fresh.fitted.bound - self.fitted.bound <= least_gain * abs(self.fitted.bound):
            return
        self.memory.adopt(fresh.memory)
        self.labels, self.responsibilities = fresh.labels, fresh.responsibilities
        self._fitted, self._held_by = fresh.fitted, fresh._held_by

    def rest(self, prior: MixturePrior) -> None:
        """Stand for a search where there is no row to search: components of the past stay as they are."""
        self.memory.refill([SufficientStats.zeros(self.memory.n_components, self.memory.overall.n_dims)])
        posterior = global_step(prior, self.memory.total)
        self._fitted = Fitted(prior, posterior, 0.0, 1.0, 0.0)
        self.labels = torch.zeros(0, dtype=torch.int64)
        self.responsibilities = torch.zeros(0, self.memory.n_components)

    def absorb(self, other: CodeMixture) -> None:
        """Take in the components and, behind its own, the rows of another mixture that was searched apart.

        The prior stays: what is far away says nothing about what components are like here.
        """
        assert self.responsibilities is not None, "search first"
        assert other.responsibilities is not None, "search first"
        mine, theirs = self.memory, other.memory
        n_mine = mine.n_components
        # Newborns of both have been numbered from the same number on.
        behind = mine.next_id - mine.n_given
        ids = tuple(i if i < theirs.n_given else i + behind for i in theirs.ids)
        self.memory.adopt(
            StatsMemory(
                [],
                mine.stream.concat(theirs.stream),
                mine.overall.concat(theirs.overall),
                mine.ids + ids,
                torch.cat([mine.established, theirs.established]),
                theirs.next_id + behind,
                mine.n_given,
            )
        )
        self.labels = torch.cat([self.labels, other.labels + n_mine])
        self.responsibilities = torch.block_diag(self.responsibilities, other.responsibilities)
        posterior = global_step(self.fitted.prior, self.memory.total)
        self._fitted = replace(self.fitted, posterior=posterior)

    def dissolve_unchosen(self, mean: Tensor, var: Tensor | None) -> None:
        """Remove newborn components that are no row's first choice; the others take their share of rows.

        Such a component lies thinly over many rows. It would become a cluster that no row belongs to.
        """
        assert self.responsibilities is not None, "search first"
        chosen = torch.bincount(self.labels, minlength=self.memory.n_components) > 0
        keep = (self.memory.established | chosen).nonzero()[:, 0]
        if len(keep) == self.memory.n_components:
            return
        place = torch.zeros(self.memory.n_components, dtype=torch.int64)
        place[keep] = torch.arange(len(keep))
        self.memory.select(keep)
        points = Points.from_rows(mean, var if self.use_variance else None)
        log_resp = torch.log_softmax(self.responsibilities[:, keep].to(torch.float64).log(), dim=1)
        self.memory.refill([summarize(log_resp, points)])
        self._fitted = replace(self.fitted, posterior=global_step(self.fitted.prior, self.memory.total))
        self.responsibilities = log_resp.exp().to(torch.float32)
        self.labels = place[self.labels]
