"""Unsupervised lifelong clustering."""

from typing import TYPE_CHECKING

from dbull.errors import DataError, DbullError, NumericalError

if TYPE_CHECKING:
    from dbull.methods.dbull import DBULL
    from dbull.methods.dbull_storage import load
    from dbull.methods.dp_mixture import DPMixture

__all__ = ["DBULL", "DPMixture", "DataError", "DbullError", "NumericalError", "load"]


def __getattr__(name: str) -> object:
    """Import estimators when they are first asked for: torch takes seconds, and `dbull --help` needs none."""
    if name == "DBULL":
        from dbull.methods.dbull import DBULL

        return DBULL
    if name == "load":
        from dbull.methods.dbull_storage import load

        return load
    if name == "DPMixture":
        from dbull.methods.dp_mixture import DPMixture

        return DPMixture
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
