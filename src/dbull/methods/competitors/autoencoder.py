"""What the competing systems share: the autoencoder of `DBULL(objective="paper")`, and answers about rows.

Each of them is a subclass that learns clusters of the codes in its own way and says how probable they are.
"""

import math
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, ClusterMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from dbull.codec.networks import NETWORKS, Tensors, pack_networks, unpack_networks
from dbull.documents import Reader, check_fields, object_of
from dbull.errors import NumericalError
from dbull.lifelong.inference import CHUNK_ROWS, encode_rows, padded
from dbull.lifelong.objective import FrozenMixture
from dbull.lifelong.past import encoder_fingerprint
from dbull.lifelong.settings import RECIPES, Recipe, TrainingSettings, epochs_for
from dbull.lifelong.training import Clock, Progress, Trainer, TrainingRows, layer_by_layer, represent
from dbull.methods.base import as_tensor, check_rows, drained, new_seed, unchanged_on_failure
from dbull.methods.dbull_choices import augmentation, image_shape_of, networks
from dbull.methods.storage import Stored
from dbull.nets.adam import Adam
from dbull.nets.augment import Augmentation
from dbull.nets.inputs import InputView, fit_inputs, guess_kind
from dbull.nets.vae import VAE
from dbull.store import Checkpoint

NARROW = 10  # of so few columns none can be spared: a hole in a row makes it another row
WIDTH_PER_COLUMN = 16  # no layer is wider than so many times the data, unless asked for
LEAST_BATCH, N_BATCHES = 16, 8  # small data come in several batches, so that there are steps enough
# The recipe's learning rate is for layers of 2,000; narrower ones bear more, up to so many times as much.
WIDE, MOST_RATE = 2000, 4.0


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
    """An estimator over a trained autoencoder. Subclasses have `_learn_clusters` and `_log_proba`.

    To be saved they also have `_pack_clusters` and `_unpack_clusters`, and `_stored_facts` if there are any.
    """

    told_shape_as = "image_shape"  # the runner fills this in for images
    watched_as = "callback"  # the runner listens here; who listens decides no number and is no setting
    _stored_facts: ClassVar[dict[str, Reader]] = {}  # plain values of the clusters
    _joint_epochs: ClassVar[int | None] = None  # usual epochs with clusters; None: as many as before
    _joint_rate: ClassVar[float] = 1.0  # usual learning rate with clusters, as a share of that before

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

    def _learn_clusters(self, trainer: Trainer, clock: Clock) -> Iterator[Progress]:
        """Learn clusters, the autoencoder being trained; set `n_clusters_` and what answers need."""
        raise NotImplementedError

    def _recipe(self, kind: str) -> Recipe:
        """Return what "auto" means for a kind of data."""
        return RECIPES["paper", kind]

    def _prior(self, trainer: Trainer) -> FrozenMixture | None:
        """Return the prior of the codes before there are clusters; None for a plain autoencoder."""
        return None

    def _log_proba(self, codes: Tensor) -> Tensor:
        """Return the log probability (N, K) of each cluster for codes (N, D), float64."""
        raise NotImplementedError

    def fit(self, X: ArrayLike, y: object = None) -> Any:
        """Forget everything, then learn the data set X. `y` is ignored.

        A fit that fails leaves the estimator as it was.
        """
        with unchanged_on_failure(self):
            self.check_parameters()
            min_rows = max(2, getattr(self, "n_clusters", None) or 2)
            rows = as_tensor(check_rows(self, X, reset=True, min_rows=min_rows, keep_float32=True))
            self._seed = new_seed(self.random_state)
            trainer = self._prepare(rows, self._seed)
            self._view, self._vae = trainer.view, trainer.vae
            clock = Clock(trainer.settings.epochs + trainer.settings.joint_epochs)
            before = (
                layer_by_layer(trainer, clock),
                represent(trainer, trainer.settings.schedule(True, True), clock, self._prior(trainer)),
            )
            self._follow(chain(*before, self._learn_clusters(trainer, clock)), clock)
            self.__dict__.pop("origin_", None)  # another model than the one that was saved
            self._n_features_out = self._vae.shape.latent_dim
            self.labels_ = self._answer_inputs(self._inputs(rows)).argmax(1).numpy()
        return self

    def predict(self, X: ArrayLike) -> NDArray[np.int64]:
        """Return the id of the most probable cluster of each row."""
        return self._answer(X).argmax(1).numpy()

    def predict_proba(self, X: ArrayLike) -> NDArray[np.float64]:
        """Return the probability of each cluster for each row; columns are cluster ids."""
        return self._answer(X).exp().numpy()

    def transform(self, X: ArrayLike) -> NDArray[np.float64]:
        """Return the code of each row, (n_samples, latent_dim)."""
        return self._encode(self._inputs(self._rows(X))).numpy()

    def __sklearn_is_fitted__(self) -> bool:
        """Return whether a data set has been learned to the end."""
        return hasattr(self, "_n_features_out")

    def _prepare(self, rows: Tensor, seed: int, learned: tuple[InputView, VAE] | None = None) -> Trainer:
        """Resolve "auto" for a data set. `learned` is what earlier data sets left, else all is made new."""
        n_rows, n_columns = rows.shape
        image_shape = image_shape_of(self, n_columns)
        if learned is not None:
            view, vae = learned
            recipe = self._recipe(view.kind)
        else:
            kind = guess_kind(rows, image_shape) if self.kind == "auto" else self.kind
            recipe = self._recipe(kind)
            widths = tuple(min(width, WIDTH_PER_COLUMN * n_columns) for width in recipe.hidden_dims)
            recipe = replace(recipe, hidden_dims=widths, latent_dim=min(recipe.latent_dim, n_columns))
            view = fit_inputs(rows, kind, image_shape, bool(self.front_end))
            vae = networks(self, view, kind, "mlp", recipe, seed)
        if image_shape is None and n_columns <= NARROW:
            recipe = replace(recipe, augment=False)
        values = view.values(rows)
        return Trainer(
            view,
            vae,
            TrainingRows.of(values, view.inputs(values), None, vae.shape.latent_dim),
            augmentation(self, recipe, image_shape),
            self._training(recipe, n_rows, max((*vae.shape.hidden_dims, vae.shape.latent_dim))),
            torch.Generator().manual_seed(seed),
        )

    def _training(self, recipe: Recipe, n_rows: int, width: int) -> TrainingSettings:
        """Return how the networks are trained, the widest layer having this width."""
        usual = recipe.settings.training

        def chosen(name: str, default: Any) -> Any:
            given = getattr(self, name, "auto")
            return default if given == "auto" else given

        usual_batch = min(usual.batch_size, max(LEAST_BATCH, n_rows // N_BATCHES))
        usual_rate = usual.learning_rate * min(MOST_RATE, max(1.0, math.sqrt(WIDE / width)))
        batch_size = int(chosen("batch_size", usual_batch))
        epochs = int(chosen("epochs", epochs_for(n_rows, batch_size, *recipe.epoch_range)))
        usual_joint = epochs if self._joint_epochs is None else self._joint_epochs
        rate = float(chosen("learning_rate", usual_rate))
        return replace(
            usual,
            epochs=epochs,
            joint_epochs=int(chosen("joint_epochs", usual_joint)),
            stacked_epochs=max(1, epochs // 4) if self.pretraining == "stacked" else 0,
            batch_size=batch_size,
            learning_rate=rate,
            joint_learning_rate=float(chosen("joint_learning_rate", self._joint_rate * rate)),
        )

    def _follow(self, learning: Iterator[Progress], clock: Clock) -> None:
        """Learn to the end, and tell who listens."""

        def to_the_end() -> Generator[Progress, None, None]:
            yield from learning
            clock.n_components = self.n_clusters_
            yield clock.now("done")

        _, self.history_ = drained(to_the_end(), self.callback)

    # What follows is for `save` and `dbull.load`.

    def _pack_clusters(self) -> tuple[Tensors, dict[str, Any]]:
        """Return what was learned beside the networks: groups of tensors, and plain values."""
        raise NotImplementedError

    def _unpack_clusters(self, tensors: Tensors, told: dict[str, Any], where: str) -> None:
        """Set the fitted attributes from what `_pack_clusters` gave; the networks are there already."""
        raise NotImplementedError

    def _pack(self) -> Checkpoint:
        tensors, networks = pack_networks(self._view, self._vae)
        clusters, facts = self._pack_clusters()
        return Checkpoint(
            {**tensors, **clusters},
            {"learner": {**networks, "clusters": facts}},
            encoder_fingerprint=encoder_fingerprint(self._vae),
            ids_given=self.n_clusters_,
        )

    def _unpack(self, tensors: Tensors, document: object, ids_given: int, where: str) -> int:
        told = check_fields(document, where, {**NETWORKS, "clusters": object_of(self._stored_facts)})
        self._view, self._vae = unpack_networks(tensors, told, where, self.device)
        self._unpack_clusters(tensors, told["clusters"], where)
        self._n_features_out = self._vae.shape.latent_dim
        return self._vae.shape.n_values

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
