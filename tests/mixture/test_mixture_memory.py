"""Three-level memory: whatever happens to it, it equals a recomputation from all rows ever seen."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from records import assert_same
from ten_points import make_case

from dbull.mixture.memory import StatsMemory
from dbull.mixture.posterior import global_step
from dbull.mixture.stats import SufficientStats
from dbull.mixture.updates import Points, local_summary, summarize

D = 2


def summary(z, r):
    """Statistics for responsibilities that may be zero (and need not sum to one)."""
    with np.errstate(divide="ignore"):
        return summarize(torch.tensor(np.log(r)), Points.from_rows(torch.tensor(z)))


class Shadow:
    """Keeps every row and responsibility that the memory is allowed to forget."""

    def __init__(self, rng):
        self.rng = rng
        self.ids, self.old = [], []
        self.past = []  # (rows, responsibilities) of folded data sets
        self.now = []  # the same for the mini-batches in memory

    def columns(self, index):
        self.ids = [self.ids[i] for i in index]
        self.old = [self.old[i] for i in index]
        self.past = [(z, r[:, index]) for z, r in self.past]
        self.now = [(z, r[:, index]) for z, r in self.now]

    def grow(self, ids):
        pad = lambda r: np.concatenate([r, np.zeros((len(r), len(ids)))], 1)  # noqa: E731
        self.ids += ids
        self.old += [False] * len(ids)
        self.past = [(z, pad(r)) for z, r in self.past]
        self.now = [(z, pad(r)) for z, r in self.now]

    def responsibilities(self, n_rows):
        return self.rng.dirichlet(np.full(len(self.ids), 0.5), n_rows)

    @staticmethod
    def sum(pairs, n_components):
        total = SufficientStats.zeros(n_components, D)
        for z, r in pairs:
            total = total + summary(z, r)
        return total

    def check(self, memory):
        K = len(self.ids)
        assert list(memory.ids) == self.ids
        assert memory.established.tolist() == self.old
        assert_same(memory.overall, self.sum(self.past, K))
        assert_same(memory.current, self.sum(self.now, K))
        assert_same(memory.total, self.sum(self.past + self.now, K))
        for record, pair in zip(memory.batches, self.now, strict=True):
            assert_same(record, self.sum([pair], K))


OPERATIONS = st.lists(
    st.tuples(
        st.sampled_from(["visit", "grow", "drop", "sort", "rebuild", "fold", "refill"]), st.integers(0, 50)
    ),
    min_size=1,
    max_size=25,
)


@settings(max_examples=30)
@given(operations=OPERATIONS, seed=st.integers(0, 10_000))
def test_random_operations_equal_recomputation(operations, seed):
    rng = np.random.default_rng(seed)
    memory, shadow = StatsMemory.empty(D), Shadow(rng)
    given_for_good = set()

    def new_data_set():
        shadow.now = []
        for n in (3, 4, 2):
            z = rng.normal(size=(n, D))
            shadow.now.append((z, shadow.responsibilities(n)))
        memory.refill([summary(z, r) for z, r in shadow.now])

    memory.add_components(2)
    shadow.grow([0, 1])
    new_data_set()
    for name, number in operations:
        if name == "visit":
            i = number % 3
            z = shadow.now[i][0]
            r = shadow.responsibilities(len(z))
            shadow.now[i] = (z, r)
            memory.replace_batch(i, summary(z, r))
        elif name == "refill":
            shadow.now = [(z, shadow.responsibilities(len(z))) for z, _ in shadow.now]
            memory.refill([summary(z, r) for z, r in shadow.now])
        elif name == "grow":
            n_new = 1 + number % 3
            shadow.grow(list(range(memory.next_id, memory.next_id + n_new)))
            memory.add_components(n_new)
        elif name == "drop" and len(shadow.ids) > 1:
            gone = number % len(shadow.ids)
            index = [i for i in range(len(shadow.ids)) if i != gone]
            shadow.columns(index)
            memory.select(torch.tensor(index))
        elif name == "sort":
            memory.sort_by_size()
            shadow.columns([shadow.ids.index(i) for i in memory.ids])
            assert memory.total.counts.tolist() == sorted(memory.total.counts.tolist(), reverse=True)
        elif name == "rebuild":
            memory.refill(memory.batches)
        elif name == "fold":
            n_given = memory.n_given
            memory.sort_by_size()
            shadow.columns([shadow.ids.index(i) for i in memory.ids])
            memory.fold()
            newborn = [i for i in shadow.ids if i >= n_given]
            renamed = dict(zip(newborn, range(n_given, n_given + len(newborn)), strict=True))
            shadow.ids = [renamed.get(i, i) for i in shadow.ids]
            shadow.old = [True] * len(shadow.ids)
            shadow.past += shadow.now
            shadow.now = []
            assert not set(renamed.values()) & given_for_good  # an id is given once in a lifetime
            given_for_good |= set(memory.ids)
            shadow.check(memory)
            new_data_set()
        shadow.check(memory)


def test_batch_swap_is_recomputation():
    """Visiting a mini-batch again takes its old record out exactly."""
    case, other = make_case(1, 12), make_case(2, 12)
    posteriors = [global_step(c.prior, c.stats) for c in (case, other)]
    batches = case.points.batches(3)
    memory = StatsMemory.empty(D)
    memory.add_components(3)
    memory.refill([local_summary(posteriors[0], b) for b in batches])
    for i in (1, 0, 1):
        memory.replace_batch(i, local_summary(posteriors[1], batches[i]))
    direct = SufficientStats.total([local_summary(posteriors[int(i < 2)], b) for i, b in enumerate(batches)])
    assert_same(memory.current, direct)
    assert float(memory.total.counts.sum()) == pytest.approx(12.0)


def test_two_streams_are_one_shot():
    """With fixed responsibilities the posterior after two data sets is the posterior of both at once."""
    case = make_case(3, 20)
    r = case.r[:, np.argsort(-case.r.sum(0))]
    memory = StatsMemory.empty(D)
    memory.add_components(3)
    memory.refill([summary(case.z[:5], r[:5]), summary(case.z[5:8], r[5:8])])
    memory.fold()
    columns = list(np.argsort(-r[:8].sum(0)))  # folding put the components in order of size
    assert memory.ids == (0, 1, 2)
    memory.refill([summary(case.z[8:], r[8:][:, columns])])
    got = global_step(case.prior, memory.total)
    once = global_step(case.prior, summary(case.z, r[:, columns]))
    torch.testing.assert_close(got.components.mean, once.components.mean)
    torch.testing.assert_close(got.components.scale_inv, once.components.scale_inv)
    torch.testing.assert_close(got.components.dof, once.components.dof)
    torch.testing.assert_close(got.sticks.off, once.sticks.off)


def test_fold_names_newborns_by_size_without_gaps():
    memory = StatsMemory.empty(1)
    memory.add_components(5)
    z = np.zeros((1, 1))
    memory.refill([summary(z, np.array([[1.0, 5.0, 3.0, 4.0, 2.0]]))])
    memory.select(torch.tensor([4, 1, 3]))  # two came and went; sizes 2, 5, 4
    memory.fold()
    assert memory.ids == (0, 1, 2)
    assert memory.total.counts.tolist() == pytest.approx([5.0, 4.0, 2.0])
    memory.add_components(2)
    assert memory.ids == (0, 1, 2, 3, 4)
    memory.refill([summary(z, np.array([[0.0, 0.0, 9.0, 0.0, 20.0]]))])
    memory.select(torch.tensor([0, 1, 2, 4]))
    memory.fold()
    assert memory.ids == (3, 2, 0, 1)  # largest first; old ones keep their names
    assert memory.total.counts.tolist() == pytest.approx([20.0, 11.0, 5.0, 4.0])
    assert memory.next_id == 4


def test_rounding_below_zero_is_cleared():
    """A component that lost all it had does not end with a negative count or entropy."""
    z = np.array([[0.1, 0.2], [0.3, -0.7], [1.7, 3.1]])
    memory = StatsMemory.empty(D)
    memory.add_components(2)
    a = np.array([[0.1, 0.9], [0.7, 0.3], [0.2, 0.8]])
    b = np.array([[0.0, 1.0], [0.0, 1.0], [0.0, 1.0]])
    memory.refill([summary(z[[i]], a[[i]]) for i in range(3)])
    for i in range(3):
        memory.replace_batch(i, summary(z[[i]], b[[i]]))
    assert float(memory.current.counts[0]) != 0.0  # the rounding is there
    assert bool((memory.total.counts >= 0).all())
    assert bool((memory.total.entropy >= 0).all())
    memory.refill(memory.batches)
    assert float(memory.current.counts[0]) == 0.0


def test_a_proposal_does_not_touch_the_present():
    """Structure changes on a coarse copy leave the memory it was made from as it was."""
    case = make_case(5)
    memory = StatsMemory.empty(D)
    memory.add_components(3)
    memory.refill([case.stats])
    before, ids = memory.total, memory.ids
    copy = memory.coarse()
    copy.add_components(2)
    copy.select(torch.tensor([4, 0]))
    copy.current = copy.current + copy.current
    assert memory.ids == ids
    assert memory.n_components == 3
    assert_same(memory.total, before)
    assert len(memory.batches) == 1


def test_stats_add_subtract_scale():
    a, b = make_case(6).stats, make_case(7).stats
    assert_same(a + b - b, a)
    assert_same(a.scaled(3.0), a + a + a)
    assert_same(a.concat(b).select(torch.tensor([3, 4, 5])), b)
    assert_same(a.with_empty(2).select(torch.tensor([0, 1, 2])), a)
    assert float(a.with_empty(2).counts[3:].sum()) == 0.0
