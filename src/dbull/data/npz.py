"""Named arrays out of an .npz file, never unpickled."""

import lzma
import struct
import tokenize
import zipfile
import zlib
from pathlib import Path

import numpy as np

from dbull.errors import DataError

# What zipfile and numpy raise on a damaged archive; RuntimeError and NotImplementedError stand for
# bytes that ask for a password or an unknown compression.
DAMAGED_NPZ = (
    *(zipfile.BadZipFile, zlib.error, lzma.LZMAError, struct.error, tokenize.TokenError, EOFError, OSError),
    *(ValueError, KeyError, RuntimeError, NotImplementedError, MemoryError),
)


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
