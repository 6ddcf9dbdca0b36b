"""The rows nearest to the centre of each cluster: their keys, and the rows themselves only if asked for.

How near a row is, is told in nats below the cluster's peak, in input space, which does not move; it stays
comparable over the whole stream. Of what two data sets bring the nearest stay: a rule that is bounded, and
gives the same whatever the order of the data sets.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from dbull.codec.networks import Tensors, refusing_damage
from dbull.documents import as_text, check_fields, fail, list_of, object_of
from dbull.lifelong.novelty import cluster_peak, cluster_scores
from dbull.lifelong.state import LearnerState
from dbull.methods.listing import EXEMPLAR, EXEMPLARS, N_KEYS
from dbull.mixture.updates import log_joint

CANDIDATES = 4  # times as many as are kept are looked for among the codes, which are there already
LONGEST_KEY = 200  # characters

TENSORS = "exemplars"  # name of what is stored


@dataclass(frozen=True, eq=False)
class Exemplar:
    """A row near the centre of its cluster."""

    key: str
    depth: float  # nats below the peak of the cluster, when it came
    row: NDArray[np.float32] | None = None  # as the learner sees it


Exemplars = dict[int, tuple[Exemplar, ...]]  # by the id that the cluster had then


def keys_for(X: Any, keys: Iterable[Any] | None, arrival: int, n_rows: int) -> list[str]:
    """Return what rows are called: as given, by the index of a frame, or by arrival and row, from 1."""
    if keys is None:
        index = getattr(X, "index", None)
        if index is not None and hasattr(X, "iloc") and type(index).__name__ != "RangeIndex":
            keys = index.tolist()
    if keys is None:
        return [f"{arrival + 1}:{row + 1}" for row in range(n_rows)]
    named = [as_text(str(key))[:LONGEST_KEY] for key in keys]
    if len(named) != n_rows:
        raise ValueError(f"keys must be one for each row; got {len(named)} for {n_rows} rows.")
    return named


def nearest_rows(
    state: LearnerState, rows: torch.Tensor, codes: torch.Tensor, most: int
) -> dict[int, list[tuple[float, int]]]:
    """Return the rows nearest to the centre of each cluster, as depth and position; copies count once."""
    if not state.imprints or not state.imprints.keys() >= set(state.memory.ids):
        return {}
    scores = state.by_chunks(log_joint, codes)
    labels, candidates, found = state.assign(codes), {}, {}
    for cluster in labels.unique().tolist():
        members = (labels == cluster).nonzero()[:, 0]
        own = scores[members][:, state.cluster_of == cluster].amax(1)
        candidates[cluster] = members[own.topk(min(CANDIDATES * most, len(members))).indices]
    inputs = state.view.inputs(state.view.values(rows[torch.cat(list(candidates.values()))]))
    parts = inputs.split([len(likely) for likely in candidates.values()])
    for (cluster, likely), part in zip(candidates.items(), parts, strict=True):
        imprints = state.imprints_of(cluster)
        depths = (cluster_peak(imprints) - cluster_scores(part, imprints)).clamp_min(0.0)
        ranked = sorted(zip(depths.tolist(), likely.tolist(), strict=True))
        distinct = {depth: at for depth, at in reversed(ranked) if math.isfinite(depth)}
        found[cluster] = sorted(distinct.items())[:most]
    return found


def added(
    before: Mapping[int, tuple[Exemplar, ...]],
    model: Any,
    rows: torch.Tensor,
    codes: torch.Tensor,
    keys: Sequence[str],
) -> Exemplars:
    """Return the exemplars of all that was learned; rows are kept for as many as the model is asked to."""
    most = max(N_KEYS, model.keep_exemplars)
    return joined(before, found_in(model, rows, codes, keys), most, model.keep_exemplars)


def found_in(model: Any, rows: torch.Tensor, codes: torch.Tensor, keys: Sequence[str]) -> Exemplars:
    """Return the exemplars of rows and their codes alone."""
    most = max(N_KEYS, model.keep_exemplars)
    return {
        cluster: tuple(
            Exemplar(keys[at], depth, rows[at].float().numpy().copy() if model.keep_exemplars else None)
            for depth, at in nearest
        )
        for cluster, nearest in nearest_rows(model.state_, rows, codes, most).items()
    }


def joined(
    before: Mapping[int, tuple[Exemplar, ...]],
    new: Mapping[int, tuple[Exemplar, ...]],
    most: int,
    n_rows: int,
) -> Exemplars:
    """Return the nearest of both; those of clusters that have no new ones stay as they are."""
    after = dict(before)
    for cluster, ones in new.items():
        after[cluster] = nearest_of([*before.get(cluster, ()), *ones], most, n_rows)
    return after


def nearest_of(candidates: Iterable[Exemplar], most: int, n_rows: int) -> tuple[Exemplar, ...]:
    """Return the nearest, each key once; the first `n_rows` of them with their rows."""
    best: dict[str, Exemplar] = {}
    for one in sorted(candidates, key=lambda one: (one.depth, one.key)):
        best.setdefault(one.key, one)
    chosen = list(best.values())[:most]
    return (*chosen[:n_rows], *(Exemplar(one.key, one.depth) for one in chosen[n_rows:]))


def of_cluster(model: Any, cluster: int) -> tuple[Exemplar, ...]:
    """Return the exemplars of a cluster, those of what was merged into it among them."""
    kept: Exemplars = getattr(model, "exemplars_", {})
    ledger = model.state_.ledger
    parts = [one for old, ones in kept.items() if int(ledger.resolve([old])[0]) == cluster for one in ones]
    return nearest_of(parts, max(N_KEYS, model.keep_exemplars), model.keep_exemplars)


def pack_exemplars(model: Any) -> tuple[dict[str, dict[str, torch.Tensor]], dict[str, Any]]:
    """Return exemplars as a document, and the rows among them as a tensor."""
    kept: Exemplars = getattr(model, "exemplars_", {})
    if not kept:
        return {}, {}
    listed = [
        {"cluster": cluster, "key": one.key, "depth": one.depth, "row": one.row is not None}
        for cluster, ones in kept.items()
        for one in ones
    ]
    rows = [one.row for ones in kept.values() for one in ones if one.row is not None]
    tensors = {TENSORS: {"rows": torch.from_numpy(np.stack(rows))}} if rows else {}
    return tensors, {EXEMPLARS: {"exemplars": listed}}


def unpack_exemplars(
    tensors: Tensors, documents: Mapping[str, Any], state: LearnerState, where: str
) -> Exemplars:
    """Return what `pack_exemplars` was given; none of models that kept none."""
    if EXEMPLARS not in documents:
        return {}
    with refusing_damage(where):
        listed = check_fields(documents[EXEMPLARS], where, {"exemplars": list_of(object_of(EXEMPLAR))})
        rows = tensors.get(TENSORS, {}).get("rows", torch.zeros(0, state.vae.shape.n_values))
        n_rows = sum(one["row"] for one in listed["exemplars"])
        if rows.dtype != torch.float32 or rows.shape != (n_rows, state.vae.shape.n_values):
            fail(where, f"rows of shape {tuple(rows.shape)} for {n_rows} exemplars with rows")
        found: dict[int, list[Exemplar]] = {}
        kept = iter(rows.numpy())
        for one in listed["exemplars"]:
            if one["cluster"] not in state.ledger or one["depth"] < 0:
                fail(where, f"an exemplar of cluster {one['cluster']} that cannot be")
            row = next(kept) if one["row"] else None
            found.setdefault(one["cluster"], []).append(Exemplar(one["key"], one["depth"], row))
    return {cluster: tuple(ones) for cluster, ones in found.items()}
