"""Learn one data set: networks and mixture in turn, from one cluster (the paper's Algorithm 1, corrected).

graph       neighbours of the data in memory
represent   train the networks alone
search      the mixture on the codes: births, merges, laps
joint       an epoch of the networks under the mixture, a search on the new codes, and again
done        components that the graph runs through are one cluster
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import dataclass
from time import perf_counter

import torch
from torch import Tensor

from dbull.lifelong.codes import CodeMixture
from dbull.lifelong.groups import join_components
from dbull.lifelong.neighbourhood import NeighbourGraph, affinity, build_graph
from dbull.lifelong.settings import LearnSettings
from dbull.lifelong.state import LearnerState
from dbull.lifelong.training import EpochTerms, Trainer
from dbull.mixture.moves import MoveRecord
from dbull.nets.augment import Augmentation
from dbull.nets.inputs import InputView
from dbull.nets.pretrain import stacked_denoising
from dbull.nets.vae import VAE

__all__ = ["Progress", "learn"]

FINAL_RATE = 0.1  # learning rate at the end of a stage, as a share of that at its start


@dataclass(frozen=True)
class Progress:
    """One thing that happened while a data set was learned."""

    stage: str  # "graph", "pretrain", "represent", "search", "joint" or "done"
    epoch: int
    n_epochs: int
    n_components: int
    n_clusters: int  # known when done; until then each component counts as one
    seconds: float
    seconds_left: float | None = None
    terms: EpochTerms | None = None  # means per row, after an epoch
    moves: tuple[MoveRecord, ...] = ()  # accepted births, merges and dissolutions of a search
    changed_share: float | None = None  # rows that changed component in a search


def learn(
    vae: VAE, view: InputView, rows: Tensor, settings: LearnSettings, augment: Augmentation | None, seed: int
) -> Generator[Progress, None, LearnerState]:
    """Learn a first data set (N, d) from scratch; yields progress, returns the state."""
    s = settings
    generator = torch.Generator().manual_seed(seed)
    clock = _Clock(s.n_represent_epochs + s.n_joint_epochs if vae.learns else 0)
    mixture = CodeMixture(vae.shape.latent_dim, s.mixture, s.use_encoder_variance, generator)
    values = view.values(rows)
    inputs = view.inputs(values)
    graph = None
    if s.join_threshold > 0 or (s.neighbourhood_weight > 0 and vae.learns):
        graph = build_graph(inputs, s.n_neighbours, generator, s.graph_dims, s.graph_cosine)
        yield clock.now("graph", mixture)
    if vae.learns:
        drawn = graph if s.neighbourhood_weight > 0 else None
        trainer = Trainer(
            vae, view, values, inputs, augment, drawn, s.neighbourhood_weight, s.batch_rows, generator
        )
        yield from _pretrain(trainer, s, clock, mixture)
        yield from _represent(trainer, s, clock, mixture)
        mixture.search(*trainer.encode())
        yield clock.now("search", mixture)
        yield from _alternate(trainer, s, clock, mixture)
    else:
        mixture.search(inputs.to(torch.float64), None)
        yield clock.now("search", mixture)
    cluster_of = torch.arange(mixture.memory.n_components)  # largest first
    if graph is not None and s.join_threshold > 0:
        cluster_of = joined(
            graph.nearest(s.n_join_neighbours), mixture.labels, len(cluster_of), s.join_threshold
        )
    mixture.memory.fold()
    fitted = mixture.fitted
    state = LearnerState(
        view, vae, mixture.memory, fitted.prior, fitted.posterior, cluster_of, seed, 1, len(rows)
    )
    yield clock.now("done", mixture, n_clusters=state.n_clusters)
    return state


def joined(graph: NeighbourGraph, labels: Tensor, n_components: int, threshold: float) -> Tensor:
    """Return the cluster of each component, (K,), the largest first: those that the graph joins are one."""
    group = join_components(affinity(graph, labels, n_components), threshold)
    # A component may hold a part of many rows and the largest part of none.
    sizes = torch.bincount(group[labels], minlength=int(group.max()) + 1)
    order = sizes.argsort(descending=True, stable=True)
    return order.argsort()[group]


def _pretrain(trainer: Trainer, s: LearnSettings, clock: _Clock, mixture: CodeMixture) -> Iterator[Progress]:
    """Train layer by layer, if asked for."""
    if s.n_stacked_epochs == 0:
        return
    steps = stacked_denoising(
        trainer.vae, trainer.inputs, s.n_stacked_epochs, trainer.generator, s.learning_rate, s.batch_rows
    )
    for _, epoch, error in steps:
        yield clock.now("pretrain", mixture, epoch, s.n_stacked_epochs, EpochTerms(-error))


def _represent(trainer: Trainer, s: LearnSettings, clock: _Clock, mixture: CodeMixture) -> Iterator[Progress]:
    """Train the networks while all rows are one cluster: no prior holds the codes yet."""
    n_epochs = s.n_represent_epochs
    for epoch in range(n_epochs):
        terms = trainer.epoch(lambda part: decayed(s.learning_rate, (epoch + part) / n_epochs))  # noqa: B023
        clock.n_done += 1
        yield clock.now("represent", mixture, epoch, n_epochs, terms)


def _alternate(trainer: Trainer, s: LearnSettings, clock: _Clock, mixture: CodeMixture) -> Iterator[Progress]:
    """Train the networks under the mixture and the mixture on the codes, until neither changes much."""
    n_epochs, before = s.n_joint_epochs, None
    for epoch in range(n_epochs):
        terms = trainer.epoch(
            lambda part: decayed(s.joint_learning_rate, (epoch + part) / n_epochs),  # noqa: B023
            mixture.frozen(trainer.device),
            # Responsibilities of the clean rows: those of changed ones would follow the change.
            mixture.responsibilities if trainer.augment is not None else None,
        )
        mixture.search(*trainer.encode(), births=s.joint_births)
        clock.n_done += 1
        yield clock.now("joint", mixture, epoch, n_epochs, terms)
        stands_still = before is not None and terms.elbo - before <= s.stable_gain * abs(before)
        if stands_still and mixture.changed_share <= s.stable_share:
            break
        before = terms.elbo


def decayed(rate: float, done: float) -> float:
    """Return a rate that is constant for the first half and then falls linearly to FINAL_RATE of itself."""
    return rate * min(1.0, max(FINAL_RATE, 2 * (1 - done)))


class _Clock:
    """Elapsed time and an estimate of what is left."""

    def __init__(self, n_epochs: int):
        self.started = perf_counter()
        self.n_epochs = n_epochs
        self.n_done = 0

    def now(
        self,
        stage: str,
        mixture: CodeMixture,
        epoch: int = 0,
        n_epochs: int = 1,
        terms: EpochTerms | None = None,
        n_clusters: int | None = None,
    ) -> Progress:
        """Describe the present moment; epochs are counted from 1."""
        seconds = perf_counter() - self.started
        left = 0.0 if stage == "done" else None
        if self.n_done and left is None:
            left = seconds / self.n_done * (self.n_epochs - self.n_done)
        searched = stage in ("search", "joint")
        n_components = max(1, mixture.memory.n_components)
        return Progress(
            stage,
            epoch + 1,
            n_epochs,
            n_components,
            n_clusters or n_components,
            seconds,
            left,
            terms,
            mixture.moves if searched else (),
            mixture.changed_share if searched else None,
        )
