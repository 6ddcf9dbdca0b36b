"""`DBULL` on arrivals of any length: a sample is learned, then laps over numbered blocks add up all rows.

sample      rows with the smallest tickets, in one pass; they decide scales and encoders, and are learned
laps        each block adds its statistics under what was learned (lifelong/blocks.py); rows that every
            cluster finds strange are gathered, and if they are of a new kind, learned too, and another lap
answers     one more pass under the learner as it will be: rows of each cluster, exemplars, words

An arrival of no more rows than the sample is learned as an array is, to the bit.
"""

from __future__ import annotations

import copy
import logging
import math
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import replace
from numbers import Integral
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from dbull.data.blocks import FileBlock, Source
from dbull.data.readers.chunk import ReadSettings
from dbull.errors import DataError, SettingsError
from dbull.ledger import ArrivalReport, Newborn
from dbull.lifelong.blocks import Added, Lap, finished, gathered
from dbull.lifelong.inference import elbo_of, encode_rows
from dbull.lifelong.learn import learn
from dbull.lifelong.plane import lay_out
from dbull.lifelong.sketches import Tree
from dbull.lifelong.state import LearnerState
from dbull.lifelong.training import Progress
from dbull.methods import exemplars
from dbull.methods.arrival import named_changes
from dbull.methods.base import drained
from dbull.methods.block_work import AddUp, Answer, add_words, slim, slim_model
from dbull.methods.dbull_choices import choose_again
from dbull.methods.engine import over_blocks
from dbull.methods.explanation import with_reasons
from dbull.methods.lap_checkpoints import LapCheckpoints, Reached
from dbull.methods.sampling import Sample, draw_sample

if TYPE_CHECKING:
    from dbull.methods.dbull import DBULL

_log = logging.getLogger(__name__)
MOST_LAPS = 6  # in which statistics are added up; the last one tries no births
READS = ("column_encoder_", "text_reader_", "vocabulary_")


def learn_source(model: DBULL, given: Any, keys: Iterable[Any] | None, first: bool) -> None:
    """Learn an arrival of any length, and set the fitted attributes of a model as `partial_fit` does."""
    _Arrival(model, given if isinstance(given, Source) else Source(given), first).learn(keys)


class _Arrival:
    """One arrival on its way through the passes."""

    def __init__(self, model: DBULL, source: Source, first: bool):
        self.model, self.source, self.first = model, source, first
        self.started = perf_counter()
        self.history: list[Progress] = []
        self.blocks = source.blocks(_reading(model, source, first))
        if not self.blocks:
            raise DataError("the source has no rows")

    def learn(self, keys: Iterable[Any] | None) -> None:
        """Draw the sample; learn all rows at once, or in laps."""
        model, source, first = self.model, self.source, self.first
        seed = model.state_.seed if not first else model.random_state
        seed = int(seed) if isinstance(seed, Integral) else 0
        tell = self._teller("sample", 1)
        sample = draw_sample(self.blocks, source.sample_rows, seed, tell)
        if sample.X is None or sample.n_rows == 0:
            raise DataError("the source has no rows")
        if not first and hasattr(model, "text_reader_"):
            model.text_reader_ = model.text_reader_.learned(sample.X)
        rows = model._checked(sample.X, first)
        if first and sample.names is not None and isinstance(sample.X, np.ndarray):
            model.feature_names_in_ = np.array(sample.names, dtype=object)
        before = model._fresh(rows).state if first else model.state_
        if sample.n_rows <= source.sample_rows:
            model._learn(before, rows, sample.X, sample.keys if keys is None else keys)
            model.history_ = [*self.history, *model.history_]
            return
        if keys is not None:
            raise ValueError(
                "keys cannot be given for an arrival in blocks: they are those of its files or frames."
            )
        self._learn_in_blocks(before, rows, sample)

    def _learn_in_blocks(self, before: LearnerState, rows: torch.Tensor, sample: Sample) -> None:
        model = self.model
        settings, _ = choose_again(model, before, len(rows))
        if settings.past.replay != "imprints":
            raise SettingsError(
                f"an arrival in blocks is learned with replay='imprints' alone, which tells what is strange; "
                f"this model has replay={settings.past.replay!r} (objective={model.objective!r})"
            )
        changed = named_changes(model, before, rows)
        kept = LapCheckpoints.of(self.source.checkpoint, self._identity(before, rows))
        reached = kept.load(model.device)
        if reached is None:
            trial, report = self._learned(before, rows, changed)
            reached = Reached(trial, (report,))
            kept.save(reached)
        while not reached.complete:
            lap = self._lap(before, reached.state, sample)
            added = self._added(lap, reached.lap)
            found = None
            if reached.lap < MOST_LAPS:
                found = self._births(reached.state, lap, added, rows)
            if found is not None:
                trial, report = found
                reached = Reached(trial, (*reached.reports, report), reached.lap + 1)
            else:
                state = finished(before, reached.state, added, settings)
                grown = _rows_by_cluster(reached.state, added, before)
                reached = replace(
                    reached, state=state, complete=True, n_outliers=added.n_outliers, grown=grown
                )
            kept.save(reached)
        self._finish(before, reached, rows, sample, changed)

    def _learned(
        self, state: LearnerState, rows: torch.Tensor, changed: tuple[str, ...] = ()
    ) -> tuple[LearnerState, ArrivalReport]:
        """Learn rows that are in memory."""
        settings, augment = choose_again(self.model, state, len(rows))
        learning = learn(state, rows, settings, augment, changed)
        learned, told = drained(learning, self.model.callback)
        self.history += told
        return learned

    def _lap(self, before: LearnerState, trial: LearnerState, sample: Sample) -> Lap:
        """Return what is the same for all blocks of a lap."""
        settings, _ = choose_again(self.model, before, len(sample.tickets))
        return Lap(slim(before), slim(trial), settings, sample.n_rows)

    def _added(self, lap: Lap, number: int) -> Added:
        """Add up what all blocks bring under the trial."""
        work = AddUp(slim_model(self.model, None), lap, lap.trial.seed)
        tell = self._teller(f"lap {number}", 2, lap.trial)
        tree, done = Tree(), 0
        for n_blocks, added in enumerate(over_blocks(work, self.blocks), start=1):
            if added is not None:
                tree.add(added)
                done += added.n_rows
            tell(n_blocks, done)
        total: Added = tree.total
        if total.n_rows != lap.n_rows:
            raise DataError(
                f"the source had {lap.n_rows} rows at first, and {total.n_rows} when it was read again; "
                "run the same again when nobody writes it"
            )
        return total

    def _births(
        self, trial: LearnerState, lap: Lap, added: Added, rows: torch.Tensor
    ) -> tuple[LearnerState, ArrivalReport] | None:
        """Learn strange rows that keep to themselves; None if nothing came of it."""
        strange, view = added.strange.rows, trial.view
        settings, _ = choose_again(self.model, trial, max(len(strange), 1))
        unusual, known = (view.inputs(view.values(part)) for part in (strange, rows[lap.usual(rows)]))
        alone = gathered(unusual, known, lap.n_rows, settings.graph, trial.new_generator())
        if len(alone) == 0:
            return None
        learned, report = self._learned(trial, strange[alone])
        _log.info("%d strange rows, %d apart: new clusters %s", len(strange), len(alone), list(report.born))
        return (learned, report) if report.born or report.grown else None

    def _finish(
        self,
        before: LearnerState,
        reached: Reached,
        rows: torch.Tensor,
        sample: Sample,
        changed: tuple[str, ...],
    ) -> None:
        """Tell all rows to their clusters, and set the fitted attributes."""
        model, state = self.model, replace(reached.state, ledger=copy.deepcopy(before.ledger))
        work = Answer(slim_model(model, state), sample.offsets, before.n_data_sets)
        tell = self._teller("answers", 1, state)
        tree, done = Tree(), 0
        for n_blocks, answers in enumerate(over_blocks(work, self.blocks), start=1):
            if answers is not None:
                tree.add(answers)
                done += answers.rows.total()
            tell(n_blocks, done)
        answers = tree.total
        report = self._report(before, reached, rows, answers.rows, changed)
        state.ledger.record(report)
        model._adopt(state)
        model.__dict__.pop("labels_", None)
        most, n_kept = max(exemplars.N_KEYS, model.keep_exemplars), model.keep_exemplars
        before_exemplars = getattr(model, "exemplars_", {})
        model.exemplars_ = exemplars.joined(before_exemplars, answers.exemplars, most, n_kept)
        model.map_ = lay_out(state, getattr(model, "map_", None))
        if answers.words is not None:
            add_words(model, answers.words)
        state, report = with_reasons(model, state, report)
        model._adopt(state)
        model.report_ = replace(report, seconds=perf_counter() - self.started)
        model.elbo_ = report.elbo if math.isfinite(report.elbo) else math.nan
        model.history_ = self.history

    def _report(
        self,
        before: LearnerState,
        reached: Reached,
        rows: torch.Tensor,
        counts: Counter[int],
        changed: tuple[str, ...],
    ) -> ArrivalReport:
        state, n_all = reached.state, counts.total()
        values = state.view.values(rows)
        inputs = state.view.inputs(values)
        codes = encode_rows(state.vae, inputs)[0]
        told: dict[int, Newborn] = {}
        for report in reached.reports:
            told = {**report.born, **report.grown, **told}
        told = {
            cluster: replace(one, n_rows=reached.grown.get(cluster, one.n_rows))
            for cluster, one in sorted(told.items())
        }
        return ArrivalReport(
            rows={cluster: counts[cluster] for cluster in state.cluster_ids},
            weights=dict(zip(state.cluster_ids, state.weights.clamp(max=1.0).tolist(), strict=True)),
            born={cluster: one for cluster, one in told.items() if cluster not in before.ledger},
            grown={cluster: one for cluster, one in told.items() if cluster in before.ledger},
            novel_share=reached.reports[0].novel_share,
            n_outliers=reached.n_outliers,
            elbo=elbo_of(state, values, inputs, codes, n_all / len(rows)),  # of the sample, for all
            changed_columns=changed,
        )

    def _identity(self, before: LearnerState, rows: torch.Tensor) -> str:
        """Return what a checkpoint must have been made from to be gone on from."""
        parameters = self.model.get_params(deep=False)
        settings = {name: repr(value) for name, value in sorted(parameters.items()) if name != "callback"}
        sizes = self.source.block_rows, self.source.sample_rows
        blocks = [block.identity for block in self.blocks]
        base = before.n_data_sets, before.n_rows, before.fingerprint, before.ledger.n_events
        return repr((settings, sizes, blocks, base, rows.double().sum().item()))

    def _teller(
        self, stage: str, n_laps: int, state: LearnerState | None = None
    ) -> Callable[[int, int], None]:
        """Return what tells of blocks that are done; there are `n_laps` of this length to come at least."""
        started, n_blocks = perf_counter(), len(self.blocks)
        n_components = 1 if state is None else state.memory.n_components
        n_clusters = 1 if state is None else state.n_clusters

        def tell(done: int, n_done: int) -> None:
            seconds = perf_counter() - started
            left = seconds / done * (n_blocks * n_laps - done)
            rate = n_done / max(seconds, 1e-9)
            total = perf_counter() - self.started
            step = Progress(
                stage, done, n_blocks, n_components, n_clusters, total, left, rows_per_second=rate
            )
            self.history.append(step)
            if self.model.callback is not None:
                self.model.callback(step)

        return tell


def _rows_by_cluster(trial: LearnerState, added: Added, before: LearnerState) -> dict[int, int]:
    """Return how many rows the components have that were not there before, by cluster."""
    found: Counter[int] = Counter()
    counts = zip(trial.memory.ids, added.stats.counts.tolist(), strict=True)
    for component, count in counts:
        if component not in before.owner:
            found[trial.owner[component]] += count
    return {cluster: round(count) for cluster, count in found.items()}


def _reading(model: DBULL, source: Source, first: bool) -> ReadSettings | None:
    """Return how the files of a source are read for a model, if nothing was said."""
    if not source.of_files or source.reading is not None:
        return source.reading
    if not first:
        names = getattr(model, "feature_names_in_", None)
        mixed = any(hasattr(model, name) for name in READS)
        columns = None if mixed or names is None else tuple(map(str, names))
        return ReadSettings(mixed=mixed, columns=columns, unnamed=True)
    plain = ReadSettings(chunk_rows=100)
    try:
        if model.columns is None and model.embeddings is None:
            first_rows = next(FileBlock(source.files()[0], plain).pieces())
            return ReadSettings(columns=first_rows.names, unnamed=True)  # by which other files are matched
    except DataError:
        pass
    return ReadSettings(mixed=True)
