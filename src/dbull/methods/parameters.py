"""Parameters of estimators: which values they may have, and how they are written down and read back."""

import math
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, fields
from functools import partial
from typing import Any

import numpy as np
import torch
from sklearn.utils import check_random_state

from dbull.documents import anything, check_fields, fail
from dbull.errors import SettingsError, check_known, did_you_mean
from dbull.lifelong.index import INDEXES
from dbull.lifelong.past import REPLAYS
from dbull.lifelong.settings import OBJECTIVES, PRETRAININGS, RESOLUTIONS
from dbull.methods.base import check_number
from dbull.nets.augment import Augmentation, ImageShifts, MaskingNoise
from dbull.nets.inputs import KINDS
from dbull.nets.likelihood import LIKELIHOODS
from dbull.nets.vae import ENCODERS
from dbull.tables import ROLES
from dbull.threads import check_threads

Check = Callable[[str, Any], None]  # of the name and the value of a parameter; raises what cannot be

AUGMENTATIONS: dict[str, type[ImageShifts] | type[MaskingNoise]] = {
    "image-shifts": ImageShifts,
    "masking-noise": MaskingNoise,
}
CUSTOM = "custom"  # an augmentation that the caller must give again
RENAMED = {"n_neighbours": "n_neighbors"}  # former names of parameters, which models of long ago have
UNUSED = "deprecated"
NOT_KEPT = ("callback", "threads")  # of the process and its machine, not of the model


def check_truth(name: str, value: Any, auto: bool = False) -> None:
    """Refuse what is not True or False, nor "auto" where that is allowed."""
    if not isinstance(value, bool | np.bool_) and not (auto and isinstance(value, str) and value == "auto"):
        allowed = "'auto', True or False" if auto else "True or False"
        raise ValueError(f"{name} must be {allowed}; got {value!r}.")


def check_seed(name: str, value: Any) -> None:
    """Refuse what gives no random numbers."""
    try:
        check_random_state(value)
    except ValueError as error:
        raise ValueError(f"{name} cannot be {value!r}: {error}.") from error


def check_device(name: str, device: str | torch.device) -> None:
    """Refuse a device that this PyTorch does not know or have."""
    reason = _missing(device)
    if reason is not None:
        raise ValueError(
            f"{name} must be one that PyTorch has here, such as 'cpu'; got {device!r} ({reason})."
        )


def device_for(stored: Any, asked: str | None, where: str) -> str:
    """Return where stored networks go: where the caller says, else where they were, if that is here."""
    if asked is not None:
        check_device("device", asked)
        return str(asked)
    if not isinstance(stored, str):
        fail(where, f"device is {stored!r:.50}")
    reason = _missing(stored)
    if reason is None:
        return stored
    told = f"the model was on device {stored!r}, which is not here ({reason}); it is on the CPU now."
    warnings.warn(told, stacklevel=2)
    return "cpu"


def _missing(device: str | torch.device) -> str | None:
    if not isinstance(device, str | torch.device):
        return "no name of a device"
    try:
        torch.zeros(0, device=device)
    except (RuntimeError, AssertionError, TypeError) as error:  # "cuda" without CUDA is an AssertionError
        return str(error).splitlines()[0]
    return None


def check_one_of(name: str, value: Any, known: tuple[str, ...]) -> None:
    """Refuse what is none of these."""
    check_known("kind of data" if name == "kind" else name, value, known)


def _one_of(known: Iterable[str], what: str = "") -> Check:
    return lambda name, value: check_known(what or name, value, tuple(known))


def _sizes(name: str, value: Any, allowed: str, other: Any = (), at_least: int = 1) -> None:
    """Refuse what is not whole numbers, nor the one other value."""
    if isinstance(value, str | None) and value == other:
        return
    if isinstance(value, str) or not isinstance(value, Iterable):
        raise ValueError(f"{name} must be {allowed}; got {value!r}.")
    for size in value:
        check_number(f"each of {name}", size, at_least=at_least, whole=True)


def _callable(name: str, value: Any, others: tuple[str | None, ...]) -> None:
    if not callable(value) and not (isinstance(value, str | None) and value in others):
        raise ValueError(f"{name} must be {', '.join(map(repr, others))} or a callable; got {value!r}.")


def _roles(name: str, value: Any) -> None:
    """Refuse what does not give roles to columns."""
    if value is None:
        return
    if not isinstance(value, Mapping) or not all(isinstance(column, str) for column in value):
        raise ValueError(
            f"{name} must be None or roles by name, such as {{'shop': 'category'}}; got {value!r}."
        )
    for column, role in value.items():
        check_known(f"role in {name}, of {column!r}:", role, ROLES)


def _names(name: str, value: Any) -> None:
    """Refuse what does not name columns."""
    listed = [value] if isinstance(value, str) else value
    if value is not None and not (
        isinstance(listed, Sequence) and listed and all(isinstance(one, str) and one for one in listed)
    ):
        raise ValueError(f"{name} must be None, or a name or names of columns; got {value!r:.60}.")


_COUNT = partial(check_number, at_least=1, whole=True)


def _former(name: str, value: Any) -> None:
    if value != UNUSED:
        _COUNT(name, value)


_POSITIVE = partial(check_number, above=0)
# What holds for all estimators that have a parameter of the name; each is checked in this order.
ALLOWED: dict[str, Check] = {
    "objective": _one_of(OBJECTIVES),
    "kind": _one_of(("auto", *KINDS), "kind of data"),
    "encoder": _one_of(("auto", *ENCODERS)),
    "likelihood": _one_of(("auto", *LIKELIHOODS)),
    "pretraining": _one_of(PRETRAININGS),
    "replay": _one_of(("auto", *REPLAYS)),
    "graph_index": _one_of(INDEXES),
    "prior": _one_of(("data", "paper")),
    **dict.fromkeys(("n_clusters", "n_init", "update_interval", "max_clusters", "buffer_rows"), _COUNT),
    **dict.fromkeys(("concentration", "dof"), _POSITIVE),
    **dict.fromkeys(("epochs", "joint_epochs", "n_replay"), partial(_COUNT, at_least=0, others=("auto",))),
    **dict.fromkeys(("batch_size", "latent_dim", "n_neighbors"), partial(_COUNT, others=("auto",))),
    "n_neighbours": _former,
    **dict.fromkeys(
        ("neighbourhood", "join", "pooling", "consistency"),
        partial(check_number, at_least=0, others=("auto",)),
    ),
    **dict.fromkeys(("learning_rate", "joint_learning_rate"), partial(_POSITIVE, others=("auto",))),
    **dict.fromkeys(("wait_steps", "keep_exemplars"), partial(_COUNT, at_least=0)),
    "tolerance": partial(check_number, at_least=0),
    "threshold": partial(check_number, above=-math.inf, others=("auto",)),
    "max_evidence": partial(_POSITIVE, others=("auto", None)),
    "resolution": partial(_POSITIVE, others=tuple(RESOLUTIONS)),
    "hidden_dims": partial(_sizes, allowed="'auto' or a tuple of widths", other="auto"),
    "image_shape": partial(_sizes, allowed="None or a tuple of sizes", other=None),
    "columns": _roles,
    "embeddings": _names,
    "fresh_sizes": partial(_sizes, allowed="a tuple of whole numbers", at_least=2),
    **dict.fromkeys(("front_end", "use_encoder_variance", "strict_scale"), check_truth),
    **dict.fromkeys(("carry", "novelty", "freeze"), partial(check_truth, auto=True)),
    "device": check_device,
    "threads": check_threads,
    "callback": partial(_callable, others=(None,)),
    "augment": partial(_callable, others=("auto", None)),
}


def pack_parameters(model: Any) -> dict[str, Any]:
    """Return parameters as plain values; what only the caller can give is left for the caller."""
    parameters: Mapping[str, Any] = model.get_params(deep=False)
    packed = {name: value for name, value in parameters.items() if name not in (*NOT_KEPT, *RENAMED)}
    packed |= {new: parameters[old] for old, new in RENAMED.items() if parameters.get(old, UNUSED) != UNUSED}
    augment = packed.get("augment")
    if callable(augment):
        packed["augment"] = {"name": CUSTOM}
        for name, kind in AUGMENTATIONS.items():
            if type(augment) is kind:
                packed["augment"] = {"name": name, **asdict(augment)}
    if not isinstance(packed["random_state"], int | np.integer):
        packed["random_state"] = None
    for name, value in packed.items():
        if isinstance(value, np.generic):
            packed[name] = value.item()
        elif name == "device":
            packed[name] = str(value)
        elif isinstance(value, Mapping):
            packed[name] = dict(value)
        elif name == "embeddings" and not isinstance(value, str | None):
            packed[name] = list(value)
        elif name in ("hidden_dims", "image_shape", "fresh_sizes") and not isinstance(value, str | None):
            packed[name] = [int(part) for part in value]
    return packed


def unpack_parameters(kind: Any, packed: Any, augment: Augmentation | None, where: str) -> dict[str, Any]:
    """Return the parameters of an estimator of a class, as `pack_parameters` had them."""
    if not isinstance(packed, dict):
        fail(where, "has no parameters")
    packed = {RENAMED.get(name, name): value for name, value in packed.items()}
    known = set(kind().get_params(deep=False)) - {*NOT_KEPT, *RENAMED}
    for name in packed:
        if name not in known:
            fail(where, f"unknown parameter {name!r:.40} {did_you_mean(name, known)}".rstrip())
    parameters = {name: tuple(value) if isinstance(value, list) else value for name, value in packed.items()}
    told = parameters.get("augment")
    chosen = told.get("name") if isinstance(told, dict) else None
    if augment is not None and chosen != CUSTOM:
        raise SettingsError(f"{where}: the model has no `augment` of the caller's own; load it without")
    if chosen == CUSTOM:
        if augment is None:
            raise SettingsError(
                f"{where}: the model's `augment` is a function that no file can hold: "
                "give it again, load(path, augment=...)"
            )
        parameters["augment"] = augment
    elif isinstance(told, dict):
        if chosen not in AUGMENTATIONS:
            fail(where, f"unknown augmentation {chosen!r:.40}")
        kept = AUGMENTATIONS[str(chosen)]
        readers = {field.name: anything for field in fields(kept)}
        rest = {key: value for key, value in told.items() if key != "name"}
        parameters["augment"] = kept(**check_fields(rest, f"{where}.augment", readers))
    return parameters
