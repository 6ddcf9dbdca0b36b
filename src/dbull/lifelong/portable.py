"""A learner as named tensors and plain values, and back, to the bit. No class is named in either.

What follows from the rest by one step (the posterior, an empty stream) is left out and made anew. Sizes are
compared with those of the tensors at hand before anything is allocated.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, fields
from typing import Any

import torch
from torch import Tensor

from dbull.errors import DbullError, ModelFileError
from dbull.lifelong.drift import encoder_fingerprint
from dbull.lifelong.imprint import Imprint
from dbull.lifelong.ledger import Ledger
from dbull.lifelong.novelty import Calibration
from dbull.lifelong.records import Reader, check_fields, fail, list_of, text, whole
from dbull.lifelong.state import LearnerState
from dbull.mixture.memory import StatsMemory
from dbull.mixture.posterior import global_step
from dbull.mixture.prior import MixturePrior
from dbull.mixture.stats import SufficientStats
from dbull.nets.frontend import FrontEnd
from dbull.nets.inputs import InputView
from dbull.nets.vae import VAE, NetworkShape

__all__ = ["pack_state", "unpack_state"]

Tensors = Mapping[str, Mapping[str, Tensor]]
MOST_VALUES = 10_000_000  # of a row, of a code: what a forged number may cost before tensors disagree with it


def pack_state(state: LearnerState) -> tuple[dict[str, dict[str, Tensor]], dict[str, Any]]:
    """Return groups of tensors and a document of plain values; the ledger is not among them."""
    overall, prior, view = state.memory.overall, state.prior, state.view
    tensors = {
        "networks": dict(state.vae.state_dict()),
        "mixture": {
            **{name: getattr(overall, name) for name in ("counts", "sum_z", "sum_zz", "entropy")},
            "prior_mean": prior.mean,
            "prior_scale_inv": prior.scale_inv,
        },
        "view": {"shift": view.shift, "scale": view.scale, "input_shift": view.input_shift},
        "imprints": _pack_imprints(state.imprints, view.n_inputs),
    }
    document = {
        "kind": state.kind,
        "seed": state.seed,
        "n_data_sets": state.n_data_sets,
        "n_rows": state.n_rows,
        "n_pretrain_rows": state.n_pretrain_rows,
        "networks": asdict(state.vae.shape),
        "view": {
            "kind": view.kind,
            "input_scale": view.input_scale,
            "front_end": None if view.front_end is None else asdict(view.front_end),
        },
        "prior": {name: float(getattr(prior, name)) for name in ("concentration", "mean_precision", "dof")},
        "components": {
            "ids": list(state.memory.ids),
            "clusters": [state.owner[i] for i in state.memory.ids],
            "next_id": state.memory.next_id,
            "n_given": state.memory.n_given,
        },
        "calibrations": [{"cluster": c, **asdict(record)} for c, record in state.calibrations.items()],
    }
    return tensors, document


def unpack_state(
    tensors: Tensors,
    document: object,
    ledger: Ledger,
    fingerprint: str | None,
    where: str,
    device: str = "cpu",
) -> LearnerState:
    """Return the learner that `pack_state` was given.

    Raises
    ------
    ModelFileError
        if anything is missing, of the wrong kind, or contradicts the rest
    """
    try:
        return _unpack(tensors, check_fields(document, where, _DOCUMENT), ledger, fingerprint, where, device)
    except ModelFileError:
        raise
    except (DbullError, KeyError, ValueError, TypeError, RuntimeError, IndexError, OverflowError) as error:
        what = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise ModelFileError(
            f"{where}: does not fit the tensors beside it ({what:.200}); go back to a sound generation"
        ) from error


def _unpack(
    tensors: Tensors, told: dict[str, Any], ledger: Ledger, fingerprint: str | None, where: str, device: str
) -> LearnerState:
    mixture, parts = tensors["mixture"], told["components"]
    for group, kind in (("mixture", torch.float64), ("networks", torch.float32)):
        for name, tensor in tensors[group].items():
            if tensor.dtype != kind:
                fail(where, f"{group} has {name!r:.60} as {tensor.dtype} instead of {kind}")
    stats = SufficientStats(*(mixture[name] for name in ("counts", "sum_z", "sum_zz", "entropy")))
    n, dims = len(parts["ids"]), told["networks"]["latent_dim"]
    shapes = [tuple(part.shape) for part in (stats.counts, stats.sum_z, stats.sum_zz, stats.entropy)]
    if shapes != [(n,), (n, dims), (n, dims, dims), (n,)]:
        fail(where, f"statistics of shapes {shapes} for {n} components of {dims} dimensions")
    prior = MixturePrior(
        told["prior"]["concentration"],
        mixture["prior_mean"],
        told["prior"]["mean_precision"],
        told["prior"]["dof"],
        mixture["prior_scale_inv"],
    )
    if prior.mean.shape != (dims,) or prior.scale_inv.shape != (dims, dims):
        fail(where, f"a prior of shape {tuple(prior.scale_inv.shape)} for codes of {dims} dimensions")
    memory = StatsMemory(
        [],
        SufficientStats.zeros(n, dims),
        stats,
        tuple(parts["ids"]),
        torch.ones(n, dtype=torch.bool),
        parts["next_id"],
        parts["n_given"],
    )
    if (
        len(parts["clusters"]) != n
        or len(set(memory.ids)) != n
        or max(memory.ids, default=-1) >= memory.n_given
    ):
        fail(where, "components and their clusters do not agree")
    owner = dict(zip(memory.ids, parts["clusters"], strict=True))
    if set(ledger.living_ids) != set(owner.values()):
        fail(where, "clusters of components are not those of the ledger")
    view = _unpack_view(tensors["view"], told["view"], told["networks"])
    state = LearnerState(
        told["kind"],
        view,
        _unpack_networks(tensors["networks"], told["networks"], device),
        memory,
        prior,
        global_step(prior, memory.total),
        owner,
        told["seed"],
        told["n_data_sets"],
        told["n_rows"],
        told["n_pretrain_rows"],
        _unpack_imprints(tensors["imprints"], view.n_inputs, where),
        {part.pop("cluster"): Calibration(**part) for part in told["calibrations"]},
        ledger,
        fingerprint or "",
    )
    if not (set(state.imprints) <= set(owner) and set(state.calibrations) <= set(owner.values())):
        fail(where, "imprints or calibrations of components that are not there")
    if fingerprint is not None and encoder_fingerprint(state.vae) != fingerprint:
        fail(where, "the networks are not those that the statistics were made with")
    return state


def _unpack_networks(tensors: Mapping[str, Tensor], told: dict[str, Any], device: str) -> VAE:
    image_shape = told["image_shape"]
    shape = NetworkShape(
        **{
            **told,
            "hidden_dims": tuple(told["hidden_dims"]),
            "image_shape": None if image_shape is None else tuple(image_shape),
        }
    )
    # Without memory of their own: the tensors at hand become the weights, if they have the shapes told.
    with torch.device("meta"):
        vae = VAE(shape)
    vae.load_state_dict(dict(tensors), strict=True, assign=True)
    return vae.to(device)


def _unpack_view(tensors: Mapping[str, Tensor], told: dict[str, Any], networks: dict[str, Any]) -> InputView:
    front_end = None if told["front_end"] is None else FrontEnd(**told["front_end"])
    view = InputView(
        told["kind"],
        tensors["shift"],
        tensors["scale"],
        front_end,
        tensors["input_shift"],
        told["input_scale"],
    )
    allowed = {(1,), (networks["n_values"],)}
    if tuple(view.shift.shape) not in allowed or view.shift.shape != view.scale.shape:
        raise ValueError(f"shift and scale of shapes {tuple(view.shift.shape)}, {tuple(view.scale.shape)}")
    if view.input_shift.shape != (networks["n_inputs"],):
        raise ValueError(f"{len(view.input_shift)} inputs for networks of {networks['n_inputs']}")
    if front_end is not None:
        if front_end.n_features != view.n_inputs:
            raise ValueError(f"{front_end.n_features} features for networks of {view.n_inputs} inputs")
        if front_end.height * front_end.width * front_end.n_channels != networks["n_values"]:
            raise ValueError("the images of the front end are not the rows of the networks")
    return view


def _pack_imprints(imprints: dict[int, Imprint], n_inputs: int) -> dict[str, Tensor]:
    """Return all imprints in five tensors; factors lie below each other, since they differ in rank."""
    parts = list(imprints.values())
    empty = torch.zeros(0, n_inputs)
    return {
        "component": torch.tensor(list(imprints), dtype=torch.int64),
        "n_rows": torch.tensor([part.n_rows for part in parts], dtype=torch.float64),
        "mean": torch.stack([part.mean for part in parts]) if parts else empty,
        "leftover": torch.stack([part.leftover for part in parts]) if parts else empty,
        "factor": torch.cat([empty, *(part.factor for part in parts)]),
        "rank": torch.tensor([len(part.factor) for part in parts], dtype=torch.int64),
    }


def _unpack_imprints(tensors: Mapping[str, Tensor], n_inputs: int, where: str) -> dict[int, Imprint]:
    components, ranks = tensors["component"].tolist(), tensors["rank"].tolist()
    n = len(components)
    shapes = [tuple(tensors[name].shape) for name in ("n_rows", "mean", "leftover", "factor")]
    if shapes != [(n,), (n, n_inputs), (n, n_inputs), (sum(ranks), n_inputs)] or min(ranks, default=0) < 0:
        fail(where, f"imprints of shapes {shapes} for {n} components")
    rows, factors = tensors["n_rows"].tolist(), tensors["factor"].split(ranks) if n else ()
    return {
        component: Imprint(
            rows[i], tensors["mean"][i].clone(), factors[i].clone(), tensors["leftover"][i].clone()
        )
        for i, component in enumerate(components)
    }


def _number(value: object, where: str) -> float:
    if not isinstance(value, float) or not math.isfinite(value):
        fail(where, f"expected a number, got {value!r:.50}")
    return value


def _truth(value: object, where: str) -> bool:
    if not isinstance(value, bool):
        fail(where, f"expected true or false, got {value!r:.50}")
    return value


def _size(value: object, where: str) -> int:
    size = whole(value, where)
    if size > MOST_VALUES:
        fail(where, f"{size} is more than {MOST_VALUES}")
    return size


def _or_none(reader: Reader) -> Reader:
    return lambda value, where: None if value is None else reader(value, where)


def _object(readers: dict[str, Reader]) -> Reader:
    return lambda value, where: check_fields(value, where, readers)


_FRONT_END: dict[str, Reader] = {
    field.name: _truth if field.name == "straighten" else _size for field in fields(FrontEnd)
}
_NETWORKS: dict[str, Reader] = {
    "n_inputs": _size,
    "n_values": _size,
    "latent_dim": _size,
    "encoder": text,
    "hidden_dims": list_of(_size),
    "likelihood": text,
    "image_shape": _or_none(list_of(_size)),
}
_DOCUMENT: dict[str, Reader] = {
    "kind": text,
    "seed": whole,
    "n_data_sets": whole,
    "n_rows": whole,
    "n_pretrain_rows": whole,
    "networks": _object(_NETWORKS),
    "view": _object({"kind": text, "input_scale": _number, "front_end": _or_none(_object(_FRONT_END))}),
    "prior": _object({"concentration": _number, "mean_precision": _number, "dof": _number}),
    "components": _object(
        {"ids": list_of(whole), "clusters": list_of(whole), "next_id": whole, "n_given": whole}
    ),
    "calibrations": list_of(
        _object({"cluster": whole, "n_rows": _number, "total": _number, "total_squares": _number})
    ),
}
