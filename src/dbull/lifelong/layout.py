"""Codes of many rows laid out along their graph: the forces of `neighbourhood.lay_out`, shared by threads.

There an edge that is drawn moves both its ends, one edge after the other. Here each row draws its own edges
and moves alone, as often and as far on average, so chunks of rows do not depend on each other. Chunks have
random numbers of their own: the same places, to the bit, whatever the number of threads.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import csr_array
from torch import Tensor

from dbull.lifelong.neighbourhood import (
    N_OPPONENTS,
    N_REPELLED,
    PUSHED_ROWS,
    STEP,
    NeighbourGraph,
    push,
)
from dbull.threads import mapped

CHUNK_ROWS = 8192  # moved at once
TICKETS = 1 << 16  # of an edge of weight 1


@dataclass(frozen=True)
class Edges:
    """The edges of each row of a graph, one row after the other; each edge is there for both its ends."""

    starts: NDArray[np.int64]  # (N + 1,)
    others: NDArray[np.int32]  # (E,) the other end
    tickets: NDArray[np.uint16]  # (E,) of TICKETS - 1 with which the edge is drawn

    @classmethod
    def of(cls, graph: NeighbourGraph) -> Edges:
        """Return the fuzzy union a + b - a * b of the weights that both ends give an edge (UMAP, 3.1)."""
        n_rows, k = graph.neighbours.shape
        starts = np.arange(0, n_rows * k + 1, k, dtype=np.int32)
        others = graph.neighbours.flatten().to(torch.int32).numpy()
        # A copy: the order of neighbours is changed in place.
        directed = csr_array((graph.weights.flatten().numpy().copy(), others, starts), (n_rows, n_rows))
        directed.sort_indices()
        back = directed.T.tocsr()
        union = directed + back - directed * back
        tickets = np.rint(union.data * (TICKETS - 1)).astype(np.uint16)
        return cls(union.indptr.astype(np.int64), union.indices, tickets)


def lay_out_many(
    graph: NeighbourGraph, start: Tensor, n_held: int, n_rounds: int, generator: torch.Generator
) -> Tensor:
    """Return codes (N, D) of all rows: neighbours together, others apart; the last `n_held` stay."""
    edges, n_free = Edges.of(graph), len(start) - n_held
    seed = int(torch.randint(2**31, (1,), generator=generator))
    codes = start.T.contiguous()  # (D, N): sums over the edges of a row run along memory
    chunks = [(a, min(a + CHUNK_ROWS, n_free)) for a in range(0, n_free, CHUNK_ROWS)]
    for done in range(n_rounds):
        opponents = codes[:, torch.randint(len(start), (N_OPPONENTS,), generator=generator)].T
        move = partial(_moved, edges, codes, opponents, STEP * (1 - done / n_rounds), (seed, done))
        codes = torch.cat([*mapped(move, chunks), codes[:, n_free:]], dim=1)
    return codes.T.contiguous()


def _moved(
    edges: Edges, codes: Tensor, opponents: Tensor, step: float, seed: tuple[int, int], chunk: tuple[int, int]
) -> Tensor:
    """Return where the rows of a chunk go from their codes, (D, n)."""
    numbers = np.random.Generator(np.random.SFC64([*seed, chunk[0]]))
    mine = codes[:, slice(*chunk)]
    pull, n_drawn = _pull(edges, codes, chunk, numbers)
    apart = torch.cat([push(part, opponents) for part in mine.T.split(PUSHED_ROWS)]).T
    return mine + step * (apart * (N_REPELLED / N_OPPONENTS * n_drawn) - pull)


def _pull(
    edges: Edges, codes: Tensor, chunk: tuple[int, int], numbers: np.random.Generator
) -> tuple[Tensor, Tensor]:
    """Return how far rows of a chunk are from those whose edges they draw, (D, n), and how many those are."""
    first, last = edges.starts[chunk[0]], edges.starts[chunk[1]]
    drawn = np.frombuffer(numbers.bytes(2 * (last - first)), dtype=np.uint16) < edges.tickets[first:last]
    which = np.flatnonzero(drawn)
    n_drawn = torch.from_numpy(np.diff(np.searchsorted(which, edges.starts[chunk[0] : chunk[1] + 1] - first)))
    others = torch.from_numpy(edges.others[first:last][which])
    mine = torch.repeat_interleave(n_drawn)
    away = codes[:, slice(*chunk)].index_select(1, mine) - codes.index_select(1, others)
    away *= 2 / (1 + away.square().sum(0))
    return codes.new_zeros(len(codes), len(n_drawn)).index_add_(1, mine, away), n_drawn
