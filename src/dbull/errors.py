"""The errors that dbull raises on purpose. Each says what was found, where, and what to do."""

__all__ = ["DataError", "DbullError", "NumericalError"]


class DbullError(Exception):
    """Base of every error that dbull raises on purpose."""


class DataError(DbullError, ValueError):
    """The data given cannot be used; the message names the row, the column or the parameter."""


class NumericalError(DbullError, ArithmeticError):
    """A computation left the range in which it is exact; nothing was silently repaired."""
