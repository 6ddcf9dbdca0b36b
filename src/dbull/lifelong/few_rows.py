"""A few rows that wait until they are enough to decide something, kept as means of groups.

The rows of a young stream wait so (beginning.py), and rows that fit no cluster and are too few to found one.
Groups are of neighbouring rows, at least two each. A row far from all others stays by itself: one that is a
thousand times too large would set the scale for whatever it is pooled with.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from dbull.lifelong.neighbourhood import nearest_neighbours
from dbull.lifelong.novelty import SUPPORT
from dbull.lifelong.past import FAR

if TYPE_CHECKING:
    from dbull.nets.inputs import InputView

MOST_ALONE = 20  # rows that wait as they are for a row to be pooled with
MOST_WAITING = 64  # rows that fit no cluster; of more the older half is forgotten


@dataclass(frozen=True)
class FewRows:
    """Means of groups of rows, in the units of the data, the oldest first."""

    means: Tensor  # (G, d)
    counts: Tensor  # (G,) float64, rows of each
    n_tried: int = 0  # rows that there were when something was last tried with them

    @property
    def n_rows(self) -> int:
        """Rows that the means stand for."""
        return int(self.counts.sum())

    def due(self, fewest: int) -> bool:
        """Tell whether there are enough rows to try something: twice as many as the last time."""
        return self.n_rows >= max(fewest, 2 * self.n_tried)

    @classmethod
    def none(cls, like: Tensor) -> FewRows:
        """Return no rows, with columns like these rows have."""
        return cls(like[:0], torch.zeros(0, dtype=torch.float64))

    def followed_by(self, rows: Tensor) -> FewRows:
        """Take in rows (N, d), each by itself."""
        counts = torch.cat([self.counts, torch.ones(len(rows), dtype=torch.float64)])
        return replace(self, means=torch.cat([self.means, rows.to(self.means)]), counts=counts)

    def pooled(self, view: InputView) -> FewRows:
        """Pool neighbouring rows as a view shows them."""
        lonely = self.lonely(view)
        waiting, others = self._some(lonely), self._some(~lonely)
        if not len(others.means):
            return self
        inputs = view.inputs(view.values(others.means)).double()
        labels = torch.from_numpy(grouped(inputs.numpy(), others.counts.numpy()))
        counts = torch.bincount(labels, others.counts)
        values = (view.bent(others.means.double()) - view.shift) / view.scale  # none is cut off
        sums = torch.zeros(len(counts), values.shape[1], dtype=torch.float64)
        sums.index_add_(0, labels, values * others.counts[:, None])
        means = view.rows(sums / counts[:, None]).to(self.means)
        return replace(
            self, means=torch.cat([means, waiting.means]), counts=torch.cat([counts, waiting.counts])
        )

    def lonely(self, view: InputView) -> Tensor:
        """Return which are single rows without any company, (G,) bool: to be pooled with none, or learned.

        One row that is a thousand times too large would set the scale for all others. If many are so far from
        everything, that is what the data are like.
        """
        if len(self.means) < SUPPORT:
            return torch.zeros(len(self.means), dtype=torch.bool)
        nearest = nearest_neighbours(view.values(self.means).double(), 1)[0][:, 0].sqrt()
        if not bool((nearest > 0).any()):
            return nearest > 0
        far: Tensor = (nearest > FAR * nearest[nearest > 0].median()) & (self.counts == 1)
        return far & (int(far.sum()) <= MOST_ALONE)

    def in_company(self, view: InputView) -> FewRows:
        """Return the same without lonely rows."""
        return self._some(~self.lonely(view))

    def latest(self, most: int) -> FewRows:
        """Return the same without the older half, if there are more than so many rows."""
        if self.n_rows <= most:
            return self
        kept = self._some(self.counts.flip(0).cumsum(0).flip(0) <= most // 2)
        return replace(kept, n_tried=kept.n_rows)

    def fitting(self, view: InputView) -> FewRows | None:
        """Return as much of it as may wait, pooled if these are many; None if there is nothing."""
        few = self.latest(MOST_WAITING)
        few = few.pooled(view) if int((few.counts == 1).sum()) > MOST_ALONE else few
        return few if len(few.means) else None

    def without(self, taken: Tensor) -> FewRows:
        """Return the rows that were not taken, (G,) bool."""
        return self._some(~taken)

    def _some(self, which: Tensor) -> FewRows:
        return replace(self, means=self.means[which], counts=self.counts[which])


def grouped(points: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Return the group of each point (N, d), by Ward's rule; none is of a single row if there are two.

    `counts` are the rows that each stands for.
    """
    from scipy.cluster.hierarchy import fcluster, ward  # slow to import, and few streams ask

    if len(points) < 2:
        return np.zeros(len(points), dtype=np.int64)
    most = int(max(1, counts.sum() // 2))
    labels: np.ndarray = np.unique(fcluster(ward(points), most, "maxclust"), return_inverse=True)[1]
    labels = labels.astype(np.int64)
    while True:
        sizes = np.bincount(labels, counts)
        single = np.flatnonzero(sizes == 1)
        if len(single) == 0 or len(sizes) == 1:
            return labels
        weighted = np.zeros((len(sizes), points.shape[1]))
        np.add.at(weighted, labels, points * counts[:, None])
        means = weighted / sizes[:, None]
        # What pooling adds to the squares within groups: of two that are as near, the smaller is taken.
        cost = np.square(means - means[single[0]]).sum(1) * sizes / (sizes + 1)
        cost[single[0]] = np.inf
        labels[labels == single[0]] = cost.argmin()
        labels = np.unique(labels, return_inverse=True)[1].astype(np.int64)
