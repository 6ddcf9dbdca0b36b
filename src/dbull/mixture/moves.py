"""A move proposes; one function accepts.

A proposal is a complete state of the mixture, before it is known whether it is better. To keep a proposal
cheap only the *active* rows (those that care about the components in question) are assigned again; all
other rows keep the responsibilities they have, and their statistics are what remains when the active rows
are taken out. The bound of such a state is exact, so proposals may be compared with the present state.
"""

from dataclasses import dataclass

from torch import Tensor

from dbull.mixture.elbo import elbo_after_global_step
from dbull.mixture.memory import StatsMemory
from dbull.mixture.posterior import MixturePosterior, global_step
from dbull.mixture.prior import MixturePrior
from dbull.mixture.stats import SufficientStats
from dbull.mixture.updates import Points, local_summary, memberships

ACTIVE_RESPONSIBILITY = 0.01  # rows below this for a component keep their assignment while it is changed
TOLERANCE = 1e-9  # relative; a gain smaller than this is rounding


@dataclass(frozen=True)
class TemperedModel:
    """The prior, and how much each observation counts when structure is decided (a power posterior)."""

    prior: MixturePrior
    weight: float = 1.0

    def posterior(self, total: SufficientStats) -> MixturePosterior:
        """Return the posterior from weighted statistics."""
        return global_step(self.prior, total.scaled(self.weight))

    def elbo(self, total: SufficientStats) -> float:
        """Return the bound for weighted statistics right after a global step."""
        return float(elbo_after_global_step(self.prior, total.scaled(self.weight)))


@dataclass(frozen=True)
class SearchState:
    """A state in which every record of the memory was made under one and the same posterior.

    Only then can the contribution of some rows be taken out of the statistics exactly.
    """

    model: TemperedModel
    memory: StatsMemory
    points: Points
    used: MixturePosterior  # the posterior under which the memory's current record was made
    elbo: float
    members: tuple[Tensor, ...]  # per component: rows with more than ACTIVE_RESPONSIBILITY
    member_resp: tuple[Tensor, ...]  # and how much


@dataclass(frozen=True)
class Proposal:
    """A state that might replace the present one."""

    kind: str  # "birth", "merge" or "dissolve"
    subjects: tuple[int, ...]  # ids of the components it starts from
    memory: StatsMemory
    posterior: MixturePosterior
    elbo: float
    n_steps: int  # of refinement that it had
    required: bool = False  # a rule asks for it, whatever the bound says (a component is too small to stand)


@dataclass(frozen=True)
class MoveRecord:
    """What became of a proposal."""

    kind: str
    subjects: tuple[int, ...]
    born: tuple[int, ...]
    gone: tuple[int, ...]
    elbo_before: float
    elbo_after: float
    accepted: bool


def state_under(
    model: TemperedModel, memory: StatsMemory, points: Points, used: MixturePosterior
) -> SearchState:
    """Look up which rows care about which component, for a memory that was made under `used`."""
    members, member_resp = memberships(used, points, ACTIVE_RESPONSIBILITY)
    return SearchState(model, memory, points, used, model.elbo(memory.total), members, member_resp)


def refine(
    model: TemperedModel, rest: SufficientStats, active: Points, posterior: MixturePosterior, n_steps: int
) -> tuple[SufficientStats, MixturePosterior]:
    """Alternate local and global steps on the active rows while all other rows stay as they are.

    Returns the total statistics and the posterior made from them.
    """
    total = rest
    for _ in range(n_steps):
        total = (rest + local_summary(posterior, active)).without_negatives()
        posterior = model.posterior(total)
    return total, posterior


def accept(state: SearchState, proposal: Proposal, active: Points) -> MoveRecord:
    """Decide about a proposal: it must beat the present state *after the same refinement*.

    Without that, mere refinement of a state that has not converged would make every move look good.
    """
    before = state.elbo
    slack = TOLERANCE * abs(before)
    better = proposal.required or proposal.elbo > before + slack
    if better and not proposal.required:
        rest = state.memory.total - local_summary(state.used, active)
        posterior = state.model.posterior(state.memory.total)
        total, _ = refine(state.model, rest, active, posterior, proposal.n_steps)
        before = max(before, state.model.elbo(total))
        better = proposal.elbo > before + slack
    return MoveRecord(
        proposal.kind,
        proposal.subjects,
        tuple(i for i in proposal.memory.ids if i not in state.memory.ids),
        tuple(i for i in state.memory.ids if i not in proposal.memory.ids),
        before,
        proposal.elbo,
        better,
    )
