"""Three-level memory of sufficient statistics: mini-batch, current, overall.

The global posterior always comes from overall + current. A mini-batch that is visited again is first taken
out of the current record with what it left there last time; a data set is folded into the overall record
once, when it is done. The paper's Algorithm 1 folds inside the epoch loop and so counts data several times;
see docs/errata.md.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from dbull.mixture.stats import SufficientStats


@dataclass
class StatsMemory:
    """Statistics of everything seen, and which component is which. The only mutable record of the mixture."""

    batches: list[SufficientStats]  # one per mini-batch of the data set in memory
    current: SufficientStats  # their sum
    overall: SufficientStats  # all data sets before this one
    ids: tuple[int, ...]  # identity of each component; never reused
    established: Tensor  # (K,) bool: was there before the data set in memory
    next_id: int
    n_given: int = 0  # ids below this are given for good; those of newborns are provisional until `fold`

    @classmethod
    def empty(cls, n_dims: int) -> StatsMemory:
        """Return a memory with no component at all."""
        none = SufficientStats.zeros(0, n_dims)
        return cls([], none, none, (), torch.zeros(0, dtype=torch.bool), 0)

    @property
    def n_components(self) -> int:
        """K."""
        return len(self.ids)

    @property
    def total(self) -> SufficientStats:
        """Overall plus current: what the posterior is made from."""
        return (self.overall + self.current).without_negatives()

    def refill(self, batches: list[SufficientStats]) -> None:
        """Put fresh records of every mini-batch in place of the old ones."""
        self.batches = batches
        self.current = SufficientStats.total(batches)

    def replace_batch(self, i: int, record: SufficientStats) -> None:
        """Swap the record of mini-batch i: current - old + new."""
        self.current = self.current - self.batches[i] + record
        self.batches[i] = record

    def fold(self) -> dict[int, int]:
        """End a data set: overall takes in the current record, once; newborns get ids for good.

        Ids are given in order of size and never reused; newborns that came and went leave no gap. Returns the
        id for good of each id that was.
        """
        self.sort_by_size()
        self.overall = self.total
        self.current = SufficientStats.zeros(self.n_components, self.overall.n_dims)
        self.batches = []
        given, next_id = {}, self.n_given
        for component_id in self.ids:
            given[component_id] = component_id
            if component_id >= self.n_given:
                given[component_id], next_id = next_id, next_id + 1
        self.ids, self.next_id, self.n_given = tuple(given.values()), next_id, next_id
        self.established = torch.ones(self.n_components, dtype=torch.bool)
        return given

    def adopt(self, other: StatsMemory) -> None:
        """Become the other memory (an accepted proposal)."""
        self.__dict__.update(other.__dict__)

    def coarse(self) -> StatsMemory:
        """Return a copy that knows the current data set as one record only; proposals are made on it."""
        return replace(self, batches=[])

    def _change(self, change: Callable[[SufficientStats], SufficientStats]) -> None:
        """Change the structure of every stored record at once."""
        self.batches = [change(record) for record in self.batches]
        self.current, self.overall = change(self.current), change(self.overall)

    def add_components(self, n_new: int) -> None:
        """Append `n_new` empty newborn components with fresh ids."""
        self._change(lambda record: record.with_empty(n_new))
        self.ids += tuple(range(self.next_id, self.next_id + n_new))
        self.established = torch.cat([self.established, torch.zeros(n_new, dtype=torch.bool)])
        self.next_id += n_new

    def select(self, index: Tensor) -> None:
        """Keep the components named by `index`, in that order."""
        self._change(lambda record: record.select(index))
        self.ids = tuple(self.ids[i] for i in index.tolist())
        self.established = self.established[index]

    def sort_by_size(self) -> bool:
        """Put large components first, where the stick-breaking bound is best; return whether any moved."""
        order = torch.argsort(self.total.counts, descending=True, stable=True)
        if torch.equal(order, torch.arange(self.n_components)):
            return False
        self.select(order)
        return True
