"""What a method makes of its clusters after each task, kept beside the scores: decoded means and samples.

The learned model itself is not kept, and a picture of the course of a stream cannot be drawn without this.
"""

import io
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dbull.data import Scenario
from dbull.errors import ResultsError
from dbull.writing import replacing

FILE = "generated.npz"
N_SAMPLES = 3  # of each cluster, beside its mean
MAX_CLUSTERS = 30  # the largest


@dataclass(frozen=True)
class Phase:
    """The clusters after a task, in the order of their ids: each keeps its place among those before it."""

    task: int
    shares: NDArray[np.float32]  # (K,) of all rows
    images: NDArray[np.uint8]  # (K, 1 + N_SAMPLES, height, width): the decoded mean, then samples


@dataclass
class Generated:
    """Collects phases of one run; of data that are no grey images it collects nothing."""

    stream: Scenario
    phases: list[Phase] = field(default_factory=list)

    def add(self, learner: Any, task: int) -> None:
        """Decode the clusters that a learner has now."""
        shape = self.stream.sample_shape
        if self.stream.kind != "images" or len(shape) != 2:
            return
        ids, shares = np.asarray(learner.cluster_ids_), np.asarray(learner.weights_)
        kept = np.argsort(-shares, kind="stable")[:MAX_CLUSTERS]
        kept = kept[np.argsort(ids[kept])]
        values = [
            np.concatenate([learner.prototype(cluster)[None], learner.sample(N_SAMPLES, cluster)[0]])
            for cluster in ids[kept].tolist()
        ]
        rows = self.stream.held_out[0].x
        low, high = float(rows.min()), float(rows.max())
        grey = np.clip((np.stack(values) - low) / (high - low or 1.0), 0.0, 1.0)
        images = np.rint(255 * grey).astype(np.uint8).reshape(len(values), -1, *shape)
        self.phases.append(Phase(task, shares[kept].astype(np.float32), images))

    def save(self, folder: Path) -> None:
        """Write all phases, if there are any."""
        if not self.phases:
            return
        arrays: dict[str, Any] = {"tasks": np.array([phase.task for phase in self.phases])}
        for i, phase in enumerate(self.phases):
            arrays |= {f"shares_{i}": phase.shares, f"images_{i}": phase.images}
        buffer = io.BytesIO()
        np.savez_compressed(buffer, **arrays)
        with replacing(folder / FILE) as handle:
            handle.write(buffer.getvalue())


def read_generated(folder: Path) -> list[Phase]:
    """Return what a run has kept, nothing if it has kept none."""
    path = folder / FILE
    if not path.exists():
        return []
    try:
        with np.load(path, allow_pickle=False) as kept:
            tasks = kept["tasks"].tolist()
            return [Phase(task, kept[f"shares_{i}"], kept[f"images_{i}"]) for i, task in enumerate(tasks)]
    except (OSError, ValueError, KeyError) as error:
        raise ResultsError(f"{path}: cannot be read ({error})") from error
