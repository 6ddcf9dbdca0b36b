"""Download of data files: resumable, verified, and never under their final name before they are right."""

import http.client
import os
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from http import HTTPStatus
from pathlib import Path

from dbull.data.files import DataFile, matching_digest, refuse_impostor
from dbull.errors import DataError

Progress = Callable[[int, int], None]
"""Called with (bytes done, bytes in all), over all files of one request."""

_BLOCK = 1 << 18
_TIMEOUT_SECONDS = 30.0


def download_files(files: Sequence[DataFile], folder: Path, progress: Progress | None = None) -> list[Path]:
    """Download the files that are not in `folder` yet, each verified before it gets its name.

    An interrupted download leaves `partial-NAME`; the next call goes on from there. A file that is
    there already is verified and kept.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DataError(f"{folder}: cannot make the folder ({error}); name another one") from error
    meter = _Meter(files, progress)
    paths = []
    for file in files:
        path = folder / file.name
        if path.exists():
            matching_digest(path, file)
            meter.update(file, path.stat().st_size, path.stat().st_size)
        else:
            _download(file, path, meter)
        paths.append(path)
    return paths


class _Meter:
    """Sum of the bytes of several files, told to the caller as one pair of numbers."""

    def __init__(self, files: Sequence[DataFile], progress: Progress | None) -> None:
        self._done = {file.name: 0 for file in files}
        self._total = {file.name: file.n_bytes for file in files}
        self._progress = progress

    def update(self, file: DataFile, done: int, total: int | None) -> None:
        self._done[file.name] = done
        self._total[file.name] = max(total or self._total[file.name], done)
        if self._progress is not None:
            self._progress(sum(self._done.values()), sum(self._total.values()))


def _download(file: DataFile, path: Path, meter: _Meter) -> None:
    """Try each URL in turn; a resumed file that comes out wrong is fetched once more from its beginning."""
    part = path.with_name(f"partial-{path.name}")  # keeps the suffix, which tells how to unpack it
    failures = []
    for url in file.urls:
        try:
            resumed = _receive(url, part, file, meter)
            try:
                _verify(part, url, file)
            except DataError:
                if not resumed:
                    raise
                # The remote file may have changed since the first part was written.
                _receive(url, part, file, meter)
                _verify(part, url, file)
            os.replace(part, path)
            return
        except DataError as error:
            failures.append(str(error))
        except (OSError, http.client.HTTPException) as error:
            failures.append(f"{url}: {error}")
    reasons = "; ".join(failures) or "no download address is known"
    raise DataError(
        f"could not get {file.name}: {reasons}. Run the same command again to go on where it stopped, "
        f"or put the file into {path.parent} by hand"
    )


def _receive(url: str, part: Path, file: DataFile, meter: _Meter) -> bool:
    """Append the rest of the remote file to `part`; return whether an earlier part was continued."""
    start = part.stat().st_size if part.exists() else 0
    request = urllib.request.Request(url, headers={"User-Agent": "dbull", "Accept-Encoding": "identity"})
    if start:
        request.add_header("Range", f"bytes={start}-")
    try:
        response = urllib.request.urlopen(request, timeout=_TIMEOUT_SECONDS)
    except urllib.error.HTTPError as error:
        if start and error.code == HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
            return True  # nothing is left to send: the part is whole, or too long, which its digest will tell
        raise
    with response:
        resumed = bool(start) and response.headers.get("Content-Range", "").startswith(f"bytes {start}-")
        if start and not resumed:
            start = 0  # the server sends the whole file
        length = response.headers.get("Content-Length")
        total = start + int(length) if length is not None else None
        with part.open("ab" if resumed else "wb") as stream:
            done = start
            meter.update(file, done, total)
            while block := response.read(_BLOCK):
                stream.write(block)
                done += len(block)
                meter.update(file, done, total)
            stream.flush()
            os.fsync(stream.fileno())
    if total is not None and done < total:
        raise DataError(f"{url}: the connection ended after {done:,} of {total:,} bytes")
    return resumed


def _verify(part: Path, url: str, file: DataFile) -> None:
    try:
        refuse_impostor(part)
        matching_digest(part, file)
    except DataError as error:
        part.unlink()
        raise DataError(str(error).replace(str(part), url)) from error
