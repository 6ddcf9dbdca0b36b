"""What the parameters of `DBULL` mean for the data at hand: checked, and "auto" resolved."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import torch
from sklearn.utils import check_random_state

from dbull.errors import DataError, SettingsError, check_known
from dbull.lifelong.past import REPLAYS
from dbull.lifelong.settings import (
    OBJECTIVES,
    PRETRAININGS,
    RECIPES,
    GraphSettings,
    LearnSettings,
    PastSettings,
    Recipe,
    TrainingSettings,
    epochs_for,
    replay_for,
)
from dbull.lifelong.state import LearnerState
from dbull.methods.base import check_number
from dbull.methods.devices import check_device
from dbull.mixture.settings import FitSettings, SearchSettings
from dbull.nets.augment import Augmentation, ImageShifts, MaskingNoise
from dbull.nets.inputs import KINDS, InputView, fit_inputs, guess_kind
from dbull.nets.likelihood import LIKELIHOODS, choose_likelihood
from dbull.nets.vae import ENCODERS, VAE, NetworkShape

if TYPE_CHECKING:
    from dbull.methods.dbull import DBULL

Record = TypeVar("Record", TrainingSettings, GraphSettings, PastSettings, FitSettings)
IDENTITY_WIDTH = 10  # rows up to this wide are clustered as they are unless a network is asked for


@dataclass(frozen=True)
class Choices:
    """Everything that `learn` needs besides rows and seed."""

    kind: str
    view: InputView
    vae: VAE
    settings: LearnSettings
    augment: Augmentation | None

    def described(self) -> dict[str, Any]:
        """Return what was chosen, for the user to read."""
        shape = self.vae.shape
        return {
            "kind": self.kind,
            "encoder": shape.encoder,
            "latent_dim": shape.latent_dim,
            "hidden_dims": shape.hidden_dims,
            "likelihood": shape.likelihood,
            "front_end": self.view.front_end is not None,
            "augment": self.augment,
            "settings": self.settings,
        }


def choose(model: DBULL, rows: torch.Tensor, seed: int) -> Choices:
    """Check the parameters of a model and resolve them for the rows of its first data set."""
    check_parameters(model)
    image_shape = image_shape_of(model, rows.shape[1])
    kind = guess_kind(rows, image_shape) if model.kind == "auto" else model.kind
    recipe = RECIPES[model.objective, kind]
    encoder = model.encoder
    if encoder == "auto":
        latent_dim = recipe.latent_dim if model.latent_dim == "auto" else int(model.latent_dim)
        narrow = rows.shape[1] <= max(latent_dim, IDENTITY_WIDTH) and image_shape is None
        encoder = "identity" if narrow else "mlp"
    front_end = recipe.front_end if model.front_end == "auto" else bool(model.front_end)
    view = fit_inputs(rows, kind, image_shape, front_end and encoder == "mlp", encoder == "identity")
    vae = networks(model, view, kind, encoder, recipe, seed)
    settings = learn_settings(model, len(rows), recipe, pretrained=False)
    return Choices(kind, view, vae, settings, augmentation(model, recipe, image_shape))


def choose_again(model: DBULL, state: LearnerState, n_rows: int) -> tuple[LearnSettings, Augmentation | None]:
    """Check the parameters of a model and resolve them for a further data set."""
    check_parameters(model)
    recipe = RECIPES[model.objective, state.kind]
    settings = learn_settings(model, n_rows, recipe, pretrained=state.n_pretrain_rows > 0)
    return settings, augmentation(model, recipe, image_shape_of(model, model.n_features_in_))


def check_parameters(model: DBULL) -> None:
    """Name the first parameter that has a value it cannot have."""
    check_known("objective", model.objective, OBJECTIVES)
    check_known("kind of data", model.kind, ("auto", *KINDS))
    check_known("encoder", model.encoder, ("auto", *ENCODERS))
    check_known("likelihood", model.likelihood, ("auto", *LIKELIHOODS))
    check_known("pretraining", model.pretraining, PRETRAININGS)
    check_known("replay", model.replay, ("auto", *REPLAYS))
    check_number("max_clusters", model.max_clusters, at_least=1, whole=True)
    check_number("concentration", model.concentration, above=0)
    for name in ("epochs", "joint_epochs", "batch_size", "latent_dim", "n_neighbors", "n_replay"):
        if getattr(model, name) != "auto":
            least = 0 if name in ("epochs", "joint_epochs", "n_replay") else 1
            check_number(name, getattr(model, name), at_least=least, whole=True, also="or 'auto'")
    for name in ("neighbourhood", "join", "pooling", "consistency"):
        if getattr(model, name) != "auto":
            check_number(name, getattr(model, name), at_least=0, also="or 'auto'")
    if model.n_neighbours != "deprecated":
        warnings.warn("n_neighbours is called n_neighbors now.", FutureWarning, stacklevel=4)
        check_number("n_neighbours", model.n_neighbours, at_least=1, whole=True)
    if model.learning_rate != "auto":
        check_number("learning_rate", model.learning_rate, above=0, also="or 'auto'")
    if model.max_evidence is not None and model.max_evidence != "auto":
        check_number("max_evidence", model.max_evidence, above=0, also="'auto' or None")
    if model.hidden_dims != "auto":
        if isinstance(model.hidden_dims, str) or not isinstance(model.hidden_dims, Iterable):
            raise ValueError(f"hidden_dims must be 'auto' or a tuple of widths; got {model.hidden_dims!r}.")
        for width in model.hidden_dims:
            check_number("each of hidden_dims", width, at_least=1, whole=True)
    for name in ("front_end", "use_encoder_variance", "carry", "novelty", "freeze", "strict_scale"):
        value = getattr(model, name)
        has_auto = name not in ("use_encoder_variance", "strict_scale")
        if not isinstance(value, bool | np.bool_) and not (has_auto and value == "auto"):
            also = "'auto', " if has_auto else ""
            raise ValueError(f"{name} must be {also}True or False; got {value!r}.")
    if model.image_shape is not None:
        if isinstance(model.image_shape, str) or not isinstance(model.image_shape, Iterable):
            raise ValueError(f"image_shape must be None or a tuple of sizes; got {model.image_shape!r}.")
        for size in model.image_shape:
            check_number("each of image_shape", size, at_least=1, whole=True)
    try:
        check_random_state(model.random_state)
    except ValueError as error:
        raise ValueError(f"random_state cannot be {model.random_state!r}: {error}.") from error
    check_device(model.device)
    if model.callback is not None and not callable(model.callback):
        raise ValueError(f"callback must be None or a callable; got {model.callback!r}.")
    known = isinstance(model.augment, str) and model.augment == "auto"
    if not (known or model.augment is None or callable(model.augment)):
        raise ValueError(f"augment must be 'auto', None or a callable; got {model.augment!r}.")
    if model.kind == "images" and model.image_shape is None:
        raise SettingsError("kind='images' needs image_shape, e.g. image_shape=(28, 28)")


def image_shape_of(model: DBULL, n_columns: int) -> tuple[int, int, int] | None:
    """Return (height, width, channels), or None if rows are no images."""
    if model.image_shape is None:
        return None
    if isinstance(model.image_shape, str) or not isinstance(model.image_shape, Iterable):
        raise ValueError(
            f"image_shape must be None, (height, width) or (height, width, channels); got "
            f"{model.image_shape!r}."
        )
    for side in model.image_shape:
        check_number("each of image_shape", side, at_least=1, whole=True)
    shape = tuple(int(side) for side in model.image_shape)
    shape = (*shape, 1) if len(shape) == 2 else shape
    if len(shape) != 3 or math.prod(shape) != n_columns:
        raise DataError(
            f"image_shape {tuple(model.image_shape)} does not fit rows of {n_columns} values: "
            "give (height, width) or (height, width, channels)"
        )
    return shape[0], shape[1], shape[2]


def networks(model: DBULL, view: InputView, kind: str, encoder: str, recipe: Recipe, seed: int) -> VAE:
    """Make networks with fresh weights."""
    n_columns = model.n_features_in_
    latent_dim = recipe.latent_dim if model.latent_dim == "auto" else int(model.latent_dim)
    likelihood = model.likelihood
    if likelihood == "auto":
        likelihood = choose_likelihood(kind == "images")
    elif likelihood == "bernoulli" and kind != "images":
        raise SettingsError("likelihood='bernoulli' is for images; other data are scaled beyond [0, 1]")
    hidden: Iterable[Any] = recipe.hidden_dims if model.hidden_dims == "auto" else model.hidden_dims
    shape = NetworkShape(
        view.n_inputs,
        n_columns,
        n_columns if encoder == "identity" else latent_dim,
        encoder,
        tuple(int(width) for width in hidden),
        likelihood if encoder != "identity" else "gaussian",
        image_shape_of(model, n_columns) if encoder == "conv" else None,
    )
    # Initial weights come from torch's global stream; it is put back as it was.
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        vae = VAE(shape)
    try:
        return vae.to(model.device)
    except RuntimeError as error:
        raise SettingsError(f"device {model.device!r} cannot be used: {error}") from error


def learn_settings(model: DBULL, n_rows: int, recipe: Recipe, pretrained: bool) -> LearnSettings:
    """Return how to learn: what the user gave, else what the recipe has."""
    s = recipe.settings
    training, graph, past = _given(model, s.training), _given(model, s.graph), _given(model, s.past)
    if model.n_neighbours != "deprecated":
        graph = replace(graph, n_neighbors=int(model.n_neighbours))
    if model.epochs == "auto":
        training = replace(training, epochs=epochs_for(n_rows, training.batch_size, *recipe.epoch_range))
    if model.freeze == "auto":
        training = replace(training, freeze=pretrained)
    if model.n_replay == "auto":
        past = replace(past, n_replay=replay_for(n_rows, past))
    training = replace(
        training,
        joint_learning_rate=training.learning_rate
        * s.training.joint_learning_rate
        / s.training.learning_rate,
        stacked_epochs=0 if model.pretraining != "stacked" else max(1, training.epochs // 4),
    )
    search = SearchSettings(max_clusters=model.max_clusters)
    mixture = replace(_given(model, s.mixture), search=search)
    return LearnSettings(training, graph, past, mixture, bool(model.use_encoder_variance))


def _given(model: DBULL, record: Record) -> Record:
    """Return a record with what the user gave in place of its defaults; names are the same in both."""
    parameters = model.get_params(deep=False)
    names = {field.name for field in fields(record)} & set(parameters)
    return replace(record, **{name: parameters[name] for name in names if parameters[name] != "auto"})


def augmentation(
    model: DBULL, recipe: Recipe, image_shape: tuple[int, int, int] | None
) -> Augmentation | None:
    """Return how samples are changed at each visit."""
    if not isinstance(model.augment, str):
        return model.augment
    if not recipe.augment:
        return None
    return MaskingNoise() if image_shape is None else ImageShifts(*image_shape)
