"""What is done to a block, wherever it is: its statistics are added up, its rows are told to clusters."""

from __future__ import annotations

import copy
from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from dbull.data.blocks import Piece
from dbull.data.containers import n_rows
from dbull.errors import DataError
from dbull.ledger import Ledger
from dbull.lifelong.blocks import Added, Lap, tickets
from dbull.lifelong.sketches import Tree
from dbull.lifelong.state import LearnerState
from dbull.methods import exemplars
from dbull.methods.sampling import called, keys_of
from dbull.tables import WordCounts

if TYPE_CHECKING:
    from dbull.methods.dbull import DBULL


@dataclass(frozen=True)
class AddUp:
    """What a block adds to the trial."""

    model: DBULL
    lap: Lap
    seed: int

    def __call__(self, number: int, block: Any, _: None) -> Added | None:
        """Return the record of a block, None if it has no rows, as a partition of Dask may."""
        tree, done = Tree(), 0
        for piece in block.pieces():
            n = n_rows(piece.rows)
            rows = _read(self.model, piece, called(block, number))
            tree.add(self.lap.added(rows, tickets(self.seed, number, done, n)))
            done += n
        added: Added | None = tree.total
        return added


@dataclass(frozen=True, eq=False)
class Answers:
    """What rows are told; records add up."""

    rows: Counter[int]  # by cluster
    exemplars: exemplars.Exemplars
    words: WordCounts | None
    most: tuple[int, int]  # exemplars that are kept, and with their rows

    def __add__(self, other: Answers) -> Answers:
        words = self.words
        if words is not None and other.words is not None:
            words = copy.deepcopy(words)
            words.merge(other.words)
        near = exemplars.joined(self.exemplars, other.exemplars, *self.most)
        return Answers(self.rows + other.rows, near, words, self.most)


@dataclass(frozen=True)
class Answer:
    """What the rows of a block are told under the learner as it will be."""

    model: DBULL
    offsets: tuple[int, ...]
    n_data_sets: int

    def __call__(self, number: int, block: Any, _: None) -> Answers | None:
        """Return the record of a block, None if it has no rows."""
        tree, done, model = Tree(), self.offsets[number], self.model
        most = max(exemplars.N_KEYS, model.keep_exemplars), model.keep_exemplars
        for piece in block.pieces():
            rows = _read(model, piece, called(block, number))
            codes = model._encode(rows)
            labels = model._ids(codes)
            names = keys_of(block, piece) or [
                f"{self.n_data_sets + 1}:{done + i + 1}" for i in range(len(rows))
            ]
            keys = exemplars.keys_for(None, names, self.n_data_sets, len(rows))
            near = exemplars.found_in(model, rows, codes, keys)
            counts = Counter(labels.tolist())
            tree.add(Answers(counts, near, _words(model, piece.rows, labels), most))
            done += len(rows)
        answers: Answers | None = tree.total
        return answers


def _read(model: DBULL, piece: Piece, where: str) -> torch.Tensor:
    """Return rows as the learner gets them; errors name the block."""
    try:
        return model._checked(piece.rows, first=False)
    except DataError as error:
        raise DataError(f"{where}, rows from {piece.first_row + 1} on: {error}") from error


def _words(model: DBULL, X: Any, labels: np.ndarray) -> WordCounts | None:
    """Return the words or columns of rows, counted by cluster; None if a model counts none."""
    counting = copy.copy(model)
    counting.labels_ = labels
    counting.__dict__.pop("column_counts_", None)
    if hasattr(model, "vocabulary_"):
        counting.vocabulary_ = replace(model.vocabulary_, counts=WordCounts())
    if not counting._counted(X):
        return None
    return counting.vocabulary_.counts if hasattr(model, "vocabulary_") else counting.column_counts_


def add_words(model: DBULL, words: WordCounts) -> None:
    """Add counts to those of a model."""
    has = hasattr(model, "vocabulary_")
    counts = copy.deepcopy(
        model.vocabulary_.counts if has else getattr(model, "column_counts_", WordCounts())
    )
    counts.merge(words)
    if has:
        model.vocabulary_ = replace(model.vocabulary_, counts=counts)
    else:
        model.column_counts_ = counts


def slim(state: LearnerState) -> LearnerState:
    """Return a state without its history, which no block needs."""
    return replace(state, ledger=Ledger())


def slim_model(model: DBULL, state: LearnerState | None) -> DBULL:
    """Return a model that reads rows, and answers by a state if there is one; nothing else is sent along."""
    reader = copy.copy(model)
    reader.callback, reader.augment, reader.threads = None, None, 1  # which a script may have defined
    for name in ("labels_", "history_", "exemplars_", "map_", "report_", "state_", "origin_", "chosen_"):
        reader.__dict__.pop(name, None)
    if state is not None:
        reader._adopt(slim(state))
    return reader
