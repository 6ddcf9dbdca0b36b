"""A sample of an arrival, drawn in one pass: the rows with the smallest tickets, whoever reads a block."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dbull.data.blocks import Piece
from dbull.data.containers import joined_rows, n_rows, some_rows
from dbull.errors import DataError
from dbull.lifelong.blocks import tickets
from dbull.methods.engine import over_blocks


@dataclass(frozen=True, eq=False)
class Drawn:
    """Rows that may be in the sample, and how many there were."""

    n_rows: int
    tickets: np.ndarray  # (n,) ascending
    places: np.ndarray  # (n, 2) block and row within it
    rows: list[Any]  # containers of them, in this order
    keys: list[str | None]
    names: tuple[str, ...] | None  # of columns of arrays


@dataclass(frozen=True)
class Draw:
    """Draws from a block; who is told a largest ticket leaves out what has larger ones."""

    seed: int
    most: int

    def __call__(self, number: int, block: Any, largest: int | None) -> Drawn:
        """Return the rows of a block with the smallest tickets."""
        total, parts, names = 0, list[Drawn](), None
        for piece in block.pieces():
            n = n_rows(piece.rows)
            if isinstance(piece.rows, np.ndarray) and piece.rows.dtype.kind == "f":
                _check_finite(piece.rows, called(block, number), total)
            drawn = tickets(self.seed, number, total, n).numpy()
            order = drawn.argsort(kind="stable")[: self.most]
            if largest is not None:
                order = order[drawn[order] < largest]
            places = np.stack([np.full(len(order), number), total + order], axis=1)
            keys = keys_of(block, piece)
            told = [None if keys is None else keys[i] for i in order.tolist()]
            parts.append(Drawn(0, drawn[order], places, [some_rows(piece.rows, order)], told, piece.names))
            names = names or piece.names
            total += n
            if sum(len(part.tickets) for part in parts) > 2 * self.most:
                parts = [smallest(parts, self.most)]
        return Drawn(total, *_parts(smallest(parts, self.most)), names)


def called(block: Any, number: int) -> str:
    """Return what errors call a block."""
    return getattr(block, "shown", "") or f"block {number + 1}"


def _check_finite(rows: np.ndarray, where: str, first: int) -> None:
    """Refuse what no lap can use before anything is learned."""
    bad = ~np.isfinite(rows.reshape(len(rows), -1)).all(axis=1)
    if bad.any():
        raise DataError(
            f"{where}: row {first + bad.argmax() + 1} of it has NaN or infinity ({bad.sum()} of the "
            f"{len(rows)} rows read here have); remove or fill them before learning"
        )


def keys_of(block: Any, piece: Piece) -> Sequence[str] | None:
    """Return what rows of a piece are called: by their key, or by file and row, from 1."""
    if piece.keys is not None or not block.name:
        return piece.keys
    first = piece.first_row + 1
    return [f"{block.name}:{row}" for row in range(first, first + n_rows(piece.rows))]


def smallest(parts: Sequence[Drawn], most: int) -> Drawn:
    """Return the rows with the smallest tickets of several draws."""
    drawn = np.concatenate([np.zeros(0, np.int64), *(part.tickets for part in parts)])
    places = np.concatenate([np.zeros((0, 2), np.int64), *(part.places for part in parts)])
    keys = [key for part in parts for key in part.keys]
    held = [rows for part in parts for rows in part.rows if n_rows(rows)]
    order = drawn.argsort(kind="stable")[:most]
    rows = [some_rows(joined_rows(held), order)] if held else []
    return Drawn(0, drawn[order], places[order], rows, [keys[i] for i in order.tolist()], None)


def _parts(drawn: Drawn) -> tuple[np.ndarray, np.ndarray, list[Any], list[str | None]]:
    return drawn.tickets, drawn.places, drawn.rows, drawn.keys


@dataclass(frozen=True, eq=False)
class Sample:
    """A sample in the order of the source, and what was counted on the way."""

    X: Any
    keys: list[str] | None
    names: tuple[str, ...] | None
    tickets: np.ndarray
    n_rows: int  # of the source
    offsets: tuple[int, ...] = field(repr=False)  # rows before each block


def draw_sample(blocks: Sequence[Any], most: int, seed: int, tell: Callable[[int, int], object]) -> Sample:
    """Draw `most` rows of all blocks, or all there are; `tell` is given blocks and rows done."""
    parts: list[Drawn] = []
    offsets, total, names, width = [], 0, None, None
    largest: list[int | None] = [None]
    for done, drawn in enumerate(over_blocks(Draw(seed, most), blocks, lambda: largest[0]), start=1):
        offsets.append(total)
        total, names = total + drawn.n_rows, names or drawn.names
        parts.append(drawn)
        for found in (rows.shape[1] for rows in drawn.rows if getattr(rows, "ndim", 0) == 2):
            width = width or found
            if found != width:
                where = called(blocks[done - 1], done - 1)
                raise DataError(f"{where}: has {found} columns, and what is before it has {width}")
        if sum(len(part.tickets) for part in parts) > 2 * most or largest[0] is None:
            parts = [smallest(parts, most)]
            if len(parts[0].tickets) == most:
                largest[0] = int(parts[0].tickets[-1])
        tell(done, total)
    drawn = smallest(parts, most)
    order = np.lexsort((drawn.places[:, 1], drawn.places[:, 0]))
    keys = None if None in drawn.keys else [str(drawn.keys[i]) for i in order.tolist()]
    X = some_rows(drawn.rows[0], order) if drawn.rows else None
    return Sample(X, keys, names, drawn.tickets[order], total, tuple(offsets))
