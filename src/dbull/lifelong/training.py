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
from dbull.lifelong.objective import FrozenMixture, row_terms
from dbull.lifelong.past import Replay
from dbull.lifelong.processes import MOST_SEED, processes_here
from dbull.lifelong.settings import Schedule, TrainingSettings
from dbull.lifelong.training_rows import TrainingRows, fits, generator_on, random_bytes
from dbull.mixture.moves import MoveRecord
from dbull.nets.adam import Adam
from dbull.nets.augment import Augmentation, ImageShifts, MaskingNoise
from dbull.nets.inputs import InputView
from dbull.nets.pretrain import stacked_denoising
from dbull.nets.vae import VAE

DECODED_PART = 4  # every so many rows of a batch train the decoder while codes are laid out
OURS = (ImageShifts, MaskingNoise)  # augmentations that draw where the rows are
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
        self.augment = augment
        self.settings = settings
        self.batch_size = min(settings.batch_size, len(rows.values))
        self.generator = generator
        self.device = next(vae.parameters()).device
        self.processes = processes_here()
        self.processes.check_alike(generator.initial_seed(), rows.inputs)
        # An augmentation of the caller's own, and a front end, expect rows on the CPU.
        movable = augment is None or (isinstance(augment, OURS) and view.front_end is None)
        self.place = rows.place_for(self.device) if movable else torch.device("cpu")
        self.rows = rows
        self.view_here = replace(view, input_shift=view.input_shift.to(self.place))
        self.order = self.draws = generator  # of the rows of an epoch; of all that a step needs
        if self.place.type != "cpu" or self.processes.size > 1:
            seed = int(torch.randint(MOST_SEED, (1,), generator=generator))
            self.order = generator_on(self.place, seed)
            self.draws = generator_on(self.place, seed + 1 + self.processes.rank)
        self.n_steps = -(-len(rows.values) // self.batch_size)
        self.drawn: Replay | None = None  # replayed rows of this epoch
        # One optimiser for the whole life of the data set in memory.
        self.optimiser = Adam(vae.parameters(), learning_rate=1e-3)

    @property
    def rows(self) -> TrainingRows:
        """What is learned, on the CPU; `here` it is where the networks learn it."""
        return self._rows

    @rows.setter
    def rows(self, rows: TrainingRows) -> None:
        self._rows, self.here = rows, rows.to(self.place)

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
        # What is drawn anew each time holds the encoder wherever rows of the past may have been.
        self.drawn = None
        if self.rows.redraw is not None and self.rows.places is not None and mixture is None:
            self.drawn = self.rows.redraw()
        if self.drawn is not None:
            inputs, codes = (part.to(self.place) for part in (self.drawn.inputs, self.drawn.codes))
            self.drawn = replace(self.drawn, inputs=inputs, codes=codes)
        if responsibilities is not None:
            responsibilities = responsibilities.to(self.place)
        self.vae.train()
        told, sizes = [], []
        for step, (batch, n_present) in enumerate(self._batches(self.order)):
            rows, n_present, share = self.processes.part(batch, n_present)
            self.optimiser.learning_rate = learning_rate(step / self.n_steps)
            shares = None if responsibilities is None else responsibilities[rows]
            terms = self._terms(rows, n_present, mixture, shares)
            loss = self._loss(terms)
            if self.device.type == "cpu":
                self._check(loss, terms, step)
            self.optimiser.zero_grad()
            (loss if share == 1.0 else share * loss).backward()
            self.processes.average(self.optimiser.parameters)
            self.optimiser.step()
            told.append(terms.detach() * share)
            sizes.append(len(batch))
        self.vae.eval()
        return replace(self._read(told, sizes), rows_per_second=sum(sizes) / (perf_counter() - started))

    def _loss(self, terms: Tensor) -> Tensor:
        """Return what a step lowers, from the terms (5,)."""
        elbo = terms[0] + terms[1] + terms[2]
        return self.settings.neighbourhood * terms[3] + self.settings.consistency * terms[4] - elbo

    def _read(self, told: list[Tensor], sizes: list[int]) -> EpochTerms:
        """Return the means over an epoch of what its steps told, (5,) each; refuse what is not finite.

        Read once an epoch: to look at a number is to wait until a device has made it. On the CPU, where it
        costs nothing, each step looks before it is taken.
        """
        sums = torch.zeros(5)
        means = self.processes.mean(torch.stack(told)).cpu()
        for step, (terms, size) in enumerate(zip(means, sizes, strict=True)):
            self._check(self._loss(terms), terms, step)
            sums += terms * size
        return EpochTerms(*(sums / sum(sizes)).tolist())

    def batches(self, generator: torch.Generator | None = None) -> Iterator[Tensor]:
        """Yield the row numbers of one epoch, batch by batch, in a new random order."""
        yield from (rows for rows, _ in self._batches(generator or self.generator))

    def _batches(self, order: torch.Generator) -> Iterator[tuple[Tensor, int]]:
        """Yield the row numbers of each batch of an epoch, and how many of them, the first, are in memory.

        Each batch has its share of the replayed rows: which those are is known without looking at numbers,
        for which the CPU would have to wait if they are on a device.
        """
        n_present, n_replayed = self.rows.n_present, len(self.rows.kept_codes)
        present = torch.randperm(n_present, generator=order, device=order.device)
        if n_replayed == 0:
            yield from ((rows, len(rows)) for rows in present.split(self.batch_size))
            return
        replayed = n_present + torch.randperm(n_replayed, generator=order, device=order.device)
        parts = (kind.tensor_split(self.n_steps) for kind in (present, replayed))
        yield from ((torch.cat([here, past]), len(here)) for here, past in zip(*parts, strict=True))

    def noise(self, *shape: int) -> Tensor:
        """Draw standard normal numbers."""
        return torch.randn(*shape, generator=self.draws, device=self.draws.device).to(self.device)

    def shown(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Return values and inputs of rows as they are shown at this visit, where the numbers of rows are."""
        data, view, generator = self.here, self.view_here, self.draws
        if rows.device != self.place:
            data, view, generator = self.rows, self.view, self.generator
        shown, inputs = data.values[rows], data.inputs[rows]
        if self.augment is None:
            return shown, inputs
        changed = self.augment(shown, generator)
        may_change = (rows < self.rows.augmented)[:, None]
        return torch.where(may_change, changed, shown), torch.where(may_change, view.inputs(changed), inputs)

    def _terms(
        self, rows: Tensor, n_present: int, mixture: FrozenMixture | None, responsibilities: Tensor | None
    ) -> Tensor:
        """Return the batch means of the terms, in the order of `EpochTerms`, (5,)."""
        vae, places = self.vae, self.here.places
        if mixture is None and places is not None:
            return self._terms_of_places(rows, n_present, places)
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
        placed = None if places is None else places[rows]
        return torch.stack([*terms, *self._misplaced(rows, n_present, mean, placed)])

    def _terms_of_places(self, rows: Tensor, n_present: int, all_places: Tensor) -> Tensor:
        """Return the terms where the graph says where codes belong.

        Rows in memory are shown with a part of their inputs, any of them, taken from a neighbour: rows that
        never come are made of what those had that did, and their codes lie between (mixup, Zhang et al. 2018,
        among neighbours and input by input, so that no single one is relied upon). Replayed rows are those of
        this epoch. The decoder has no say in the codes, so a part of each batch is
        enough to train it; what replayed rows decode to is known of those that were drawn first.
        """
        data, numbers = self.here, self.draws
        assert data.graph is not None
        past = rows[n_present:] - data.n_present  # which of the replayed rows
        here = rows if self.drawn is None else rows[:n_present]
        neighbour = data.graph.draw(here, numbers)
        part = torch.rand(len(here), 1, generator=numbers, device=numbers.device)
        n_decoded, n_known = -(-n_present // DECODED_PART), -(-len(past) // DECODED_PART)
        if self.augment is None:
            shown, inputs = data.values[here[:n_decoded]], data.inputs[here]
        else:
            shown, inputs = self.shown(here)
        crossed = random_bytes(inputs.shape, numbers) < (256 * part).to(torch.uint8)
        inputs = torch.where(crossed, data.inputs[neighbour], inputs)
        places = torch.lerp(all_places[here], all_places[neighbour], part)
        if self.drawn is not None:
            inputs = torch.cat([inputs, self.drawn.inputs[past]])
            places = torch.cat([places, self.drawn.codes[past]])
        mean = self.vae.encode_mean(inputs.to(self.device))

        values = torch.lerp(shown[:n_decoded], data.values[neighbour[:n_decoded]], part[:n_decoded])
        values = torch.cat([values, data.values[rows[n_present:][:n_known]]]).to(self.device)
        codes = torch.cat([mean[:n_decoded].detach(), data.kept_codes[past[:n_known]].to(self.device)])
        described = self.vae.likelihood.log_prob(self.vae.decode(codes), values).mean()
        nothing = described.new_zeros(())
        return torch.stack([described, nothing, nothing, *self._misplaced(rows, n_present, mean, places)])

    def _misplaced(
        self, rows: Tensor, n_present: int, mean: Tensor, places: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Return how far codes are from where they belong: rows in memory, replayed ones; over all rows."""
        if places is None:
            nothing = mean.new_zeros(())
            if not self.settings.consistency or n_present == len(rows):
                return nothing, nothing
            kept = self.here.kept_codes[rows[n_present:] - self.here.n_present]
            return nothing, _apart(mean[n_present:], kept.to(self.device)).sum() / len(rows)
        apart = _apart(mean, places.to(self.device))
        return apart[:n_present].sum() / len(rows), apart[n_present:].sum() / len(rows)

    def _check(self, loss: Tensor, terms: Tensor, step: int) -> None:
        """Refuse a loss that left the range of numbers, and say which term did."""
        if bool(torch.isfinite(loss)):
            return
        names = ("reconstruction", "log_prior", "entropy", "neighbourhood", "consistency")
        bad = [name for name, finite in zip(names, torch.isfinite(terms).tolist(), strict=True) if not finite]
        raise NumericalError(
            f"the network loss is not finite ({', '.join(bad) or 'sum'} term, step {step} of the epoch). "
            "Lower learning_rate, or look for extreme values in the data."
        )


def _apart(codes: Tensor, places: Tensor) -> Tensor:
    """Return how far codes (N, D) are from their places, (N,).

    Like the kernel of the graph, it does not let a few that cannot be placed outweigh all others.
    """
    return torch.log1p((codes - places).square().sum(1))


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
    vae, inputs, generator = trainer.vae, trainer.here.inputs, trainer.order
    # What layers make of all rows lies beside these, while it is made in pieces, which are then joined.
    if not fits(3 * 4 * len(inputs) * max(vae.shape.hidden_dims, default=0), trainer.device):
        inputs, generator = trainer.rows.inputs, trainer.generator
    steps = stacked_denoising(vae, inputs, s.stacked_epochs, generator, s.learning_rate, s.batch_size)
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
