"""Carry statistics of the past into the coordinates of an encoder that has moved.

Statistics were made from codes of an older encoder; the rows are gone. Replayed rows of a component show
where its codes have gone: from their codes before and after, a shift of its mean and a linear map of its
spread.
"""

from __future__ import annotations

import hashlib

import torch
from torch import Tensor

from dbull.mixture.stats import SufficientStats
from dbull.nets.vae import VAE

__all__ = ["carried", "encoder_fingerprint"]

RIDGE = 0.1  # of the mean variance of the codes: few or degenerate draws keep the spread as it was


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
