"""Names, sizes and hashes of the files of a model folder, and reading them no further than they deserve.

::

    MODEL/
      gen-00000001/  gen-00000002/ ...      one folder per generation, never changed after it has its name
        manifest.json                       what the generation is, and size and SHA-256 of every other file
        manifest.sha256                     SHA-256 of manifest.json, as `sha256sum` writes it
        events.jsonl                        what happened since the parent generation
        learned.json                        every input learned so far
        *.json  *.safetensors               documents and tensors of the caller
      events.jsonl                          the events of all generations, one after the other
      .tmp-*                                a generation being written; nobody reads it
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
from pathlib import Path

from dbull.errors import ModelFileError

__all__ = [
    "DOCUMENT_BYTES",
    "EVENTS",
    "FORMAT_VERSION",
    "LEARNED",
    "MANIFEST",
    "MANIFEST_BYTES",
    "MANIFEST_HASH",
    "check_hash",
    "check_name",
    "check_size",
    "damaged",
    "generation_name",
    "generation_number",
    "hash_bytes",
    "hash_file",
    "is_sha256",
    "read_bounded",
]

FORMAT_VERSION = 1
MANIFEST, MANIFEST_HASH, EVENTS, LEARNED = "manifest.json", "manifest.sha256", "events.jsonl", "learned.json"
# Parsed JSON takes up to thirty times its text in memory: these bound what a forged file can cost.
MANIFEST_BYTES = 2 * 2**20
DOCUMENT_BYTES = 64 * 2**20

_GENERATION = re.compile(r"gen-(\d{8,})\Z", re.ASCII)
_STEM = re.compile(r"[a-z][a-z0-9_-]{0,60}\Z", re.ASCII)
_SHA256 = re.compile(r"[0-9a-f]{64}\Z", re.ASCII)
_CHUNK = 2**20
_LFS = b"version https://git-lfs"


def generation_name(number: int) -> str:
    """Return the name of a generation's folder."""
    return f"gen-{number:08d}"


def generation_number(name: str) -> int | None:
    """Return the number of a generation from its folder's name, None for any other name."""
    match = _GENERATION.match(name)
    if match is None or generation_name(int(match[1])) != name or int(match[1]) == 0:
        return None
    return int(match[1])


def check_name(stem: str) -> bool:
    """Tell whether a document or a group of tensors may have this name: a plain file name everywhere."""
    return (
        isinstance(stem, str)
        and _STEM.match(stem) is not None
        and stem not in {"manifest", "events", "learned"}
    )


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


def hash_file(path: str | os.PathLike[str], n_bytes: int | None = None) -> str:
    """Return the SHA-256 of a file in hexadecimal, whatever its size; what identifies a learned input.

    With `n_bytes` of its beginning only: it may be growing.
    """
    digest, left = hashlib.sha256(), n_bytes
    with open(path, "rb") as handle:
        while chunk := handle.read(_CHUNK if left is None else min(_CHUNK, left)):
            digest.update(chunk)
            left = None if left is None else left - len(chunk)
    return digest.hexdigest()


def check_size(path: Path, expected: int | None = None, *, limit: int | None = None) -> int:
    """Return the size of a regular file; refuse one that is missing, special or of a wrong size."""
    try:
        found = path.stat()
    except FileNotFoundError:
        raise damaged(path, "the file is missing") from None
    except OSError as error:
        raise damaged(path, f"cannot be read ({error.strerror})") from error
    if not stat.S_ISREG(found.st_mode):
        raise damaged(path, "is not a regular file")
    size = found.st_size
    if expected is not None and size != expected:
        if size < 1024 and read_bounded(path, 1024).startswith(_LFS):
            raise ModelFileError(f"{path}: is a Git LFS pointer, not the file itself; run `git lfs pull`")
        what = "was cut off" if size < expected else "has grown"
        raise damaged(path, f"{size} bytes instead of {expected}: the file {what}")
    if limit is not None and size > limit:
        raise damaged(path, f"{size} bytes, more than the {limit} that such a file may have")
    return size


def check_hash(path: Path, expected: str) -> None:
    """Refuse a file whose content is not what was written; it is read in pieces and nothing is kept."""
    try:
        found = hash_file(path)
    except OSError as error:
        raise damaged(path, f"cannot be read ({error.strerror})") from error
    if found != expected:
        raise damaged(path, f"its content has changed (SHA-256 {found[:12]}… instead of {expected[:12]}…)")


def read_bounded(path: Path, limit: int) -> bytes:
    """Return the content of a regular file of at most `limit` bytes."""
    check_size(path, limit=limit)
    try:
        with open(path, "rb") as handle:
            data = handle.read(limit + 1)
    except OSError as error:
        raise damaged(path, f"cannot be read ({error.strerror})") from error
    if len(data) > limit:
        raise damaged(path, f"has more than {limit} bytes")
    return data
