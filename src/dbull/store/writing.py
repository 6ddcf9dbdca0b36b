"""Writing a generation: whole under its final name, or not there at all.

All files are written and flushed in a folder of their own under MODEL/.writing. Then one rename gives the
generation its name. Renaming a folder onto one that is not empty fails on every POSIX system (and onto any on
Windows), and a generation is never empty, so the rename also decides between two writers: one succeeds, the
other finds the name taken. An empty folder under that name would be replaced; it has nothing to lose.

A killed writer leaves its folder, whose name tells whose it was. The next writer removes it if that process
is known to be gone. It is renamed before it is emptied: should its owner live after all, the owner's own
rename finds nothing, and no generation with missing files gets a name.

A process is known by the boot of its machine, its process namespace, its number and its start. The name of a
machine would not do, since several may have the same on a shared disk; nor would a clock, since clocks are
set. Of a process of another boot or namespace nothing can be known here, however old its folder is.
"""

import errno
import os
import re
import secrets
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path

from dbull.errors import ConflictError, DbullError, ModelWriteError
from dbull.store.layout import WRITING, damaged, generation_name
from dbull.writing import new_file, sync_folder

_FIXES = {
    errno.ENOSPC: "free some space, then run the same again",
    errno.EDQUOT: "free some of your quota, then run the same again",
    errno.EFBIG: "the system limits the size of files (ulimit -f); raise it, then run the same again",
    errno.EACCES: "make the folder writable, or copy the model to a place that is",
    errno.EPERM: "make the folder writable, or copy the model to a place that is",
    errno.EROFS: "the file system is read-only; copy the model to one that is writable",
}

_NAME = re.compile(r"(?P<place>[0-9a-f-]{36}\.\d+)\.(?P<pid>\d+)\.(?P<start>\d+)\.[0-9a-f]{16}\Z", re.ASCII)
_NOBODY = re.compile(r"gone-[0-9a-f]{16}\Z", re.ASCII)


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


def check_writable(model: Path) -> None:
    """Refuse a folder that the system says cannot be written to, or made where it is not there yet."""
    place = model.absolute()
    while not os.path.lexists(place) and place != place.parent:
        place = place.parent
    if os.path.isdir(place) and not os.access(place, os.W_OK | os.X_OK):
        raise ModelWriteError(
            f"{model}: cannot be written, since {place} is not writable; make it so, or put the "
            "model in a place that is"
        )


def publish(model: Path, number: int, files: Mapping[str, bytes]) -> None:
    """Write a generation, or raise ConflictError if there is one of that number by then."""
    with writing(model), _temporary(model) as temp:
        for name, data in files.items():
            _write(temp / name, data)
        sync_folder(temp)
        if sorted(os.listdir(temp)) != sorted(files):
            raise FileNotFoundError(errno.ENOENT, "files were taken away meanwhile", str(temp))
        _claim(temp, model / generation_name(number))
    try:
        sync_folder(model)
    except OSError as error:
        raise ModelWriteError(
            f"{model / generation_name(number)}: is written, but the system did not confirm that it is safe "
            f"from a loss of power ({error.strerror}); see to the disk, then check the model"
        ) from error


def replace_file(path: Path, pieces: Iterator[bytes]) -> None:
    """Put a file in the place of whatever has its name; a link is replaced and not written through."""
    with _temporary(path.parent) as temp, new_file(temp / path.name, path) as handle:
        handle.writelines(pieces)


def remove_leftovers(model: Path, *, of_others: bool = False) -> None:
    """Remove folders of writers that are gone; with `of_others` also those of whom nothing can be known."""
    place = model / WRITING
    for name in os.listdir(place):
        if is_gone(name) is True or (of_others and is_gone(name) is None):
            with suppress(OSError):  # another writer was faster, or its owner after all
                # A name that no owner has: whoever meets it later may remove it.
                aside = place / f"gone-{secrets.token_hex(8)}"
                os.rename(place / name, aside)
                shutil.rmtree(aside)


@contextmanager
def _temporary(model: Path) -> Iterator[Path]:
    """Give a new folder on the same file system, and take it away if it is still there at the end."""
    place = model / WRITING
    _make_folder(model)
    with suppress(FileExistsError):
        place.mkdir()
    if os.path.islink(place):
        raise damaged(place, "is a symbolic link, and nothing is written through one")
    remove_leftovers(model)
    temp = place / owner_name()
    temp.mkdir()
    try:
        yield temp
    finally:
        shutil.rmtree(temp, ignore_errors=True)


def _make_folder(folder: Path) -> None:
    if folder.is_dir():
        return
    _make_folder(folder.absolute().parent)
    with suppress(FileExistsError):
        folder.mkdir()
    sync_folder(folder.absolute().parent)


def _write(path: Path, data: bytes) -> None:
    with new_file(path) as handle:
        handle.write(data)


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


def owner_name() -> str:
    """Return a new name for what this process writes."""
    place = _place()
    who = "unknown" if place is None else f"{place}.{os.getpid()}.{_start(os.getpid())}"
    return f"{who}.{secrets.token_hex(8)}"


def is_gone(name: str) -> bool | None:
    """Tell whether the owner of a name is gone; None where that cannot be known."""
    if _NOBODY.match(name):
        return True
    match = _NAME.match(name)
    if match is None or match["place"] != _place():
        return None
    pid = int(match["pid"])
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return True
    except PermissionError:
        pass
    start = _start(pid)  # None also where the system hides processes of other users
    return start is not None and start != match["start"]


def _start(pid: int) -> str | None:
    """Return when a process started, in ticks since the boot; its number may have had another owner."""
    try:
        # The name of the program, in brackets, may hold anything.
        return Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return None


@cache
def _place_of(pid: int) -> str | None:
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        namespace = re.sub(r"\D", "", os.readlink("/proc/self/ns/pid"))
        # A /proc of another namespace would tell of other processes.
        same = os.readlink("/proc/self") == str(pid)
    except (OSError, AttributeError):
        return None
    return f"{boot}.{namespace}" if same and _start(pid) is not None else None


def _place() -> str | None:
    """Name what process numbers belong to; None where the system does not tell."""
    return _place_of(os.getpid()) if os.name == "posix" else None
