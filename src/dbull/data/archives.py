"""Files read out of tar archives and arrays out of .npz files, without ever unpacking them to disk.

Nothing is written, so no member can leave its folder; links and devices are passed over, pickles refused.
"""

import lzma
import struct
import tarfile
import tokenize
import zipfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from dbull.errors import DataError

_MAX_TEXT_BYTES = 64 << 20
_DAMAGED = (tarfile.TarError, EOFError, zlib.error, lzma.LZMAError, OSError)
# What zipfile and numpy raise on a damaged archive; RuntimeError and NotImplementedError stand for
# bytes that ask for a password or an unknown compression.
DAMAGED_NPZ = (
    *(zipfile.BadZipFile, zlib.error, lzma.LZMAError, struct.error, tokenize.TokenError, EOFError, OSError),
    *(ValueError, KeyError, RuntimeError, NotImplementedError, MemoryError),
)


def read_members(path: Path, names: tuple[str, ...]) -> dict[str, bytes]:
    """Return the content of the members with these file names, in any folder; stop when all are there."""
    found: dict[str, bytes] = {}
    for name, content in _contents(path, lambda member: member.name.rpartition("/")[2] in names):
        found[name.rpartition("/")[2]] = content
        if len(found) == len(names):
            return found
    raise DataError(f"{path}: {', '.join(name for name in names if name not in found)} not in the archive")


def read_texts(path: Path, suffix: str = "") -> list[tuple[str, str]]:
    """Return (member name, text as Latin-1) of all files whose name ends in `suffix`, sorted by name."""

    def wanted(member: tarfile.TarInfo) -> bool:
        if member.name.endswith(suffix) and member.size > _MAX_TEXT_BYTES:
            raise DataError(f"{path}: member {member.name} has {member.size:,} bytes, too many for a text")
        return member.name.endswith(suffix)

    found = _contents(path, wanted)
    return sorted((name.removeprefix("./"), content.decode("latin-1")) for name, content in found)


def read_arrays(path: Path, names: tuple[str, ...]) -> dict[str, np.ndarray]:
    """Read the named arrays; a missing array and a damaged file are errors that name the file."""
    try:
        with np.load(path, allow_pickle=False) as archive:
            missing = [name for name in names if name not in archive.files]
            if not missing:
                return {name: archive[name] for name in names}
            has = ", ".join(archive.files)
    except DAMAGED_NPZ as error:
        raise DataError(f"{path}: not a readable .npz file ({error}); delete it and get it again") from error
    raise DataError(f"{path}: arrays {', '.join(missing)} are missing; it has {has}")


def _contents(path: Path, wanted: Callable[[tarfile.TarInfo], bool]) -> Iterator[tuple[str, bytes]]:
    """Yield name and content of the wanted files of a tar archive."""
    again = "delete it and get it again"
    try:
        archive = tarfile.open(path, "r|*")  # noqa: SIM115  closed below
    except (*_DAMAGED, TypeError) as error:  # tarfile's TypeError stands for a gzip header that is cut off
        raise DataError(f"{path}: not a readable tar archive ({error}); {again}") from error
    try:
        with archive:
            for member in archive:
                stream = archive.extractfile(member) if member.isfile() and wanted(member) else None
                if stream is not None:
                    yield member.name, stream.read()
    except _DAMAGED as error:
        raise DataError(f"{path}: a damaged or truncated tar archive ({error}); {again}") from error
