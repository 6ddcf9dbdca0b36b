"""Tables of any library as named numpy arrays; none of these libraries is imported unless its table is given.

Times with a zone become what the clock on the wall showed there, which is what their owner reads in them.
"""

import importlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dbull.errors import DataError

Columns = dict[str, NDArray[Any]]  # each (n,), or (n, width) for vectors


def columns_of(frame: Any) -> Columns:
    """Return the columns of a table: pandas, polars, pyarrow, lists by name, or a list of rows by name."""
    if type(frame).__name__ == "LazyFrame":
        frame = frame.collect()
    if isinstance(frame, Mapping):
        return _checked(frame, frame.values())
    if isinstance(frame, Sequence) and frame and all(isinstance(row, Mapping) for row in frame):
        names = dict.fromkeys(name for row in frame for name in row)
        return _checked(names, ([row.get(name) for row in frame] for name in names))
    if hasattr(frame, "column_names") and hasattr(frame, "itercolumns"):  # pyarrow
        return _checked(frame.column_names, frame.itercolumns())
    if hasattr(frame, "get_columns"):  # polars
        return _checked(frame.columns, frame.get_columns())
    if hasattr(frame, "columns") and hasattr(frame, "iloc"):  # pandas
        return _checked(frame.columns, (frame.iloc[:, i] for i in range(len(frame.columns))))
    raise DataError(
        f"a table has columns with names, got {type(frame).__name__}: give a frame of pandas, polars or "
        "pyarrow, a dict of lists, or a list of dicts"
    )


def _checked(names: Iterable[Any], columns: Iterable[Any]) -> Columns:
    """Return columns of one length under names that differ."""
    found: Columns = {}
    for label, column in zip(names, columns, strict=True):
        name, array = str(label), _array(column)
        if name in found:
            raise DataError(f"column names must differ; {name!r} occurs more than once: rename one of them")
        if array.ndim not in (1, 2):
            raise DataError(f"column {name!r}: expected one value per row, got {array.ndim} dimensions")
        found[name] = array
        first = next(iter(found))
        if len(array) != len(found[first]):
            raise DataError(
                f"columns must be of one length: {first!r} has {len(found[first])} values, "
                f"{name!r} has {len(array)}"
            )
    return found


def _array(column: Any) -> NDArray[Any]:
    """Return one column as an array; what is masked becomes None."""
    if isinstance(column, np.ma.MaskedArray):
        cells: NDArray[Any] = column.data.astype(object)
        cells[np.ma.getmaskarray(column)] = None
        return cells
    if isinstance(column, np.ndarray):
        return column
    if hasattr(column, "to_numpy") and type(getattr(column, "dtype", None)).__name__ != "Struct":
        return np.asarray(_plain(column).to_numpy())
    if isinstance(column, str | bytes) or not isinstance(column, Iterable):
        raise DataError(f"a column must be a list or an array, got {type(column).__name__}")
    # Lists of lists must not become a matrix, nor numbers beside texts texts.
    return np.fromiter(column, dtype=object)


def _plain(column: Any) -> Any:
    """Return times without their zone, and values in place of a dictionary, each library in its own words."""
    kind: Any = getattr(column, "dtype", getattr(column, "type", None))
    if hasattr(kind, "index_type"):  # of pyarrow, whose arrays lose what is missing in a dictionary
        return column.cast(kind.value_type)
    if getattr(kind, "time_zone", None) is not None:  # polars
        return column.dt.replace_time_zone(None)
    if getattr(kind, "tz", None) is None:
        return column
    if hasattr(column, "dt"):  # pandas
        return column.dt.tz_localize(None)
    return importlib.import_module("pyarrow.compute").local_timestamp(column)
