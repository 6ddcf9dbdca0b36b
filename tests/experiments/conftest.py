"""Small streams whose right answers are known, shared by the tests of the runner."""

import hashlib
from collections.abc import Callable, Sequence

import numpy as np
import pytest

from dbull.data import Arrival, HeldOut, Scenario


def blobs(label: int, n_rows: int, rng: np.random.Generator) -> np.ndarray:
    """Rows of one class, far from all other classes: class c sits at (10 c, 0, 0)."""
    rows = rng.normal(scale=0.5, size=(n_rows, 3))
    rows[:, 0] += 10 * label
    return rows.astype(np.float32)


@pytest.fixture
def make_stream() -> Callable[..., Scenario]:
    """Make a stream from the task of each arrival; task t holds the classes 2t and 2t + 1."""

    def make(tasks: Sequence[int] = (0, 0, 1, 1, 2), seed: int = 0, rows_per_class: int = 15) -> Scenario:
        rng = np.random.default_rng(seed)

        def rows_of(task: int) -> tuple[np.ndarray, np.ndarray, tuple[int, ...]]:
            classes = (2 * task, 2 * task + 1)
            x = np.concatenate([blobs(label, rows_per_class, rng) for label in classes])
            y = np.repeat(np.array(classes, dtype=np.int64), rows_per_class)
            order = rng.permutation(len(y))
            return x[order], y[order], classes

        arrivals, held_out = [], []
        for index, task in enumerate(tasks):
            x, y, classes = rows_of(task)
            arrivals.append(Arrival(index=index, x=x, y_true=y, task=task, classes=classes))
        for task in sorted(set(tasks)):
            x, y, classes = rows_of(task)
            held_out.append(HeldOut(task=task, x=x, y_true=y, classes=classes))
        fingerprint = hashlib.sha256(b"".join(arrival.x.tobytes() for arrival in arrivals)).hexdigest()
        return Scenario(
            name="blobs",
            seed=seed,
            dataset="blobs",
            sample_shape=(3,),
            kind="features",
            arrivals=tuple(arrivals),
            held_out=tuple(held_out),
            fingerprint=fingerprint,
            domain=lambda: np.concatenate([arrival.x for arrival in arrivals]),
        )

    return make
