"""How a data set is learned, and the defaults per kind of data."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from dbull.mixture.fit import FitSettings

__all__ = ["OBJECTIVES", "PRETRAININGS", "LearnSettings", "Recipe", "epochs_for", "recipe_for"]

OBJECTIVES = ("default", "paper")
PRETRAININGS = ("end-to-end", "stacked")


@dataclass(frozen=True)
class LearnSettings:
    """How one data set is learned. Each part beyond the paper has a weight or a switch of its own."""

    n_represent_epochs: int  # before the first search for clusters
    n_joint_epochs: int  # alternation of networks and mixture, at most
    learning_rate: float = 1e-3
    joint_learning_rate: float = 3e-4
    batch_rows: int = 256
    n_stacked_epochs: int = 0  # layer-wise denoising before everything else, per layer
    neighbourhood_weight: float = 0.0  # nats per row of the neighbourhood loss; 0 switches it off
    n_neighbours: int = 15
    join_threshold: float = 0.0  # share of edges from which components are one cluster; 0: one component each
    n_join_neighbours: int = 6
    use_encoder_variance: bool = False  # in the statistics of the mixture
    stable_share: float = 1e-3  # rows that may change component between epochs when learning stops
    stable_gain: float = 1e-3  # relative gain of the bound below which learning stops
    mixture: FitSettings = field(default_factory=FitSettings)


def epochs_for(n_rows: int, batch_rows: int, least: int, most: int) -> int:
    """Return how many epochs to train before the first search, when nothing else is said.

    About 1,000 steps for small data and 6 more for every 100 rows: 40 epochs of 56,000 images in batches of
    512, 100 epochs of 7,400.
    """
    steps_per_epoch = math.ceil(n_rows / min(n_rows, batch_rows))
    return max(least, min(most, math.ceil((1000 + 0.06 * n_rows) / steps_per_epoch)))


@dataclass(frozen=True)
class Recipe:
    """Defaults for one objective and kind of data. docs/log.md has the experiments behind the numbers."""

    hidden_dims: tuple[int, ...]
    batch_rows: int
    learning_rate: float
    joint_learning_rate: float
    epoch_range: tuple[int, int]  # fewest and most epochs before the first search
    n_joint_epochs: int
    front_end: bool
    augment: bool
    neighbourhood_weight: float
    join_threshold: float
    pooled_share: float


PAPER = Recipe((500, 500, 2000), 256, 1e-3, 3e-4, (25, 50), 12, False, True, 0.0, 0.0, 0.03)
RECIPES = {
    ("default", "images"): Recipe((400, 400), 512, 2e-3, 3e-4, (10, 150), 5, True, False, 100.0, 0.03, 0.1),
    ("default", "dense"): Recipe((400, 400), 256, 1e-3, 3e-4, (10, 150), 5, False, False, 100.0, 0.0, 0.05),
    ("default", "sparse"): Recipe((400, 400), 256, 1e-3, 3e-4, (10, 150), 5, False, True, 0.0, 0.0, 0.05),
    ("paper", "images"): PAPER,
    ("paper", "dense"): PAPER,
    ("paper", "sparse"): PAPER,
}


def recipe_for(objective: str, kind: str) -> Recipe:
    """Return the defaults for an objective and a kind of data."""
    return RECIPES[objective, kind]
