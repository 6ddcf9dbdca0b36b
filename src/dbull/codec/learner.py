"""A learner as named tensors and plain values, and back, to the bit.

What follows from the rest by one step (the posterior, an empty current record) is left out and made anew.
"""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import torch
from torch import Tensor

from dbull.codec.mixture import pack_memory, unpack_memory
from dbull.codec.networks import (
    NETWORKS,
    Tensors,
    check_kind,
    pack_networks,
    refusing_damage,
    unpack_networks,
)
from dbull.documents import Reader, check_fields, fail, list_of, number, object_of, text, whole
from dbull.ledger import Ledger
from dbull.lifelong.beginning import YOUNG
from dbull.lifelong.few_rows import FewRows
from dbull.lifelong.index import EXACT
from dbull.lifelong.novelty import Calibration
from dbull.lifelong.past import Imprint, encoder_fingerprint
from dbull.lifelong.state import LearnerState
from dbull.mixture.posterior import global_step
from dbull.mixture.prior import MixturePrior

DEEPEST_BIN = 100_000  # of a histogram; a bound on what a forged file can cost


def pack_state(state: LearnerState) -> tuple[dict[str, dict[str, Tensor]], dict[str, Any]]:
    """Return groups of tensors and a document of plain values; the ledger is not among them."""
    prior = state.prior
    tensors, networks = pack_networks(state.view, state.vae)
    # Without networks imprints follow from the statistics.
    imprints = _pack_imprints(state.imprints if state.vae.learns else {}, state.view.n_inputs)
    tensors["mixture"] = pack_memory(state.memory) | {
        "prior_mean": prior.mean,
        "prior_scale_inv": prior.scale_inv,
    }
    tensors["imprints"] = imprints | {"column_rms": state.column_rms}
    for name, few in (("beginning", state.beginning), ("waiting", state.waiting)):
        if few is not None:
            tensors[name] = {"means": few.means, "counts": few.counts, "n_tried": torch.tensor(few.n_tried)}
    document = {
        **{name: getattr(state, name) for name in _COUNTS},
        **networks,
        "prior": {name: float(getattr(prior, name)) for name in _PRIOR},
        "components": {
            "ids": list(state.memory.ids),
            "clusters": [state.owner[i] for i in state.memory.ids],
            "next_id": state.memory.next_id,
            "n_given": state.memory.n_given,
        },
        "calibrations": [
            # JSON has no numbers as keys.
            {"cluster": cluster, **asdict(record), "depths": [[b, n] for b, n in record.depths.items()]}
            for cluster, record in state.calibrations.items()
        ],
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
    """Return the learner that `pack_state` was given; ModelFileError if anything contradicts the rest."""
    with refusing_damage(where):
        if isinstance(document, dict):
            document = {
                "graph_index": EXACT,
                "alone_usually": 0.0,
                **document,
            }  # the first models had no other
        values = check_fields(document, where, _DOCUMENT)
        mixture, parts, dims = tensors["mixture"], values["components"], values["networks"]["latent_dim"]
        check_kind(tensors, "mixture", torch.float64, where)
        memory = unpack_memory(mixture, parts["ids"], parts["next_id"], parts["n_given"], dims, where)
        scale_inv = mixture["prior_scale_inv"]
        prior = MixturePrior(mean=mixture["prior_mean"], scale_inv=scale_inv, **values["prior"])
        if prior.mean.shape != (dims,) or scale_inv.shape != (dims, dims):
            fail(where, f"a prior of shape {tuple(scale_inv.shape)} for codes of {dims} dimensions")
        if len(parts["clusters"]) != memory.n_components:
            fail(where, "components and their clusters do not agree")
        owner = dict(zip(memory.ids, parts["clusters"], strict=True))
        if set(ledger.living_ids) != set(owner.values()):
            fail(where, "clusters of components are not those of the ledger")
        view, vae = unpack_networks(tensors, values, where, device)
        column_rms = tensors["imprints"].get("column_rms", torch.zeros(0, dtype=torch.float64))
        if column_rms.dtype != torch.float64 or column_rms.shape not in ((0,), (vae.shape.n_values,)):
            fail(where, f"column_rms of shape {tuple(column_rms.shape)} for {vae.shape.n_values} columns")
        state = LearnerState(
            view=view,
            vae=vae,
            memory=memory,
            prior=prior,
            posterior=global_step(prior, memory.total),
            owner=owner,
            imprints=_unpack_imprints(tensors["imprints"], view.n_inputs, where),
            calibrations=dict(values["calibrations"]),
            ledger=ledger,
            fingerprint=fingerprint or "",
            column_rms=column_rms,
            beginning=_unpack_few(tensors, "beginning", vae.shape.n_values, where),
            waiting=_unpack_few(tensors, "waiting", vae.shape.n_values, where),
            **{name: values[name] for name in _COUNTS},
        )
        if not vae.learns and state.calibrations:
            state.imprint_inputs()
        if not (set(state.imprints) <= set(owner) and set(state.calibrations) <= set(owner.values())):
            fail(where, "imprints or calibrations of components that are not there")
        if fingerprint is not None and encoder_fingerprint(state.vae) != fingerprint:
            fail(where, "the networks are not those that the statistics were made with")
        return state


def _unpack_few(tensors: Tensors, name: str, n_values: int, where: str) -> FewRows | None:
    if name not in tensors:
        return None
    means, counts, n_tried = (tensors[name][part] for part in ("means", "counts", "n_tried"))
    fits = means.dim() == 2 and means.shape[1] == n_values and counts.shape == means.shape[:1]
    if not fits or not means.is_floating_point() or counts.dtype != torch.float64 or n_tried.shape != ():
        fail(where, f"{name} has means of shape {tuple(means.shape)} for {n_values} columns")
    if not (bool((counts >= 1).all()) and bool((counts == counts.round()).all()) and counts.sum() < YOUNG):
        fail(where, f"{name} has means that stand for other than a few rows each")
    if not bool(means.isfinite().all()):
        fail(where, f"{name} has means that are not finite")
    return FewRows(means, counts, int(n_tried))


def _read_calibration(value: object, where: str) -> tuple[int, Calibration]:
    if isinstance(value, dict):
        value = {"depths": [], **value}  # the first models had no histogram
    part = check_fields(value, where, _CALIBRATION)
    if any(len(pair) != 2 or pair[0] > DEEPEST_BIN for pair in part["depths"]):
        fail(f"{where}.depths", "expected pairs of a bin and a number of rows")
    return part.pop("cluster"), Calibration(**{**part, "depths": dict(part["depths"])})


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
    means, leftovers = tensors["mean"], tensors["leftover"]
    return {
        component: Imprint(rows[i], means[i].clone(), factors[i].clone(), leftovers[i].clone())
        for i, component in enumerate(components)
    }


_COUNTS: dict[str, Reader] = {
    "kind": text,
    "seed": whole,
    "n_data_sets": whole,
    "n_rows": whole,
    "n_pretrain_rows": whole,
    "graph_index": text,
    "alone_usually": number,
}
_PRIOR: dict[str, Reader] = {"concentration": number, "mean_precision": number, "dof": number}
_CALIBRATION: dict[str, Reader] = {
    "cluster": whole,
    "n_rows": number,
    "total": number,
    "total_squares": number,
    "depths": list_of(list_of(whole)),
}
_DOCUMENT: dict[str, Reader] = {
    **_COUNTS,
    **NETWORKS,
    "prior": object_of(_PRIOR),
    "components": object_of(
        {"ids": list_of(whole), "clusters": list_of(whole), "next_id": whole, "n_given": whole}
    ),
    "calibrations": list_of(_read_calibration),
}
