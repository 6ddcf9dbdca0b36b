"""Work on numbered blocks through joblib: in this process, in several, or on a cluster, with the same bits.

``joblib.parallel_config`` says where: ``n_jobs=4`` for processes of this machine, ``backend="dask"`` for a
cluster. What all blocks of a lap need is sent once: joblib shares large arrays between processes by a file,
and Dask is asked to spread it. Each block is worked on with one thread, so that nothing depends on where.
"""

import hashlib
import importlib
import pickle
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

import joblib
import numpy as np
from joblib.parallel import get_active_backend
from threadpoolctl import threadpool_limits

from dbull.errors import SettingsError, WorkersLostError
from dbull.threads import working

FIRST_GROUP, LARGEST_GROUP = 8, 64  # blocks at once, where results come only when all of them are there
LOST = ("TerminatedWorkerError", "BrokenProcessPool", "KilledWorker", "FutureCancelledError")
Work = Callable[..., Any]  # is given a block's number, the block, and whatever is told with it
_unpacked: dict[bytes, Work] = {}  # the latest that this process was sent


@contextmanager
def workers(n_workers: int | None = None, scheduler: str | None = None) -> Iterator[None]:
    """Let so many processes, or a cluster of Dask, work on blocks; as it is around this, if neither."""
    if scheduler is not None:
        try:
            client = importlib.import_module("dask.distributed").Client(scheduler, set_as_default=False)
        except ImportError as error:
            raise SettingsError(
                f"{scheduler}: a cluster of Dask needs dask; install it with `pip install 'dbull[dask]'`"
            ) from error
        except (OSError, ValueError) as error:
            raise SettingsError(f"{scheduler}: no scheduler of Dask is there ({error!s:.200})") from error
        with client, joblib.parallel_config(backend="dask", client=client):
            yield
    elif n_workers is not None:
        with joblib.parallel_config(backend="loky", n_jobs=n_workers):
            yield
    else:
        yield


def over_blocks(work: Work, blocks: Sequence[Any], told: Callable[[], Any] = lambda: None) -> Iterator[Any]:
    """Yield what a piece of work makes of each block, in their order.

    `told` is asked anew for each block that is handed out, and may say what is known by then.
    """
    job = np.frombuffer(pickle.dumps(work, protocol=5), dtype=np.uint8)
    backend = get_active_backend()[0]
    client = getattr(backend, "client", None)
    place = joblib.parallel_config(backend="dask", client=client, scatter=[job]) if client else nullcontext()
    numbered = list(enumerate(blocks))
    with place:
        streams = backend.supports_return_generator
        parallel = joblib.Parallel(batch_size=1, return_as="generator" if streams else "list")
        try:
            # Groups share their workers: Ray would start new ones for each.
            with nullcontext(parallel) if streams else parallel:
                for group in [numbered] if streams else _groups(numbered):
                    yield from parallel(joblib.delayed(on_block)(job, *one, told()) for one in group)
        except Exception as error:
            if type(error).__name__ not in LOST:
                raise
            raise WorkersLostError(
                f"a worker was lost ({type(error).__name__}: {error!s:.200}); was it killed, or is memory "
                "short? Finished laps are kept where there is a checkpoint: run the same again"
            ) from error


def _groups(numbered: Sequence[Any]) -> Iterator[Sequence[Any]]:
    """Yield ever larger groups: what the first blocks tell makes the answers of later ones small."""
    start, size = 0, FIRST_GROUP
    while start < len(numbered):
        yield numbered[start : start + size]
        start, size = start + size, min(2 * size, LARGEST_GROUP)


def on_block(job: Any, number: int, block: Any, told: Any) -> Any:
    """Do a piece of work that was packed on a block, with one thread."""
    data = memoryview(job)
    key = hashlib.blake2b(data, digest_size=16).digest()
    work = _unpacked.get(key)
    if work is None:
        work = pickle.loads(data)
        _unpacked.clear()
        _unpacked[key] = work
    # Of columns that are not as they should be the sample has told already.
    with working(1), threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return work(number, block, told)
