"""Gradient steps on the networks, epoch by epoch, with the mixture held fixed, and how it goes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from time import perf_counter
from typing import Any

import torch
from torch import Tensor

from dbull.errors import NumericalError
from dbull.lifelong.inference import encode_rows
from dbull.lifelong.neighbourhood import NeighbourGraph
from dbull.lifelong.objective import FrozenMixture, row_terms
from dbull.lifelong.past import Replay
from dbull.lifelong.settings import Schedule, TrainingSettings
from dbull.mixture.moves import MoveRecord
from dbull.nets.adam import Adam
from dbull.nets.augment import Augmentation
from dbull.nets.inputs import InputView
from dbull.nets.pretrain import stacked_denoising
from dbull.nets.vae import VAE

DECODED_PART = 4  # every so many rows of a batch train the decoder while codes are laid out
FINAL_RATE = 0.1  # learning rate at the end of a stage, as a share of that at its start


@dataclass(frozen=True)
class EpochTerms:
    """Means per row over one epoch; terms that were not part of the loss are 0."""

    reconstruction: float
    log_prior: float = 0.0
    entropy: float = 0.0
    neighbourhood: float = 0.0  # how far codes are from where the graph has them; smaller is better
    consistency: float = 0.0  # how far replayed codes are from where they were, over all rows
    rows_per_second: float = 0.0

    @property
    def elbo(self) -> float:
        """The rows' share of the evidence lower bound."""
        return self.reconstruction + self.log_prior + self.entropy


@dataclass(frozen=True)
class TrainingRows:
    """What the networks are trained on: the data set in memory, then replayed rows of the past."""

    values: Tensor  # (N + R, d) float32, what the decoder describes
    inputs: Tensor  # (N + R, n_inputs) what the encoder sees
    kept_codes: Tensor  # (R, D) where the replayed rows were
    augmented: int  # how many rows, from the first, may be changed at each visit
    graph: NeighbourGraph | None = None  # of all rows, if codes are laid out along it
    places: Tensor | None = None  # (N + R, D) where the codes of all rows belong
    redraw: Callable[[], Replay | None] | None = None  # replayed rows anew, as many
    anew: bool = False  # whether they take the place of those before, what they decode to included

    @classmethod
    def of(cls, values: Tensor, inputs: Tensor, replay: Replay | None, latent_dim: int) -> TrainingRows:
        """Put replayed rows behind those in memory."""
        if replay is None:
            return cls(values, inputs, torch.zeros(0, latent_dim), len(values))
        return cls(
            torch.cat([values, replay.values]),
            torch.cat([inputs, replay.inputs]),
            replay.codes,
            len(values) + (len(replay) if replay.from_values else 0),
        )

    @property
    def n_present(self) -> int:
        """Rows of the data set in memory."""
        return len(self.values) - len(self.kept_codes)


class Trainer:
    """Networks, the rows they learn from, and one optimiser.

    `view` makes the encoder's inputs from values; `augment` changes each sample at each visit, None shows the
    samples as they are.
    """

    def __init__(
        self,
        view: InputView,
        vae: VAE,
        rows: TrainingRows,
        augment: Augmentation | None,
        settings: TrainingSettings,
        generator: torch.Generator,
    ):
        self.vae = vae
        self.view = view
        self.rows = rows
        self.augment = augment
        self.settings = settings
        self.batch_size = min(settings.batch_size, len(rows.values))
        self.generator = generator
        self.device = next(vae.parameters()).device
        self.n_steps = -(-len(rows.values) // self.batch_size)
        self.drawn: Replay | None = None  # replayed rows of this epoch
        # One optimiser for the whole life of the data set in memory.
        self.optimiser = Adam(vae.parameters(), learning_rate=1e-3)

    def redraw(self) -> None:
        """Put other rows of the past in place of the replayed ones, if they are to be drawn anew."""
        rows = self.rows
        replay = rows.redraw() if rows.anew and rows.redraw is not None else None
        if replay is not None:
            present = rows.values[: rows.n_present], rows.inputs[: rows.n_present]
            fresh = TrainingRows.of(*present, replay, rows.kept_codes.shape[1])
            self.rows = replace(fresh, redraw=rows.redraw, anew=True)

    def encode(self) -> tuple[Tensor, Tensor]:
        """Return encoder mean and variance of the clean data set in memory, float64 on the CPU."""
        mean, var = encode_rows(self.vae, self.rows.inputs[: self.rows.n_present])
        # The loss is looked at before each step, so the last step of an epoch shows here first.
        if not bool(torch.isfinite(mean).all() & torch.isfinite(var).all()):
            raise NumericalError(
                "the encoder's codes are not finite. Lower learning_rate, or look for extreme values in the "
                "data."
            )
        return mean, var

    def encode_replayed(self) -> Tensor:
        """Return encoder means of the replayed rows, (R, D) float64 on the CPU."""
        return encode_rows(self.vae, self.rows.inputs[self.rows.n_present :])[0]

    def epoch(
        self,
        learning_rate: Callable[[float], float],
        mixture: FrozenMixture | None = None,
        responsibilities: Tensor | None = None,
    ) -> EpochTerms:
        """Visit every row once.

        Parameters
        ----------
        learning_rate
            The rate as a function of how much of the epoch is done, 0 to 1.
        mixture
            The prior of the codes; None trains a plain autoencoder (no noise, no prior, no entropy).
        responsibilities
            Of the clean rows, (N + R, K); None takes those of the input as it is shown.
        """
        started = perf_counter()
        n_rows = len(self.rows.values)
        sums = torch.zeros(5)
        # What is drawn anew each time holds the encoder wherever rows of the past may have been.
        self.drawn = None
        if self.rows.redraw is not None and self.rows.places is not None and mixture is None:
            self.drawn = self.rows.redraw()
        self.vae.train()
        for step, rows in enumerate(self.batches()):
            self.optimiser.learning_rate = learning_rate(step / self.n_steps)
            terms = self._terms(rows, mixture, None if responsibilities is None else responsibilities[rows])
            elbo = terms[0] + terms[1] + terms[2]
            loss = self.settings.neighbourhood * terms[3] + self.settings.consistency * terms[4] - elbo
            if not bool(torch.isfinite(loss)):
                raise NumericalError(self._complaint(terms.detach(), step))
            self.optimiser.zero_grad()
            loss.backward()
            self.optimiser.step()
            sums += terms.detach().cpu() * len(rows)
        self.vae.eval()
        reconstruction, log_prior, entropy, neighbourhood, consistency = (sums / n_rows).tolist()
        rows_per_second = n_rows / (perf_counter() - started)
        return EpochTerms(reconstruction, log_prior, entropy, neighbourhood, consistency, rows_per_second)

    def batches(self) -> Iterator[Tensor]:
        """Yield the row numbers of one epoch, batch by batch, in a new random order."""
        yield from torch.randperm(len(self.rows.values), generator=self.generator).split(self.batch_size)

    def noise(self, *shape: int) -> Tensor:
        """Draw standard normal numbers."""
        return torch.randn(*shape, generator=self.generator).to(self.device)

    def shown(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Return values and inputs of rows as they are shown at this visit, on the CPU."""
        shown, inputs = self.rows.values[rows], self.rows.inputs[rows]
        if self.augment is None:
            return shown, inputs
        changed = self.augment(shown, self.generator)
        may_change = (rows < self.rows.augmented)[:, None]
        return torch.where(may_change, changed, shown), torch.where(
            may_change, self.view.inputs(changed), inputs
        )

    def _terms(self, rows: Tensor, mixture: FrozenMixture | None, responsibilities: Tensor | None) -> Tensor:
        """Return the batch means of the terms, in the order of `EpochTerms`, (5,)."""
        vae, places = self.vae, self.rows.places
        if mixture is None and places is not None:
            return self._terms_of_places(rows, places)
        shown, inputs = (part.to(self.device) for part in self.shown(rows))
        if mixture is None:
            mean = vae.encode_mean(inputs)
            reconstruction = vae.likelihood.log_prob(vae.decode(mean), shown).mean()
            terms = [reconstruction, reconstruction.new_zeros(()), reconstruction.new_zeros(())]
        else:
            mean, log_var = vae.encode(inputs)
            noise = self.noise(*mean.shape)
            if responsibilities is not None:
                responsibilities = responsibilities.to(self.device)
            row = row_terms(vae, mixture, shown, (mean, log_var), noise, responsibilities)
            terms = [row.reconstruction.mean(), row.log_prior.mean(), row.entropy.mean()]
        return torch.stack([*terms, *self._misplaced(rows, mean, None if places is None else places[rows])])

    def _terms_of_places(self, rows: Tensor, all_places: Tensor) -> Tensor:
        """Return the terms where the graph says where codes belong.

        Rows in memory are shown with a part of their inputs, any of them, taken from a neighbour: rows that
        never come are made of what those had that did, and their codes lie between (mixup, Zhang et al. 2018,
        among neighbours and input by input, so that no single one is relied upon). Replayed rows are those of
        this epoch. The decoder has no say in the codes, so a part of each batch is
        enough to train it; what replayed rows decode to is known of those that were drawn first.
        """
        assert self.rows.graph is not None
        neighbour = self.rows.graph.draw(rows, self.generator)
        part = torch.rand(len(rows), 1, generator=self.generator)
        shown, inputs = self.shown(rows)
        crossed = torch.rand(inputs.shape, generator=self.generator) < part
        inputs = torch.where(crossed, self.rows.inputs[neighbour], inputs)
        places = torch.lerp(all_places[rows], all_places[neighbour], part)
        replayed = rows >= self.rows.n_present
        index = rows[replayed] - self.rows.n_present
        if self.drawn is not None:
            inputs[replayed], places[replayed] = self.drawn.inputs[index], self.drawn.codes[index]
        mean = self.vae.encode_mean(inputs.to(self.device))

        n_decoded = -(-len(rows) // DECODED_PART)
        values = torch.lerp(shown[:n_decoded], self.rows.values[neighbour[:n_decoded]], part[:n_decoded])
        codes, known = mean[:n_decoded].detach().clone(), replayed[:n_decoded]
        values[known] = self.rows.values[rows[:n_decoded][known]]
        codes[known] = self.rows.kept_codes[index[: int(known.sum())]].to(self.device)
        described = self.vae.likelihood.log_prob(self.vae.decode(codes), values.to(self.device)).mean()
        nothing = described.new_zeros(())
        return torch.stack([described, nothing, nothing, *self._misplaced(rows, mean, places)])

    def _misplaced(self, rows: Tensor, mean: Tensor, places: Tensor | None) -> tuple[Tensor, Tensor]:
        """Return how far codes are from where they belong: rows in memory, replayed ones; over all rows."""
        nothing = mean.new_zeros(())
        replayed = rows >= self.rows.n_present
        if places is None:
            if not self.settings.consistency or not bool(replayed.any()):
                return nothing, nothing
            places = mean.detach().cpu().clone()
            places[replayed] = self.rows.kept_codes[rows[replayed] - self.rows.n_present]
        # Like the kernel of the graph, it does not let a few that cannot be placed outweigh all others.
        apart = torch.log1p((mean - places.to(self.device)).square().sum(1))
        of_past = torch.where(replayed.to(self.device), apart, 0.0).sum() / len(rows)
        return apart.mean() - of_past, of_past

    def _complaint(self, terms: Tensor, step: int) -> str:
        """Say which term left the range of numbers."""
        names = ("reconstruction", "log_prior", "entropy", "neighbourhood", "consistency")
        bad = [name for name, value in zip(names, terms, strict=True) if not bool(torch.isfinite(value))]
        return (
            f"the network loss is not finite ({', '.join(bad) or 'sum'} term, step {step} of the epoch). "
            "Lower learning_rate, or look for extreme values in the data."
        )


@dataclass(frozen=True)
class Progress:
    """One thing that happened while a data set was learned."""

    # "past", "graph", "pretrain", "represent", "search", "joint" or "done"; in blocks, which are counted as
    # epochs are, "sample", "lap 1", "lap 2", ... and "answers".
    stage: str
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
    rows_per_second: float | None = None  # of blocks


@dataclass
class Clock:
    """Elapsed time, an estimate of what is left, and the number of components as it stands."""

    n_epochs: int = 0  # in all, but for those of single layers
    n_components: int = 1
    n_done: int = 0
    started: float = field(default_factory=perf_counter)

    def now(self, stage: str, epoch: int = 0, n_epochs: int = 1, **details: Any) -> Progress:
        """Describe the present moment, after an epoch if the stage has such; epochs are counted from 1."""
        self.n_done += stage in ("represent", "joint")
        seconds = perf_counter() - self.started
        left = seconds / self.n_done * (self.n_epochs - self.n_done) if self.n_done else None
        left = 0.0 if stage == "done" else left
        details = {"n_clusters": self.n_components, "seconds_left": left, **details}
        return Progress(stage, epoch + 1, n_epochs, self.n_components, seconds=seconds, **details)


def layer_by_layer(trainer: Trainer, clock: Clock) -> Iterator[Progress]:
    """Train layer by layer, if asked for."""
    s = trainer.settings
    if s.stacked_epochs == 0:
        return
    steps = stacked_denoising(
        trainer.vae, trainer.rows.inputs, s.stacked_epochs, trainer.generator, s.learning_rate, s.batch_size
    )
    for _, epoch, error in steps:
        yield clock.now("pretrain", epoch, s.stacked_epochs, terms=EpochTerms(-error))


def represent(
    trainer: Trainer, schedule: Schedule, clock: Clock, prior: FrozenMixture | None = None
) -> Iterator[Progress]:
    """Train the networks while there are no clusters; without a prior nothing holds the codes."""
    n_epochs, rate = schedule.epochs, schedule.learning_rate
    for epoch in range(n_epochs):
        trainer.redraw()
        terms = trainer.epoch(lambda part: decayed(rate, (epoch + part) / n_epochs), prior)  # noqa: B023
        yield clock.now("represent", epoch, n_epochs, terms=terms)


def together(
    trainer: Trainer,
    parameters: Iterable[Tensor],
    step: Callable[[Adam, Tensor, Tensor], Tensor],
    clock: Clock,
) -> Iterator[Progress]:
    """Train networks and clusters. `step` learns the values and inputs of one batch, and sums its terms."""
    n_epochs, rate = trainer.settings.joint_epochs, trainer.settings.joint_learning_rate
    n_rows, optimiser = len(trainer.rows.values), Adam(parameters, rate)
    for epoch in range(n_epochs):
        started, sums = perf_counter(), torch.zeros(())
        optimiser.learning_rate = decayed(rate, epoch / n_epochs)
        for rows in trainer.batches():
            values, inputs = trainer.shown(rows)
            sums = sums + step(optimiser, values.to(trainer.device), inputs.to(trainer.device))
        terms = EpochTerms(*(sums / n_rows).tolist())
        speed = n_rows / (perf_counter() - started)
        yield clock.now("joint", epoch, n_epochs, terms=replace(terms, rows_per_second=speed))


def decayed(rate: float, done: float) -> float:
    """Return a rate that is constant for the first half and then falls linearly to FINAL_RATE of itself."""
    return rate * min(1.0, max(FINAL_RATE, 2 * (1 - done)))
