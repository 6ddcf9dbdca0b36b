"""Methods changed in a way for which there is no switch that a file or a flag can turn.

PYTHONPATH=experiments dbull bench split-mnist --method-path ablations:NoStatistics --label no-statistics
PYTHONPATH=experiments dbull bench batch-mnist --method-path ablations:PublishedDEC --label dec-as-published
PYTHONPATH=experiments dbull bench split-mnist-tasks --method-path ablations:BinaryCURL --label curl-d-binary
"""

from typing import Any

import numpy as np

from dbull import DBULL
from dbull.methods.competitors.curl import CURL
from dbull.methods.competitors.dec import DEC

__all__ = ["BinaryCURL", "NoStatistics", "PublishedDEC"]

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
    """DEC as published: images as they are, and layers trained one by one first unless set otherwise."""

    def __init__(
        self,
        n_clusters: int = 8,
        *,
        image_shape: tuple[int, ...] | None = None,
        pretraining: str = "stacked",
        joint_epochs: str | int = "auto",
        random_state: Any = None,
        callback: Any = None,
    ):
        super().__init__(
            n_clusters,
            image_shape=image_shape,
            augment=None,
            pretraining=pretraining,
            joint_epochs=joint_epochs,
            random_state=random_state,
            callback=callback,
        )


class BinaryCURL(CURL):
    """CURL-D on images of zeros and ones, and -200 nats as the limit, as in its authors' code."""

    def __init__(
        self,
        *,
        image_shape: tuple[int, ...] | None = None,
        max_clusters: int = 50,
        joint_epochs: str | int = "auto",
        random_state: Any = None,
        callback: Any = None,
    ):
        super().__init__(
            threshold=-200.0,
            image_shape=image_shape,
            max_clusters=max_clusters,
            joint_epochs=joint_epochs,
            random_state=random_state,
            callback=callback,
        )

    def fit(self, X: Any, y: object = None) -> Any:
        """Learn X from scratch."""
        return super().fit(black_and_white(X))

    def _go_on(self, X: Any) -> None:
        super()._go_on(black_and_white(X))

    def _rows(self, X: Any) -> Any:
        return super()._rows(black_and_white(X))


def black_and_white(X: Any) -> np.ndarray:
    """Return 1 where a pixel is brighter than half of the brightest, else 0."""
    images = np.asarray(X)
    brightest = images.max()
    return (images > brightest / 2).astype(np.float32)
