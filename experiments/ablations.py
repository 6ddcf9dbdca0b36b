"""DBULL with one part taken out that has no switch; the others are parameters.

PYTHONPATH=experiments dbull bench split-mnist --method-path ablations:NoStatistics --label no-statistics
"""

from typing import Any

from dbull import DBULL

__all__ = ["NoStatistics"]

SHARE = 1e-3


class NoStatistics(DBULL):
    """What an arrival leaves in the statistics counts for a thousandth: the past has hardly been."""

    def partial_fit(self, X: Any, y: object = None) -> DBULL:
        """Learn X, then forget almost all of its statistics."""
        super().partial_fit(X)
        memory = self.state_.memory
        memory.overall = memory.overall.scaled(SHARE)
        return self
