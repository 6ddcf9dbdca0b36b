"""Memory and posterior of a mixture between two data sets, as named tensors, and back, to the bit."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from dbull.documents import fail
from dbull.mixture.memory import StatsMemory
from dbull.mixture.posterior import MixturePosterior
from dbull.mixture.stats import SufficientStats
from dbull.probability.normal_wishart import NormalWishart, cholesky_scale_inv
from dbull.probability.stick_breaking import StickBreaking

STATISTICS = ("counts", "sum_z", "sum_zz", "entropy")
COMPONENTS = ("mean", "mean_precision", "dof", "scale_inv")


def pack_memory(memory: StatsMemory) -> dict[str, Tensor]:
    """Return the statistics of everything seen; ids are for a document."""
    return {name: getattr(memory.overall, name) for name in STATISTICS}


def unpack_memory(
    tensors: Mapping[str, Tensor], ids: Sequence[int], next_id: int, n_given: int, n_dims: int, where: str
) -> StatsMemory:
    """Return the memory with these statistics and ids."""
    K, D = len(ids), n_dims
    _check_shapes(tensors, dict(zip(STATISTICS, [(K,), (K, D), (K, D, D), (K,)], strict=True)), where)
    if len(set(ids)) != K or max(ids, default=-1) >= n_given or next_id < n_given:
        fail(where, "the ids of components do not agree with how many were given")
    return StatsMemory(
        [],
        SufficientStats.zeros(K, D),
        SufficientStats(*(tensors[name] for name in STATISTICS)),
        tuple(ids),
        torch.ones(K, dtype=torch.bool),
        next_id,
        n_given,
    )


def pack_posterior(posterior: MixturePosterior) -> dict[str, Tensor]:
    """Return the factors of sticks and components."""
    components = {name: getattr(posterior.components, name) for name in COMPONENTS}
    return {**components, "stick_on": posterior.sticks.on, "stick_off": posterior.sticks.off}


def unpack_posterior(
    tensors: Mapping[str, Tensor], n_components: int, n_dims: int, where: str
) -> MixturePosterior:
    """Return what `pack_posterior` was given."""
    K, D = n_components, n_dims
    shapes = dict(zip(COMPONENTS, [(K, D), (K,), (K,), (K, D, D)], strict=True))
    _check_shapes(tensors, {**shapes, "stick_on": (K,), "stick_off": (K,)}, where)
    components = NormalWishart(*(tensors[name] for name in COMPONENTS))
    sticks = StickBreaking(tensors["stick_on"], tensors["stick_off"])
    return MixturePosterior(sticks, components, cholesky_scale_inv(components))


def _check_shapes(tensors: Mapping[str, Tensor], shapes: dict[str, tuple[int, ...]], where: str) -> None:
    for name, shape in shapes.items():
        found = tensors[name]
        if found.shape != shape or found.dtype != torch.float64:
            fail(where, f"{name} is {found.dtype} {tuple(found.shape)} instead of float64 {shape}")
