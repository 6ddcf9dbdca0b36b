"""How many threads work: one, and several only on pieces of work that do not depend on each other.

PyTorch's own threads share one small product and wait for each other by spinning. Where another library has
asked for more of them than there are cores, or another process has the cores, a step takes ten times as long
and a notebook looks hung. They also round sums by their number, and rounding can decide what becomes a
cluster. So PyTorch works on one thread here, and rows in chunks of one size are shared out: the same answers,
to the bit, whatever the number of threads.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from functools import wraps
from time import perf_counter
from typing import Any, TypeVar

from dbull.errors import SettingsError

VARIABLE = "DBULL_THREADS"
MOST_BY_DEFAULT = 8
ENOUGH_PIECES = 6  # for more than one thread, unless their number is given
TRIED = 2  # pieces that are made before threads are
WORTH_SHARING = 1e-3  # seconds of a piece; handing over shorter ones takes as long as making them

Piece = TypeVar("Piece")
Result = TypeVar("Result")
Estimator = TypeVar("Estimator", bound=type[Any])
_asked: ContextVar[int | None] = ContextVar("threads", default=None)  # 1 within a piece of work


def check_threads(name: str, value: Any) -> None:
    """Refuse what is no number of threads, nor "auto"."""
    right = isinstance(value, int) and not isinstance(value, bool) and value >= 1
    if not right and not (isinstance(value, str) and value == "auto"):
        raise SettingsError(f"{name} must be a whole number of at least 1, or 'auto'; got {value!r:.50}")


def number_of_threads(n_pieces: int, asked: Any = None) -> int:
    """Return how many threads share pieces: as asked for, else as DBULL_THREADS says, else by size."""
    told = os.environ.get(VARIABLE, "auto")
    if asked is None and told != "auto":
        asked = int(told) if told.isdecimal() else 0
        if asked < 1:
            raise SettingsError(
                f"{VARIABLE} must be a whole number of at least 1, or 'auto'; got {told!r:.50}"
            )
    if asked is None:
        asked = min(processors(), MOST_BY_DEFAULT) if n_pieces >= ENOUGH_PIECES else 1
    return max(1, min(int(asked), n_pieces))


def processors() -> int:
    """Return how many processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextmanager
def working(threads: Any = None) -> Iterator[None]:
    """Let PyTorch work on one thread, whatever others asked it for, and `mapped` on so many; then as before.

    None: on as many as around this.
    """
    import torch

    if threads is not None:
        check_threads("threads", threads)
    asked = _asked.get() if threads is None else None if threads == "auto" else threads
    before, token = torch.get_num_threads(), _asked.set(asked)
    try:
        if before != 1:
            torch.set_num_threads(1)
        yield
    finally:
        _asked.reset(token)
        if before != 1:
            torch.set_num_threads(before)


def on_own_threads(*names: str) -> Callable[[Estimator], Estimator]:
    """Let these methods of a class work on as many threads as its parameter `threads` says."""

    def change(kind: Estimator) -> Estimator:
        for name in names:
            setattr(kind, name, _on_own_threads(getattr(kind, name)))
        return kind

    return change


def _on_own_threads(method: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(method)
    def work(self: Any, *given: Any, **named: Any) -> Any:
        with working(self.threads):
            return method(self, *given, **named)

    return work


def threads_here(n_pieces: int) -> int:
    """Return how many threads share so many pieces of the work that is done here."""
    return number_of_threads(n_pieces, _asked.get())


def mapped(work: Callable[[Piece], Result], pieces: Iterable[Piece]) -> list[Result]:
    """Return the results of pieces of work in their order, each made by one thread.

    The first ones are made here, and tell whether they are worth sharing; the results are the same.
    """
    pieces = list(pieces)
    n_threads = threads_here(len(pieces) - TRIED)
    if n_threads == 1:
        return [work(piece) for piece in pieces]
    import torch

    learns = torch.is_grad_enabled()  # of this thread alone

    def one(piece: Piece) -> tuple[Result, float]:
        started = perf_counter()
        with working(1), torch.set_grad_enabled(learns):
            return work(piece), perf_counter() - started

    done = [one(piece) for piece in pieces[:TRIED]]
    if min(seconds for _, seconds in done) < WORTH_SHARING:
        done += map(one, pieces[TRIED:])
    else:
        with working(1), ThreadPoolExecutor(n_threads) as pool:
            done += pool.map(one, pieces[TRIED:])
    return [result for result, _ in done]
