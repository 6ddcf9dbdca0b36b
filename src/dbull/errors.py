"""The errors that dbull raises on purpose. Each says what was found, where, and what to do."""

__all__ = ["DataError", "DbullError", "MethodError", "NumericalError", "ResultsError", "SettingsError"]


class DbullError(Exception):
    """Base of every error that dbull raises on purpose."""


class DataError(DbullError, ValueError):
    """The data given cannot be used; the message names the row, the column or the parameter."""


class NumericalError(DbullError, ArithmeticError):
    """A computation left the range in which it is exact; nothing was silently repaired."""


class SettingsError(DbullError, ValueError):
    """A setting or name is unknown or out of range; the message names it and the nearest known one."""


class ResultsError(DbullError, RuntimeError):
    """A result folder holds something else than what is asked of it; nothing in it was changed."""


class MethodError(DbullError, RuntimeError):
    """A clustering method broke its contract, for example with ids of the wrong shape."""
