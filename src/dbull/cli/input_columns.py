"""The columns of a file as they are, beside what a command says about its rows (``predict --append``)."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from dbull.cli.table_files import Columns
from dbull.errors import SettingsError

PREFIX = "dbull_"  # of an answer whose name a column of the file has


class InputColumns:
    """Reads a file once more, a piece at a time, cells as they are: those of text files stay text."""

    def __init__(self, path: Path, header: bool | None):
        from dbull.data.readers import ReadSettings, read_chunks
        from dbull.data.readers.chunk import SparseRows, Table, joined

        self._path, self._join = path, joined
        if path.is_dir():
            raise SettingsError(f"{path}: --append keeps the columns of a table; a folder has none")

        def tables() -> Iterator[Any]:
            for chunk in read_chunks(path, ReadSettings(mixed=True, header=header)):
                if isinstance(chunk.x, SparseRows):
                    raise SettingsError(f"{path}: a sparse matrix has no columns to keep; leave out --append")
                yield (
                    chunk.x
                    if isinstance(chunk.x, Table)
                    else Table(dict(zip(chunk.columns, chunk.x.T, strict=True)), len(chunk.x))
                )

        self._tables, self._held = tables(), None

    def beside(self, answers: Columns, key: str | None) -> Columns:
        """Return the next rows of the file, and behind them what was answered about them."""
        n_rows = len(answers["row"])
        while self._held is None or len(self._held) < n_rows:
            piece = next(self._tables)
            self._held = piece if self._held is None else self._join([self._held, piece])
        table, self._held = self._held[:n_rows], self._held[n_rows:]
        kept = {name: [_cell(cell) for cell in column.tolist()] for name, column in table.columns.items()}
        left_out = {"row", *(["key"] if key in kept else [])}  # rows are there themselves
        told = {name: cells for name, cells in answers.items() if name not in left_out}
        return {**kept, **{PREFIX + name if name in kept else name: cells for name, cells in told.items()}}


def _cell(cell: Any) -> Any:
    """Return a cell as it is written; what is no number is nothing."""
    return None if isinstance(cell, float) and cell != cell else cell
