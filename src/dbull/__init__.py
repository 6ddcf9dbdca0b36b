"""Unsupervised lifelong clustering."""

from .errors import DataError, DbullError, NumericalError
from .methods.dp_mixture import DPMixture

__all__ = ["DPMixture", "DataError", "DbullError", "NumericalError"]
