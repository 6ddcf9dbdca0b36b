"""Exit codes, and the one place where an error becomes one of them."""

import errno
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from enum import IntEnum
from types import FrameType

import typer

from dbull import errors
from dbull.cli.output import drop_output, printable, reader_is_gone, say

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)


class ExitCode(IntEnum):
    """What the process tells its caller; docs/command-line.md says when."""

    DONE = 0
    FAULT = 1
    USAGE = 2
    DATA_REFUSED = 3
    MODEL_DAMAGED = 4
    OTHER_WRITER = 5
    CONDITION_MET = 6
    INTERRUPTED = 130
    TERMINATED = 143


_CODES = (
    (errors.SettingsError, ExitCode.USAGE),
    ((errors.DataError, errors.ResultsError), ExitCode.DATA_REFUSED),
    (errors.ModelFileError, ExitCode.MODEL_DAMAGED),
    (errors.FolderInUseError, ExitCode.OTHER_WRITER),
)


class _Terminated(BaseException):
    """SIGTERM arrived; a BaseException so that no library swallows it."""


class _Interrupted(KeyboardInterrupt):
    """SIGINT arrived.

    A class of its own, because Python remembers a plain `KeyboardInterrupt` that passes through an `exec` of
    text (the making of any dataclass), and `python -m` then ends by the signal although it was caught.
    """


@contextmanager
def exit_codes() -> Iterator[None]:
    """Turn errors made on purpose into one line on standard error and an exit code.

    Complaints about usage are left to typer, but repeat nothing that commands a terminal. Anything else
    is a fault of ours and keeps its traceback (exit code 1).
    """

    def stop(number: int, frame: FrameType | None) -> None:
        raise _Terminated if number == signal.SIGTERM else _Interrupted

    before = {signal.SIGTERM: signal.signal(signal.SIGTERM, stop)}
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # not where it is ignored
        before[signal.SIGINT] = signal.signal(signal.SIGINT, stop)
    try:
        with _whole_output():
            yield
    except errors.DbullError as error:
        say(f"error: {error}", err=True)
        codes = (code for kinds, code in _CODES if isinstance(error, kinds))
        raise typer.Exit(next(codes, ExitCode.FAULT)) from error
    except (KeyboardInterrupt, _Terminated) as error:
        code = ExitCode.TERMINATED if isinstance(error, _Terminated) else ExitCode.INTERRUPTED
        say(f"{code.name.lower()}: what is written stays; the same command goes on from there", err=True)
        raise typer.Exit(code) from error
    except Exception as error:
        if hasattr(error, "format_message"):  # of typer, whose class has moved from version to version
            shown = printable(error.format_message())
            error.format_message = lambda: shown
        raise
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def _whole_output() -> Iterator[None]:
    """Notice here, not while Python ends, that standard output cannot take what was printed."""
    ended: typer.Exit | None = None
    try:
        try:
            yield
        except typer.Exit as error:
            ended = error
        if sys.stdout is not None:  # closed before we began
            sys.stdout.flush()
    except BrokenPipeError:
        if not reader_is_gone(sys.stdout):
            raise
        drop_output()  # whoever read it has enough
        ended = ended or typer.Exit(ExitCode.DONE)
    except OSError as error:
        # Files have names, and whoever writes a model or a table makes an error of ours of it.
        if isinstance(error, errors.DbullError) or error.filename is not None or error.errno not in _FULL:
            raise
        drop_output()
        raise errors.OutputError(
            f"standard output: cannot be written ({error.strerror}); what a model has learned stays learned"
        ) from error
    if ended is not None:
        raise ended
