"""Exit codes, and the one place where an error becomes one of them."""

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from enum import IntEnum
from types import FrameType

import typer

from dbull.errors import DataError, DbullError, FolderInUseError, ModelFileError, ResultsError, SettingsError

__all__ = ["ExitCode", "exit_codes"]


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


class _Terminated(BaseException):
    """SIGTERM arrived; a BaseException so that no library swallows it."""


@contextmanager
def exit_codes() -> Iterator[None]:
    """Turn errors made on purpose into one line on standard error and an exit code.

    Anything else is a fault of ours and keeps its traceback (exit code 1).
    """

    def terminate(number: int, frame: FrameType | None) -> None:
        raise _Terminated

    before = signal.signal(signal.SIGTERM, terminate)
    try:
        yield
    except DbullError as error:
        _say(f"error: {error}")
        raise typer.Exit(_code_of(error)) from error
    except KeyboardInterrupt as error:
        _say("interrupted: what is written stays; the same command goes on from there")
        raise typer.Exit(ExitCode.INTERRUPTED) from error
    except _Terminated as error:
        _say("terminated: what is written stays; the same command goes on from there")
        raise typer.Exit(ExitCode.TERMINATED) from error
    finally:
        signal.signal(signal.SIGTERM, before)


def _code_of(error: DbullError) -> ExitCode:
    if isinstance(error, SettingsError):
        return ExitCode.USAGE
    if isinstance(error, (DataError, ResultsError)):
        return ExitCode.DATA_REFUSED
    if isinstance(error, ModelFileError):
        return ExitCode.MODEL_DAMAGED
    if isinstance(error, FolderInUseError):
        return ExitCode.OTHER_WRITER
    return ExitCode.FAULT


def _say(text: str) -> None:
    print(text, file=sys.stderr)
