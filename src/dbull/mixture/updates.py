"""Local step and summary: from points to responsibilities to sufficient statistics.

A Gaussian is an exponential family, so both directions are one matrix product with the same matrix Phi of
expected sufficient statistics of the points, Phi_n = (1, z_n, upper triangle of z_n z_n^T + diag(var_n)):

    log rho = Theta Phi^T   (K, N)     Theta: natural parameters of the components
    stats   = R Phi         (K, F)     R = softmax of log rho over the components

Point variances (the encoder's) enter through Phi alone, exactly and in both places. Points are held
transposed, (D, N), so that each row of Phi^T is one contiguous product; Phi is built chunk by chunk, so
memory does not grow with N * K or N * D^2.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import pairwise

import torch
from torch import Tensor

from dbull.mixture.posterior import MixturePosterior, mean_weights
from dbull.mixture.stats import SufficientStats
from dbull.probability import normal_wishart as nw
from dbull.probability import stick_breaking as sb
from dbull.threads import mapped

CHUNK_NUMBERS = 1 << 20  # numbers in one chunk of Phi and of log rho together
MIN_CHUNK_ROWS = 32


@dataclass(frozen=True)
class Points:
    """Vectors in memory, optionally each with a diagonal variance and a mass. Stored transposed."""

    zt: Tensor  # (D, N) float64
    vart: Tensor | None = None  # (D, N) float64
    mass: Tensor | None = None  # (N,) how much of each point is meant; None: all of it

    @classmethod
    def from_rows(cls, z: Tensor, var: Tensor | None = None) -> Points:
        """Make points from rows (N, D)."""
        f64 = torch.float64
        return cls(z.to(f64).T.contiguous(), None if var is None else var.to(f64).T.contiguous())

    @property
    def n_dims(self) -> int:
        """D."""
        return self.zt.shape[0]

    def __len__(self) -> int:
        return self.zt.shape[1]

    @cached_property
    def features(self) -> Tensor:
        """Phi^T of all points at once, (F, N); only asked for when it is small."""
        return expected_features(self)

    def take(self, rows: Tensor) -> Points:
        """Return the points at the given row numbers."""
        return self._each(lambda part: part.index_select(-1, rows))

    def between(self, start: int, stop: int) -> Points:
        """Return the points of rows start..stop as a view, without a copy."""
        return self._each(lambda part: part[..., start:stop])

    def _each(self, change: Callable[[Tensor], Tensor]) -> Points:
        others = (None if part is None else change(part) for part in (self.vart, self.mass))
        return Points(change(self.zt), *others)

    def batches(self, n_batches: int) -> list[Points]:
        """Cut the points into mini-batches of nearly equal size, as views."""
        edges = [round(i * len(self) / n_batches) for i in range(n_batches + 1)]
        return [self.between(a, b) for a, b in pairwise(edges) if b > a]


def n_features(n_dims: int) -> int:
    """Return F = 1 + D + D(D+1)/2, the columns of Phi."""
    return 1 + n_dims + n_dims * (n_dims + 1) // 2


def expected_features(points: Points) -> Tensor:
    """Return Phi^T of the points, (F, N)."""
    zt = points.zt
    D, N = zt.shape
    phi = torch.empty(n_features(D), N, dtype=zt.dtype)
    phi[0] = 1.0
    phi[1 : D + 1] = zt
    row = D + 1
    for i in range(D):  # over dimensions, each a contiguous block of products
        torch.mul(zt[i:], zt[i], out=phi[row : row + D - i])
        if points.vart is not None:
            phi[row] += points.vart[i]
        row += D - i
    return phi


@lru_cache
def _triangle(n_dims: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return where the upper triangle lies in a flattened matrix, how often a form counts each entry of it,
    and for each entry of the matrix, which is symmetric, where it lies in the packed triangle.
    """
    i, j = torch.triu_indices(n_dims, n_dims)
    place = torch.zeros(n_dims, n_dims, dtype=torch.int64)
    place[i, j] = place[j, i] = torch.arange(len(i))
    return i * n_dims + j, torch.where(i == j, 1.0, 2.0).to(torch.float64), place.flatten()


def natural_parameters(posterior: MixturePosterior) -> Tensor:
    """Return Theta (K, F) with log rho_nk = Theta_k . Phi_n.

    log rho_nk = E[log pi_k] + E[log N(z_n | mu_k, Lambda_k^-1)], the exact optimum of the local factor
    (Bishop 10.46); the quadratic and trace terms come out of the product with Phi.
    """
    c = posterior.components
    precision = c.dof[..., None, None] * torch.cholesky_inverse(posterior.factor)  # E[Lambda_k]
    linear = (precision @ c.mean[..., None])[..., 0]
    constant = sb.expected_log_weights(posterior.sticks) + 0.5 * (
        nw.expected_log_det(c, posterior.factor)
        - c.n_dims / c.mean_precision
        - c.n_dims * nw.LOG_2PI
        - (linear * c.mean).sum(-1)
    )
    flat, factor, _ = _triangle(c.n_dims)
    quadratic = -0.5 * (precision.flatten(-2)[..., flat] * factor)
    return torch.cat([constant[..., None], linear, quadratic], dim=-1)


def _pieces(points: Points, n_components: int) -> list[Points]:
    """Return the points in pieces whose Phi^T stays in cache, as views; themselves if they are one piece."""
    size = max(MIN_CHUNK_ROWS, CHUNK_NUMBERS // (n_features(points.n_dims) + n_components))
    if 0 < len(points) <= size:
        return [points]
    return [points.between(start, start + size) for start in range(0, len(points), size)]


def _chunks(points: Points, n_components: int) -> Iterator[tuple[Tensor, Points]]:
    """Yield Phi^T and its points in pieces that stay in cache; points that fit in one piece keep theirs."""
    for piece in _pieces(points, n_components):
        yield (piece.features if piece is points else expected_features(piece)), piece


def _normalise(log_rho: Tensor) -> tuple[Tensor, Tensor]:
    """Turn log rho (K, n) into responsibilities in place; return them and the log sum exp (n,)."""
    peak = log_rho.amax(-2, keepdim=True)
    resp = log_rho.sub_(peak).exp_()
    mass = resp.sum(-2, keepdim=True)
    resp.mul_(mass.reciprocal())
    return resp, mass.log_().add_(peak)[..., 0, :]


def _record(moments: Tensor, entropy: Tensor, n_dims: int) -> SufficientStats:
    """Split the product R Phi (K, F) into the named statistics."""
    counts, sum_z, packed = moments[..., 0], moments[..., 1 : n_dims + 1], moments[..., n_dims + 1 :]
    sum_zz = packed[..., _triangle(n_dims)[2]].unflatten(-1, (n_dims, n_dims))
    return SufficientStats(counts, sum_z, sum_zz, entropy.clamp_min(0.0))


def local_summary(posterior: MixturePosterior, points: Points) -> SufficientStats:
    """Return the statistics of the points under the exact local step, without keeping responsibilities.

    The entropy costs nothing extra: -sum_n r_nk log r_nk = sum_n r_nk lse_n - Theta_k . (R Phi)_k. For points
    with a mass w_n it is the entropy within that mass, -sum_n w_n r_nk log r_nk.
    """
    return summary_under(natural_parameters(posterior), points)


def summary_under(theta: Tensor, points: Points) -> SufficientStats:
    """Return the statistics under natural parameters (K, F), or of G mixtures at once under (G, K, F)."""
    moments = torch.zeros_like(theta)
    lse_sum = torch.zeros_like(theta[..., 0])

    def part(piece: Points) -> tuple[Tensor, Tensor]:
        phi = piece.features if piece is points else expected_features(piece)
        resp, lse = _normalise(theta @ phi)
        if piece.mass is not None:
            resp.mul_(piece.mass)
        return resp @ phi.T, (resp @ lse[..., None])[..., 0]

    for more, lse in mapped(part, _pieces(points, lse_sum.numel())):
        moments += more
        lse_sum += lse
    return _record(moments, lse_sum - (theta * moments).sum(-1), points.n_dims)


def log_joint(posterior: MixturePosterior, points: Points) -> Tensor:
    """Return log rho_nk = E[log pi_k] + E[log N(z_n | k)], (N, K)."""
    theta = natural_parameters(posterior)
    blocks = [theta @ phi for phi, _ in _chunks(points, posterior.n_components)]
    return torch.cat(blocks, dim=1).T if blocks else theta.new_zeros(0, theta.shape[0])


def most_probable(posterior: MixturePosterior, points: Points) -> Tensor:
    """Return the index of the most probable component of each point, (N,), without keeping (N, K)."""
    theta = natural_parameters(posterior)
    return torch.cat([(theta @ phi).argmax(0) for phi, _ in _chunks(points, posterior.n_components)])


def local_step(posterior: MixturePosterior, points: Points) -> Tensor:
    """Return the log responsibilities (N, K): log softmax of log rho over the components."""
    return torch.log_softmax(log_joint(posterior, points), dim=1)


def summarize(log_resp: Tensor, points: Points) -> SufficientStats:
    """Return the statistics for given log responsibilities (N, K)."""
    return summary_of(log_resp.exp().T.contiguous(), points)


def summary_of(resp: Tensor, points: Points) -> SufficientStats:
    """Return the statistics for given responsibilities (K, N), or of G mixtures at once for (G, K, N).

    For points with a mass the entropy is that within the mass, as in `local_summary`.
    """
    entropy = torch.special.entr(resp)
    if points.mass is not None:
        resp, entropy = resp * points.mass, entropy * points.mass
    moments = resp.new_zeros(*resp.shape[:-1], n_features(points.n_dims))
    start = 0
    for phi, _ in _chunks(points, resp[..., 0].numel()):
        moments += resp[..., start : start + phi.shape[1]] @ phi.T
        start += phi.shape[1]
    return _record(moments, entropy.sum(-1), points.n_dims)


def log_predictive(posterior: MixturePosterior, points: Points) -> Tensor:
    """Return the log density of each point, (N,), parameters integrated out: a mixture of Student-t."""
    log_weights = mean_weights(posterior).log()
    size = max(MIN_CHUNK_ROWS, CHUNK_NUMBERS // (posterior.n_components * posterior.n_dims))
    c, factor = posterior.components, posterior.factor
    pieces = (log_weights + nw.log_student_t(c, factor, z.T) for z in points.zt.split(size, dim=1))
    return torch.cat([torch.logsumexp(log_density, dim=1) for log_density in pieces])


def memberships(
    posterior: MixturePosterior, points: Points, threshold: float
) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
    """Return for each component its rows with responsibility above `threshold`, and how much it is."""
    theta = natural_parameters(posterior)
    rows, components, values = [], [], []
    start = 0
    for phi, _ in _chunks(points, posterior.n_components):
        resp, _ = _normalise(theta @ phi)
        component, row = torch.nonzero(resp > threshold, as_tuple=True)
        rows.append(row + start)
        components.append(component)
        values.append(resp[component, row])
        start += phi.shape[1]
    component = torch.cat(components)
    order = torch.argsort(component, stable=True)
    sizes = torch.bincount(component, minlength=posterior.n_components).tolist()
    return torch.cat(rows)[order].split(sizes), torch.cat(values)[order].split(sizes)
