"""Methods changed in a way for which there is no switch that a file or a flag can turn.

PYTHONPATH=experiments dbull bench split-mnist --method-path ablations:NoStatistics --label no-statistics
PYTHONPATH=experiments dbull bench batch-mnist --method-path ablations:PublishedDEC --label dec-as-published
"""

from typing import Any

from dbull import DBULL
from dbull.methods.dec import DEC

__all__ = ["NoStatistics", "PublishedDEC"]

SHARE = 1e-3


class NoStatistics(DBULL):
    """What an arrival leaves in the statistics counts for a thousandth: the past has hardly been."""

    def partial_fit(self, X: Any, y: object = None) -> DBULL:
        """Learn X, then forget almost all of its statistics."""
        super().partial_fit(X)
        memory = self.state_.memory
        memory.overall = memory.overall.scaled(SHARE)
        return self


class PublishedDEC(DEC):
    """DEC as published: layers trained one by one first, images as they are."""

    def __init__(
        self,
        n_clusters: int = 8,
        *,
        image_shape: tuple[int, ...] | None = None,
        joint_epochs: str | int = "auto",
        random_state: Any = None,
        callback: Any = None,
    ):
        super().__init__(
            n_clusters,
            image_shape=image_shape,
            augment=None,
            pretraining="stacked",
            joint_epochs=joint_epochs,
            random_state=random_state,
            callback=callback,
        )
