"""Unsupervised lifelong clustering."""

import importlib
from typing import TYPE_CHECKING

from dbull.errors import DataError, DbullError, NumericalError

if TYPE_CHECKING:
    from dbull.methods.curl import CURL
    from dbull.methods.dbull import DBULL
    from dbull.methods.dec import DEC
    from dbull.methods.dp_mixture import DPMixture
    from dbull.methods.loading import load
    from dbull.methods.vade import VaDE
    from dbull.methods.vae_dp import VAEDP

__all__ = [
    "CURL",
    "DBULL",
    "DEC",
    "VAEDP",
    "DPMixture",
    "DataError",
    "DbullError",
    "NumericalError",
    "VaDE",
    "load",
]

MODULES = {
    "CURL": "curl",
    "DBULL": "dbull",
    "DEC": "dec",
    "DPMixture": "dp_mixture",
    "VAEDP": "vae_dp",
    "VaDE": "vade",
    "load": "loading",
}


def __getattr__(name: str) -> object:
    """Import estimators when they are first asked for: torch takes seconds, and `dbull --help` needs none."""
    if name in MODULES:
        return getattr(importlib.import_module(f"dbull.methods.{MODULES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
