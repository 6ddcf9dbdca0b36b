"""One arrival of plain rows: learned on top of what is known, or from nothing while its stream is young."""

from __future__ import annotations

import warnings
from collections.abc import Generator
from typing import TYPE_CHECKING

from torch import Tensor

from dbull.errors import DataError
from dbull.ledger import ArrivalReport
from dbull.lifelong.beginning import (
    FEWEST_SOUGHT,
    NEWS,
    begun,
    goes_on,
    grown_up,
    labels_of,
    news,
    renewed,
    settings_for,
    too_few,
)
from dbull.lifelong.few_rows import FewRows
from dbull.lifelong.learn import learn
from dbull.lifelong.novelty import changed_columns
from dbull.lifelong.state import LearnerState
from dbull.lifelong.training import Progress
from dbull.methods.dbull_choices import choose, choose_again
from dbull.methods.explanation import with_reasons

if TYPE_CHECKING:
    from dbull.methods.dbull import DBULL

Learned = tuple[LearnerState, ArrivalReport]
Learning = Generator[Progress, None, Learned]
COUNTING = ("text_reader_", "projection_", "vocabulary_")  # words and columns of clusters, which must stay


def learn_arrival(model: DBULL, state: LearnerState, rows: Tensor) -> Learning:
    """Learn rows (N, d) as the parameters of a model say; the state given stays as it was."""
    settings, augment = choose_again(model, state, len(rows))
    plain = not any(hasattr(model, name) for name in COUNTING) and model.objective == "default"
    everything = begun(state, rows, settings) if plain else None
    if everything is not None and too_few(state):
        learned, report = yield from _sought_anew(model, state, everything, rows)
    else:
        changed = named_changes(model, state, rows)
        learned, report = yield from learn(state, rows, settings, augment, changed)
        if everything is not None and everything.due(FEWEST_SOUGHT):
            learned, report = yield from _sought_anew(model, state, everything, rows, (learned, report))
    if everything is not None:
        learned.beginning = grown_up(everything, learned, len(rows))
    return with_reasons(model, learned, report)


def _sought_anew(
    model: DBULL, before: LearnerState, everything: FewRows, rows: Tensor, usual: Learned | None = None
) -> Learning:
    """Seek clusters from nothing in all rows of a young stream; return what tells more.

    `usual` is what came of learning the rows on top of what was known, if it was tried.
    """
    company = everything.in_company(before.view)
    fresh = choose(model, company.means, before, company.counts)
    settings = settings_for(company, fresh.settings)
    found, anew = yield from learn(fresh.state, company.means, settings, fresh.augment)
    if usual is None:
        return renewed(before, found, everything, rows, (anew, anew))
    known, seen = (labels_of(state, everything.means) for state in (usual[0], found))
    if news(known, seen, everything.counts) < NEWS or not goes_on(before, everything):
        return usual
    return renewed(before, found, everything, rows, (usual[1], anew))


def named_changes(model: DBULL, state: LearnerState, rows: Tensor) -> tuple[str, ...]:
    """Return the names of columns whose scale is not what it was; warn of them, or refuse them."""
    names = model.value_names_ or range(rows.shape[1])
    columns = tuple(str(names[i]) for i in changed_columns(state, rows))
    if columns:
        told = ", ".join(columns[:10]) + (f" and {len(columns) - 10} more" if len(columns) > 10 else "")
        what = f"columns {told}: a hundred times larger or smaller than ever before (other units?)"
        if model.strict_scale:
            raise DataError(
                f"{what}; convert them, or learn them as they are: strict_scale=False, no --strict-scale"
            )
        warnings.warn(f"{what}; they are learned as they are.", stacklevel=2)
    return columns
