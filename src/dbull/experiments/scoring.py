"""The scoring half of a run: the only place where true labels are read.

Records are plain dicts of numbers, ready for JSON. A step's record is a function of the ids a method gave;
the final record is a function of the steps' records alone, so it can be recomputed from a result folder.
"""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dbull import metrics
from dbull.data import HeldOut, Scenario
from dbull.metrics import SCORE_NAMES, clustering_scores

Ids = NDArray[np.int64]


class Scorer:
    """Holds the labels of a scenario and turns ids into records."""

    def __init__(self, scenario: Scenario):
        self._arrival_labels = [arrival.y_true for arrival in scenario.arrivals]
        self._arrival_tasks = [arrival.task for arrival in scenario.arrivals]
        self._held_out = {part.task: part for part in scenario.held_out}

    @property
    def true_k(self) -> int:
        """Number of classes of the whole stream, for methods that declare that they are told."""
        return len(self._classes(sorted(self._held_out)))

    def tasks_seen(self, arrival: int) -> list[int]:
        """Tasks met up to and including an arrival, in ascending order."""
        return sorted(set(self._arrival_tasks[: arrival + 1]))

    def ends_phase(self, arrival: int) -> bool:
        """Whether the next arrival is of another task, or there is none."""
        tasks = self._arrival_tasks
        return arrival + 1 == len(tasks) or tasks[arrival + 1] != tasks[arrival]

    def held_out_rows(self, arrival: int) -> NDArray[np.float32]:
        """Rows, without labels, of the held-out data of all tasks seen, task after task."""
        return np.concatenate([part.x for part in self._seen(arrival)])

    def step_record(
        self,
        arrival: int,
        ids_before: Ids | None,
        ids_held_out: Ids,
        ids_resolved: Ids | None,
        n_clusters: int | None,
    ) -> dict[str, Any]:
        """Score one arrival.

        `ids_before` are those of its rows before it was learnt, `ids_held_out` those of :meth:`held_out_rows`
        after. `ids_resolved` are those of the held-out rows of the previous arrival's tasks as they were
        before this one was learnt, in present names. What is not known is None.
        """
        parts, own_labels = self._seen(arrival), self._arrival_labels[arrival]
        labels = np.concatenate([part.y_true for part in parts])
        ends = np.cumsum([len(part.y_true) for part in parts])
        ids_by_task = dict(zip([part.task for part in parts], np.split(ids_held_out, ends[:-1]), strict=True))
        n_used = len(np.unique(ids_held_out))
        record: dict[str, Any] = {
            "arrival": arrival,
            "task": self._arrival_tasks[arrival],
            "rows": len(own_labels),
            "before_learning": None if ids_before is None else clustering_scores(own_labels, ids_before),
            "tasks": {
                str(part.task): clustering_scores(part.y_true, ids_by_task[part.task]) for part in parts
            },
            "cumulative": clustering_scores(labels, ids_held_out),
            "per_class": [asdict(score) for score in metrics.per_class_scores(labels, ids_held_out)],
            "n_clusters": n_used if n_clusters is None else n_clusters,
            "n_clusters_used": n_used,
            "n_classes": len(self._classes(self.tasks_seen(arrival))),
            "id_stability": None,
        }
        if ids_resolved is not None:
            earlier = np.concatenate([ids_by_task[task] for task in self.tasks_seen(arrival - 1)])
            record["id_stability"] = metrics.id_stability(ids_resolved, earlier)
        return record

    def _seen(self, arrival: int) -> list[HeldOut]:
        return [self._held_out[task] for task in self.tasks_seen(arrival)]

    def _classes(self, tasks: list[int]) -> set[int]:
        return {label for task in tasks for label in self._held_out[task].classes}


def final_record(steps: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Sum up a stream from the records of its steps: final scores, score matrices and lifelong scores."""
    last = steps[-1]
    stabilities = [step["id_stability"] for step in steps if step["id_stability"] is not None]
    lifelong = {}
    for name in SCORE_NAMES:
        matrix = score_matrix(steps, name)
        lifelong[name] = {
            "matrix": [[None if np.isnan(value) else float(value) for value in row] for row in matrix],
            "average": metrics.average_score(matrix),
            "forgetting": metrics.forgetting(matrix),
            "backward_transfer": metrics.backward_transfer(matrix),
        }
    return {
        "arrivals": len(steps),
        "rows": sum(step["rows"] for step in steps),
        "scores": last["cumulative"],
        "per_class": last["per_class"],
        **{name: last[name] for name in ("n_clusters", "n_clusters_used", "n_classes")},
        "n_clusters_error": last["n_clusters"] - last["n_classes"],
        "id_stability": float(np.mean(stabilities)) if stabilities else None,
        "tasks": _tasks(steps),
        "phases": [steps[end]["task"] for end in _phase_ends(steps)],
        "lifelong": lifelong,
    }


def score_matrix(steps: Sequence[dict[str, Any]], score: str) -> NDArray[np.float64]:
    """Return R (phases, tasks): ``R[i, j]`` on held-out task j after phase i, NaN before task j is met.

    Columns are the tasks of the stream in ascending order.
    """
    tasks = _tasks(steps)
    phases = [steps[end]["tasks"] for end in _phase_ends(steps)]
    return np.array([[phase.get(str(task), {}).get(score, np.nan) for task in tasks] for phase in phases])


def _tasks(steps: Sequence[dict[str, Any]]) -> list[int]:
    return sorted({step["task"] for step in steps})


def _phase_ends(steps: Sequence[dict[str, Any]]) -> list[int]:
    """Positions of the last step of every run of steps of the same task."""
    tasks = [step["task"] for step in steps]
    return [i for i in range(len(tasks)) if i + 1 == len(tasks) or tasks[i + 1] != tasks[i]]
