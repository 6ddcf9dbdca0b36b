"""What all readers yield and share: columns by name, refusal of what is no number, optional libraries."""

import importlib
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np

from dbull.errors import DataError, did_you_mean

MAX_COLUMNS = 1 << 18  # an image of 256 x 256 in colour has fewer
CHUNK_VALUES = 1 << 25  # wide rows come in chunks of fewer rows
_PART_OF_LIST = re.compile(r"\[[0-9]+\]$")
TIMES = "times are no numbers: make them some (such as seconds since a day), or leave the column out"


@dataclass(frozen=True)
class ReadSettings:
    """How to read: which columns, how many rows at a time, and what concerns single formats."""

    # Columns to read, in this order, whatever their order in the file; else all but the key. Columns without
    # names are called "0", "1", ...
    columns: tuple[str, ...] | None = None
    unnamed: bool = False  # whether as many columns without names may be taken for them
    key: str | None = None  # column that names the rows; it is returned beside the values, not among them
    key_optional: bool = False  # whether a file may lack the key, and is then read without
    chunk_rows: int = 10_000  # memory is bounded by it, not by the file
    header: bool | None = None  # whether CSV begins with names; else: unless its first line is all numbers
    array: str | None = None  # of an .npz file; needed if it holds several and none is called "x"
    image_size: tuple[int, int] | None = None  # (height, width) to which images are brought; else as they are
    grey: bool = False  # whether images are read as grey values instead of red, green and blue
    max_bytes: int | None = None  # where a CSV file ends as far as we are concerned; it may be growing
    tap: Callable[[bytes], object] | None = None  # is given the text of a CSV file, unpacked, as it is read
    only: Mapping[str, str] | None = None  # keys of images to read, each with the SHA-256 that it must have
    mixed: bool = False  # whether tables are read as columns of any type, and not as numbers alone
    rows: tuple[int, int] | None = None  # first and last + 1 of a part, as `parts` has them; else all
    span: tuple[int, int] | None = None  # first and last + 1 byte of a part of a text

    def __post_init__(self) -> None:
        if self.chunk_rows < 1:
            raise DataError(f"chunk_rows must be at least 1, got {self.chunk_rows}")
        if self.columns is not None and len(set(self.columns)) < len(self.columns):
            raise DataError(f"columns must not be named twice, got {', '.join(self.columns)}")

    def rows_at_once(self, n_columns: int) -> int:
        """Return how many rows of so many columns a chunk has at most."""
        return min(self.chunk_rows, max(1, CHUNK_VALUES // max(n_columns, 1)))


@dataclass(frozen=True, eq=False)
class Table:
    """Rows of columns of any type, each an array of `n_rows` cells; None, NaN or "" for what is missing."""

    columns: dict[str, np.ndarray]
    n_rows: int

    def __len__(self) -> int:
        """Return the number of rows."""
        return self.n_rows

    def __getitem__(self, rows: slice) -> "Table":
        """Return some of the rows."""
        return Table(
            {name: column[rows] for name, column in self.columns.items()}, len(range(self.n_rows)[rows])
        )


@dataclass(frozen=True, eq=False)
class SparseRows:
    """Rows of a sparse matrix."""

    matrix: Any  # of scipy.sparse, in the format CSR

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        return int(self.matrix.shape[0]), int(self.matrix.shape[1])

    def __len__(self) -> int:
        """Return the number of rows."""
        return self.shape[0]

    def __getitem__(self, rows: slice) -> "SparseRows":
        """Return some of the rows."""
        return SparseRows(self.matrix[rows])


def joined(parts: Sequence[Any]) -> Any:
    """Return arrays, or tables, as one; a table may lack columns that others have."""
    if isinstance(parts[0], SparseRows) and len(parts) > 1:
        from scipy.sparse import vstack

        return SparseRows(vstack([part.matrix for part in parts], format="csr"))
    if len(parts) == 1 or not isinstance(parts[0], Table):
        return parts[0] if len(parts) == 1 else np.concatenate(parts)
    names = dict.fromkeys(name for part in parts for name in part.columns)
    columns = {
        name: _joined_cells([part.columns.get(name, np.full(len(part), None)) for part in parts])
        for name in names
    }
    return Table(columns, sum(map(len, parts)))


def _joined_cells(parts: list[np.ndarray]) -> np.ndarray:
    """Return one column; numbers beside other things stay what they are."""
    kinds = {part.dtype.kind for part in parts}
    if len(kinds) > 1 and not kinds <= set("iuf"):
        parts = [part.astype(object) for part in parts]
    return np.concatenate(parts)


@dataclass(frozen=True, eq=False)  # arrays have no single answer to ==
class Chunk:
    """Some rows of a file."""

    x: Any  # (n, d) float32, a `Table` or `SparseRows`
    columns: tuple[str, ...]  # names of the columns of `x`
    keys: np.ndarray | None  # (n,) names of the rows, if there is a key column
    first_row: int  # number of the first row in the whole, from 0
    sample_shape: tuple[int, ...]  # of one row before it was flattened
    unused: tuple[str, ...] = ()  # columns of the file that were neither asked for nor the key

    @property
    def names(self) -> tuple[str, ...] | None:
        """The names of the columns, None if they are only numbered."""
        numbered = all(name == str(i) for i, name in enumerate(self.columns))
        return None if numbered else self.columns


def one_chunk(chunks: Sequence[Chunk]) -> Chunk:
    """Return all chunks of a file as one."""
    keys = [chunk.keys for chunk in chunks if chunk.keys is not None]
    x = joined([chunk.x for chunk in chunks])
    return replace(chunks[0], x=x, keys=np.concatenate(keys) if keys else None)


@dataclass(frozen=True)
class Selection:
    """The chosen columns of a file, and how rows of them become chunks."""

    where: str  # the file, as errors name it
    n_columns: int  # of the file
    positions: tuple[int, ...]
    names: tuple[str, ...]
    key_position: int | None = None
    unused: tuple[str, ...] = ()

    def table(self, columns: dict[str, np.ndarray], keys: np.ndarray | None, first_row: int) -> Chunk:
        """Return a chunk of columns of any type."""
        n_rows = len(next(iter(columns.values())))
        return Chunk(Table(columns, n_rows), self.names, keys, first_row, (len(self.names),), self.unused)

    def chunk(
        self, x: np.ndarray, keys: np.ndarray | None, first_row: int, shape: tuple[int, ...] | None = None
    ) -> Chunk:
        """Return a chunk of finite float32 values, or name the first other by row (from 1) and column."""
        with np.errstate(over="ignore"):  # what does not fit into float32 becomes infinite and is refused
            values = np.ascontiguousarray(x, dtype=np.float32)
        finite = np.isfinite(values)
        if not finite.all():
            row, column = np.argwhere(~finite)[0]
            is_nan = np.isnan(values[row, column])
            kind = "missing or not a number" if is_nan else "infinite or too large for float32"
            n_bad = int((~finite.all(axis=1)).sum())
            raise DataError(
                f"{self.where}: row {first_row + row + 1}, column '{self.names[column]}': the value is "
                f"{kind} ({n_bad} of the {len(values)} rows read here have such values); fill or drop these "
                "rows first"
            )
        return Chunk(values, self.names, keys, first_row, shape or (values.shape[1],), self.unused)


def check_width(n_columns: int, where: str) -> None:
    """Refuse more columns than a table has, before anything is made for each of them."""
    if n_columns > MAX_COLUMNS:
        raise DataError(
            f"{where}: {n_columns:,} columns are more than the {MAX_COLUMNS:,} that a table may have; "
            "is the file damaged, or are its rows and columns exchanged?"
        )


def select_columns(names: Sequence[str], settings: ReadSettings, where: str) -> Selection:
    """Find the columns asked for by name; refuse missing ones, and name the nearest."""
    check_width(len(names), where)
    numbered = all(name == str(i) for i, name in enumerate(names))
    if settings.unnamed and numbered and len(names) == len(settings.columns or ()):
        names = settings.columns or ()
    position = {name: i for i, name in enumerate(names)}  # a table may have a hundred thousand columns
    if len(position) < len(names):
        repeated = sorted(name for name, count in Counter(names).items() if count > 1)
        raise DataError(
            f"{where}: column names must differ; {', '.join(map(repr, repeated))} occurs more than once"
        )
    key = None if settings.key_optional and settings.key not in position else settings.key
    wanted = settings.columns
    if wanted is None:
        wanted = tuple(name for name in names if name != key)
    elif not position.keys() >= set(wanted):  # parts of a column of lists are named after it
        whole = (name if name in position else _PART_OF_LIST.sub("", name) for name in wanted)
        wanted = tuple(dict.fromkeys(whole))
    asked = dict.fromkeys((*wanted, *([key] if key is not None else [])))
    missing = [name for name in asked if name not in position]
    if missing:
        has = ", ".join(names[:20]) + (", ..." if len(names) > 20 else "")
        raise DataError(
            f"{where}: no column {', '.join(map(repr, missing))}; "
            f"{did_you_mean(missing[0], names)}the file has {has}"
        )
    if not wanted:
        raise DataError(f"{where}: no columns are left to read besides the key")
    return Selection(
        where,
        len(names),
        positions=tuple(position[name] for name in wanted),
        names=tuple(wanted),
        key_position=position[key] if key is not None else None,
        unused=tuple(name for name in names if name not in asked),
    )


@cache
def optional_pyarrow() -> Any:
    """Return pyarrow with the parts used here, or None if it is not installed."""
    try:
        for part in ("compute", "csv", "ipc", "parquet"):
            importlib.import_module(f"pyarrow.{part}")
        return importlib.import_module("pyarrow")
    except ImportError:
        return None


def need_pyarrow(where: str) -> Any:
    """Return pyarrow, or say how to install it."""
    pyarrow = optional_pyarrow()
    if pyarrow is None:
        raise DataError(f"{where}: Parquet and Arrow need pyarrow; install it with `pip install 'dbull[io]'`")
    return pyarrow


def need_pillow(where: str) -> Any:
    """Return the module PIL.Image, or say how to install it."""
    try:
        return importlib.import_module("PIL.Image")
    except ImportError as error:
        raise DataError(
            f"{where}: images need Pillow; install it with `pip install 'dbull[vision]'`"
        ) from error
