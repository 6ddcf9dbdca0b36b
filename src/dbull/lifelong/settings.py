"""How a data set is learned, and the defaults per kind of data."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

from dbull.lifelong.past import IMPRINT_RANK
from dbull.mixture.settings import FitSettings

__all__ = ["OBJECTIVES", "PRETRAININGS", "LearnSettings", "Recipe", "epochs_for", "recipe_for", "replay_for"]

OBJECTIVES = ("default", "paper")
PRETRAININGS = ("end-to-end", "stacked")
NOVEL_SHARE = 0.15  # of the rows, from which a data set counts as new; a familiar one has about 0.05
STRANGER_STD = 3.0
MOST_REPLAYED = 1000  # rows per cluster
FAMILIAR_RATE = 0.25  # learning rate on a familiar data set, as a share of that on a new one


@dataclass(frozen=True)
class LearnSettings:
    """How one data set is learned. Each part beyond the paper has a weight or a switch of its own."""

    n_represent_epochs: int  # before the first search for clusters
    n_joint_epochs: int  # alternation of networks and mixture, at most
    joint_births: bool = True  # whether components may still be born in the alternation
    learning_rate: float = 1e-3
    joint_learning_rate: float = 3e-4
    batch_rows: int = 256
    n_stacked_epochs: int = 0  # layer-wise denoising before everything else, per layer
    neighbourhood_weight: float = 0.0  # nats per row of the neighbourhood loss; 0 switches it off
    n_neighbours: int = 15
    graph_dims: int = 100  # principal directions in which neighbours are sought
    graph_cosine: bool = False  # by angle instead of by distance
    join_threshold: float = 0.0  # share of edges from which components are one cluster; 0: one component each
    n_join_neighbours: int = 6
    use_encoder_variance: bool = False  # in the statistics of the mixture
    stable_share: float = 1e-3  # rows that may change component between epochs when learning stops
    stable_gain: float = 1e-3  # relative gain of the bound below which learning stops
    replay: str = "imprints"  # where rows of the past are drawn from; see replay.py
    n_replay: int = 150
    replay_per_cluster: bool = True  # or in all
    consistency_weight: float = 100.0  # nats per replayed row and unit of squared distance from its old code
    carry: bool = True  # whether the statistics of the past follow the encoder
    freeze: bool = False  # whether the networks stay as the first rows that they saw have left them
    imprint_rank: int = IMPRINT_RANK
    novelty: bool = True  # whether strangeness decides how long to train and which rows count
    n_novel_epochs: int = 40  # after the first data set, if much of what arrives is new
    n_familiar_epochs: int = 6  # if little is
    n_novel_joint_epochs: int = 2
    n_familiar_joint_epochs: int = 1
    mixed_share: float = 0.2  # mixing with an old cluster from which a newborn component may join it
    mixture: FitSettings = field(default_factory=FitSettings)

    @property
    def stranger_std(self) -> float:
        """Standard deviations below the usual score at which a row does not count."""
        return STRANGER_STD if self.novelty else math.inf

    def schedule(self, first: bool, novel_share: float, frozen: bool) -> Schedule:
        """Return how long to train on a data set."""
        if frozen:
            return Schedule(0, 0, self.learning_rate)
        if first:
            return Schedule(self.n_represent_epochs, self.n_joint_epochs, self.learning_rate)
        if novel_share > NOVEL_SHARE or not self.novelty:
            return Schedule(self.n_novel_epochs, self.n_novel_joint_epochs, self.learning_rate)
        rate = FAMILIAR_RATE * self.learning_rate
        return Schedule(self.n_familiar_epochs, self.n_familiar_joint_epochs, rate)


@dataclass(frozen=True)
class Schedule:
    """How long the networks are trained on one data set."""

    n_represent: int
    n_joint: int
    rate: float


def epochs_for(n_rows: int, batch_rows: int, least: int, most: int) -> int:
    """Return how many epochs to train before the first search, when nothing else is said.

    About 1,000 steps for small data and 6 more for every 100 rows: 40 epochs of 56,000 images in batches of
    512, 100 epochs of 7,400.
    """
    steps_per_epoch = math.ceil(n_rows / min(n_rows, batch_rows))
    return max(least, min(most, math.ceil((1000 + 0.06 * n_rows) / steps_per_epoch)))


def replay_for(n_rows: int, recipe: Recipe) -> int:
    """Return how many rows to replay, per cluster or in all, when nothing else is said.

    A large data set drowns a fixed number: 8 % of its rows stand for each cluster of the past.
    """
    if not recipe.replay_per_cluster:
        return recipe.n_replay
    return max(recipe.n_replay, min(MOST_REPLAYED, round(0.08 * n_rows)))


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
    joint_births: bool = True
    latent_dim: int = 10
    n_neighbours: int = 15
    graph_dims: int = 100
    graph_cosine: bool = False
    max_evidence: float | None = None  # None: as `DPMixture` has it
    # After the first data set:
    replay: str = "imprints"
    n_replay: int = 150
    replay_per_cluster: bool = True
    consistency_weight: float = 100.0
    carry: bool = True
    novelty: bool = True
    n_novel_epochs: int = 40
    n_familiar_epochs: int = 6
    n_novel_joint_epochs: int = 2
    n_familiar_joint_epochs: int = 1


PAPER = Recipe(
    hidden_dims=(500, 500, 2000),
    batch_rows=256,
    learning_rate=1e-3,
    joint_learning_rate=3e-4,
    epoch_range=(25, 50),
    n_joint_epochs=8,
    front_end=False,
    augment=True,
    neighbourhood_weight=0.0,
    join_threshold=0.0,
    pooled_share=0.03,
    joint_births=False,
    replay="decoded",
    n_replay=100,
    replay_per_cluster=False,
    consistency_weight=0.0,
    carry=False,
    novelty=False,
    n_novel_epochs=0,
    n_novel_joint_epochs=8,
)
IMAGES = Recipe(
    hidden_dims=(400, 400),
    batch_rows=512,
    learning_rate=2e-3,
    joint_learning_rate=3e-4,
    epoch_range=(10, 150),
    n_joint_epochs=5,
    front_end=True,
    augment=False,
    neighbourhood_weight=100.0,
    join_threshold=0.03,
    pooled_share=0.1,
)
# No joining below: between features of images, and between texts, the graph runs through everything.
DENSE = replace(
    IMAGES,
    batch_rows=256,
    learning_rate=1e-3,
    epoch_range=(10, 60),
    front_end=False,
    neighbourhood_weight=1000.0,
    join_threshold=0.0,
    pooled_share=0.01,
    latent_dim=5,
    n_neighbours=100,
    graph_cosine=True,
)
SPARSE = replace(DENSE, pooled_share=0.1, latent_dim=10, n_neighbours=200, graph_dims=10, max_evidence=300.0)
RECIPES = {
    ("default", "images"): IMAGES,
    ("default", "dense"): DENSE,
    ("default", "sparse"): SPARSE,
    ("paper", "images"): PAPER,
    ("paper", "dense"): PAPER,
    ("paper", "sparse"): PAPER,
}


def recipe_for(objective: str, kind: str) -> Recipe:
    """Return the defaults for an objective and a kind of data."""
    return RECIPES[objective, kind]
