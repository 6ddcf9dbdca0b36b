"""Files read out of tar archives, without ever unpacking them to disk.

Nothing is written, so no member can leave its folder; links and devices are passed over.
"""

import lzma
import tarfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dbull.errors import DataError

_MAX_TEXT_BYTES = 64 << 20
_DAMAGED = (tarfile.TarError, EOFError, zlib.error, lzma.LZMAError, OSError)


def read_members(path: Path, names: tuple[str, ...]) -> dict[str, bytes]:
    """Return the content of the members with these file names, in any folder; stop when all are there."""
    found: dict[str, bytes] = {}
    with _opened(path) as archive:
        for member in archive:
            name = member.name.rpartition("/")[2]
            stream = archive.extractfile(member) if name in names and member.isfile() else None
            if stream is not None:
                found[name] = stream.read()
            if len(found) == len(names):
                return found
    raise DataError(f"{path}: {', '.join(name for name in names if name not in found)} not in the archive")


def read_texts(path: Path, suffix: str = "") -> list[tuple[str, str]]:
    """Return (member name, text as Latin-1) of all files whose name ends in `suffix`, sorted by name."""
    texts = []
    with _opened(path) as archive:
        for member in archive:
            stream = archive.extractfile(member) if member.isfile() and member.name.endswith(suffix) else None
            if stream is None:
                continue
            if member.size > _MAX_TEXT_BYTES:
                raise DataError(
                    f"{path}: member {member.name} has {member.size:,} bytes, too many for a text"
                )
            texts.append((member.name.removeprefix("./"), stream.read().decode("latin-1")))
    return sorted(texts)


@contextmanager
def _opened(path: Path) -> Iterator[tarfile.TarFile]:
    again = "delete it and get it again"
    try:
        archive = tarfile.open(path, "r|*")  # noqa: SIM115  closed below
    except (*_DAMAGED, TypeError) as error:  # tarfile's TypeError stands for a gzip header that is cut off
        raise DataError(f"{path}: not a readable tar archive ({error}); {again}") from error
    try:
        with archive:
            yield archive
    except _DAMAGED as error:
        raise DataError(f"{path}: a damaged or truncated tar archive ({error}); {again}") from error
