"""A folder in which files arrive."""

import time
from collections.abc import Iterator
from pathlib import Path

from dbull.data.readers import SUFFIXES
from dbull.errors import SettingsError


class Inbox:
    """Tells which files of a folder are new, or are not as they were when they were told last.

    Names that begin with a dot, and unknown kinds of files, are left alone.

    Parameters
    ----------
    folder
        Where files arrive.
    settle
        Seconds that a file must have been left alone before it is told.
    """

    def __init__(self, folder: Path, settle: float = 0.0):
        if not folder.is_dir():
            raise SettingsError(f"{folder}: is not a folder; make it, or name the one where files arrive")
        self.folder, self.settle = folder, settle
        self._told: dict[Path, tuple[int, int]] = {}

    def arrived(self) -> Iterator[Path]:
        """Yield the files in the order of their names."""
        try:
            paths = sorted(self.folder.iterdir())
        except OSError as error:
            raise SettingsError(
                f"{self.folder}: cannot be looked into any more ({error.strerror})"
            ) from error
        for path in paths:
            if path.name.startswith(".") or not path.is_file() or not path.name.lower().endswith(SUFFIXES):
                continue
            stamp = _stamp(path)
            # The clock that stamped a file may be ahead of ours.
            if abs(time.time() - stamp[1] / 1e9) >= self.settle and self._told.get(path) != stamp:
                self._told[path] = stamp
                yield path


def _stamp(path: Path) -> tuple[int, int]:
    try:
        found = path.stat()
    except OSError:  # taken away meanwhile
        return 0, 0
    return found.st_size, found.st_mtime_ns
