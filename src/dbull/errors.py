"""The errors that dbull raises on purpose. Each says what was found, where, and what to do."""

__all__ = [
    "DataError",
    "DbullError",
    "FolderInUseError",
    "MethodError",
    "NumericalError",
    "ResultsError",
    "SettingsError",
]


class DbullError(Exception):
    """Base of every error that dbull raises on purpose."""


class DataError(DbullError, ValueError):
    """The data given cannot be used; the message names the row, the column or the parameter."""


class NumericalError(DbullError, ArithmeticError):
    """A computation left the range in which it is exact; nothing was silently repaired."""


class SettingsError(DbullError, ValueError):
    """A setting or name is unknown or out of range; the message names it and the nearest known one."""


class ResultsError(DbullError, ValueError):
    """Results given as input are damaged or cannot be compared; nothing in them was changed."""


class FolderInUseError(DbullError, RuntimeError):
    """Another process is writing where this one was told to write."""


class MethodError(DbullError, RuntimeError):
    """A clustering method broke its contract: ids of the wrong shape, or another answer when repeated."""
