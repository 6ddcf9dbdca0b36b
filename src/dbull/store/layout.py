"""Names, sizes and hashes of the files of a model folder, and reading them no further than they deserve.

::

    MODEL/
      gen-00000001/  gen-00000002/ ...      one folder per generation; nothing in it is ever changed
        manifest.json                       what the generation is, and size, SHA-256 and place of its files
        manifest.sha256                     SHA-256 of manifest.json, as `sha256sum` writes it
        events.jsonl                        what happened and was learned since the parent generation
        *.json  *.safetensors               documents and tensors of the caller that its parent has otherwise
      events.jsonl                          the events of all generations, one after the other
      .writing/                             generations being written; nobody reads them

Nothing is read or written through a link: whoever gives a folder away must not reach other files by it.
"""

import errno
import hashlib
import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import groupby
from pathlib import Path
from typing import IO

from dbull.errors import ModelFileError

FORMAT_VERSION = 2
MANIFEST, MANIFEST_HASH, EVENTS = "manifest.json", "manifest.sha256", "events.jsonl"
LEARNED = "learned.json"  # of format 1: every input learned so far
WRITING = ".writing"
# Parsed JSON takes up to thirty times its text in memory: these bound what a forged file can cost.
MANIFEST_BYTES = 2 * 2**20
DOCUMENT_BYTES = 64 * 2**20

_GENERATION = re.compile(r"gen-(\d{8,})\Z", re.ASCII)
_STEM = re.compile(r"[a-z][a-z0-9_-]{0,60}\Z", re.ASCII)
_SHA256 = re.compile(r"[0-9a-f]{64}\Z", re.ASCII)
_CHUNK = 2**20
_LFS = b"version https://git-lfs"
# Where a system lacks one of these, `oddity` before and after opening is all there is.
_SAFE = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0)


def generation_name(number: int) -> str:
    """Return the name of a generation's folder."""
    return f"gen-{number:08d}"


def generation_number(name: str) -> int | None:
    """Return the number of a generation from its folder's name, None for any other name."""
    match = _GENERATION.match(name)
    number = 0 if match is None else int(match[1])
    return number if number > 0 and generation_name(number) == name else None


def check_name(stem: str) -> bool:
    """Tell whether a document or a group of tensors may have this name: a plain file name everywhere."""
    reserved = {"manifest", "events", "learned"}
    return isinstance(stem, str) and _STEM.match(stem) is not None and stem not in reserved


def damaged(path: Path, what: str) -> ModelFileError:
    """Return the error for a file that is not as it was written."""
    return ModelFileError(
        f"{path}: {what}; bring the file back from a copy, or roll back to a sound generation "
        "(`dbull check` lists them)"
    )


def is_sha256(value: object) -> bool:
    """Tell whether a value is a SHA-256 as this room writes it."""
    return isinstance(value, str) and _SHA256.match(value) is not None


def hash_bytes(data: bytes) -> str:
    """Return the SHA-256 of bytes in hexadecimal."""
    return hashlib.sha256(data).hexdigest()


def hash_file(path: str | os.PathLike[str]) -> str:
    """Return the SHA-256 of a file in hexadecimal, whatever its size; what identifies a learned input."""
    with open(path, "rb") as file:
        return _hash(file)


def _hash(file: IO[bytes]) -> str:
    digest = hashlib.sha256()
    while chunk := file.read(_CHUNK):
        digest.update(chunk)
    return digest.hexdigest()


def oddity(found: os.stat_result) -> str | None:
    """Say what a thing is that should be a file of ours alone; None for such a file."""
    if stat.S_ISLNK(found.st_mode):
        return "is a symbolic link, not a file of this folder"
    if stat.S_ISDIR(found.st_mode):
        return "is a folder, not a regular file"
    if not stat.S_ISREG(found.st_mode):
        return "is a special file, not a regular file"
    if found.st_nlink > 1:
        return "is a hard link: the same file has another name elsewhere"
    return None


def open_regular(path: Path, flags: int = os.O_RDONLY) -> int:
    """Return a descriptor of a regular file that has this one name; never follows a link, never waits."""
    try:
        what = oddity(os.lstat(path))
        if what is None:
            handle = os.open(path, flags | _SAFE)
            what = oddity(os.fstat(handle))  # of what was opened, whatever the name has become
            if what is None:
                return handle
            os.close(handle)
    except FileNotFoundError:
        raise damaged(path, "the file is missing") from None
    except OSError as error:
        what = "is a symbolic link" if error.errno == errno.ELOOP else f"cannot be read ({error.strerror})"
        raise damaged(path, what) from error
    raise damaged(path, what)


@contextmanager
def opened(path: Path) -> Iterator[tuple[IO[bytes], int]]:
    """Yield a regular file to read, and its size; what cannot be read counts as damaged."""
    with os.fdopen(open_regular(path), "rb") as file:
        try:
            yield file, os.fstat(file.fileno()).st_size
        except OSError as error:
            raise damaged(path, f"cannot be read ({error.strerror})") from error


def check_file(path: Path, n_bytes: int, sha256: str) -> None:
    """Refuse a file that is not as it was written; it is read in pieces and nothing is kept."""
    with opened(path) as (file, size):
        if size != n_bytes:
            if size < 1024 and file.read(1024).startswith(_LFS):
                raise ModelFileError(f"{path}: is a Git LFS pointer, not the file itself; run `git lfs pull`")
            what = "was cut off" if size < n_bytes else "has grown"
            raise damaged(path, f"{size} bytes instead of {n_bytes}: the file {what}")
        found = _hash(file)
    if found != sha256:
        raise damaged(path, f"its content has changed (SHA-256 {found[:12]}… instead of {sha256[:12]}…)")


def read_bounded(path: Path, limit: int) -> bytes:
    """Return the content of a regular file of at most `limit` bytes."""
    with opened(path) as (file, size):
        if size > limit:
            raise damaged(path, f"{size} bytes, more than the {limit} that such a file may have")
        return file.read(limit)


def refuse_link(folder: Path) -> None:
    """Refuse a link in the place of a folder of a generation."""
    if os.path.islink(folder):
        raise damaged(folder, "is a symbolic link, not a folder of this model")


def listing(folder: Path) -> list[str]:
    """Return the names in the folder of a generation, which must be a folder and no link to one."""
    refuse_link(folder)
    try:
        return sorted(os.listdir(folder))
    except NotADirectoryError:
        raise damaged(folder, "is not a folder") from None
    except OSError as error:
        raise damaged(folder, f"cannot be read ({error.strerror})") from error


def ranges(numbers: list[int]) -> str:
    """Return numbers, oldest first, as text: 1 to 4, 7."""
    runs = [[n for _, n in run] for _, run in groupby(enumerate(numbers), lambda place: place[1] - place[0])]
    return ", ".join(f"{run[0]} to {run[-1]}" if len(run) > 1 else f"{run[0]}" for run in runs) or "none"
