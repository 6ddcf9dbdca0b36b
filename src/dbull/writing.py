"""Answers as files: each appears whole under its name, or not at all; nothing is written through a link."""

import errno
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime, timezone
from pathlib import Path
from time import time
from typing import IO

from dbull.errors import DbullError, SettingsError, not_written

_NEW = os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)
# What a folder that cannot be flushed answers; the rename is then as safe as the file system makes it.
_NO_FOLDER_SYNC = {errno.EINVAL, errno.ENOTSUP, errno.EBADF, errno.EACCES, errno.EPERM}


def now() -> str:
    """Return the time as UTC text; SOURCE_DATE_EPOCH sets it, so that a run can be repeated to the byte."""
    fixed = os.environ.get("SOURCE_DATE_EPOCH")
    try:
        moment = datetime.fromtimestamp(time() if fixed is None else int(fixed), timezone.utc)
    except (ValueError, OverflowError, OSError) as error:
        raise SettingsError(f"SOURCE_DATE_EPOCH must be seconds since 1970, got {fixed!r:.40}") from error
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


@contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[IO[bytes]]:
    """Yield an empty file; when all is written and on disk, it takes the place of what is at `path`.

    The temporary name beside it cannot be guessed, so nobody can lay a link there. A link at `path` is
    replaced itself; what it leads to stays as it is. If anything fails, nothing is left behind: SettingsError
    tells of a wrong place, OutputError of the disk.
    """
    target = Path(path)
    check_place(target)
    unfinished = target.with_name(f".dbull-{secrets.token_hex(8)}")  # short: names may have 255 bytes
    try:
        with new_file(unfinished, target) as handle:
            yield handle
        sync_folder(target.parent)
    except DbullError:
        raise
    except OSError as error:
        raise not_written(target, error) from error


@contextmanager
def new_file(path: Path, final: Path | None = None) -> Iterator[IO[bytes]]:
    """Yield a file where there was none, not even a link; when all is on disk, it takes the place of `final`.

    If anything fails, what was begun is removed.
    """
    handle = os.fdopen(os.open(path, _NEW, 0o666), "w+b")
    try:
        with handle:
            yield handle
            handle.flush()
            os.fsync(handle.fileno())
        if final is not None:
            os.replace(path, final)
    except BaseException:
        with suppress(OSError):  # the reason why it is not there is told
            path.unlink()
        raise


def make_parent(target: Path) -> None:
    """Make the folder in which a file is to be."""
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise not_written(target, error) from error


def check_place(target: Path) -> None:
    """Refuse a folder, a device, a FIFO or a socket as the name of a file, also behind a link."""
    try:
        found = target.stat()
    except OSError:  # nothing there yet, or a link that leads nowhere; else writing will tell
        return
    if stat.S_ISDIR(found.st_mode):
        raise SettingsError(f"{target}: is a folder; name a file in it")
    where = os.path.abspath(target)
    if not stat.S_ISREG(found.st_mode) or os.path.dirname(where) == "/dev" or where.startswith("/proc/"):
        raise SettingsError(
            f"{target}: is a device, a pipe or a socket, which a file cannot replace; name a file"
        )


def sync_folder(folder: Path) -> None:
    """Let the new name itself reach the disk."""
    if os.name != "posix":
        return
    try:
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
    except OSError as error:
        if error.errno not in _NO_FOLDER_SYNC:
            raise
