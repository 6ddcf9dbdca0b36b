"""Unsupervised lifelong clustering."""

import importlib
import logging
from typing import TYPE_CHECKING

from dbull.errors import DataError, DbullError, NumericalError

if TYPE_CHECKING:
    from dbull.data.blocks import Source
    from dbull.lifelong.processes import trained_together
    from dbull.methods.cells import cells, to_anndata
    from dbull.methods.competitors.curl import CURL
    from dbull.methods.competitors.dec import DEC
    from dbull.methods.competitors.vade import VaDE
    from dbull.methods.competitors.vae_dp import VAEDP
    from dbull.methods.dbull import DBULL
    from dbull.methods.dp_mixture import DPMixture
    from dbull.methods.predictor import Predictor
    from dbull.methods.storage import load

__all__ = [
    "CURL",
    "DBULL",
    "DEC",
    "VAEDP",
    "DPMixture",
    "DataError",
    "DbullError",
    "NumericalError",
    "Predictor",
    "Source",
    "VaDE",
    "cells",
    "load",
    "to_anndata",
    "trained_together",
]

logging.getLogger("dbull").addHandler(logging.NullHandler())  # whoever wants to hear it says so

MODULES = {
    "CURL": "methods.competitors.curl",
    "DBULL": "methods.dbull",
    "DEC": "methods.competitors.dec",
    "DPMixture": "methods.dp_mixture",
    "Predictor": "methods.predictor",
    "Source": "methods.scale",
    "VAEDP": "methods.competitors.vae_dp",
    "VaDE": "methods.competitors.vade",
    "cells": "methods.cells",
    "load": "methods.storage",
    "to_anndata": "methods.cells",
    "trained_together": "lifelong.processes",
}


def __getattr__(name: str) -> object:
    """Import estimators when they are first asked for: torch takes seconds, and `dbull --help` needs none."""
    if name in MODULES:
        return getattr(importlib.import_module(f"dbull.{MODULES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
