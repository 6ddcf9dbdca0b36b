"""Learn one data set after another: networks and mixture in turn (the paper's Algorithm 1, corrected).

triage      rows that could only do harm are set aside, rows of another scale are learned apart
past        replay rows that look like those that are gone; see how much of the data set is new
graph       neighbours of all rows in memory, replayed ones among them
represent   train the networks; carry the statistics of the past into the new coordinates
search      the mixture on the codes: births, merges, laps
joint       an epoch of the networks under the mixture, a search on the new codes, and again
done        newborn components join an old cluster, or found a new one; statistics are folded in, once
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import dataclass, replace
from time import perf_counter

import torch
from torch import Tensor

from dbull.ledger import ArrivalReport
from dbull.lifelong.codes import CodeMixture
from dbull.lifelong.folding import Arrival, fold_in
from dbull.lifelong.inference import encode_rows
from dbull.lifelong.neighbourhood import build_graph
from dbull.lifelong.novelty import Triage, sort_rows
from dbull.lifelong.past import Past
from dbull.lifelong.settings import LearnSettings
from dbull.lifelong.state import LearnerState
from dbull.lifelong.training import EpochTerms, Trainer, TrainingRows
from dbull.mixture.memory import StatsMemory
from dbull.mixture.moves import MoveRecord
from dbull.nets.augment import Augmentation
from dbull.nets.pretrain import stacked_denoising

__all__ = ["Progress", "learn", "pretrain"]

FEWEST_TO_TRAIN = 20  # rows of a further data set; the networks stay as they are for fewer
FINAL_RATE = 0.1  # learning rate at the end of a stage, as a share of that at its start


@dataclass(frozen=True)
class Progress:
    """One thing that happened while a data set was learned."""

    stage: str  # "past", "graph", "pretrain", "represent", "search", "joint" or "done"
    epoch: int
    n_epochs: int
    n_components: int
    n_clusters: int  # known when done; until then each component counts as one
    seconds: float
    seconds_left: float | None = None
    terms: EpochTerms | None = None  # means per row, after an epoch
    moves: tuple[MoveRecord, ...] = ()  # accepted births, merges and dissolutions of a search
    changed_share: float | None = None  # rows that changed component in a search
    novel_share: float | None = None  # rows that the clusters of the past find strange


def learn(
    state: LearnerState,
    rows: Tensor,
    settings: LearnSettings,
    augment: Augmentation | None,
    changed_columns: tuple[str, ...] = (),
) -> Generator[Progress, None, tuple[LearnerState, ArrivalReport]]:
    """Learn a data set (N, d); yields progress, returns the new state and what was done to it.

    The state given stays as it was. `changed_columns`, of which the scale is not what it was, are reported.
    """
    state.check_coordinates()
    state, s = state.copy(), settings
    generator = state.random_stream()
    all_values = state.view.values(rows)
    all_inputs = state.view.inputs(all_values)
    first = state.n_data_sets == 0
    learns = state.vae.learns
    parts = Triage.all_near(len(rows), 1.0) if first else sort_rows(state, all_inputs, s.stranger_std)
    past = None if first else Past(state, s.replay if learns else "none", generator)
    apart = None if first else _far_components(state, s, generator)
    mixture = CodeMixture(state.memory, s.mixture, s.use_encoder_variance, generator)
    everything = len(parts.near) == len(rows)
    values = all_values if everything else all_values[parts.near]
    inputs = all_inputs if everything else all_inputs[parts.near]
    untrained = first and state.n_pretrain_rows == 0
    still = not learns or (s.freeze and not untrained) or (not first and len(inputs) < FEWEST_TO_TRAIN)
    schedule = s.schedule(first, parts.near_novel_share, frozen=still)
    clock = _Clock(schedule.n_represent + schedule.n_joint, mixture)
    if past is not None:
        yield clock.now("past", novel=1.0 if parts.novel_share is None else parts.novel_share)
    replay = past.replay(s.n_replay, s.replay_per_cluster, generator) if past is not None else None
    data = TrainingRows.of(values, inputs, replay, state.vae.shape.latent_dim)
    graph = None
    drawn_together = s.join_threshold > 0 or (s.neighbourhood_weight > 0 and learns)
    if drawn_together and len(inputs) > 0 and len(data.inputs) > 1:  # one row alone has no neighbour
        graph = build_graph(data.inputs, s.n_neighbours, generator, s.graph_dims, s.graph_cosine)
        yield clock.now("graph")
    if len(inputs) == 0:
        mixture.rest(state.prior)
    elif learns:
        drawn = graph if s.neighbourhood_weight > 0 else None
        trainer = Trainer(
            state.vae,
            state.view,
            data,
            augment,
            drawn,
            s.neighbourhood_weight,
            s.consistency_weight,
            s.batch_rows,
            generator,
        )
        if untrained:
            yield from _layer_by_layer(trainer, s, clock)
        yield from _represent(trainer, schedule.n_represent, schedule.rate, clock)
        yield from _alternate(trainer, s, schedule.n_joint, past, clock)
    else:
        mixture.search(inputs.to(torch.float64), None)
        yield clock.now("search")
    order = torch.cat([parts.near, parts.far])
    codes, var = encode_rows(state.vae, inputs if everything else all_inputs[order])
    if apart is not None or len(parts.far):
        _search_apart(mixture, apart, codes[len(inputs) :], state, past if s.carry and learns else None)
    arrival = Arrival(
        values if everything else all_values[order],
        inputs if everything else all_inputs[order],
        codes,
        var if s.use_encoder_variance and learns else None,
        replay,
        graph,
        parts.novel_share,
        len(inputs),
        encode_rows(state.vae, all_inputs[parts.outliers])[0],
        changed_columns,
    )
    report = fold_in(state, mixture, arrival, s, generator)
    done = clock.now("done", n_clusters=state.n_clusters)
    report = replace(report, seconds=done.seconds)
    state.ledger.record(report)
    yield done
    return state, report


def _far_components(state: LearnerState, s: LearnSettings, generator: torch.Generator) -> CodeMixture | None:
    """Take the components whose rows are far out of the memory, into a mixture of their own."""
    far = [i in state.imprints and state.imprints[i].is_far for i in state.memory.ids]
    if not any(far):
        return None
    apart = state.memory.coarse()
    apart.select(torch.tensor(far).nonzero()[:, 0])
    state.memory.select((~torch.tensor(far)).nonzero()[:, 0])
    return CodeMixture(apart, s.mixture, s.use_encoder_variance, generator)


def _search_apart(
    mixture: CodeMixture, apart: CodeMixture | None, codes: Tensor, state: LearnerState, past: Past | None
) -> None:
    """Search far rows for clusters, beside components that are far as well, and put all together."""
    if apart is None:
        memory = StatsMemory.empty(codes.shape[1])
        memory.next_id = memory.n_given = mixture.memory.n_given
        apart = CodeMixture(memory, mixture.settings, False, mixture.generator)
    if past is not None:
        apart.carry(past.ids, past.carried(state.vae))
    if len(codes):
        apart.search(codes, None)
    else:
        apart.rest(mixture.fitted.prior)
    mixture.absorb(apart)


def pretrain(
    state: LearnerState, rows: Tensor, settings: LearnSettings, augment: Augmentation | None
) -> Generator[Progress, None, LearnerState]:
    """Train the networks alone on unlabelled rows of the domain; no cluster is learned."""
    state, s = state.copy(), settings
    generator = state.random_stream()
    clock = _Clock(s.n_represent_epochs, CodeMixture(state.memory, s.mixture, False, generator))
    values = state.view.values(rows)
    data = TrainingRows.of(values, state.view.inputs(values), None, state.vae.shape.latent_dim)
    graph = None
    if s.neighbourhood_weight > 0:
        graph = build_graph(data.inputs, s.n_neighbours, generator, s.graph_dims, s.graph_cosine)
        yield clock.now("graph")
    trainer = Trainer(
        state.vae, state.view, data, augment, graph, s.neighbourhood_weight, 0.0, s.batch_rows, generator
    )
    yield from _layer_by_layer(trainer, s, clock)
    yield from _represent(trainer, s.n_represent_epochs, s.learning_rate, clock)
    state.n_pretrain_rows += len(rows)
    return state


def _layer_by_layer(trainer: Trainer, s: LearnSettings, clock: _Clock) -> Iterator[Progress]:
    """Train layer by layer, if asked for."""
    if s.n_stacked_epochs == 0:
        return
    steps = stacked_denoising(
        trainer.vae, trainer.rows.inputs, s.n_stacked_epochs, trainer.generator, s.learning_rate, s.batch_rows
    )
    for _, epoch, error in steps:
        yield clock.now("pretrain", epoch, s.n_stacked_epochs, EpochTerms(-error))


def _represent(trainer: Trainer, n_epochs: int, rate: float, clock: _Clock) -> Iterator[Progress]:
    """Train the networks while all rows are one cluster: no prior holds the codes yet."""
    for epoch in range(n_epochs):
        terms = trainer.epoch(lambda part: decayed(rate, (epoch + part) / n_epochs))  # noqa: B023
        clock.n_done += 1
        yield clock.now("represent", epoch, n_epochs, terms)


def _alternate(
    trainer: Trainer, s: LearnSettings, n_epochs: int, past: Past | None, clock: _Clock
) -> Iterator[Progress]:
    """Train the networks under the mixture and the mixture on the codes, until neither changes much."""
    mixture, before = clock.mixture, None

    def search(births: bool) -> None:
        if past is not None:
            mixture.carry(past.ids, past.carried(trainer.vae) if s.carry else past.overall)
        mixture.search(*trainer.encode(), births=births)

    search(births=True)
    yield clock.now("search")
    for epoch in range(n_epochs):
        terms = trainer.epoch(
            lambda part: decayed(s.joint_learning_rate, (epoch + part) / n_epochs),  # noqa: B023
            mixture.frozen(trainer.device),
            # Responsibilities of the clean rows: those of changed ones would follow the change.
            mixture.responsibilities_with(trainer.encode_replayed()) if trainer.augment is not None else None,
        )
        search(births=s.joint_births)
        clock.n_done += 1
        yield clock.now("joint", epoch, n_epochs, terms)
        stands_still = before is not None and terms.elbo - before <= s.stable_gain * abs(before)
        if stands_still and mixture.changed_share <= s.stable_share:
            break
        before = terms.elbo
    if past is None and s.joint_births and n_epochs > 0:
        # With numbers of its own, so that a search in vain changes nothing that follows.
        numbers = torch.Generator().manual_seed(trainer.generator.initial_seed())
        mixture.search_afresh(*trainer.encode(), numbers, s.stable_gain)


def decayed(rate: float, done: float) -> float:
    """Return a rate that is constant for the first half and then falls linearly to FINAL_RATE of itself."""
    return rate * min(1.0, max(FINAL_RATE, 2 * (1 - done)))


class _Clock:
    """Elapsed time, an estimate of what is left, and the mixture as it stands."""

    def __init__(self, n_epochs: int, mixture: CodeMixture):
        self.started = perf_counter()
        self.n_epochs = n_epochs
        self.n_done = 0
        self.mixture = mixture

    def now(
        self,
        stage: str,
        epoch: int = 0,
        n_epochs: int = 1,
        terms: EpochTerms | None = None,
        n_clusters: int | None = None,
        novel: float | None = None,
    ) -> Progress:
        """Describe the present moment; epochs are counted from 1."""
        seconds = perf_counter() - self.started
        left = 0.0 if stage == "done" else None
        if self.n_done and left is None:
            left = seconds / self.n_done * (self.n_epochs - self.n_done)
        searched = stage in ("search", "joint")
        n_components = max(1, self.mixture.memory.n_components)
        return Progress(
            stage,
            epoch + 1,
            n_epochs,
            n_components,
            n_clusters or n_components,
            seconds,
            left,
            terms,
            self.mixture.moves if searched else (),
            self.mixture.changed_share if searched else None,
            novel,
        )
