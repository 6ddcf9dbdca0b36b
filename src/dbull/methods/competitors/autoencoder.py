"""What the competing systems share: the autoencoder of `DBULL(objective="paper")`, and answers about rows.

Each of them is a subclass that learns clusters of the codes in its own way and says how probable they are.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from time import perf_counter
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, ClusterMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from dbull.codec.networks import NETWORKS, Tensors, pack_networks, unpack_networks
from dbull.documents import Reader, check_fields, object_of
from dbull.errors import NumericalError, SettingsError, check_known
from dbull.lifelong.inference import CHUNK_ROWS, encode_rows, padded
from dbull.lifelong.learn import Progress, decayed
from dbull.lifelong.objective import FrozenMixture
from dbull.lifelong.past import encoder_fingerprint
from dbull.lifelong.settings import PRETRAININGS, RECIPES, epochs_for
from dbull.lifelong.training import EpochTerms, Trainer, TrainingRows
from dbull.methods.base import as_tensor, check_number, check_rows, new_seed, unchanged_on_failure
from dbull.methods.dbull_choices import augmentation, image_shape_of, networks
from dbull.methods.devices import check_device
from dbull.methods.storing import Stored
from dbull.nets.adam import Adam
from dbull.nets.augment import Augmentation
from dbull.nets.inputs import KINDS, InputView, fit_inputs, guess_kind
from dbull.nets.likelihood import LIKELIHOODS
from dbull.nets.pretrain import stacked_denoising
from dbull.nets.vae import VAE

NARROW = 10  # of so few columns none can be spared: a hole in a row makes it another row
WIDTH_PER_COLUMN = 16  # no layer is wider than so many times the data, unless asked for
LEAST_BATCH, N_BATCHES = 16, 8  # small data come in several batches, so that there are steps enough
# The recipe's learning rate is for layers of 2,000; narrower ones bear more, up to so many times as much.
WIDE, MOST_RATE = 2000, 4.0


@dataclass
class Clock:
    """Turns what happens into progress, with elapsed time and an estimate of what is left."""

    n_epochs: int  # in all
    n_done: int = 0
    started: float = 0.0

    def __post_init__(self) -> None:
        self.started = perf_counter()

    def tick(
        self,
        stage: str,
        epoch: int,
        n_epochs: int,
        n_clusters: int,
        terms: EpochTerms | None = None,
        changed_share: float | None = None,
    ) -> Progress:
        """Count one epoch (from 0 within its stage) as done and describe the moment."""
        self.n_done += 1
        seconds = perf_counter() - self.started
        left = seconds / self.n_done * max(0, self.n_epochs - self.n_done)
        return Progress(
            stage, epoch + 1, n_epochs, n_clusters, n_clusters, seconds, left, terms, (), changed_share
        )

    def done(self, n_clusters: int) -> Progress:
        """Describe the end."""
        return Progress("done", 1, 1, n_clusters, n_clusters, perf_counter() - self.started, 0.0)


@dataclass(frozen=True)
class Bench:
    """Networks and the data set in memory, ready to be worked on."""

    view: InputView
    trainer: Trainer  # holds networks, values and inputs
    n_epochs: int  # of training before clusters are looked for
    n_stacked_epochs: int
    learning_rate: float

    @property
    def vae(self) -> VAE:
        """The networks."""
        return self.trainer.vae

    @property
    def generator(self) -> torch.Generator:
        """Where all randomness of training comes from."""
        return self.trainer.generator

    def train(self, clock: Clock, prior: FrozenMixture | None = None) -> Iterator[Progress]:
        """Train the networks before there are clusters; without a prior, as a plain autoencoder."""
        trainer, n_epochs = self.trainer, self.n_epochs
        if self.n_stacked_epochs:
            steps = stacked_denoising(
                self.vae,
                trainer.rows.inputs,
                self.n_stacked_epochs,
                self.generator,
                self.learning_rate,
                trainer.batch_size,
            )
            for _, epoch, error in steps:
                yield clock.tick("pretrain", epoch, self.n_stacked_epochs, 1, EpochTerms(-error))
        for epoch in range(n_epochs):
            terms = trainer.epoch(
                lambda part: decayed(self.learning_rate, (epoch + part) / n_epochs),  # noqa: B023
                prior,
            )
            yield clock.tick("represent", epoch, n_epochs, 1, terms)

    def batches(self) -> Iterator[Tensor]:
        """Yield the row numbers of one epoch, batch by batch, in a new random order."""
        order = torch.randperm(len(self.trainer.rows.values), generator=self.generator)
        yield from order.split(self.trainer.batch_size)

    def show(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Return values and encoder inputs of some rows, changed at random where augmentation is on."""
        trainer = self.trainer
        values, inputs = trainer.rows.values[rows], trainer.rows.inputs[rows]
        if trainer.augment is not None:
            values = trainer.augment(values, self.generator)
            inputs = self.view.inputs(values)
        return values.to(trainer.device), inputs.to(trainer.device)

    def noise(self, *shape: int) -> Tensor:
        """Draw standard normal numbers."""
        return torch.randn(*shape, generator=self.generator).to(self.trainer.device)


def prepare(
    model: Any,
    rows: Tensor,
    seed: int,
    hidden_dims: tuple[int, ...] | None = None,
    learned: tuple[InputView, VAE] | None = None,
    *,
    batch_rows: int | None = None,
    augmented: bool = True,
) -> Bench:
    """Check the shared parameters of a model and resolve "auto" for a data set.

    `hidden_dims`, `batch_rows` and `augmented` are a method's own defaults; `learned` is what earlier data
    sets left, else all is made new.
    """
    check_shared(model)
    n_rows, n_columns = rows.shape
    image_shape = image_shape_of(model, n_columns)
    if learned is not None:
        view, vae = learned
        recipe = RECIPES["paper", view.kind]
    else:
        kind = guess_kind(rows, image_shape) if model.kind == "auto" else model.kind
        recipe = RECIPES["paper", kind]
        widest = WIDTH_PER_COLUMN * n_columns
        widths = tuple(min(width, widest) for width in hidden_dims or recipe.hidden_dims)
        latent_dim = min(recipe.latent_dim, n_columns) if model.latent_dim == "auto" else model.latent_dim
        view = fit_inputs(rows, kind, image_shape, bool(model.front_end))
        vae = networks(
            model,
            rows,
            view,
            kind,
            "mlp",
            int(latent_dim),
            image_shape,
            replace(recipe, hidden_dims=widths),
            seed,
        )
    if model.batch_size != "auto":
        batch_rows = int(model.batch_size)
    else:
        usual = batch_rows or recipe.settings.training.batch_size
        batch_rows = min(usual, max(LEAST_BATCH, n_rows // N_BATCHES))
    n_epochs = model.epochs
    if n_epochs == "auto":
        n_epochs = epochs_for(n_rows, batch_rows, *recipe.epoch_range)
    rate = model.learning_rate
    if rate == "auto":
        width = max((*vae.shape.hidden_dims, vae.shape.latent_dim))
        rate = recipe.settings.training.learning_rate * min(MOST_RATE, max(1.0, math.sqrt(WIDE / width)))
    if not augmented or (image_shape is None and n_columns <= NARROW):
        recipe = replace(recipe, augment=False)
    values = view.values(rows)
    trainer = Trainer(
        view,
        vae,
        TrainingRows.of(values, view.inputs(values), None, vae.shape.latent_dim),
        augmentation(model, recipe, image_shape),
        replace(recipe.settings.training, batch_size=batch_rows),
        torch.Generator().manual_seed(seed),
    )
    n_stacked = max(1, int(n_epochs) // 4) if model.pretraining == "stacked" else 0
    return Bench(view, trainer, int(n_epochs), n_stacked, float(rate))


def check_shared(model: Any) -> None:
    """Name the first parameter that has a value it cannot have."""
    check_known("kind of data", model.kind, ("auto", *KINDS))
    check_known("likelihood", model.likelihood, ("auto", *LIKELIHOODS))
    check_known("pretraining", model.pretraining, PRETRAININGS)
    check_device(model.device)
    if model.kind == "images" and model.image_shape is None:
        raise SettingsError("kind='images' needs image_shape, e.g. image_shape=(28, 28)")
    for name, least in (("latent_dim", 1), ("epochs", 0), ("joint_epochs", 0), ("batch_size", 1)):
        if getattr(model, name, "auto") != "auto":
            check_number(name, getattr(model, name), at_least=least, whole=True, also="or 'auto'")
    for name in ("learning_rate", "joint_learning_rate"):
        if getattr(model, name, "auto") != "auto":
            check_number(name, getattr(model, name), above=0, also="or 'auto'")
    if model.hidden_dims != "auto":
        if isinstance(model.hidden_dims, str) or not isinstance(model.hidden_dims, Iterable):
            raise ValueError(f"hidden_dims must be 'auto' or a tuple of widths; got {model.hidden_dims!r}.")
        for width in model.hidden_dims:
            check_number("each of hidden_dims", width, at_least=1, whole=True)
    if not isinstance(model.front_end, bool | np.bool_):
        raise ValueError(f"front_end must be True or False; got {model.front_end!r}.")
    if model.callback is not None and not callable(model.callback):
        raise ValueError(f"callback must be None or a callable; got {model.callback!r}.")
    known = isinstance(model.augment, str) and model.augment == "auto"
    if not (known or model.augment is None or callable(model.augment)):
        raise ValueError(f"augment must be 'auto', None or a callable; got {model.augment!r}.")


def descend(optimiser: Adam | torch.optim.SGD, loss: Tensor, what: str) -> float:
    """Take one gradient step and return the loss."""
    value = loss.item()
    if not np.isfinite(value):
        raise NumericalError(
            f"the loss of {what} is not finite. Lower learning_rate or joint_learning_rate, or look for "
            "extreme values in the data."
        )
    optimiser.zero_grad()
    loss.backward()
    optimiser.step()
    return value


@torch.no_grad()
def in_chunks(answer: Callable[[Tensor], Tensor], rows: Tensor) -> Tensor:
    """Ask about rows in padded chunks of one size, so that no row's answer depends on the rows beside it."""
    return torch.cat([answer(padded(chunk))[: len(chunk)] for chunk in rows.split(CHUNK_ROWS)])


@dataclass(kw_only=True, eq=False, repr=False)
class AutoencoderMethod(
    Stored, ClassNamePrefixFeaturesOutMixin, TransformerMixin, ClusterMixin, BaseEstimator
):
    """An estimator over a trained autoencoder. Subclasses have `_learn` and `_log_proba`.

    To be saved they also have `_pack_clusters` and `_unpack_clusters`, and `_stored_facts` if there are any.
    """

    told_shape_as = "image_shape"  # the runner fills this in for images
    watched_as = "callback"  # the runner listens here; who listens decides no number and is no setting
    _stored_facts: ClassVar[dict[str, Reader]] = {}  # plain values of the clusters

    kind: str = "auto"
    image_shape: tuple[int, ...] | None = None
    latent_dim: str | int = "auto"
    hidden_dims: str | tuple[int, ...] = "auto"
    likelihood: str = "auto"
    front_end: bool = False
    augment: str | Augmentation | None = "auto"
    pretraining: str = "end-to-end"
    epochs: str | int = "auto"
    batch_size: str | int = "auto"
    learning_rate: str | float = "auto"
    random_state: Any = None
    device: str = "cpu"
    callback: Callable[[Progress], object] | None = None

    def _learn(self, rows: Tensor, seed: int) -> Iterator[Progress]:
        """Learn rows (N, d) from scratch; set `_view`, `_vae`, `n_clusters_` and what answers need."""
        raise NotImplementedError

    def _log_proba(self, codes: Tensor) -> Tensor:
        """Return the log probability (N, K) of each cluster for codes (N, D), float64."""
        raise NotImplementedError

    def _min_rows(self) -> int:
        """Return how many rows the first data set must have; parameters are checked here first."""
        return 2

    def fit(self, X: ArrayLike, y: object = None) -> Any:
        """Forget everything, then learn the data set X. `y` is ignored.

        A fit that fails leaves the estimator as it was.
        """
        with unchanged_on_failure(self):
            self._fit(X)
        return self

    def predict(self, X: ArrayLike) -> NDArray[np.int64]:
        """Return the id of the most probable cluster of each row."""
        ids: NDArray[np.int64] = self._answer(X).argmax(1).numpy()
        return ids

    def predict_proba(self, X: ArrayLike) -> NDArray[np.float64]:
        """Return the probability of each cluster for each row; columns are cluster ids."""
        proba: NDArray[np.float64] = self._answer(X).exp().numpy()
        return proba

    def transform(self, X: ArrayLike) -> NDArray[np.float64]:
        """Return the code of each row, (n_samples, latent_dim)."""
        codes: NDArray[np.float64] = self._encode(self._inputs(self._rows(X))).numpy()
        return codes

    def __sklearn_is_fitted__(self) -> bool:
        """Return whether a data set has been learned to the end."""
        return hasattr(self, "_n_features_out")

    def _fit(self, X: ArrayLike) -> None:
        min_rows = max(2, self._min_rows())
        rows = as_tensor(check_rows(self, X, reset=True, min_rows=min_rows, keep_float32=True))
        self._follow(self._learn(rows, new_seed(self.random_state)))
        self.__dict__.pop("origin_", None)  # another model than the one that was saved
        self._n_features_out = self._vae.shape.latent_dim
        self.labels_ = self._answer_inputs(self._inputs(rows)).argmax(1).numpy()

    def _follow(self, learning: Iterator[Progress]) -> None:
        self.history_ = []
        for progress in learning:
            self.history_.append(progress)
            if self.callback is not None:
                self.callback(progress)

    # What follows is for `save` and `dbull.load`.

    def _pack_clusters(self) -> tuple[dict[str, dict[str, Tensor]], dict[str, Any]]:
        """Return what was learned beside the networks: groups of tensors, and plain values."""
        raise NotImplementedError

    def _unpack_clusters(self, tensors: Tensors, told: dict[str, Any], where: str) -> None:
        """Set the fitted attributes from what `_pack_clusters` gave; the networks are there already."""
        raise NotImplementedError

    def _pack(self) -> tuple[dict[str, dict[str, Tensor]], dict[str, Any]]:
        tensors, networks = pack_networks(self._view, self._vae)
        clusters, facts = self._pack_clusters()
        return {**tensors, **clusters}, {**networks, "clusters": facts}

    def _unpack(self, tensors: Tensors, document: object, ids_given: int, where: str) -> int:
        told = check_fields(document, where, {**NETWORKS, "clusters": object_of(self._stored_facts)})
        self._view, self._vae = unpack_networks(tensors, told, where, self.device)
        self._unpack_clusters(tensors, told["clusters"], where)
        self._n_features_out = self._vae.shape.latent_dim
        return self._vae.shape.n_values

    def check_parameters(self) -> None:
        """Name the first parameter that has a value it cannot have; `fit` does this too."""
        check_shared(self)
        self._min_rows()

    def _encoder_fingerprint(self) -> str:
        return encoder_fingerprint(self._vae)

    # What follows turns arrays into codes.

    def _rows(self, X: ArrayLike) -> Tensor:
        check_is_fitted(self)
        return as_tensor(check_rows(self, X, reset=False, keep_float32=True))

    def _inputs(self, rows: Tensor) -> Tensor:
        return self._view.inputs(self._view.values(rows))

    def _encode(self, inputs: Tensor) -> Tensor:
        return encode_rows(self._vae, inputs)[0]

    def _answer(self, X: ArrayLike) -> Tensor:
        return self._answer_inputs(self._inputs(self._rows(X)))

    def _answer_inputs(self, inputs: Tensor) -> Tensor:
        return in_chunks(self._log_proba, self._encode(inputs))


def by_size(log_proba: Tensor) -> Tensor:
    """Return the clusters from the one that holds most rows to the one that holds fewest, (K,)."""
    sizes = torch.bincount(log_proba.argmax(1), minlength=log_proba.shape[1])
    return sizes.argsort(descending=True, stable=True)
