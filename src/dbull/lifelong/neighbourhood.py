"""The k-nearest-neighbour graph of the data in memory: its loss term, and how near clusters are on it.

Codes of an autoencoder are not Gaussian per cluster; codes that keep neighbours together are nearly so. The
loss is that of parametric UMAP with the Student-t kernel 1 / (1 + d^2) (McInnes, Healy & Melville 2018;
Sainburg, McInnes & Gentner 2021).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn import functional as F

if TYPE_CHECKING:
    from dbull.lifelong.settings import GraphSettings

CHUNK_NUMBERS = 1 << 25  # distances in memory at once
OVERSAMPLED = 10  # more directions than asked for while they are sought
PROJECTION_ROWS = 5000  # rows from which these directions are taken
N_REPELLED = 5.0  # pairs pushed apart per pair drawn together, as in UMAP
SOFTENING = 1e-3  # keeps the push between coinciding codes finite
BISECTIONS = 40


@dataclass(frozen=True)
class NeighbourGraph:
    """Each row's nearest other rows, the nearest first, with fuzzy weights in (0, 1]."""

    neighbours: Tensor  # (N, k)
    weights: Tensor  # (N, k) float32

    def __len__(self) -> int:
        return len(self.neighbours)

    def nearest(self, k: int) -> NeighbourGraph:
        """Return the graph of the k nearest only; weights stay as they are."""
        return NeighbourGraph(self.neighbours[:, :k], self.weights[:, :k])

    def draw(self, rows: Tensor, generator: torch.Generator) -> Tensor:
        """Draw one neighbour for each of the rows, by weight."""
        weights = self.weights[rows].cumsum(1)
        ticket = torch.rand(len(rows), 1, generator=generator) * weights[:, -1:]
        place = torch.searchsorted(weights, ticket).clamp(max=weights.shape[1] - 1)
        return self.neighbours[rows].gather(1, place)[:, 0]


def build_graph(inputs: Tensor, settings: GraphSettings, generator: torch.Generator) -> NeighbourGraph:
    """Return the graph of rows (N, d) in their leading principal directions, by distance or by angle."""
    rows = projected(inputs, settings.dims, generator)
    if settings.cosine:
        rows = F.normalize(rows - rows.mean(0), dim=1)
    squared, neighbours = nearest_neighbours(rows, min(settings.n_neighbors, len(inputs) - 1))
    return NeighbourGraph(neighbours, fuzzy_weights(squared.sqrt()))


def projected(inputs: Tensor, n_dims: int, generator: torch.Generator) -> Tensor:
    """Return wide rows in the coordinates of their leading principal directions; others as they are."""
    if inputs.shape[1] <= n_dims or len(inputs) <= n_dims + OVERSAMPLED:
        return inputs
    centred = inputs - inputs.mean(0)
    sample = centred[torch.randperm(len(inputs), generator=generator)[:PROJECTION_ROWS]]
    start = torch.randn(inputs.shape[1], min(inputs.shape[1], n_dims + OVERSAMPLED), generator=generator)
    basis = torch.linalg.qr(start).Q
    for _ in range(4):  # subspace iteration (Halko, Martinsson & Tropp 2011)
        basis = torch.linalg.qr(sample.T @ (sample @ basis)).Q
    reduced = sample @ basis
    rotation = torch.linalg.eigh(reduced.T @ reduced).eigenvectors[:, -n_dims:]
    reduced_rows: Tensor = centred @ (basis @ rotation)
    return reduced_rows


def nearest_neighbours(rows: Tensor, n_neighbours: int) -> tuple[Tensor, Tensor]:
    """Return squared distances and indices (N, n_neighbours) of the nearest other rows.

    All pairs are looked at, in the precision of the rows: neighbours whose squared distances differ by less
    than the rounding of the squared lengths may change places.
    """
    n_rows = len(rows)
    squares = rows.square().sum(1)
    step = max(1, CHUNK_NUMBERS // n_rows)
    distances, indices = [], []
    for start in range(0, n_rows, step):
        chunk = rows[start : start + step]
        own = torch.arange(len(chunk))
        # |a - b|^2 up to |a|^2, which does not change the order.
        squared = torch.addmm(squares.expand(len(chunk), n_rows), chunk, rows.T, alpha=-2)
        squared[own, own + start] = math.inf
        nearest, index = squared.topk(n_neighbours, dim=1, largest=False)
        distances.append((nearest + squares[start : start + step, None]).clamp(min=0))
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


def neighbourhood_loss(mean: Tensor, neighbour: Tensor) -> Tensor:
    """Return the loss of codes (B, D) and of one neighbour each: pairs together, all others apart.

    mean_i log(1 + d_ii^2)  -  N_REPELLED mean_{i != j} log(d_ij^2 / (1 + d_ij^2))
    """
    n_rows = len(mean)
    together = torch.log1p((mean - neighbour).square().sum(1)).mean()
    if n_rows < 2:
        return together
    squared = mean.square().sum(1, keepdim=True) + neighbour.square().sum(1) - 2 * mean @ neighbour.T
    apart = torch.log1p(1 / (squared.clamp(min=0) + SOFTENING))
    # The diagonal holds the pairs that belong together.
    pushed = (apart.sum() - apart.diagonal().sum()) / (n_rows * (n_rows - 1))
    return together + N_REPELLED * pushed


def affinity(graph: NeighbourGraph, labels: Tensor, n_labels: int) -> Tensor:
    """Return the weight of edges between labels, symmetric (K, K); within a label each counts twice."""
    total = edge_weights(graph, labels, n_labels)
    return total + total.T


def edge_weights(graph: NeighbourGraph, labels: Tensor, n_labels: int) -> Tensor:
    """Return the weight of edges from rows of one label (first index) to neighbours of another, (K, K)."""
    pairs = labels[:, None] * n_labels + labels[graph.neighbours]
    weights = graph.weights.to(torch.float64).flatten()
    return torch.bincount(pairs.flatten(), weights, minlength=n_labels**2).reshape(n_labels, n_labels)
