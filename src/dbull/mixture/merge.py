"""Merge and dissolve: redundancy removal.

A merge pools two components and lets all rows that care about them settle for a few steps *before* the
bound is compared (a refined merge): fragments of one cluster are often stuck because no single pair of them
improves the bound as it is. Two components that both have a past are never merged: the entropy of their
pooled past is unknowable once the data are gone, and with a newborn partner it is known exactly (the
newborn has no past mass).
"""

import torch
from torch import Tensor

from dbull.mixture.memory import StatsMemory
from dbull.mixture.moves import Proposal, SearchState, refine
from dbull.mixture.posterior import MixturePosterior, merge_gaps
from dbull.mixture.stats import SufficientStats
from dbull.mixture.updates import Points, local_summary


def merge_candidates(state: SearchState, n_pairs: int) -> list[tuple[int, int]]:
    """Return up to `n_pairs` pairs that may be merged, best marginal-likelihood gap first.

    Pairs with a negative gap too: refinement may still make the merge worth while.
    """
    weighted = state.memory.total.scaled(state.model.weight)
    gaps = merge_gaps(state.model.prior, weighted).triu(1)
    old = state.memory.established
    pairs = torch.nonzero((~(old[:, None] & old[None, :])).triu(1))
    if not len(pairs):
        return []
    order = torch.argsort(gaps[pairs[:, 0], pairs[:, 1]], descending=True, stable=True)[:n_pairs]
    return [(int(a), int(b)) for a, b in pairs[order].tolist()]


def propose_merge(state: SearchState, a: int, b: int, n_refine: int) -> tuple[Proposal, Points]:
    """Propose to pool components a and b; the one with a past, or else the larger, keeps its id."""
    counts, old = state.memory.total.counts, state.memory.established
    keep, drop = (b, a) if (bool(old[b]), float(counts[b])) > (bool(old[a]), float(counts[a])) else (a, b)
    active = state.points.take(torch.unique(torch.cat([state.members[a], state.members[b]])))
    current_rest = state.memory.current - local_summary(state.used, active)
    # Inactive rows have r_a + r_b below 2 * ACTIVE_RESPONSIBILITY < 1/e, where -r log r rises, so the larger
    # of the two entropies bounds the pooled one from below: the bound stays a bound.
    entropy = torch.maximum(current_rest.entropy[a], current_rest.entropy[b]).clamp_min(0.0)
    total = state.memory.total
    pooled = total.pooled(keep, drop, total.entropy[keep])
    # The dropped component is newborn or both are: its past is empty, or their pasts are.
    rest = current_rest.pooled(keep, drop, entropy)
    settled = _refined_without(state, drop, rest, pooled, active, n_refine)
    subjects = (state.memory.ids[keep], state.memory.ids[drop])
    return Proposal("merge", subjects, *settled, n_refine), active


def propose_dissolution(state: SearchState, target: int, n_refine: int) -> tuple[Proposal, Points]:
    """Require that newborn component `target`, too small to stand, leaves its rows to the others."""
    rows = state.members[target]
    active = state.points.take(rows)
    current_rest = state.memory.current - local_summary(state.used, active)
    heir = _nearest_component(state, target)
    # The heir may hold any share x of an inactive row. -(x + e) log(x + e) >= -x log x - e for x + e <= 1, so
    # this bounds the pooled entropy from below.
    entropy = (current_rest.entropy[heir] - current_rest.counts[target]).clamp_min(0.0)
    # What inactive rows left in the target goes to its nearest neighbour, whole.
    rest = current_rest.pooled(heir, target, entropy)
    others = state.memory.total.select(torch.arange(state.memory.n_components) != target)
    settled = _refined_without(state, target, rest, others, active, n_refine)
    return Proposal("dissolve", (state.memory.ids[target],), *settled, n_refine, required=True), active


def _refined_without(
    state: SearchState, drop: int, rest: SufficientStats, start: SufficientStats, active: Points, n_steps: int
) -> tuple[StatsMemory, MixturePosterior, float]:
    """Return memory, posterior and bound without a component, after the active rows settled from `start`."""
    memory = state.memory.coarse()
    memory.select(torch.nonzero(torch.arange(memory.n_components) != drop)[:, 0])
    posterior = state.model.posterior(start)
    total, posterior = refine(state.model, memory.overall + rest, active, posterior, n_steps)
    memory.current = total - memory.overall
    return memory, posterior, state.model.elbo(total)


def _nearest_component(state: SearchState, target: int) -> int:
    """Return the component whose mean is nearest to the target's in the target's own metric."""
    c = state.used.components
    diff = c.mean - c.mean[target]
    white = torch.linalg.solve_triangular(state.used.factor[target], diff.T, upper=False)
    distance: Tensor = white.square().sum(0)
    distance[target] = torch.inf
    return int(distance.argmin())
