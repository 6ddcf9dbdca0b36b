"""Files of the known data sets: what they are called, where they are looked for, how they are recognised.

What is known of a data set before any file of it is read is in `catalogue.toml`, beside this module.
A file is recognised by its SHA-256 as stored, or by the digest of its content: the same MNIST
images circulate in differently compressed gzip files, and all of them are right.
"""

import gzip
import hashlib
import lzma
import os
import sys
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dbull.errors import DataError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

_FACTS = Path(__file__).with_name("catalogue.toml").read_text(encoding="utf-8")
CATALOGUE: dict[str, Any] = tomllib.loads(_FACTS)
_BLOCK = 1 << 20
_DAMAGED = (zlib.error, gzip.BadGzipFile, lzma.LZMAError, EOFError)
_ALGORITHM_BY_LENGTH = {64: "sha256", 32: "md5"}
_MAX_DEFLATE_RATIO = 1032  # of the format itself: a damaged size field must not reserve gigabytes


@dataclass(frozen=True)
class DataFile:
    """One file of a data set. Digests are SHA-256 in hexadecimal, or MD5 where nobody has published more."""

    name: str  # the same in every folder
    n_bytes: int = 0  # at the source, for the progress of a download; 0 where unknown
    stored: tuple[str, ...] = ()  # accepted digests of the file as it lies on disk
    content: tuple[str, ...] = ()  # and of the decompressed content
    urls: tuple[str, ...] = ()  # official source first, then its mirrors; empty if it cannot be downloaded


def files_of(group: str) -> tuple[DataFile, ...]:
    """Return the files of a group, in the order in which the catalogue has them."""
    found = []
    for file in CATALOGUE["files"][group]:
        urls = file.get("urls", [folder + file["name"] for folder in CATALOGUE["folders"].get(group, ())])
        stored, content = tuple(file.get("stored", ())), tuple(file.get("content", ()))
        found.append(DataFile(file["name"], file.get("n_bytes", 0), stored, content, tuple(urls)))
    return tuple(found)


def cache_root() -> Path:
    """Return the per-user cache folder of this platform."""
    if sys.platform == "win32":
        base = Path(os.environ.get("LOCALAPPDATA", Path.home() / "AppData" / "Local"))
    elif sys.platform == "darwin":
        base = Path.home() / "Library" / "Caches"
    else:
        base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return base / "dbull" / "data"


def roots(folder: Path | str | None = None) -> tuple[Path, ...]:
    """Return the folders to search, the first for downloads: `folder`, else `DBULL_DATA` and the cache."""
    if folder is not None:
        return (Path(folder).expanduser(),)
    from_environment = os.environ.get("DBULL_DATA")
    first = (Path(from_environment).expanduser(),) if from_environment else ()
    return (*first, cache_root())


def find_file(file_name: str, subfolder: str, folder: Path | str | None = None) -> Path | None:
    """Return the first such file in `ROOT/subfolder` or, laid out flat, in `ROOT`; None if there is none."""
    for root in roots(folder):
        for candidate in (root / subfolder / file_name, root / file_name):
            if candidate.is_file():
                return candidate
    return None


def missing_message(
    name: str, subfolder: str, missing: Sequence[str], folder: Path | str | None, can_get: bool
) -> str:
    """Say which files are missing, where they were looked for, and what to do about it."""
    searched = ", ".join(str(root / subfolder) for root in roots(folder))
    given = "" if folder is None else f" --data {folder}"
    get = f"run `dbull data get {name}{given}`, or " if can_get else ""
    elsewhere = "name the folder" if folder is not None else "set DBULL_DATA to the folder"
    return (
        f"data set '{name}': missing {', '.join(missing)}; searched {searched}. To have it, {get}put the "
        f"files there, or {elsewhere} that holds '{subfolder}/'"
    )


def matching_digest(path: Path, file: DataFile) -> str:
    """Return the accepted digest that the file has, as "sha256:..." or "md5:..."; refuse a file with none."""
    if not file.stored and not file.content:  # made by the user: there is nothing to hold it to
        refuse_impostor(path)
        return f"sha256:{_digest(path, 'sha256')}"
    found: list[str] = []
    for accepted, unpacked in ((file.stored, False), (file.content, True)):
        if unpacked:
            refuse_impostor(path)
        for algorithm in dict.fromkeys(_ALGORITHM_BY_LENGTH[len(digest)] for digest in accepted):
            digest = _digest(path, algorithm, unpacked)
            if digest in accepted:
                return f"{algorithm}:{digest}"
            found.append(f"{algorithm} {digest}{' of the content' if unpacked else ''}")
    raise DataError(
        f"{path}: not the file it should be: found {', '.join(found)}, known are "
        f"{', '.join(file.stored + file.content)}. Truncated or another version? Delete it and get it again"
    )


def _digest(path: Path, algorithm: str, unpacked: bool = False) -> str:
    digest = hashlib.new(algorithm, usedforsecurity=False)
    opened: Any = {".gz": gzip.open, ".xz": lzma.open}.get(path.suffix, open) if unpacked else open
    try:
        with opened(path, "rb") as stream:  # in pieces: what comes in place of a file may unpack without end
            while block := stream.read(_BLOCK):
                digest.update(block)
    except _DAMAGED as error:
        raise DataError(f"{path}: truncated or damaged ({error}); delete it and get it again") from error
    return digest.hexdigest()


def refuse_impostor(path: Path) -> None:
    """Refuse what often comes in place of a data file: nothing, a web page, a pointer, a wrong format."""
    with path.open("rb") as stream:
        head = stream.read(512)
    again = "delete it and get it again; `dbull data list --json` names its source"
    if not head:
        raise DataError(f"{path}: the file is empty; {again}")
    if head.lstrip()[:9].lower().startswith((b"<!doctype", b"<html")):
        raise DataError(f"{path}: this is an HTML page (an error or log-in page?), not the data; {again}")
    if head.startswith(b"version https://git-lfs"):
        raise DataError(
            f"{path}: this is a Git LFS pointer, not the data; run `git lfs pull` where it came from"
        )
    magic = {".gz": b"\x1f\x8b", ".xz": b"\xfd7zXZ\x00", ".npz": b"PK"}.get(path.suffix)
    if magic is not None and not head.startswith(magic):
        raise DataError(f"{path}: not a {path.suffix} file (it begins with {head[:8]!r}); {again}")


def read_content(path: Path) -> bytes:
    """Return the decompressed content of a file; damage and truncation are named."""
    data = path.read_bytes()
    try:
        if path.suffix == ".gz":
            # In one call, which is about twice as fast as reading through `gzip.open`.
            size = int.from_bytes(data[-4:], "little")  # right for a single gzip member below 4 GiB
            most = min(size, _MAX_DEFLATE_RATIO * len(data))
            content = zlib.decompress(data, wbits=31, bufsize=max(1, most))
            return content if len(content) == size else gzip.decompress(data)
        if path.suffix == ".xz":
            return lzma.decompress(data)
    except _DAMAGED as error:
        refuse_impostor(path)
        raise DataError(f"{path}: truncated or damaged ({error}); delete it and get it again") from error
    return data
