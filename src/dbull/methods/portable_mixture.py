"""Memory and posterior of a mixture as named tensors and plain values, and back, to the bit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from dbull.lifelong.records import Reader, fail, list_of, whole
from dbull.mixture.memory import StatsMemory
from dbull.mixture.posterior import MixturePosterior
from dbull.mixture.stats import SufficientStats
from dbull.probability.normal_wishart import NormalWishart, cholesky_scale_inv
from dbull.probability.stick_breaking import StickBreaking

__all__ = ["COMPONENTS", "pack_mixture", "unpack_mixture"]

COMPONENTS: dict[str, Reader] = {"ids": list_of(whole), "n_given": whole}


def pack_mixture(
    memory: StatsMemory, posterior: MixturePosterior
) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Return the tensors and the plain values of a mixture between two data sets."""
    overall, components, sticks = memory.overall, posterior.components, posterior.sticks
    tensors = {
        "counts": overall.counts,
        "sum_z": overall.sum_z,
        "sum_zz": overall.sum_zz,
        "entropy": overall.entropy,
        "mean": components.mean,
        "mean_precision": components.mean_precision,
        "dof": components.dof,
        "scale_inv": components.scale_inv,
        "stick_on": sticks.on,
        "stick_off": sticks.off,
    }
    return tensors, {"ids": list(memory.ids), "n_given": memory.n_given}


def unpack_mixture(
    tensors: Mapping[str, Tensor], told: Mapping[str, Any], n_dims: int, ids_given: int, where: str
) -> tuple[StatsMemory, MixturePosterior]:
    """Return what `pack_mixture` was given; no id below `ids_given` is given again."""
    ids = tuple(told["ids"])
    K, D = len(ids), n_dims
    shapes = {
        **dict.fromkeys(("counts", "entropy", "mean_precision", "dof", "stick_on", "stick_off"), (K,)),
        **dict.fromkeys(("sum_z", "mean"), (K, D)),
        **dict.fromkeys(("sum_zz", "scale_inv"), (K, D, D)),
    }
    for name, shape in shapes.items():
        if tensors[name].shape != shape or tensors[name].dtype != torch.float64:
            fail(where, f"{name} is {tensors[name].dtype} {tuple(tensors[name].shape)}, not float64 {shape}")
    if not ids or len(set(ids)) != K or max(ids) >= told["n_given"]:
        fail(where, "the ids of components do not agree with how many were given")
    n_given = max(told["n_given"], ids_given)
    memory = StatsMemory(
        [],
        SufficientStats.zeros(K, D),
        SufficientStats(*(tensors[name] for name in ("counts", "sum_z", "sum_zz", "entropy"))),
        ids,
        torch.ones(K, dtype=torch.bool),
        n_given,
        n_given,
    )
    components = NormalWishart(*(tensors[name] for name in ("mean", "mean_precision", "dof", "scale_inv")))
    sticks = StickBreaking(tensors["stick_on"], tensors["stick_off"])
    return memory, MixturePosterior(sticks, components, cholesky_scale_inv(components))
