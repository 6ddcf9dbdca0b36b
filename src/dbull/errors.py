"""The errors that dbull raises on purpose. Each says what was found, where, and what to do."""

import difflib
import errno
from collections.abc import Collection

_WRONG_PLACE = (
    *(errno.ENOENT, errno.EEXIST, errno.ENOTDIR, errno.EISDIR, errno.ENAMETOOLONG, errno.EINVAL),
    *(errno.EACCES, errno.EPERM, errno.EROFS),
)


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


class ConflictError(FolderInUseError):
    """Another writer was first: the model went on from the generation that this one also went on from."""


class AlreadyLearnedError(DataError):
    """The model has learned this very input before; learning it again would count its rows twice."""


class ModelFileError(DbullError, ValueError):
    """A file of a model is damaged, missing, foreign or too new; the message names it and the fix."""


class ModelWriteError(DbullError, OSError):
    """The model could not be written (full disk, no permission); what was there before is untouched."""


class OutputError(DbullError, OSError):
    """An answer could not be written although its place is right: a full disk, or a failing one."""


class WorkersLostError(DbullError, RuntimeError):
    """A process or machine that worked on blocks is gone; nothing of the model was changed."""


class MethodError(DbullError, RuntimeError):
    """A clustering method broke its contract: ids of the wrong shape, or another answer when repeated."""


class TableNotice(UserWarning):
    """Something that a user should know about a table: columns left out, new or absent, values not read."""


def check_known(kind: str, name: str, known: Collection[str]) -> None:
    """Refuse a name that is not among `known`, and offer the nearest that is."""
    if name not in known:
        everything = ", ".join(known) or "none"
        raise SettingsError(f"unknown {kind} {name!r}: {did_you_mean(str(name), known)}known: {everything}")


def did_you_mean(name: str, known: Collection[str]) -> str:
    """Return "did you mean 'x'? " for the known name nearest to `name`, or nothing if none is near."""
    nearest = difflib.get_close_matches(str(name), known, n=1, cutoff=0.5)
    return f"did you mean {nearest[0]!r}? " if nearest else ""


def not_written(target: object, error: OSError) -> DbullError:
    """Return the error to raise when an answer cannot be written: a wrong name or place, or the disk."""
    text = f"{target}: cannot be written ({error.strerror or error})"
    if error.errno in _WRONG_PLACE:
        return SettingsError(f"{text}; name another file")
    return OutputError(f"{text}; nothing was put there: see to the disk, then run the same again")
