"""Several processes that train one set of networks, each on its part of every batch (torch.distributed).

All of them learn the same rows with the same seed, so whatever is not a gradient step each does alone, with
the same result. In a step each has its part of the batch, and the mean of all gradients moves the networks of
all alike. `torchrun` starts them; docs/gpu.md has the script.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

import torch
from torch import Tensor

from dbull.errors import SettingsError

MOST_SEED = 2**31


@dataclass(frozen=True)
class Processes:
    """How many processes train together, and which of them this is."""

    rank: int = 0
    size: int = 1

    def part(self, rows: Tensor, n_first: int) -> tuple[Tensor, int, float]:
        """Return the part of a batch that is learned here, how many of its first rows, and its weight.

        Of too few rows for all, each learns all.
        """
        if len(rows) < self.size:
            return rows, n_first, 1.0
        mine = slice(self.rank, None, self.size)
        return rows[mine], len(range(n_first)[mine]), len(rows[mine]) * self.size / len(rows)

    def average(self, parameters: Sequence[Tensor]) -> None:
        """Put the mean of the gradients of all processes in place of each one's own."""
        gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
        if self.size == 1 or not gradients:
            return
        flat = torch.cat([gradient.flatten() for gradient in gradients])
        torch.distributed.all_reduce(flat)
        flat /= self.size
        for gradient, mean in zip(gradients, flat.split([one.numel() for one in gradients]), strict=True):
            gradient.copy_(mean.view_as(gradient))

    def mean(self, told: Tensor) -> Tensor:
        """Return the mean of what all processes have to tell."""
        if self.size > 1:
            told = told.clone()
            torch.distributed.all_reduce(told)
            told /= self.size
        return told

    def check_alike(self, seed: int, rows: Tensor) -> None:
        """Refuse processes that do not learn the same rows with the same seed."""
        if self.size == 1:
            return
        mine = (seed, tuple(rows.shape), float(rows.double().sum()))
        told: list[object] = [None] * self.size
        torch.distributed.all_gather_object(told, mine)
        if any(one != mine for one in told):
            raise SettingsError(
                "processes that train together must learn the same rows with the same random_state, a whole "
                f"number; (seed, shape, sum) of each are {told}"
            )


ALONE = Processes()
_together: ContextVar[Processes] = ContextVar("processes", default=ALONE)


def processes_here() -> Processes:
    """Return the processes that train together here; one alone unless `trained_together` is around this."""
    return _together.get()


@contextmanager
def trained_together(backend: str | None = None) -> Iterator[Processes]:
    """Let the processes that `torchrun` has started train networks together; gives rank and number.

    `backend` is one of torch.distributed: by default "nccl" where CUDA is, else "gloo".
    """
    begun = not torch.distributed.is_initialized()
    if begun:
        usual = "nccl" if torch.cuda.is_available() else "gloo"
        try:
            torch.distributed.init_process_group(backend or usual)
        except ValueError as error:
            raise SettingsError(
                f"start the script by torchrun, which numbers its processes: {error}"
            ) from error
    processes = Processes(torch.distributed.get_rank(), torch.distributed.get_world_size())
    token = _together.set(processes)
    try:
        yield processes
    finally:
        _together.reset(token)
        if begun:
            torch.distributed.destroy_process_group()
