"""Texts for an estimator: hashed and weighted words as sparse rows, and the words that set clusters apart.

How many texts have a word is counted over the whole stream, and with these counts its weight (idf) follows,
until SETTLED texts have had it: by then the logarithm of its share is known to a quarter, and from then on a
text with it means the same in every arrival. Nearly every text has words that no text had before; with them
the texts of old topics would look new. So a word that the first texts did not have counts for nothing until
it is settled, and from then on with its weight.

What is counted of each cluster are words, in a bounded way, in place of the columns of a sparse matrix.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from dbull.codec.networks import Tensors, refusing_damage
from dbull.documents import check_fields, fail, list_of, mapping, text
from dbull.errors import DataError, TableNotice
from dbull.methods.sparse import TEXTS
from dbull.methods.tables import is_table
from dbull.methods.words import texts_in
from dbull.tables import WordHasher, columns_of, propose_roles

N_BUCKETS = 1 << 15
DOCUMENT, TENSORS = TEXTS, "words"  # names of what is stored
SETTLED = 16  # texts; the standard deviation of the logarithm of a count is the root of its inverse
UNSETTLED = -1.0  # in place of a weight
MOST_BESIDE = 3  # columns, such as ids, that a table may have beside its texts to be one of texts


@dataclass(frozen=True, eq=False)
class TextReader:
    """Where texts are in what is given, and how they become rows; never changes."""

    hasher: WordHasher  # that has seen all texts so far
    settled: NDArray[np.float64]  # (n_buckets,) the weight of words that keep it, UNSETTLED of others
    columns: tuple[str, ...]  # of a table; none where texts were given by themselves

    @classmethod
    def fresh(cls, columns: tuple[str, ...]) -> TextReader:
        """Return a reader that has seen nothing."""
        return cls(WordHasher(N_BUCKETS), np.full(N_BUCKETS, UNSETTLED), columns)

    @property
    def weights(self) -> NDArray[np.float64]:
        """How much words weigh."""
        return np.where(self.settled == UNSETTLED, self.hasher.weights, self.settled)

    def learned(self, X: Any) -> TextReader:
        """Return a reader that has also seen these texts."""
        hasher = self.hasher.learned(self.texts(X))
        newly = (self.settled == UNSETTLED) & (hasher.text_counts >= SETTLED)
        return replace(self, hasher=hasher, settled=np.where(newly, hasher.weights, self.settled))

    def rows(self, X: Any, known: NDArray[np.bool_] | None = None) -> Any:
        """Return texts as a sparse matrix of weighted words; `known` are those that the first texts had."""
        weights = self.weights
        if known is not None:
            weights = np.where(known | (self.hasher.text_counts >= SETTLED), weights, 0.0)
        return self.hasher.rows(self.texts(X), weights)

    def texts(self, X: Any) -> list[str]:
        """Return the text of each row, "" where there is none."""
        if not is_table(X):
            return list_of_texts(X, self.columns)
        columns = columns_of(X)
        names = self.columns or tuple(columns)
        absent = [name for name in names if name not in columns]
        if absent or (not self.columns and len(names) > 1):
            wanted = (
                f"a column {', '.join(map(repr, absent))}" if absent else "texts, or a table of one column"
            )
            raise DataError(f"this model reads {wanted}; the table has {', '.join(list(columns)[:20])}")
        return texts_in(columns, names)


def list_of_texts(X: Any, columns: Sequence[str] = ()) -> list[str]:
    """Return texts that were given by themselves: a list, an array or a series of them."""
    cells = X.tolist() if hasattr(X, "tolist") else list(X) if isinstance(X, Sequence) else [X]
    if isinstance(X, str | bytes) or not all(isinstance(cell, str) or _is_missing(cell) for cell in cells):
        beside = f", or a table with the column {', '.join(columns)}" if columns else ""
        raise TypeError(f"kind='text' takes a list of texts{beside}; got {type(X).__name__}")
    return [cell if isinstance(cell, str) else "" for cell in cells]


def _is_missing(cell: Any) -> bool:
    return cell is None or (isinstance(cell, float) and cell != cell)


def text_rows(model: Any, X: Any, *, first: bool) -> Any:
    """Return texts as a sparse matrix of weighted words; X as it is where there are none."""
    if first:
        model.__dict__.pop("text_reader_", None)
        columns = _text_columns(model, X)
        if columns is None:
            return X
        model.text_reader_ = TextReader.fresh(columns).learned(X)
    reader: TextReader | None = getattr(model, "text_reader_", None)
    if reader is None:
        return X
    return reader.rows(X, None if first else model.projection_.directions.any(1))


def _text_columns(model: Any, X: Any) -> tuple[str, ...] | None:
    """Return the columns of a first table that are texts, none of other rows; None if it is not of texts."""
    if not is_table(X):
        return () if model.kind == "text" else None
    columns = columns_of(X)
    if model.kind != "text" and (model.kind != "auto" or len(columns) > 1 + MOST_BESIDE):
        return None
    if model.kind == "text" and len(columns) == 1:
        return tuple(columns)
    roles = propose_roles(columns, model.columns)
    texts = tuple(role.name for role in roles if role.role == "text")
    others = [role for role in roles if role.name not in texts]
    if model.kind != "text" and (not texts or any(role.role not in ("key", "ignore") for role in others)):
        return None
    if not texts:
        raise DataError(
            f"kind='text', but no column of {', '.join(list(columns)[:20])} looks like texts; name it: "
            "columns={'name': 'text'}"
        )
    if others:
        told = ", ".join(repr(role.name) for role in others[:20])
        warnings.warn(
            f"columns left out: {told} (the texts are in {', '.join(texts)})", TableNotice, stacklevel=6
        )
    return texts


def pack_texts(model: Any) -> tuple[dict[str, dict[str, torch.Tensor]], dict[str, Any]]:
    """Return how a model reads texts as a group of tensors and a document; nothing if it reads none."""
    reader: TextReader | None = getattr(model, "text_reader_", None)
    if reader is None:
        return {}, {}
    words, arrays = reader.hasher.to_document()
    arrays = {**arrays, "settled": reader.settled}
    tensors = {name: torch.from_numpy(np.ascontiguousarray(array)) for name, array in arrays.items()}
    return {TENSORS: tensors}, {DOCUMENT: {"words": words, "columns": list(reader.columns)}}


def unpack_texts(
    tensors: Tensors, documents: Mapping[str, Any], n_columns: int, where: str
) -> TextReader | None:
    """Return what `pack_texts` was given, for a projection of so many columns."""
    if DOCUMENT not in documents:
        return None
    with refusing_damage(where):
        values = check_fields(documents[DOCUMENT], where, {"words": mapping, "columns": list_of(text)})
        arrays = {name: tensor.numpy() for name, tensor in tensors.get(TENSORS, {}).items()}
        hasher = WordHasher.from_document(values["words"], arrays, f"{where}.words")
        if hasher.n_buckets != n_columns:
            fail(where, f"{hasher.n_buckets} buckets for a projection of {n_columns} columns")
        settled = arrays.get("settled", hasher.weights)  # which older models have for all words
        right = settled.dtype == np.float64 and settled.shape == (n_columns,) and np.isfinite(settled).all()
        if not right or (settled[settled != UNSETTLED] < 0).any():
            fail(where, f"settled weights that no {n_columns} words have")
    return TextReader(hasher, settled, tuple(values["columns"]))
