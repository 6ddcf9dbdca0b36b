"""Files elsewhere (s3://, gs://, https://, ...), brought here through fsspec (the `remote` extra)."""

import atexit
import importlib
import re
import shutil
import tempfile
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
        copies = [_copy(system, str(one)) for one in paths]
    except (OSError, ValueError, ImportError) as error:
        raise DataError(f"{address}: cannot be read ({error!s:.200})") from error
    if not copies:
        raise DataError(f"{address}: no file is there")
    return copies


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
