"""The k-nearest-neighbour graph of the data in memory: codes laid out along it, and edges between clusters.

Codes of an autoencoder are not Gaussian per cluster; codes that keep neighbours together are nearly so. They
are found as UMAP finds them, with the Student-t kernel 1 / (1 + d^2) (McInnes, Healy & Melville 2018), for
all rows at once and without a network; the encoder then learns to give them (training.py).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import torch
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components
from torch import Tensor
from torch.nn import functional as F

from dbull.lifelong.directions import PROJECTION_ROWS, leading_directions, reproducible
from dbull.lifelong.index import EXACT, index_for, indexed_neighbours
from dbull.threads import mapped

if TYPE_CHECKING:
    from dbull.lifelong.settings import GraphSettings

CHUNK_NUMBERS = 1 << 25  # distances in memory at once
PIECE_ROWS = 1 << 16  # looked at at once, where each has many numbers
N_REPELLED = 5.0  # pairs pushed apart per pair drawn together, as in UMAP
N_OPPONENTS = 64  # rows of a round that push all others; their mean stands for that of all rows
PUSHED_ROWS = 2048  # at once: what is made of them stays in the cache
SOFTENING = 1e-3  # keeps the push between coinciding codes finite
STRONGEST = 4.0  # push of one pair, as in UMAP; no pull is as strong
STEP = 0.25  # of a round at the start; falls to 0 linearly
ISLAND_GAP, MOSTLY = 2.0, 0.95
START_SPREAD = 3.0  # standard deviation of the first direction of codes that start from nothing
BISECTIONS = 40


@dataclass(frozen=True)
class NeighbourGraph:
    """Each row's nearest other rows, the nearest first, with fuzzy weights in (0, 1]."""

    neighbours: Tensor  # (N, k)
    weights: Tensor  # (N, k) float32
    index: str = EXACT  # by which neighbours were found

    def __len__(self) -> int:
        return len(self.neighbours)

    @property
    def silent(self) -> Tensor:
        """Rows that have no neighbours but their own copies, at no distance, (N,) bool."""
        return (self.weights == 1).all(1)

    def draw(self, rows: Tensor, generator: torch.Generator) -> Tensor:
        """Draw one neighbour for each of the rows, by weight."""
        weights = self.weights[rows].cumsum(1)
        ticket = torch.rand(len(rows), 1, generator=generator, device=generator.device) * weights[:, -1:]
        place = torch.searchsorted(weights, ticket).clamp(max=weights.shape[1] - 1)
        return self.neighbours[rows].gather(1, place)[:, 0]

    def among(self, codes: Tensor) -> NeighbourGraph:
        """Return the graph with each neighbour counting as much less as its code (N, D) came to lie apart.

        A layout cannot draw all neighbours together: pairs that few others support are torn apart.
        """

        def less(rows: Tensor) -> Tensor:
            apart = (codes[rows, None] - codes[self.neighbours[rows]]).square().sum(2)
            return (self.weights[rows] / (1 + apart)).to(torch.float32)

        rows = torch.arange(len(self)).split(PIECE_ROWS)
        return replace(self, weights=torch.cat(mapped(less, rows)))


def build_graph(
    inputs: Tensor,
    settings: GraphSettings,
    generator: torch.Generator,
    n_present: int | None = None,
    asked: Tensor | None = None,
) -> NeighbourGraph:
    """Return the graph of rows (N, d): by distance, or of wide rows by angle in reproducible directions.

    How many neighbours a row has goes by the `n_present` that are not replayed; all, if nothing is said. Only
    rows that are `asked`, (M,), are in the graph then, in this order; their neighbours are among all.
    """
    rows = inputs
    if inputs.shape[1] > settings.angle_width:
        rows = F.normalize(reproducible(inputs, settings.dims, generator), dim=1)
    n_neighbors = min(settings.n_neighbors or neighbours_for(n_present or len(inputs)), len(inputs) - 1)
    if asked is not None:
        index, (squared, neighbours) = EXACT, nearest_neighbours(rows, n_neighbors, asked)
    else:
        index = index_for(settings.graph_index, len(rows))
        nearest = nearest_neighbours if index == EXACT else indexed_neighbours
        squared, neighbours = nearest(rows, n_neighbors)
    return NeighbourGraph(neighbours, fuzzy_weights(squared.sqrt_()), index)


def neighbours_for(n_rows: int) -> int:
    """Return how many neighbours a row has when nothing else is said: 15 among 1,000 rows, 30 among 8,000."""
    return max(15, min(30, round(15 * math.pow(n_rows / 1000, 1 / 3))))


def nearest_neighbours(rows: Tensor, n_neighbours: int, asked: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Return squared distances and indices (M, n_neighbours) of the rows nearest to those `asked`, or to all.

    All pairs are looked at, in the precision of the rows: neighbours whose squared distances differ by less
    than the rounding of the squared lengths may change places.
    """
    n_rows = len(rows)
    squares = rows.square().sum(1)
    distances, indices = [], []
    asked = torch.arange(n_rows) if asked is None else asked
    for some in asked.split(max(1, CHUNK_NUMBERS // n_rows)):
        # |a - b|^2 up to |a|^2, which does not change the order.
        squared = torch.addmm(squares.expand(len(some), n_rows), rows[some], rows.T, alpha=-2)
        squared[torch.arange(len(some)), some] = math.inf
        nearest, index = squared.topk(n_neighbours, dim=1, largest=False)
        distances.append((nearest + squares[some, None]).clamp(min=0))
        indices.append(index)
    return torch.cat(distances), torch.cat(indices)


def fuzzy_weights(distances: Tensor) -> Tensor:
    """Return weights exp(-(d - nearest) / scale) with the scale of each row such that they sum to log2 k.

    So a neighbour counts by how near it is against the row's other neighbours, in dense and sparse regions
    alike (UMAP, section 3.1).
    """
    beyond = distances - distances[:, :1]
    target = math.log2(max(2, distances.shape[1]))
    low = torch.zeros_like(beyond[:, :1])
    high = torch.full_like(low, math.inf)
    scale = beyond.mean(1, keepdim=True).clamp(min=1e-12)
    floor = 1e-3 * distances.mean().clamp(min=1e-12)
    for _ in range(BISECTIONS):
        too_much = torch.exp(-beyond / scale).sum(1, keepdim=True) > target
        high = torch.where(too_much, scale, high)
        low = torch.where(too_much, low, scale)
        scale = torch.where(high.isinf(), 2 * scale, (low + high) / 2)
    return torch.exp(-beyond / scale.clamp(min=float(floor)))


def alone_share(graph: NeighbourGraph, n_present: int, n_replay: int) -> float:
    """Return the share of the first `n_present` rows that keep to themselves, apart from replayed ones.

    If all of them were rows of one old cluster, of which `n_replay` are replayed, a neighbour would be
    replayed with probability n_replay / (n_replay + n_present) at least. Alone is who has fewer than half.
    Of silent rows the graph says nothing.
    """
    telling = ~graph.silent[:n_present]
    replayed = (graph.neighbours[:n_present][telling] >= n_present).double().mean(1)
    alone = (replayed < 0.5 * n_replay / (n_replay + n_present)).double()
    return float(alone.mean()) if len(alone) else 0.0


def islands_of(graph: NeighbourGraph, inputs: Tensor, n_least: int) -> Tensor:
    """Return the number of the island that each row is on, (N,); 0 for the mainland.

    An island is a connected part of the graph, not the largest, of at least `n_least` rows, that lies farther
    from all others than `ISLAND_GAP` times as far as neighbours mostly are. Small parts that are no farther
    away than neighbours are elsewhere belong to whatever the mixture finds: text falls into hundreds of them.
    """
    n_rows, k = graph.neighbours.shape
    starts = np.arange(0, n_rows * k + 1, k)
    edges = csr_array((np.ones(n_rows * k), graph.neighbours.flatten().numpy(), starts), (n_rows, n_rows))
    parts = torch.from_numpy(connected_components(edges, directed=False)[1]).to(torch.int64)
    islands, sizes = torch.zeros(n_rows, dtype=torch.int64), torch.bincount(parts)
    if len(sizes) == 1:
        return islands
    reach = (inputs - inputs[graph.neighbours[:, -1]]).norm(dim=1)
    usual = float(reach.sort().values[int(MOSTLY * (n_rows - 1))])
    sizes[sizes.argmax()] = 0
    for number, part in enumerate((sizes >= n_least).nonzero()[:, 0].tolist(), start=1):
        inside = parts == part
        some = inputs[inside.nonzero()[:N_OPPONENTS, 0]]
        pieces = zip(inputs.split(PIECE_ROWS), inside.split(PIECE_ROWS), strict=True)
        others = (rows[~mine] for rows, mine in pieces)
        if all(float(torch.cdist(some, rows).min()) > ISLAND_GAP * usual for rows in others if len(rows)):
            islands[inside] = number
    return islands


def edges_of(graph: NeighbourGraph) -> tuple[Tensor, Tensor, Tensor]:
    """Return each pair of neighbours once, and its weight: that either of its edges is there, (E,) each."""
    n_rows, k = graph.neighbours.shape
    one, other = torch.arange(n_rows).repeat_interleave(k), graph.neighbours.flatten()
    pairs = torch.minimum(one, other) * n_rows + torch.maximum(one, other)
    pairs, which = pairs.unique(return_inverse=True)
    neither = torch.ones(len(pairs)).scatter_reduce_(0, which, 1 - graph.weights.flatten(), "prod")
    return pairs // n_rows, pairs % n_rows, 1 - neither


def first_codes(inputs: Tensor, n_dims: int, generator: torch.Generator) -> Tensor:
    """Return where codes start from nothing: at the leading principal directions of the inputs, (N, D)."""
    leading = torch.zeros(len(inputs), n_dims)
    n_dims = min(n_dims, inputs.shape[1])
    sample = inputs[torch.randperm(len(inputs), generator=generator)[:PROJECTION_ROWS]]
    leading[:, :n_dims] = (inputs - inputs.mean(0)) @ leading_directions(sample, n_dims, generator)
    spread = leading.std(0).max() if len(leading) > 1 else leading.new_ones(())
    jitter = 1e-2 * torch.randn(leading.shape, generator=generator)
    return leading * (START_SPREAD / spread.clamp_min(1e-6)) + jitter


def lay_out(
    graph: NeighbourGraph, start: Tensor, n_held: int, n_rounds: int, generator: torch.Generator
) -> Tensor:
    """Return codes (N, D) of all rows of a graph: neighbours together, others apart. The last `n_held` stay.

    Each round draws pairs of neighbours by weight, pulls them together along log(1 + d^2), and pushes each of
    their rows away from others along log(1 + 1 / d^2), `N_REPELLED` times as often (UMAP, section 3.2).
    """
    n_rows, n_free = len(start), len(start) - n_held
    codes = start.T.clone(memory_format=torch.contiguous_format)  # (D, N): sums over edges run along memory
    ones, others, weights = edges_of(graph)
    moved = ones < n_free  # the earlier of two rows; an edge between rows that stay moves nothing
    ones, others, weights = ones[moved], others[moved], weights[moved]
    for done in range(n_rounds):
        drawn = (torch.rand(len(weights), generator=generator) < weights).nonzero()[:, 0]
        one, other = ones[drawn], others[drawn]
        pull = codes.index_select(1, one) - codes.index_select(1, other)
        pull *= 2 / (1 + pull.square().sum(0))
        move = torch.zeros_like(codes).index_add_(1, other, pull).index_add_(1, one, pull, alpha=-1)
        n_drawn = torch.bincount(torch.cat([one, other]), minlength=n_rows)[:n_free]
        opponents = codes[:, torch.randint(n_rows, (N_OPPONENTS,), generator=generator)].T
        apart = torch.cat([push(part, opponents) for part in codes[:, :n_free].T.split(PUSHED_ROWS)]).T
        move = move[:, :n_free] + apart * (N_REPELLED / N_OPPONENTS * n_drawn)
        codes[:, :n_free] += STEP * (1 - done / n_rounds) * move
    return codes.T.contiguous()


def push(codes: Tensor, opponents: Tensor) -> Tensor:
    """Return how far rows (n, D) are pushed by all opponents (m, D) together, (n, D)."""
    squared = codes.square().sum(1, keepdim=True) + opponents.square().sum(1)
    squared = squared.addmm_(codes, opponents.T, alpha=-2).clamp_min_(0.0)
    strength = (squared + SOFTENING).mul_(squared + 1).reciprocal_().mul_(2)
    strength = torch.minimum(strength, squared.sqrt_().add_(SOFTENING).reciprocal_().mul_(STRONGEST))
    return codes * strength.sum(1, keepdim=True) - strength @ opponents


def edge_weights(graph: NeighbourGraph, labels: Tensor, n_labels: int) -> Tensor:
    """Return the weight of edges from rows of one label (first index) to neighbours of another, (K, K)."""
    pairs = labels[:, None] * n_labels + labels[graph.neighbours]
    weights = graph.weights.to(torch.float64).flatten()
    return torch.bincount(pairs.flatten(), weights, minlength=n_labels**2).reshape(n_labels, n_labels)
