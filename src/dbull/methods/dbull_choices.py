"""What the parameters of `DBULL` mean for the data at hand: checked, and "auto" resolved."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, TypeVar

import torch

from dbull.errors import DataError, SettingsError
from dbull.lifelong.settings import (
    PLACE_WEIGHT,
    RECIPES,
    RESOLUTIONS,
    GraphSettings,
    LearnSettings,
    PastSettings,
    Recipe,
    TrainingSettings,
    epochs_for,
    evidence_for,
    replay_for,
)
from dbull.lifelong.state import LearnerState
from dbull.methods.base import new_seed
from dbull.methods.tables import n_values
from dbull.mixture.prior import paper_prior
from dbull.mixture.settings import FitSettings
from dbull.nets.augment import Augmentation, ImageShifts, MaskingNoise
from dbull.nets.inputs import InputView, fit_inputs, guess_kind
from dbull.nets.likelihood import choose_likelihood
from dbull.nets.vae import VAE, NetworkShape

if TYPE_CHECKING:
    from dbull.methods.dbull import DBULL

Record = TypeVar("Record", TrainingSettings, GraphSettings, PastSettings, FitSettings)
IDENTITY_WIDTH = 10  # rows up to this wide are clustered as they are unless a network is asked for
PLAIN_EVIDENCE = 2.0  # times as much for rows as they are: codes laid out along a graph exaggerate gaps
PLAIN_JOIN = 2.0  # times as mixed for the same: no layout has torn apart what touches by chance
PLAIN_POOLING = 0.01  # for the same: more of it holds heaps together that are clearly several


@dataclass(frozen=True)
class Choices:
    """A learner that has seen nothing, and how it is to learn."""

    state: LearnerState
    settings: LearnSettings
    augment: Augmentation | None

    def described(self) -> dict[str, Any]:
        """Return what was chosen, for the user to read."""
        shape = self.state.vae.shape
        return {
            "kind": self.state.kind,
            **{name: getattr(shape, name) for name in ("encoder", "latent_dim", "hidden_dims", "likelihood")},
            "front_end": self.state.view.front_end is not None,
            "augment": self.augment,
            "settings": self.settings,
        }


def choose(
    model: DBULL, rows: torch.Tensor, like: LearnerState | None = None, counts: torch.Tensor | None = None
) -> Choices:
    """Check the parameters of a model and resolve them for the rows of its first data set.

    Seed and kind of data are those of an earlier learner, if one is given. With `counts`, (N,), rows are
    means of so many.
    """
    table, projected = hasattr(model, "column_encoder_"), hasattr(model, "projection_")
    seed = new_seed(model.random_state) if like is None else like.seed
    model.check_parameters()
    image_shape = image_shape_of(model, rows.shape[1])
    kind = model.kind
    if kind in ("auto", "text"):
        kind = "dense" if table else guess_kind(rows, image_shape)
        kind = "sparse" if projected else kind
        kind = kind if like is None else like.kind
    # Columns of a table have a vote each; those of projected rows are directions, the leading ones longer.
    scaled = table or (projected and kind == "sparse")
    recipe = RECIPES[model.objective, kind]
    encoder = model.encoder
    if encoder == "auto":
        latent_dim = recipe.latent_dim if model.latent_dim == "auto" else int(model.latent_dim)
        narrow = rows.shape[1] <= max(latent_dim, IDENTITY_WIDTH) and image_shape is None
        encoder = "identity" if narrow else "mlp"
    front_end = recipe.front_end if model.front_end == "auto" else bool(model.front_end)
    front_end = front_end and encoder == "mlp"
    view = fit_inputs(rows, kind, image_shape, front_end, encoder == "identity", scaled, counts)
    vae = networks(model, view, kind, encoder, recipe, seed)
    fresh = LearnerState.fresh(kind, view, vae, seed)
    settings = learn_settings(model, len(rows), recipe, fresh)
    return Choices(fresh, settings, augmentation(model, recipe, image_shape))


def choose_again(model: DBULL, state: LearnerState, n_rows: int) -> tuple[LearnSettings, Augmentation | None]:
    """Check the parameters of a model and resolve them for a further data set."""
    model.check_parameters()
    recipe = RECIPES[model.objective, state.kind]
    settings = learn_settings(model, n_rows, recipe, state)
    return settings, augmentation(model, recipe, image_shape_of(model, n_values(model)))


def image_shape_of(model: DBULL, n_columns: int) -> tuple[int, int, int] | None:
    """Return (height, width, channels), or None if rows are no images."""
    if model.image_shape is None:
        return None
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
    n_columns = n_values(model)
    latent_dim = recipe.latent_dim if model.latent_dim == "auto" else int(model.latent_dim)
    likelihood = model.likelihood
    if likelihood == "auto":
        likelihood = recipe.likelihood or choose_likelihood(kind == "images")
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


def learn_settings(model: DBULL, n_rows: int, recipe: Recipe, state: LearnerState) -> LearnSettings:
    """Return how to go on learning from a state: what the user gave, else what the recipe has."""
    s = recipe.settings
    training, graph, past = _given(model, s.training), _given(model, s.graph), _given(model, s.past)
    if model.n_neighbours != "deprecated":
        warnings.warn("n_neighbours is called n_neighbors now.", FutureWarning, stacklevel=5)
        graph = replace(graph, n_neighbors=int(model.n_neighbours))
    if model.epochs == "auto":
        training = replace(training, epochs=epochs_for(n_rows, training.batch_size, *recipe.epoch_range))
    if model.freeze == "auto":
        training = replace(training, freeze=state.n_pretrain_rows > 0)
    if model.n_replay == "auto":
        past = replace(past, n_replay=replay_for(n_rows, past))
    joint_rate = training.learning_rate * s.training.joint_learning_rate / s.training.learning_rate
    stacked_epochs = max(1, training.epochs // 4) if model.pretraining == "stacked" else 0
    training = replace(training, joint_learning_rate=joint_rate, stacked_epochs=stacked_epochs)
    mixture = _given(model, s.mixture)
    mixture = replace(mixture, search=replace(mixture.search, max_clusters=model.max_clusters))
    if recipe.literal:
        prior = paper_prior(state.vae.shape.latent_dim, float(model.concentration))
        mixture = replace(mixture, prior=prior)
        if model.batch_size == "auto":
            training = replace(training, batch_size=min(training.batch_size, max(1, n_rows // 2)))
    power = recipe.evidence_power
    if power is not None and mixture.max_evidence == "auto":
        mixture = replace(mixture, max_evidence=evidence_for(n_rows, state.vae.shape.latent_dim, power))
    evidence = mixture.evidence_per_cluster
    if evidence is not None:
        more = RESOLUTIONS[model.resolution] if isinstance(model.resolution, str) else float(model.resolution)
        join = more * graph.join  # the finer, the more mixed are those that are one
        if not state.vae.learns:
            more, join = more * PLAIN_EVIDENCE, join * PLAIN_JOIN
            mixture = replace(mixture, pooling=PLAIN_POOLING if model.pooling == "auto" else mixture.pooling)
        elif training.neighbourhood > 0:
            mixture = replace(mixture, most_weight=min(1.0, more * PLACE_WEIGHT))
        mixture = replace(mixture, evidence_per_cluster=more * evidence)
        graph = replace(graph, join=join) if model.join == "auto" else graph
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
