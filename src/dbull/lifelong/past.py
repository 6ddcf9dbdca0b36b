"""What a learner keeps of rows that are gone, what is drawn from it, and how it follows the encoder.

imprints    The statistics of the mixture live in the coordinates of an encoder that goes on learning. Inputs
            do not move: their view was fixed by the first data. So each component also keeps, of the inputs
            of its rows, the mean, the leading directions of their spread and the variance that these leave
            over: a low-rank Gaussian. Imprints add up over data sets, and hold `rank` + 2 vectors however
            many rows they have seen. Directions are principal ones, never rows, and of fewer than
            `FEWEST_ROWS` distinct rows only the mean is kept (docs/privacy.md).
replay      Rows that look like the past, drawn from a snapshot of the learner when a data set arrives. They
            protect the networks and show where the encoder has moved; they never enter the statistics.
carrying    From codes of replayed rows before and after training, a shift of each component's mean and a
            linear map of its spread: the statistics in the coordinates of the new encoder.
"""

from __future__ import annotations

import copy
import hashlib
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from dbull.errors import SettingsError
from dbull.lifelong.inference import decode_codes, encode_rows, replayed_codes
from dbull.mixture.posterior import mean_weights
from dbull.mixture.stats import SufficientStats
from dbull.nets.vae import VAE
from dbull.probability.normal_wishart import expected_covariance

if TYPE_CHECKING:
    from dbull.lifelong.settings import PastSettings
    from dbull.lifelong.state import LearnerState

IMPRINT_RANK = 20
FEWEST_ROWS = 20  # distinct rows from which a component has a shape of its own
SMALLEST_COUNT = 1e-12
SMALLEST_LEFTOVER = 0.02  # variance in any one direction; inputs have variance 1 on average
FAR = 30.0  # root mean square input from which a row is far; inputs of the first data have variance 1
REPLAYS = ("imprints", "decoded", "none")
N_PROBES = 300  # rows per component that show where the encoder has moved
RIDGE = 0.1  # of the mean variance of the codes: few or degenerate draws keep the spread as it was


@dataclass(frozen=True)
class Imprint:
    """A Gaussian N(mean, factor^T factor + diag(leftover)) of inputs; float32."""

    n_rows: float
    mean: Tensor  # (d,)
    factor: Tensor  # (r, d) leading directions, each as long as the standard deviation along it
    leftover: Tensor  # (d,) variance beside the factor

    @property
    def variance(self) -> Tensor:
        """Variance of each input, (d,)."""
        return self.leftover + self.factor.square().sum(0)

    @property
    def is_far(self) -> bool:
        """Whether its rows are far beyond all that the first data were like."""
        return float((self.mean.double().square() + self.variance).mean()) > FAR**2


def imprint_of(inputs: Tensor, rank: int) -> Imprint:
    """Return the imprint of rows (N, d), at least one."""
    mean = inputs.mean(0)
    spread = (inputs - mean) / math.sqrt(len(inputs))
    return packed(float(len(inputs)), mean, spread, spread.square().sum(0), rank)


def private_imprint_of(inputs: Tensor, rank: int, shape: Callable[[], Imprint]) -> Imprint:
    """Return the imprint of rows (N, d) as it is kept: few rows get a `shape` that is not theirs alone."""
    if not _enough_rows(inputs):
        return Imprint(float(len(inputs)), inputs.mean(0), shape().factor, shape().leftover)
    return imprint_of(inputs, rank)


def _enough_rows(rows: Tensor) -> bool:
    """Return whether at least `FEWEST_ROWS` of the rows (N, d) are distinct; a few mostly show it."""
    return any(len(some.unique(dim=0)) >= FEWEST_ROWS for some in (rows[: 2 * FEWEST_ROWS], rows))


def pooled_shape(inputs: Tensor, labels: Tensor, rank: int) -> Imprint:
    """Return the average shape of components: rows (N, d) around the means of their components (N,).

    Of too few rows it is that of the first data as a whole, as which inputs are scaled.
    """
    which, sizes = labels.unique(return_inverse=True, return_counts=True)[1:]
    sums = inputs.new_zeros(len(sizes), inputs.shape[1]).index_add_(0, which, inputs)
    beside = inputs - (sums / sizes[:, None])[which]
    if not _enough_rows(beside):
        return Imprint(0.0, inputs.new_zeros(inputs.shape[1]), beside[:0], torch.ones(inputs.shape[1]))
    return imprint_of(beside, rank)


def imprints_of_stats(stats: SufficientStats, rank: int) -> list[Imprint]:
    """Return the imprints that follow from the statistics where codes are the inputs themselves."""
    mean = stats.sum_z / stats.counts.clamp_min(SMALLEST_COUNT)[:, None]
    spread = stats.sum_zz / stats.counts.clamp_min(SMALLEST_COUNT)[:, None, None]
    covariance = spread - mean[:, :, None] * mean[:, None, :]
    values, vectors = torch.linalg.eigh(covariance)
    length = values[:, -rank:].clamp_min(0).sqrt()
    factors = (vectors[:, :, -rank:] * length[:, None, :]).transpose(1, 2).to(torch.float32)
    variances = covariance.diagonal(dim1=1, dim2=2).to(torch.float32)
    leftovers = (variances - factors.square().sum(1)).clamp_min(SMALLEST_LEFTOVER)
    parts = zip(stats.counts.tolist(), mean.to(torch.float32), factors, leftovers, strict=True)
    return [Imprint(*part) for part in parts]


def pooled(a: Imprint, b: Imprint, rank: int) -> Imprint:
    """Return the imprint of the rows of both.

    Mean and variance of each input are those of all rows together; of the directions the leading ones stay.
    Few rows change no shape: the way from the mean of others to a single row would be that row.
    """
    n_rows = a.n_rows + b.n_rows
    share_a, share_b = a.n_rows / n_rows, b.n_rows / n_rows
    if min(a.n_rows, b.n_rows) < FEWEST_ROWS:
        shaped = b if b.n_rows >= FEWEST_ROWS else a
        return Imprint(n_rows, share_a * a.mean + share_b * b.mean, shaped.factor, shaped.leftover)
    between = (math.sqrt(share_a * share_b) * (a.mean - b.mean))[None]
    spread = torch.cat([math.sqrt(share_a) * a.factor, math.sqrt(share_b) * b.factor, between])
    variance = share_a * a.variance + share_b * b.variance + between[0].square()
    return packed(n_rows, share_a * a.mean + share_b * b.mean, spread, variance, rank)


def packed(n_rows: float, mean: Tensor, spread: Tensor, variance: Tensor, rank: int) -> Imprint:
    """Keep the leading directions of spread^T spread, and the variance that they leave over."""
    factor = leading_part(spread, rank)
    leftover = (variance - factor.square().sum(0)).clamp_min(SMALLEST_LEFTOVER)
    return Imprint(n_rows, mean, factor, leftover)


def leading_part(spread: Tensor, rank: int) -> Tensor:
    """Return at most `rank` vectors whose F^T F is the leading part of spread^T spread, float32."""
    rank = min(rank, len(spread))
    if rank == 0:
        return spread
    # The small Gram matrix has the same spectrum as the large covariance.
    wide = spread.to(torch.float64)
    part: Tensor
    if len(spread) <= spread.shape[1]:
        vectors = torch.linalg.eigh(wide @ wide.T).eigenvectors[:, -rank:]
        part = vectors.T @ wide
    else:
        values, vectors = torch.linalg.eigh(wide.T @ wide)
        part = (vectors[:, -rank:] * values[-rank:].clamp_min(0).sqrt()).T
    return part.to(torch.float32)


def draw_rows(imprint: Imprint, n_rows: int, generator: torch.Generator) -> Tensor:
    """Draw inputs (n_rows, d) that look like those the imprint was taken from."""
    along = torch.randn(n_rows, len(imprint.factor), generator=generator)
    beside = torch.randn(n_rows, len(imprint.mean), generator=generator)
    return torch.addmm(imprint.mean + imprint.leftover.sqrt() * beside, along, imprint.factor)


def log_densities(imprint: Imprint, inputs: Tensor) -> Tensor:
    """Return the log density of inputs (N, d), (N,) float64.

    By the Woodbury identity, so that only an r x r matrix is factored.
    """
    leftover = imprint.leftover.to(torch.float64)
    factor = imprint.factor.to(torch.float64)
    weighted = factor / leftover
    root = torch.linalg.cholesky(torch.eye(len(factor), dtype=torch.float64) + weighted @ factor.T)
    offset = (inputs - imprint.mean).to(torch.float64)
    explained = torch.linalg.solve_triangular(root, weighted @ offset.T, upper=False).square().sum(0)
    distance = offset.square() @ (1 / leftover) - explained
    log_det = leftover.log().sum() + 2 * root.diagonal().log().sum()
    log_density: Tensor = -0.5 * (distance + log_det + inputs.shape[1] * math.log(2 * math.pi))
    return log_density


@dataclass(frozen=True)
class Replay:
    """Replayed rows."""

    inputs: Tensor  # (R, n_inputs)
    values: Tensor  # (R, d) what the snapshot decodes them to
    codes: Tensor  # (R, D) where the snapshot encodes them
    clusters: Tensor  # (R,) ids
    from_values: bool  # whether inputs are those of the values, so that values may be augmented

    def __len__(self) -> int:
        return len(self.inputs)


class Past:
    """A snapshot of a learner, and what can be drawn from it.

    Parameters
    ----------
    source
        "imprints": inputs are drawn from the imprints of components. "decoded": codes are drawn from the
        mixture, and values from what they decode to, as in the paper. "none": nothing is replayed.
    """

    def __init__(self, state: LearnerState, source: str, generator: torch.Generator):
        self.view = state.view
        self.vae = copy.deepcopy(state.vae).eval()
        self.ids = state.memory.ids
        self.cluster_of = state.cluster_of
        self.imprints = dict(state.imprints)
        self.overall = state.memory.overall
        self.posterior = state.posterior
        self.source = source
        if source == "imprints" and not self.imprints.keys() >= set(self.ids):
            raise SettingsError(
                "replay='imprints' needs imprints of all that was learned, and a data set was learned with "
                "another replay, which keeps none. Go on with that one."
            )
        self._probes: list[Tensor] = []
        self._before: list[Tensor] = []
        if source != "none":
            self._probes = [self.rows_of(k, N_PROBES, generator)[0] for k in range(len(self.ids))]
            self._before = self._probes_by(self.vae)

    def _probes_by(self, vae: VAE) -> list[Tensor]:
        """Return the codes of all probes, component by component."""
        codes = encode_rows(vae, torch.cat(self._probes))[0]
        return list(codes.split([len(probe) for probe in self._probes]))

    def rows_of(
        self, component: int, n_rows: int, generator: torch.Generator
    ) -> tuple[Tensor, Tensor | None]:
        """Draw inputs of a component; and the values they are those of, if they were decoded."""
        if self.source == "imprints":
            return draw_rows(self.imprints[self.ids[component]], n_rows, generator), None
        components = self.posterior.components
        root = torch.linalg.cholesky(expected_covariance(components)[component])
        noise = torch.randn(n_rows, len(root), generator=generator, dtype=torch.float64)
        # Expected values are smoother than rows ever are, and the networks would learn to expect that.
        values = decode_codes(self.vae, components.mean[component] + noise @ root.T, generator)
        return self.view.inputs(values), values

    def replay(
        self, settings: PastSettings, generator: torch.Generator, values: bool = True
    ) -> Replay | None:
        """Draw `n_replay` rows of each cluster, or in all as the mixture weighs its components.

        Without `values`, what they decode to is left out.
        """
        n_rows, per_cluster = settings.n_replay, settings.per_cluster
        if self.source == "none" or n_rows == 0:
            return None
        weights = self.overall.counts if per_cluster else mean_weights(self.posterior)
        # Rows of another scale would teach the networks nothing but that scale.
        far = [i in self.imprints and self.imprints[i].is_far for i in self.ids]
        weights = weights.masked_fill(torch.tensor(far), 0.0)
        groups = [self.cluster_of == c for c in self.cluster_of.unique()] if per_cluster else [weights > 0]
        parts, clusters = [], []
        for group in groups:
            share = torch.where(group, weights, 0.0)
            if not bool(share.any()):
                continue
            drawn = torch.multinomial(share, n_rows, replacement=True, generator=generator)
            for component, n in enumerate(drawn.bincount().tolist()):
                if n > 0:
                    parts.append(self.rows_of(component, n, generator))
                    clusters += [int(self.cluster_of[component])] * n
        if not parts:
            return None
        inputs = torch.cat([part[0] for part in parts])
        codes = replayed_codes(self.vae, inputs)
        decoded = [part[1] for part in parts if part[1] is not None]
        described = torch.cat(decoded) if decoded else inputs[:, :0]
        if values and not decoded:
            described = decode_codes(self.vae, codes)
        return Replay(inputs, described, codes, torch.tensor(clusters), bool(decoded))

    def carried(self, vae: VAE) -> SufficientStats:
        """Return the statistics of the past in the coordinates of the encoder as it is now."""
        if not self._probes:
            return self.overall
        return carried(self.overall, self._before, self._probes_by(vae))


def carried(stats: SufficientStats, before: list[Tensor], after: list[Tensor]) -> SufficientStats:
    """Return the statistics as if the rows had been encoded by the new encoder.

    Parameters
    ----------
    stats
        Statistics under the old encoder, K components.
    before, after
        For each component, codes of the same replayed rows under the old and the new encoder, (R, D).

    The map z -> B z + noise is fitted by ridge regression towards the identity. Statistics of real rows then
    move as replayed ones do; how real and replayed rows differ stays as it was.
    """
    sums, squares = [], []
    eye = torch.eye(stats.n_dims, dtype=torch.float64)
    for k, (old, new) in enumerate(zip(before, after, strict=True)):
        count = stats.counts[k]
        some = count.clamp_min(torch.finfo(count.dtype).tiny)  # of none at all the sums are 0 and stay so
        mean = stats.sum_z[k] / some
        cov = stats.sum_zz[k] / some - torch.outer(mean, mean)
        old_mean, new_mean = old.mean(0), new.mean(0)
        old, new = old - old_mean, new - new_mean
        scatter = old.T @ old
        ridge = RIDGE * scatter.diagonal().mean().clamp_min(1e-12) * eye
        transposed = torch.linalg.solve(scatter + ridge, old.T @ new + ridge)
        unexplained = new - old @ transposed
        mean = new_mean + (mean - old_mean) @ transposed
        cov = transposed.T @ cov @ transposed + unexplained.T @ unexplained / len(old)
        sums.append(count * mean)
        squares.append(count * (cov + torch.outer(mean, mean)))
    return SufficientStats(stats.counts, torch.stack(sums), torch.stack(squares), stats.entropy)


def encoder_fingerprint(vae: VAE) -> str:
    """Return a hash of everything that decides a row's code."""
    digest = hashlib.sha256(repr(vae.shape).encode())
    for name, tensor in sorted(vae.state_dict().items()):
        if not name.startswith(("decoder.", "likelihood.")):
            digest.update(name.encode())
            digest.update(tensor.detach().cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()
