"""KDD Cup 99: records of network connections in the order in which they were written, a natural stream."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from dbull.data.dataset import Samples
from dbull.data.files import CATALOGUE, read_content
from dbull.errors import DataError

# The 41 attributes in file order, values of the three that are categories, and what a record may be.
_FACTS = CATALOGUE["kddcup99"]
ATTRIBUTES, _CATEGORIES, LABELS = tuple(_FACTS["attributes"]), _FACTS["categories"], tuple(_FACTS["labels"])
COLUMNS = tuple(
    column
    for attribute in ATTRIBUTES
    for column in [f"{attribute}={value}" for value in _CATEGORIES.get(attribute, ())] or [attribute]
)


def parse_connections(content: bytes, where: str) -> tuple[np.ndarray, np.ndarray]:
    """Parse comma-separated records with a label that ends in a dot.

    The three categorical attributes become one column per value; rates stay as they are, in
    [0, 1]; every other number n becomes log(1 + n), since counts of bytes run over nine decades.
    No statistic of the data is used, so the stream holds no trace of its future. Returns the columns
    `COLUMNS`, (N, 123) float32, and for each row the position of its label in `LABELS`.
    """
    lines = [line for line in content.splitlines() if line and not line.isspace()]
    if not lines:
        raise DataError(f"{where}: there are no records")
    # Two thirds of the records are copies of another: parse each different one once.
    number: dict[bytes, int] = {}
    rows = np.fromiter((number.setdefault(line, len(number)) for line in lines), np.int64, len(lines))
    fields = [(name, "U16" if name in _CATEGORIES else "f8") for name in ATTRIBUTES]
    kinds, texts = [*fields, ("label", "U24")], [line.decode("latin-1") for line in number]
    try:
        table = np.loadtxt(texts, delimiter=",", comments=None, dtype=kinds, ndmin=1)
    except ValueError as error:
        raise DataError(
            f"{where}: expected {len(ATTRIBUTES)} attributes and a label per line ({error})"
        ) from error
    x = np.empty((len(number), len(COLUMNS)), dtype=np.float32)
    start = 0
    for attribute in ATTRIBUTES:
        values = table[attribute]
        if attribute in _CATEGORIES:
            codes = _codes(values, _CATEGORIES[attribute], attribute, where, rows)
            width = len(_CATEGORIES[attribute])
            x[:, start : start + width] = codes[:, None] == np.arange(width)
        else:
            width = 1
            x[:, start] = values if attribute.endswith("_rate") else np.log1p(values)
        start += width
    return x[rows], _codes(np.char.rstrip(table["label"], "."), LABELS, "label", where, rows)[rows]


def read_connections(paths: Mapping[str, Path]) -> Samples:
    """Read one part of the data, rows in file order."""
    (path,) = paths.values()
    x, y_true = parse_connections(read_content(path), str(path))
    return Samples(x, y_true, LABELS, (len(COLUMNS),))


def _codes(values: np.ndarray, known: tuple[str, ...], name: str, where: str, rows: np.ndarray) -> np.ndarray:
    """Return the position of each value in the sorted tuple `known`."""
    names = np.array(known)
    codes = np.searchsorted(names, values).clip(max=len(names) - 1)
    wrong = np.flatnonzero(names[codes] != values)
    if wrong.size:
        row = int(np.flatnonzero(rows == wrong[0])[0])
        raise DataError(f"{where}: row {row + 1}, column '{name}': unknown value {str(values[wrong[0]])!r}")
    return codes.astype(np.int64)
