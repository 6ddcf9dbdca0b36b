"""Scores: labels and cluster ids in, numbers out. Nothing here is ever shown to a learner."""

from dbull.metrics.clustering import (
    SCORE_NAMES,
    ClassScore,
    clustering_scores,
    hungarian_accuracy,
    per_class_scores,
    purity,
    top_majority_accuracy,
)
from dbull.metrics.lifelong import (
    average_score,
    backward_transfer,
    forgetting,
    forgetting_per_task,
    id_stability,
)

__all__ = [
    "SCORE_NAMES",
    "ClassScore",
    "average_score",
    "backward_transfer",
    "clustering_scores",
    "forgetting",
    "forgetting_per_task",
    "hungarian_accuracy",
    "id_stability",
    "per_class_scores",
    "purity",
    "top_majority_accuracy",
]
