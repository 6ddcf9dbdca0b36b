"""Writing a generation: whole under its final name, or not there at all.

All files are written and flushed under a temporary name in the model folder. Then one rename gives the
generation its name. Renaming a folder onto one that is not empty fails on every POSIX system (and onto any on
Windows), and a generation is never empty, so the rename also decides between two writers: one succeeds, the
other finds the name taken. An empty folder under that name would be replaced; it has nothing to lose.

A killed writer leaves its temporary folder. The next writer removes it if its owner is known to be dead
(a process of the same machine and process namespace that no longer runs) or if it is older than a day.
"""

from __future__ import annotations

import errno
import os
import re
import secrets
import shutil
import socket
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path

from dbull.errors import ConflictError, DbullError, ModelWriteError
from dbull.store.layout import generation_name

__all__ = ["is_leftover", "publish", "remove_leftovers", "writing"]

LEFTOVER_SECONDS = 24 * 3600

_TEMP = re.compile(r"\.tmp-(?P<owner>[A-Za-z0-9._]+)-(?P<pid>\d+)-[0-9a-f]{8}\Z", re.ASCII)
# What a folder that cannot be flushed answers; the rename is then as safe as the file system makes it.
_NO_FOLDER_SYNC = {errno.EINVAL, errno.ENOTSUP, errno.EBADF, errno.EACCES, errno.EPERM}
_FIXES = {
    errno.ENOSPC: "free some space, then run the same again",
    errno.EDQUOT: "free some of your quota, then run the same again",
    errno.EFBIG: "the system limits the size of files (ulimit -f); raise it, then run the same again",
    errno.EACCES: "make the folder writable, or copy the model to a place that is",
    errno.EPERM: "make the folder writable, or copy the model to a place that is",
    errno.EROFS: "the file system is read-only; copy the model to one that is writable",
}


@contextmanager
def writing(model: Path) -> Iterator[None]:
    """Turn a failure of the file system into our own error, which says that nothing was changed."""
    try:
        yield
    except DbullError:
        raise
    except OSError as error:
        fix = _FIXES.get(error.errno or 0, "see to it, then run the same again")
        raise ModelWriteError(
            f"{error.filename or model}: cannot be written ({error.strerror or error}); "
            f"the model is as it was: {fix}"
        ) from error


def publish(model: Path, number: int, files: Mapping[str, bytes]) -> None:
    """Write a generation, or raise ConflictError if there is one of that number by then."""
    with writing(model):
        _make_folder(model)
        remove_leftovers(model)
        temp = model / f".tmp-{_owner()}-{os.getpid()}-{secrets.token_hex(4)}"
        try:
            temp.mkdir()
            for name, data in files.items():
                _write(temp / name, data)
            _sync_folder(temp)
            _claim(temp, model / generation_name(number))
        finally:
            shutil.rmtree(temp, ignore_errors=True)
    try:
        _sync_folder(model)
    except OSError as error:
        raise ModelWriteError(
            f"{model / generation_name(number)}: is written, but the system did not confirm that it is safe "
            f"from a loss of power ({error.strerror}); see to the disk, then check the model"
        ) from error


def remove_leftovers(model: Path) -> None:
    """Remove temporary folders of writers that are gone."""
    for path in [entry for entry in model.iterdir() if _TEMP.match(entry.name)]:
        if is_leftover(path):
            shutil.rmtree(path, ignore_errors=True)


def is_leftover(path: Path) -> bool:
    """Tell whether a temporary folder has no writer any more."""
    match = _TEMP.match(path.name)
    if match is None:
        return False
    if match["owner"] == _owner() and not _runs(int(match["pid"])):
        return True
    try:
        return time.time() - path.stat().st_mtime > LEFTOVER_SECONDS
    except OSError:  # removed by another writer meanwhile
        return False


def _make_folder(model: Path) -> None:
    if model.is_dir():
        return
    model.mkdir(parents=True, exist_ok=True)
    _sync_folder(model.parent)


def _write(path: Path, data: bytes) -> None:
    with open(path, "xb") as handle:
        handle.write(data)
        handle.flush()
        os.fsync(handle.fileno())


def _claim(temp: Path, target: Path) -> None:
    try:
        os.rename(temp, target)
    except OSError as error:
        if error.errno in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
            raise ConflictError(
                f"{target} has just been written by another process; nothing of this run was added: "
                "load the model again and repeat"
            ) from error
        raise


def _sync_folder(path: Path) -> None:
    try:
        handle = os.open(path, os.O_RDONLY)
    except OSError as error:
        if error.errno in _NO_FOLDER_SYNC:
            return
        raise
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno not in _NO_FOLDER_SYNC:
            raise
    finally:
        os.close(handle)


@cache
def _owner() -> str:
    """Name what process numbers belong to: the machine and, in a container, its process namespace."""
    place = socket.gethostname()
    with suppress(OSError, AttributeError):
        place += "." + os.readlink("/proc/self/ns/pid")
    return re.sub(r"[^A-Za-z0-9._]", "_", place)[:100] or "_"


def _runs(pid: int) -> bool:
    if os.name != "posix":  # signal 0 would end the process elsewhere
        return True
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        return True
    return True
