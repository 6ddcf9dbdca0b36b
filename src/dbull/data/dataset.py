"""The one record type in which every data set travels: values, labels kept apart, where they come from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import numpy as np
import scipy  # its parts are imported when they are first used

from dbull.errors import DataError

KINDS = ("images", "text", "features", "records")


@dataclass(frozen=True, eq=False)  # arrays have no single answer to ==
class Samples:
    """What a reader finds in the files of a data set; :class:`Dataset` adds where they came from."""

    # (N, d) float32, a row being a sample, flattened in the order of `sample_shape`. Images lie in [0, 1].
    x: np.ndarray | scipy.sparse.csr_matrix
    y_true: np.ndarray | None  # (N,) int64, the true classes; for scoring only: no learner is ever given it
    label_names: tuple[str, ...]  # of the classes; `y_true` indexes it
    sample_shape: tuple[int, ...]  # of one sample before it was flattened: (28, 28), (3, 32, 32) or (d,)
    n_train: int | None = None  # rows of the official training part, which come first; None: no such parts


@dataclass(frozen=True, eq=False, kw_only=True)
class Dataset(Samples):
    """A data set in memory."""

    name: str  # under which :func:`dbull.data.load` knows it
    kind: str  # one of `KINDS`
    source: str  # where the data come from
    licence: str  # and on what terms
    # What the files were recognised by, as "sha256:..." or "md5:...".
    checksums: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))

    def __post_init__(self) -> None:
        where, (n_rows, n_columns) = f"data set '{self.name}'", self.x.shape
        if self.x.dtype != np.float32:
            raise DataError(f"{where}: x must be float32, got {self.x.dtype}")
        if n_columns != int(np.prod(self.sample_shape)):
            raise DataError(
                f"{where}: rows have {n_columns} values, "
                f"sample_shape {self.sample_shape} asks for {int(np.prod(self.sample_shape))}"
            )
        if self.kind not in KINDS:
            raise DataError(f"{where}: kind must be one of {KINDS}, got {self.kind!r}")
        if self.y_true is not None:
            if self.y_true.shape != (n_rows,) or self.y_true.dtype != np.int64:
                raise DataError(
                    f"{where}: y_true must be int64 of shape ({n_rows},), "
                    f"got {self.y_true.dtype} of shape {self.y_true.shape}"
                )
            if n_rows and not 0 <= self.y_true.min() <= self.y_true.max() < len(self.label_names):
                raise DataError(f"{where}: labels must index the {len(self.label_names)} names")

    def __len__(self) -> int:
        return int(self.x.shape[0])


def dense_rows(x: Any, rows: np.ndarray | slice) -> np.ndarray:
    """Return the chosen rows as a dense, contiguous float32 array of their own, (n, d)."""
    chosen = x[rows]
    dense = chosen if isinstance(chosen, np.ndarray) else chosen.toarray()
    return np.array(dense, dtype=np.float32, order="C")
