"""What blocks add is what all rows together are: sketches, sums in one order, samples, and who is strange."""

from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dbull.lifelong.blocks import MOST_STRANGE, StrangeRows, gathered, tickets
from dbull.lifelong.past import FEWEST_ROWS, IMPRINT_RANK, imprint_of
from dbull.lifelong.settings import GraphSettings
from dbull.lifelong.sketches import Sketch, Tree, pooled_shape_of, summed

ROWS = torch.randn(900, 12, generator=torch.Generator().manual_seed(0)) @ torch.diag(
    torch.linspace(0.2, 3, 12)
)


class Words(str):
    """Texts whose sum shows the order in which it was made."""

    def __add__(self, other):
        return Words(f"({self} {other})")


@given(st.integers(1, 40))
def test_a_tree_keeps_the_order_and_holds_few(n):
    tree = Tree()
    for i in range(n):
        tree.add(Words(i))
    assert str(tree.total).replace("(", "").replace(")", "").split() == [str(i) for i in range(n)]
    assert len(tree._parts) <= n.bit_length()


def test_a_tree_adds_in_pairs():
    assert str(summed(map(Words, "abcde"))) == "(((a b) (c d)) e)"
    assert summed([]) is None


@given(st.lists(st.integers(1, 899), max_size=6))
def test_sketches_of_parts_have_the_moments_of_all_rows(cuts):
    edges = sorted({0, *cuts, len(ROWS)})
    parts = [ROWS[a:b] for a, b in pairwise(edges)]
    whole = summed(map(Sketch.of, parts))
    wide = ROWS.double()
    assert whole.n_rows == len(ROWS)
    torch.testing.assert_close(whole.mean, wide.mean(0))
    torch.testing.assert_close(whole.variance, wide.var(0, correction=0))
    # Twelve directions fit into a sketch, so that its covariance is exact.
    covariance = wide.T.cov(correction=0)
    spread = whole.spread.double()
    torch.testing.assert_close(spread.T @ spread, covariance, rtol=1e-4, atol=1e-4)
    reference, mine = imprint_of(ROWS, IMPRINT_RANK), whole.imprint(pooled_shape_of([whole], 12))
    torch.testing.assert_close(mine.variance, reference.variance, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(
        mine.factor.T @ mine.factor, reference.factor.T @ reference.factor, rtol=1e-3, atol=1e-3
    )


def test_few_distinct_rows_have_no_shape_of_their_own_however_they_come():
    some = ROWS[: FEWEST_ROWS - 1].repeat(5, 1)
    few = summed(Sketch.of(part) for part in some.split(7))
    shape = pooled_shape_of([Sketch.of(ROWS)], 12)
    assert not few.has_shape
    assert torch.equal(few.imprint(shape).factor, shape.factor)
    assert (few + Sketch.of(ROWS[FEWEST_ROWS : FEWEST_ROWS + 1])).has_shape
    assert pooled_shape_of([few], 12).leftover.eq(1).all()


def test_tickets_are_those_of_the_row_whoever_reads_it():
    whole = tickets(3, 5, 0, 1000)
    assert torch.equal(whole[400:700], tickets(3, 5, 400, 300))
    assert len(whole.unique()) == 1000
    assert not torch.equal(whole, tickets(3, 6, 0, 1000))
    assert not torch.equal(whole, tickets(4, 5, 0, 1000))
    share = (tickets(0, 0, 0, 100_000).double() / 2**63 < 0.1).double().mean()
    assert float(share) == pytest.approx(0.1, abs=0.005)


def test_strange_rows_that_are_kept_do_not_depend_on_how_they_were_added():
    n = 3 * MOST_STRANGE
    numbers = torch.Generator().manual_seed(1)
    rows = StrangeRows(
        torch.arange(n)[:, None], torch.rand(n, generator=numbers).double(), tickets(0, 0, 0, n)
    )
    cut = [StrangeRows(*(part[i : i + 500] for part in vars(rows).values())) for i in range(0, n, 500)]
    once, parts = rows.fewest(), summed(part.fewest() for part in cut)
    assert sorted(once.rows[:, 0].tolist()) == sorted(parts.rows[:, 0].tolist())
    assert len(once.rows) <= MOST_STRANGE
    assert set(rows.depths.topk(MOST_STRANGE // 2).indices.tolist()) <= set(once.rows[:, 0].tolist())


def test_those_who_keep_to_themselves_are_gathered_and_outskirts_are_not():
    rng = np.random.default_rng(0)
    usual = torch.from_numpy(rng.normal(size=(3000, 6))).float()
    outskirts = torch.nn.functional.normalize(torch.from_numpy(rng.normal(size=(60, 6))).float()) * 6
    alone = torch.from_numpy(rng.uniform(-90, 90, size=(12, 6))).float()
    new = torch.from_numpy(rng.normal(size=(40, 6))).float() * 0.3 + 9
    numbers = torch.Generator().manual_seed(0)
    strange = torch.cat([outskirts, alone, new])
    assert gathered(strange, usual, 3000, GraphSettings(), numbers).tolist() == list(range(72, 112))
    assert len(gathered(strange[:72], usual, 3000, GraphSettings(), numbers)) == 0
    # Rows that lie among usual ones, of which the arrival has many more than are here.
    beside = torch.from_numpy(rng.normal(size=(40, 6))).float() * 0.5 + 1.1
    assert len(gathered(beside, usual, 3000, GraphSettings(), numbers)) > 25
    assert len(gathered(beside, usual, 30_000, GraphSettings(), numbers)) == 0
    copies = torch.cat([outskirts, new[:3].repeat(20, 1)])
    assert len(gathered(copies, usual, 3000, GraphSettings(), numbers)) == 0
    assert len(gathered(new[:1], usual, 3000, GraphSettings(), numbers)) == 0
