"""How a data set is learned, and the defaults per kind of data.

Each default is written once, in the record of the part that uses it. A name is the same here and as a
parameter of `DBULL`; docs/log.md has the experiments behind the numbers.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

from dbull.mixture.settings import FitSettings, SearchSettings, default_evidence

OBJECTIVES = ("default", "paper", "paper-literal")
PRETRAININGS = ("end-to-end", "stacked")
NOVEL_SHARE = 0.15  # of the rows, from which a data set counts as new; a familiar one has about 0.05
ALONE_SHARE = 0.25  # of rows that keep to themselves on the graph, from which a data set is new too
OUTLIER_STD = 3.0
FEWEST_REPLAYED, MOST_REPLAYED = 100, 1000  # rows per cluster
FAMILIAR_RATE = 0.25  # learning rate on a familiar data set, as a share of that on a new one
ROUNDS, FAMILIAR_ROUNDS = 300, 50  # in which codes are laid out along the graph
ENOUGH_ROWS = 250_000  # of a data set, from which the networks take no more steps
FULL_ROWS = 56_000  # of a data set, from which evidence does not grow any more
EVIDENCE_PER_CLUSTER = 40.0  # observations that a cluster counts as when structure is decided
PLACE_WEIGHT = 0.5  # observations that a row is worth at most if neighbours decided its place with it
RESOLUTIONS = {"coarse": 1 / 3, "normal": 1.0, "fine": 3.0}  # times as much evidence


@dataclass(frozen=True)
class TrainingSettings:
    """How long and how fast the networks are trained, and what holds their codes."""

    epochs: int = 0  # on the first data set, before the first search for clusters
    joint_epochs: int = 1  # alternation of networks and mixture, at most
    stacked_epochs: int = 0  # layer-wise denoising before everything else, per layer
    novel_epochs: int = 40  # after the first data set, if much of what arrives is new
    novel_joint_epochs: int = 1
    familiar_epochs: int = 4  # if little is
    familiar_joint_epochs: int = 0
    joint_births: bool = False  # whether components may still be born in the alternation
    retrain: bool = True  # whether pretrained networks are trained on the first data set before the search
    batch_size: int = 256
    learning_rate: float = 2e-3
    joint_learning_rate: float = 3e-4
    decay: float | None = None  # of the joint learning rate per epoch; None: constant, then falling
    stable_share: float = 1e-3  # rows that may change component between epochs when learning stops
    stable_gain: float = 1e-3  # relative gain of the bound below which learning stops
    freeze: bool = False  # whether the networks stay as the first rows that they saw have left them
    neighbourhood: float = 1000.0  # nats per row and unit of log(1 + squared distance from its place); 0: off
    consistency: float = 1000.0  # the same for replayed rows, whose place is where they were

    def schedule(self, first: bool, novel: bool) -> Schedule:
        """Return how long to train on a data set."""
        if first:
            return Schedule(self.epochs, self.joint_epochs, self.learning_rate, ROUNDS)
        if novel:
            return Schedule(self.novel_epochs, self.novel_joint_epochs, self.learning_rate, ROUNDS)
        rate = FAMILIAR_RATE * self.learning_rate
        return Schedule(self.familiar_epochs, self.familiar_joint_epochs, rate, FAMILIAR_ROUNDS)


@dataclass(frozen=True)
class Schedule:
    """How long the networks are trained on one data set."""

    epochs: int = 0
    joint_epochs: int = 0
    learning_rate: float = 0.0
    rounds: int = 0  # in which codes are laid out along the graph before


@dataclass(frozen=True)
class GraphSettings:
    """The neighbour graph of the rows in memory, and what it says about clusters."""

    n_neighbors: int | None = None  # None: by the number of rows
    dims: int = 100  # principal directions in which neighbours are sought
    angle_width: int = 30  # inputs beyond which they are sought by angle: lengths of wide rows tell little
    graph_index: str = "auto"  # how neighbours are found; see index.py
    join: float = 0.1  # mixing from which components are one cluster; 0: one component each


@dataclass(frozen=True)
class PastSettings:
    """What is kept of rows that are gone, and how it is used."""

    replay: str = "imprints"  # where rows of the past are drawn from; see past.py
    n_replay: int = 300
    per_cluster: bool = True  # or in all
    carry: bool = True  # whether the statistics of the past follow the encoder
    novelty: bool = True  # whether strangeness decides how long to train and which rows count
    redraw: bool = False  # whether decoded rows are drawn anew each epoch

    @property
    def by_bounds(self) -> bool:
        """Whether strangeness is told by the bounds of rows, because nothing is kept of their inputs."""
        return self.novelty and self.replay == "decoded"

    @property
    def outlier_std(self) -> float:
        """Standard deviations below the usual score at which a row does not count."""
        return OUTLIER_STD if self.novelty else math.inf


@dataclass(frozen=True)
class LearnSettings:
    """How one data set is learned. Each part beyond the paper has a weight or a switch of its own."""

    training: TrainingSettings = field(default_factory=TrainingSettings)
    graph: GraphSettings = field(default_factory=GraphSettings)
    past: PastSettings = field(default_factory=PastSettings)
    mixture: FitSettings = field(default_factory=FitSettings)
    use_encoder_variance: bool = False  # in the statistics of the mixture


@dataclass(frozen=True)
class Recipe:
    """Defaults for one objective and kind of data: networks, and how they are learned."""

    settings: LearnSettings
    hidden_dims: tuple[int, ...] = (256, 256)
    latent_dim: int = 5
    epoch_range: tuple[int, int] = (10, 150)  # fewest and most epochs before the first search
    front_end: bool = False
    augment: bool = False
    likelihood: str | None = None  # None: by the kind of data
    evidence_power: float | None = None  # by which evidence grows with the number of rows
    literal: bool = False  # the paper's prior; a data set is two mini-batches at least


DEFAULT = Recipe(LearnSettings(mixture=FitSettings(pooling=0.03, evidence_per_cluster=EVIDENCE_PER_CLUSTER)))
PAPER = Recipe(
    LearnSettings(
        TrainingSettings(
            joint_epochs=8,
            novel_epochs=60,
            novel_joint_epochs=4,
            familiar_epochs=0,
            familiar_joint_epochs=0,
            joint_births=False,
            batch_size=256,
            learning_rate=1e-3,
            retrain=False,
            neighbourhood=0.0,
            consistency=0.0,
        ),
        GraphSettings(join=0.0),
        PastSettings(replay="decoded", n_replay=100, redraw=True),
        FitSettings(pooling=0.03),
    ),
    hidden_dims=(500, 500, 2000),
    latent_dim=10,
    epoch_range=(25, 50),
    augment=True,
    evidence_power=0.6,
)
# As printed, Appendix C included; what is not printed (epochs, steps of a search) is as above.
PAPER_LITERAL = replace(
    PAPER,
    settings=LearnSettings(
        replace(
            PAPER.settings.training,
            novel_epochs=0,
            novel_joint_epochs=8,
            batch_size=1500,
            joint_learning_rate=2e-3,
            decay=0.9,
            stable_gain=0.0,
        ),
        PAPER.settings.graph,
        PastSettings(replay="decoded", n_replay=100, per_cluster=False, carry=False, novelty=False),
        FitSettings(
            max_evidence=None,
            search=SearchSettings(fresh_sizes=(10,), batch_rows=500),
        ),
    ),
    augment=False,
    likelihood="gaussian-learned",
    evidence_power=None,
    literal=True,
)
IMAGES_LITERAL = replace(
    PAPER_LITERAL,
    settings=replace(
        PAPER_LITERAL.settings,
        training=replace(PAPER_LITERAL.settings.training, joint_learning_rate=2e-4),
    ),
)
RECIPES = {
    ("paper-literal", "images"): IMAGES_LITERAL,
    **{("paper-literal", kind): PAPER_LITERAL for kind in ("dense", "sparse")},
    ("default", "images"): replace(DEFAULT, front_end=True),
    **{("default", kind): DEFAULT for kind in ("dense", "sparse")},
    **{("paper", kind): PAPER for kind in ("images", "dense", "sparse")},
}


def epochs_for(n_rows: int, batch_size: int, least: int, most: int) -> int:
    """Return how many epochs to train before the first search, when nothing else is said.

    About 1,000 steps for small data and 6 more for every 100 rows: 40 epochs of 56,000 images in batches of
    512, 100 epochs of 7,400. Rows beyond `ENOUGH_ROWS` ask for no more steps: they say little that is new to
    the networks, which have one size.
    """
    steps_per_epoch = math.ceil(n_rows / min(n_rows, batch_size))
    telling = min(n_rows, ENOUGH_ROWS)
    least = math.ceil(least * telling / n_rows)
    return max(least, min(most, math.ceil((1000 + 0.06 * telling) / steps_per_epoch)))


def evidence_for(n_rows: int, n_dims: int, power: float) -> str | float:
    """Return how many observations of a data set may speak for structure, by its number of rows alone.

    The usual number from `FULL_ROWS` rows on, of fewer a part of it. In 10 dimensions and with a power of
    0.6: 212 of an arrival of 1,000 rows, 845 of 10,000.
    """
    if n_rows >= FULL_ROWS:
        return "auto"
    share: float = (n_rows / FULL_ROWS) ** power
    return share * default_evidence(n_dims, 1)


def replay_for(n_rows: int, past: PastSettings) -> int:
    """Return how many rows to replay, per cluster or in all, when nothing else is said.

    A large data set drowns a fixed number: 8 % of its rows stand for each cluster of the past. A small one is
    drowned by it: no cluster of the past has many more rows than a new one could have.
    """
    if not past.per_cluster:
        return past.n_replay
    fewest = max(FEWEST_REPLAYED, min(past.n_replay, round(0.3 * n_rows)))
    return max(fewest, min(MOST_REPLAYED, round(0.08 * n_rows)))
