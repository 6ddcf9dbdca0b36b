"""Files elsewhere (s3://, gs://, https://, ...), brought here through fsspec (the `remote` extra)."""

import atexit
import importlib
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from glob import has_magic
from pathlib import Path, PurePosixPath
from typing import Any

from dbull.errors import DataError

# A path of Python has one slash where an address has two; one letter is a drive of Windows.
_ADDRESS = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+(?:::[A-Za-z0-9+.:-]+)?):/{1,3}(?=[^/])(.*)", re.DOTALL)


def is_address(source: object) -> bool:
    """Tell an address from a path."""
    return _ADDRESS.fullmatch(str(source)) is not None


def fetch(source: object) -> list[Path]:
    """Copy what an address names, a file, a pattern or a folder, to a place that is removed at the end."""
    with _reading(source) as (system, paths):
        return [_copy(system, path) for path in paths]


def listed(source: object) -> list[str]:
    """Return the addresses of the files that an address names: a file, a pattern or a folder."""
    with _reading(source) as (system, paths):
        return [str(system.unstrip_protocol(path)) for path in paths]


def mark_of(source: str) -> str:
    """Return what changes when a file elsewhere does, as its file system tells it."""
    with _reading(source) as (system, paths):
        return str(system.ukey(paths[0]))


@contextmanager
def copied(source: str) -> Iterator[Path]:
    """Yield where a file can be read: a copy of what an address names, which is removed afterwards."""
    if not is_address(source):
        yield Path(source)
        return
    (path,) = fetch(source)
    try:
        yield path
    finally:
        shutil.rmtree(path.parent, ignore_errors=True)


@contextmanager
def _reading(source: object) -> Iterator[tuple[Any, list[str]]]:
    """Yield the file system of an address and the paths that it names; what goes wrong is a DataError."""
    found = _ADDRESS.fullmatch(str(source))
    assert found is not None
    scheme, rest = found.groups()
    address = f"{scheme}://{'/' if scheme == 'file' else ''}{rest}"
    fsspec = _need_fsspec(address)
    try:
        system, path = fsspec.core.url_to_fs(address)
        paths = [path]
        if has_magic(path) and not system.exists(path):
            paths = sorted(system.glob(path))
        elif system.isdir(path):
            paths = sorted(p for p in system.find(path) if not PurePosixPath(p).name.startswith("."))
        if not paths:
            raise DataError(f"{address}: no file is there")
        yield system, list(map(str, paths))
    except DataError:
        raise
    except (OSError, ValueError, ImportError) as error:
        raise DataError(f"{address}: cannot be read ({error!s:.200})") from error


def _copy(system: Any, path: str) -> Path:
    """Copy one file under its own name."""
    target = Path(tempfile.mkdtemp(dir=place())) / PurePosixPath(path).name
    system.get_file(path, str(target))
    return target


@cache
def place() -> str:
    """Return a folder for copies, which is removed at the end."""
    folder = tempfile.mkdtemp(prefix="dbull-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def _need_fsspec(where: str) -> Any:
    try:
        importlib.import_module("fsspec.core")
        return importlib.import_module("fsspec")
    except ImportError as error:
        raise DataError(
            f"{where}: addresses need fsspec; install it with `pip install 'dbull[remote]'`"
        ) from error
