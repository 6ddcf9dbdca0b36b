"""Birth: fit fresh components to the points of one component, and see whether the whole mixture gains.

Paper, section 5.6 (cluster expansion): collect the points with responsibility above 0.1 and fit a mixture
with 10 fresh components to them. Smaller numbers are tried too, because ten fragments of two clusters often
find their way back to one; the best by evidence is kept.
"""

from dataclasses import replace

import torch
from torch import Tensor

from dbull.mixture.elbo import elbo_after_global_step
from dbull.mixture.moves import Proposal, SearchState, TemperedModel, refine
from dbull.mixture.posterior import merge_gaps
from dbull.mixture.settings import SearchSettings
from dbull.mixture.stats import SufficientStats
from dbull.mixture.updates import Points, local_summary, natural_parameters, summary_of, summary_under

COLLECT_RESPONSIBILITY = 0.1  # the paper's threshold for the points of a cluster
STILL = 1e-3  # share of the points that may still move when a fresh mixture counts as converged
CHECK_EVERY = 5  # steps of a fresh mixture between two looks at its bound
IMPOSSIBLE = -1e30  # log weight of a component that is not there
MIN_MASS = 1.0  # a fresh component with less than one point is empty


def propose_birth(
    state: SearchState,
    target: int,
    fresh_sizes: tuple[int, ...],
    min_rows: float,
    settings: SearchSettings,
    generator: torch.Generator,
) -> tuple[Proposal, Points] | None:
    """Propose to expand component `target`; return the proposal and its active rows, or None if nothing fits.

    One of `fresh_sizes` fresh components is fitted to its rows; those that end with fewer than `min_rows` go.
    A target without a past is replaced by its children; one with a past keeps its overall statistics and
    stays an option for every row, because its past cannot be divided.
    """
    rows, resp = state.members[target], state.member_resp[target]
    mine = torch.nonzero(resp > COLLECT_RESPONSIBILITY)[:, 0]
    if len(mine) > settings.fresh_rows:
        mine = mine[torch.randperm(len(mine), generator=generator)[: settings.fresh_rows]]
    if len(mine) < 2:
        return None
    # A row that other components explain as well counts only as much as the target has of it.
    collected = replace(state.points.take(rows[mine]), mass=resp[mine])
    scale_up = float(state.memory.current.counts[target]) / float(resp[mine].sum())
    model = TemperedModel(state.model.prior, state.model.weight * scale_up)
    has_past = bool(state.memory.established[target])
    factor, n_refine = state.used.factor[target], settings.refine_steps
    fresh = best_fresh(model, collected, factor, fresh_sizes, settings.fresh_steps, generator)
    if fresh.n_components == 1 and not has_past:
        return None
    children = fresh.scaled(scale_up)

    active = state.points.take(rows)
    current_rest = state.memory.current - local_summary(state.used, active)
    memory = state.memory.coarse()
    n_new = children.n_components - (0 if has_past else 1)
    memory.add_components(n_new)
    rest = memory.overall + current_rest.with_empty(n_new)
    # Where the children stand in the grown mixture: the first takes the slot of a target without a past.
    own, slots = torch.tensor([target]), torch.arange(memory.n_components - n_new, memory.n_components)
    if not has_past:
        slots = torch.cat([own, slots])
    # What the target has of the current data is replaced by the children.
    total = memory.total
    start = total - _placed(memory.current.select(own), own, total) + _placed(children, slots, total)
    posterior = state.model.posterior(start.without_negatives())
    total, posterior = refine(state.model, rest, active, posterior, n_refine)
    n_steps = n_refine
    alive = total.counts >= min_rows
    alive[: state.memory.n_components] = True
    if not bool(alive.all()):
        # Rows outside the active ones never saw the new components, so a small one can just be left out.
        keep = torch.nonzero(alive)[:, 0]
        memory.select(keep)
        rest = rest.select(keep)
        total, posterior = refine(state.model, rest, active, posterior.select(keep), n_refine)
        n_steps += n_refine
    memory.current = total - memory.overall
    if memory.n_components == state.memory.n_components:
        return None
    subject = (state.memory.ids[target],)
    return Proposal("birth", subject, memory, posterior, state.model.elbo(total), n_steps), active


def _placed(record: SufficientStats, slots: Tensor, like: SufficientStats) -> SufficientStats:
    """Return a record as large as `like`, empty but for the components of `record` at `slots`."""
    empty = SufficientStats.zeros(like.n_components, like.n_dims)
    return empty.each(lambda place, part: place.index_copy_(0, slots, part), record)


def best_fresh(
    model: TemperedModel,
    points: Points,
    factor: Tensor,
    fresh_sizes: tuple[int, ...],
    n_steps: int,
    generator: torch.Generator,
) -> SufficientStats:
    """Fit mixtures of several sizes, and one component, to the points alone.

    Returns the statistics of the one with the most evidence, largest component first.
    """
    best = summary_of(torch.ones(1, len(points), dtype=torch.float64), points)
    best_elbo = model.elbo(best)
    white = torch.linalg.solve_triangular(factor, points.zt, upper=False).T.contiguous()
    labels = [seed_labels(white, size, generator) for size in fresh_sizes if size < len(points)]
    for stats in fit_fresh(model, points, labels, n_steps, best_elbo) if labels else []:
        pooled = pool_redundant(model, points, stats)
        elbo = model.elbo(pooled)
        if elbo > best_elbo:
            best, best_elbo = pooled, elbo
    return best


def fit_fresh(
    model: TemperedModel, points: Points, labels: list[Tensor], n_steps: int, to_beat: float
) -> list[SufficientStats]:
    """Fit several small mixtures to the same points side by side, each from hard labels of its own.

    One leading dimension runs over the mixtures, so a step costs about as much as that of one mixture. A
    mixture that rises too slowly to reach the bound `to_beat` in the steps that are left is given up.
    """
    size = 1 + max(int(one.max()) for one in labels)
    resp = torch.nn.functional.one_hot(torch.stack(labels), size).to(torch.float64).mT  # (G, K', N)
    stats = summary_of(resp, points)
    elbo = torch.full((len(labels),), -torch.inf, dtype=torch.float64)
    for step in range(1, n_steps + 1):
        stats = _largest_first(stats)
        before = stats.counts
        theta = natural_parameters(model.posterior(stats))
        theta[..., 0].masked_fill_(before < MIN_MASS, IMPOSSIBLE)
        stats = summary_under(theta, points)
        if float((before - stats.counts).abs().max()) < STILL * len(points):
            break
        if step % CHECK_EVERY == 0 and step < n_steps:
            now = elbo_after_global_step(model.prior, _largest_first(stats).scaled(model.weight))
            promising = now + (now - elbo) * ((n_steps - step) / CHECK_EVERY) > to_beat
            if not bool(promising.any()):
                return []
            stats, elbo = stats.select(promising), now[promising]
    return [_sorted(stats.select(torch.tensor(g))) for g in range(len(stats.counts))]


def pool_redundant(model: TemperedModel, points: Points, stats: SufficientStats) -> SufficientStats:
    """Pool pairs of a small mixture, best first, while their marginal likelihood asks for it."""
    while stats.n_components > 2:
        gaps = merge_gaps(model.prior, stats.scaled(model.weight))
        a, b = divmod(int(gaps.argmax()), stats.n_components)
        if gaps[a, b] <= 0:
            break
        pooled = stats.pooled(min(a, b), max(a, b), 0.0)
        stats = _sorted(local_summary(model.posterior(_sorted(pooled)), points))
    return stats


def _largest_first(stats: SufficientStats) -> SufficientStats:
    """Order the components of each of G mixtures by size, as the stick-breaking weights want them."""
    order = torch.argsort(stats.counts, dim=-1, descending=True, stable=True)
    group = torch.arange(len(order))[:, None]
    return stats.each(lambda part: part[group, order])


def _sorted(stats: SufficientStats) -> SufficientStats:
    """Return the non-empty components, largest first."""
    order = torch.argsort(stats.counts, descending=True, stable=True)
    alive = order[stats.counts[order] >= MIN_MASS]
    return stats.select(alive if len(alive) else order[:1])


def seed_labels(white: Tensor, n_seeds: int, generator: torch.Generator, n_lloyd: int = 4) -> Tensor:
    """Return labels (N,) from k-means++ seeding and a few Lloyd steps on whitened rows (N, D)."""
    n_rows = len(white)
    first = torch.randint(n_rows, (1,), generator=generator)
    centres = white[first]
    nearest = (white - centres).square().sum(1)
    for _ in range(n_seeds - 1):
        if float(nearest.sum()) <= 0.0:  # fewer distinct rows than seeds
            break
        pick = torch.multinomial(nearest, 1, generator=generator)
        centres = torch.cat([centres, white[pick]])
        nearest = torch.minimum(nearest, (white - white[pick]).square().sum(1))
    labels = _nearest(white, centres)
    for _ in range(n_lloyd):
        counts = torch.bincount(labels, minlength=len(centres)).clamp_min(1).to(white.dtype)
        centres = torch.zeros_like(centres).index_add_(0, labels, white) / counts[:, None]
        labels = _nearest(white, centres)
    # Numbers without gaps, so that no component starts empty.
    dense: Tensor = torch.unique(labels, return_inverse=True)[1]
    return dense


def _nearest(rows: Tensor, centres: Tensor) -> Tensor:
    """Return the index of the nearest centre for each row."""
    return (centres.square().sum(1) - 2.0 * rows @ centres.T).argmin(1)
