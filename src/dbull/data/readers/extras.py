"""Libraries that come with an extra: imported when first needed, with a message that says how to get them."""

import importlib
from functools import cache
from typing import Any

from dbull.errors import DataError


@cache
def optional_pyarrow() -> Any:
    """Return pyarrow with the parts used here, or None if it is not installed."""
    try:
        for part in ("csv", "ipc", "parquet"):
            importlib.import_module(f"pyarrow.{part}")
        return importlib.import_module("pyarrow")
    except ImportError:
        return None


def need_pyarrow(where: str) -> Any:
    """Return pyarrow, or say how to install it."""
    pyarrow = optional_pyarrow()
    if pyarrow is None:
        raise DataError(f"{where}: Parquet and Arrow need pyarrow; install it with `pip install 'dbull[io]'`")
    return pyarrow


def need_pillow(where: str) -> Any:
    """Return the module PIL.Image, or say how to install it."""
    try:
        return importlib.import_module("PIL.Image")
    except ImportError as error:
        raise DataError(
            f"{where}: images need Pillow; install it with `pip install 'dbull[vision]'`"
        ) from error
