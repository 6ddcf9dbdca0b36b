"""What a file holds, as it was read: a digest that goes on as the file grows, and digests of its rows.

The content of a file of text (CSV, JSON lines) is its text, unpacked. That of another table is its rows as
the model reads them, whatever the format, its compression or its row groups. That of a folder is its images,
each by its bytes.
"""

import hashlib
from collections import Counter
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np

from dbull.data.readers import TEXT_SUFFIXES, Chunk
from dbull.data.readers.chunk import SparseRows, Table
from dbull.data.readers.images import image_files, is_picture_folder
from dbull.data.readers.text_folders import is_text_folder, text_files
from dbull.errors import DataError
from dbull.ingest.inputs import Input
from dbull.store import hash_file


@dataclass(frozen=True)
class Survey:
    """A look at all of a table before any of it is learned."""

    source: Input
    sha256: str  # of its content
    n_bytes: int  # of its content
    n_rows: int
    beginnings: dict[int, str]  # SHA-256 of its content up to lengths that were asked for
    known_rows: bool  # whether there is a row among those asked for
    max_bytes: int | None  # where the file ends as far as we are concerned
    chunks: tuple[bytes, ...]  # digest of each chunk

    def read(self) -> Iterator[Chunk]:
        """Yield the chunks again; refuse any that is not as it was, so that the digests are true of them."""
        n_chunks, why = 0, ""
        try:
            for chunk in self.source.chunks(max_bytes=self.max_bytes):
                expected = self.chunks[n_chunks] if n_chunks < len(self.chunks) else b""
                if hashlib.sha256(row_bytes(chunk).data).digest() != expected:
                    break
                n_chunks += 1
                yield chunk
            else:
                if n_chunks == len(self.chunks):
                    return
        except DataError as error:  # all of it could be read before
            why = f" ({error})"
        raise DataError(
            f"{self.source.path}: has changed while it was read{why}; what was learned of it so far is kept: "
            "run the same again when nobody writes it"
        )


class _Beginnings:
    """The digest of a growing content, and what it was at some lengths."""

    def __init__(self, lengths: Collection[int]):
        self._wanted = sorted(lengths, reverse=True)
        self.digest = hashlib.sha256()
        self.n_bytes = 0
        self.found: dict[int, str] = {}

    def update(self, data: bytes | memoryview) -> None:
        view = memoryview(data)
        while self._wanted and self._wanted[-1] <= self.n_bytes + len(view):
            length = self._wanted.pop()
            part, view = view[: length - self.n_bytes], view[length - self.n_bytes :]
            self.digest.update(part)
            self.n_bytes = length
            self.found[length] = self.digest.hexdigest()
        self.digest.update(view)
        self.n_bytes += len(view)


def survey_table(source: Input, lengths: Collection[int], known: Collection[str]) -> Survey:
    """Read all of a table; `lengths` of its beginning and `known` rows are looked for on the way."""
    path = source.path
    is_text = path.name.lower().endswith(TEXT_SUFFIXES)
    content = _Beginnings(lengths)
    with _read(path):
        max_bytes = path.stat().st_size if is_text else None
    digests: list[bytes] = []
    n_rows, known_rows = 0, False
    for chunk in source.chunks(max_bytes=max_bytes, tap=content.update if is_text else None):
        rows = row_bytes(chunk)
        if not is_text:
            if n_rows == 0:
                content.update(f"rows of {rows.shape[1]} bytes\n".encode())
            content.update(rows.reshape(-1).data)
        digests.append(hashlib.sha256(rows.data).digest())
        if known and not known_rows:
            known_rows = any(digest in known for digest in row_digests(path, rows))
        n_rows += len(rows)
    whole = content.digest.hexdigest(), content.n_bytes, n_rows, content.found
    return Survey(source, *whole, known_rows, max_bytes, tuple(digests))


def survey_folder(folder: Path) -> dict[str, tuple[str, str]]:
    """Return for each image or text its key, the SHA-256 of its file, and by what it is remembered.

    That is the same SHA-256, but for further files of the same content in the folder.
    """
    counts: Counter[str] = Counter()
    found = {}
    of_texts = not is_picture_folder(folder) and is_text_folder(folder)
    for key, path in (text_files if of_texts else image_files)(folder).items():
        sha256 = _hashed(path)
        n_before = counts[sha256]
        counts[sha256] += 1
        again = hashlib.sha256(f"{sha256}:{n_before}".encode()).hexdigest()
        found[key] = (sha256, again if n_before else sha256)
    return found


def row_digests(path: Path, rows: np.ndarray) -> Iterator[str]:
    """Yield a digest of each row, (n, width) bytes, in a file of this name."""
    name = hashlib.sha256(f"row of {path.name}\n".encode("utf-8", "surrogateescape"))
    for row in rows:
        digest = name.copy()
        digest.update(row)
        yield digest.hexdigest()


def hash_on_disk(path: Path) -> str:
    """Return by what older versions remember a file or a folder: all its bytes, as they lie on disk."""
    if not path.is_dir():
        return _hashed(path)
    digest = hashlib.sha256()
    for file_path in sorted(p for p in path.rglob("*") if p.is_file()):
        line = f"{file_path.relative_to(path).as_posix()}\0{_hashed(file_path)}\n"
        digest.update(line.encode("utf-8", "surrogateescape"))
    return digest.hexdigest()


def row_bytes(chunk: Chunk) -> np.ndarray:
    """Return rows and their keys as bytes, (n, width)."""
    if isinstance(chunk.x, Table):
        values = _table_bytes(chunk.x)
    elif isinstance(chunk.x, SparseRows):
        values = _sparse_bytes(chunk.x)
    else:
        values = np.ascontiguousarray(chunk.x).view(np.uint8).reshape(len(chunk.x), -1)
    if chunk.keys is None:
        return values
    keys = b"".join(
        hashlib.blake2b(str(key).encode("utf-8", "surrogatepass"), digest_size=16).digest()
        for key in chunk.keys.tolist()
    )
    return np.concatenate([values, np.frombuffer(keys, np.uint8).reshape(len(values), -1)], axis=1)


def _table_bytes(table: Table) -> np.ndarray:
    """Return a digest of each row by its names and cells, (n, 16); a number is the same as text."""
    columns = [
        map(np.ndarray.tobytes, column) if column.ndim == 2 else map(_as_written, column.tolist())
        for column in table.columns.values()
    ]
    names = repr(list(table.columns)).encode("utf-8", "surrogatepass")
    digests = (
        hashlib.blake2b(names + repr(row).encode("utf-8", "surrogatepass"), digest_size=16).digest()
        for row in zip(*columns, strict=True)
    )
    return np.frombuffer(b"".join(digests), np.uint8).reshape(len(table), 16)


def _sparse_bytes(rows: SparseRows) -> np.ndarray:
    """Return a digest of each row by its columns and values, (n, 16)."""
    matrix, n_columns = rows.matrix, f"{rows.shape[1]} columns\n".encode()
    digests = []
    for start, end in pairwise(matrix.indptr.tolist()):
        digest = hashlib.blake2b(n_columns, digest_size=16)
        digest.update(matrix.indices[start:end].astype(np.int64).tobytes())
        digest.update(matrix.data[start:end].tobytes())
        digests.append(digest.digest())
    return np.frombuffer(b"".join(digests), np.uint8).reshape(len(rows), 16)


def _as_written(cell: object) -> str:
    """Return a cell as text: numbers in one spelling, "" for what is missing."""
    if cell is None or cell != cell:
        return ""
    text = str(cell).strip()
    try:
        return repr(float(text)) if len(text) < 40 else text
    except ValueError:
        return text


def _hashed(path: Path) -> str:
    with _read(path):
        return hash_file(path)


@contextmanager
def _read(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror})") from error
