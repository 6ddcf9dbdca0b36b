"""Learn one data set after another: networks and mixture in turn (the paper's Algorithm 1, corrected).

triage      rows that could only do harm are set aside, rows of another scale are learned apart; of copies,
            more than a row has neighbours only count
past        replay rows that look like those that are gone; see how much of the data set is new
graph       neighbours of all rows in memory, replayed ones among them
represent   lay out codes along the graph, the past where it was; train the networks to give them; carry the
            statistics of the past into the new coordinates
search      the mixture on the codes: births, merges, laps
joint       an epoch of the networks under the mixture, a search on the new codes, and again
done        newborn components join an old cluster, or found a new one; statistics are folded in, once
"""

from collections.abc import Callable, Generator
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from dbull.ledger import ArrivalReport
from dbull.lifelong.codes import CodeMixture, CodeSearch
from dbull.lifelong.few_rows import FewRows
from dbull.lifelong.folding import fold_in
from dbull.lifelong.index import MANY_ROWS
from dbull.lifelong.inference import encode_rows
from dbull.lifelong.layout import lay_out_many
from dbull.lifelong.neighbourhood import (
    alone_share,
    build_graph,
    first_codes,
    islands_of,
    lay_out,
    neighbours_for,
)
from dbull.lifelong.novelty import Triage, bounds_novelty, copies_beyond, keeping_together, sort_rows
from dbull.lifelong.past import Past
from dbull.lifelong.placing import Arrival, out_of_contact
from dbull.lifelong.settings import (
    ALONE_SHARE,
    NOVEL_SHARE,
    ROUNDS,
    LearnSettings,
    Schedule,
    TrainingSettings,
)
from dbull.lifelong.state import LearnerState
from dbull.lifelong.training import Clock, Progress, Trainer, TrainingRows, decayed, layer_by_layer, represent
from dbull.mixture.memory import StatsMemory
from dbull.mixture.updates import Points
from dbull.nets.augment import Augmentation

FRESH_SEARCHES = 4  # besides the first, on rows as they are
PROBED = 500  # rows of which it is asked whether they keep to themselves
TELLING = 0.5  # of them; if more do, the graph says nothing of what is new
FEW = 128  # rows of a data set, of which those that fit no cluster wait for others like them
FEWEST_TRIED = 16  # of these, from which they are learned with the next data set
FEWEST_TO_TRAIN = 20  # rows of a further data set; the networks stay as they are for fewer


def learn(
    state: LearnerState,
    rows: Tensor,
    settings: LearnSettings,
    augment: Augmentation | None,
    changed_columns: tuple[str, ...] = (),
) -> Generator[Progress, None, tuple[LearnerState, ArrivalReport]]:
    """Learn a data set (N, d); yields progress, returns the new state and what was done to it.

    The state given stays as it was. `changed_columns`, of which the scale is not what it was, are reported.
    """
    state.check_coordinates()
    state, s = state.copy(), settings
    generator = state.new_generator()
    waiting, n_own = state.waiting, len(rows)
    tried = _ready(state, n_own)
    if waiting is not None and bool(tried.any()):
        rows = torch.cat([rows, waiting.means[tried].to(rows)])
    all_values = state.view.values(rows)
    all_inputs = state.view.inputs(all_values)
    first, learns = state.n_data_sets == 0, state.vae.learns

    # triage
    parts = Triage.all_near(len(rows), 1.0) if first else sort_rows(state, all_inputs, s.past.outlier_std)
    drawn_together = s.graph.join > 0 or (s.training.neighbourhood > 0 and learns)
    n_neighbors = s.graph.n_neighbors or neighbours_for(len(parts.near))
    most = 1 + n_neighbors if drawn_together else len(parts.near)
    kept, copies, of = copies_beyond(_taken(all_values, parts.near), most)
    near = _taken(parts.near, kept)
    values, inputs = _taken(all_values, near), _taken(all_inputs, near)
    clock = Clock()
    bounds = None
    if not first and learns and s.past.by_bounds:
        bounds, novel = bounds_novelty(state, all_values, all_inputs)
        parts = replace(parts, novel_share=novel, near_novel_share=novel)

    # past
    past = None if first else Past(state, s.past.replay if learns else "none", generator)
    near_memory, far_memory = _by_distance(state)
    fit = CodeMixture.of_past(near_memory, state.prior)
    if past is not None:
        yield _progress(
            clock, "past", fit, novel_share=1.0 if parts.novel_share is None else parts.novel_share
        )
    replay = past.replay(s.past, generator) if past is not None else None

    # graph
    data = TrainingRows.of(values, inputs, replay, state.vae.shape.latent_dim)
    if past is not None and replay is not None and (s.training.consistency or s.past.redraw):
        draw = partial(past.replay, s.past, generator, values=s.past.redraw)
        data = replace(data, redraw=draw, anew=s.past.redraw)
    graph = None
    if drawn_together and len(inputs) > 0 and len(data.inputs) > 1:  # one row alone has no neighbour
        graph = build_graph(data.inputs, s.graph, generator, len(inputs))
        state.graph_index = graph.index
        yield clock.now("graph")
    alone = 0.0
    if replay is not None and graph is not None and state.alone_usually <= TELLING:
        alone = alone_share(graph, len(inputs), s.past.n_replay)
        alone = (alone - state.alone_usually) / (1 - state.alone_usually)
    schedule = _schedule(state, parts, alone, s)  # frozen networks: no epoch, one search
    clock.n_epochs = schedule.epochs + schedule.joint_epochs

    # represent, search, joint
    # What a first search misses is missed for long; a later one has as many chances as there are data sets.
    search = CodeSearch(s.mixture if first else s.mixture.without_second_chances(), generator)
    if len(inputs) > 0 and learns:
        data = _laid_out(state, replace(data, graph=graph), s, schedule, generator)
        if data.places is not None:
            # Places are where the codes of the past still are, and free of what the encoder cannot learn.
            fit = search(fit, Points.from_rows(data.places[: len(inputs)].to(torch.float64)))
            yield _progress(clock, "search", fit)
        trainer = Trainer(state.view, state.vae, data, augment, s.training, generator)
        codes_now = partial(_codes, trainer, s.use_encoder_variance)

        def follow(fit: CodeMixture, births: bool) -> CodeMixture:
            """Search on the codes as they are now, with the past where it is now."""
            if past is not None:
                fit = fit.carried(past.ids, past.carried(state.vae) if s.past.carry else past.overall)
            return search(fit, codes_now(), births)

        if _untrained(state):
            yield from layer_by_layer(trainer, clock)
        yield from represent(trainer, schedule, clock)
        fit = yield from _alternate(trainer, schedule, clock, fit, follow)
        if data.places is not None:
            fit = fit.without_thin(codes_now())
        if first and s.training.joint_births and schedule.joint_epochs > 0:
            fit = search.afresh(fit, codes_now(), s.training.stable_gain)
    elif len(inputs) > 0:
        points = Points.from_rows(inputs.to(torch.float64))
        fit = search(fit, points)
        if first and s.mixture.weight(len(inputs), points.n_dims, 2) >= 1.0:
            # Few rows, all of which count in full: bounds can be compared, and a search is soon stuck.
            for n_th in range(1, FRESH_SEARCHES + 1):
                fit = search.afresh(fit, points, 0.0, n_th)
        yield _progress(clock, "search", fit)
    order = torch.cat([near, parts.far, parts.near[copies]])
    codes, var = encode_rows(state.vae, _taken(all_inputs, order))
    points = Points.from_rows(codes, var if s.use_encoder_variance and learns else None)
    if graph is not None and s.graph.join > 0:
        near_points = points.between(0, len(inputs))
        least = graph.neighbours.shape[1] + 1  # fewer cannot but know somebody else
        fit = fit.apart(islands_of(graph, data.inputs, least)[: len(inputs)], least, near_points)
        silent = graph.silent[: len(inputs)]
        if learns:
            places = encode_rows(state.vae, data.inputs)[0] if data.places is None else data.places
            graph = graph.among(places)
        if replay is not None and state.alone_usually <= TELLING:
            strangers = out_of_contact(state, fit, graph, replay, silent, s.graph.join)
            fit = fit.with_newborns(strangers, near_points)

    # done: far rows are searched apart and all is folded in
    if far_memory.n_components or len(parts.far):
        apart = CodeMixture.of_past(far_memory, fit.prior)
        if past is not None and s.past.carry and learns:
            apart = apart.carried(past.ids, past.carried(state.vae))
        far_codes = codes[len(inputs) : len(inputs) + len(parts.far)]
        fit = fit.joined(search(apart, Points.from_rows(far_codes)) if len(far_codes) else apart)
    fit = fit.with_copies(of, points).without_unchosen(points)
    arrival = Arrival(
        _taken(all_values, order),
        _taken(all_inputs, order),
        codes,
        points,
        replay,
        graph,
        parts.novel_share if alone <= ALONE_SHARE else max(alone, parts.novel_share or 0.0),
        len(inputs),
        encode_rows(state.vae, all_inputs[parts.outliers[parts.outliers < n_own]])[0],
        order < n_own,
        None if bounds is None else bounds[order],
        changed_columns,
    )
    state, report, counted = fold_in(state, fit, arrival, s, generator)
    if not first and s.past.novelty and s.past.replay == "imprints":
        strange = torch.cat([order[~counted], parts.outliers]).sort().values
        state.waiting = _waiting(waiting, rows, strange, n_own, tried).fitting(state.view)
    if graph is not None and learns and schedule.rounds == ROUNDS and s.past.replay == "imprints":
        state.alone_usually = _alone_usually(state, inputs, s)
    done = _progress(clock, "done", fit, n_clusters=state.n_clusters)
    yield done
    return state, replace(report, seconds=done.seconds)


def _alone_usually(state: LearnerState, inputs: Tensor, s: LearnSettings) -> float:
    """Return the share of rows (N, d) that keep to themselves among rows drawn from what was learned of them.

    Rows of few values, or of columns that are seldom anything but 0, look like no Gaussian: then whatever
    comes keeps to itself, and the graph cannot tell what is new.
    """
    generator = torch.Generator().manual_seed(state.seed)  # so that nothing that follows is changed
    replay = Past(state, s.past.replay, generator).replay(s.past, generator, values=False)
    if replay is None or len(inputs) < 2:
        return 0.0
    # Of some rows, but among all of them: the fewer rows there are, the farther away are their own kind.
    asked = torch.randperm(len(inputs), generator=generator)[:PROBED]
    graph = build_graph(torch.cat([inputs, replay.inputs]), s.graph, generator, len(inputs), asked)
    return alone_share(graph, len(inputs), s.past.n_replay)


def _ready(state: LearnerState, n_own: int) -> Tensor:
    """Return which of the waiting rows are learned with a data set, (W,) bool: those that keep together.

    Rows at the rims of clusters wait as well, but they are nearer to these than to each other.
    """
    few = state.waiting
    if few is None or n_own >= FEW or not few.due(FEWEST_TRIED):
        return torch.zeros(0 if few is None else len(few.means), dtype=torch.bool)
    together = keeping_together(state, state.view.inputs(state.view.values(few.means)))
    return together & (float(few.counts[together].sum()) >= FEWEST_TRIED)


def _waiting(before: FewRows | None, rows: Tensor, strange: Tensor, n_own: int, tried: Tensor) -> FewRows:
    """Return the rows that wait: those that did, but for those that were taken, and strange ones of a few.

    Of many rows those that are strange to all clusters are what they are, and too few to be a kind.
    """
    few = FewRows.none(rows) if before is None else before
    if bool(tried.any()):
        taken = tried.clone()
        taken[tried.nonzero()[strange[strange >= n_own] - n_own, 0]] = False
        few = few.without(taken)
        few = replace(few, n_tried=few.n_rows)
    return few.followed_by(rows[strange[strange < n_own]]) if n_own < FEW else few


def pretrain(
    state: LearnerState, rows: Tensor, settings: LearnSettings, augment: Augmentation | None
) -> Generator[Progress, None, LearnerState]:
    """Train the networks alone on unlabelled rows of the domain; no cluster is learned."""
    state, s = state.copy(), settings
    generator = state.new_generator()
    schedule = s.training.schedule(first=True, novel=True)
    clock = Clock(schedule.epochs)
    values = state.view.values(rows)
    data = TrainingRows.of(values, state.view.inputs(values), None, state.vae.shape.latent_dim)
    if s.training.neighbourhood > 0:
        graph = build_graph(data.inputs, s.graph, generator)
        data, state.graph_index = replace(data, graph=graph), graph.index
        yield clock.now("graph")
    data = _laid_out(state, data, s, schedule, generator)
    trainer = Trainer(state.view, state.vae, data, augment, s.training, generator)
    yield from layer_by_layer(trainer, clock)
    yield from represent(trainer, schedule, clock)
    state.n_pretrain_rows += len(rows)
    return state


def _laid_out(
    state: LearnerState, data: TrainingRows, s: LearnSettings, schedule: Schedule, generator: torch.Generator
) -> TrainingRows:
    """Return the rows with the places where their codes belong, if the networks are to be trained by them."""
    if data.graph is None or not s.training.neighbourhood or not schedule.epochs:
        return data
    if _untrained(state):
        start = first_codes(data.inputs, state.vae.shape.latent_dim, generator)
    else:
        start = encode_rows(state.vae, data.inputs)[0].to(torch.float32)
    along = lay_out_many if len(start) > MANY_ROWS else lay_out
    places = along(data.graph, start, len(data.kept_codes), schedule.rounds, generator)
    return replace(data, places=places)


def _untrained(state: LearnerState) -> bool:
    return state.n_data_sets == 0 and state.n_pretrain_rows == 0


def _schedule(state: LearnerState, parts: Triage, alone: float, s: LearnSettings) -> Schedule:
    """Return how long to train on the near rows: not at all where the networks stay as they are."""
    first = state.n_data_sets == 0
    frozen = s.training.freeze and not _untrained(state)
    if not state.vae.learns or frozen or (not first and len(parts.near) < FEWEST_TO_TRAIN):
        return Schedule()
    novel = parts.near_novel_share > NOVEL_SHARE or alone > ALONE_SHARE or not s.past.novelty
    schedule = s.training.schedule(first, novel)
    untouched = first and state.n_pretrain_rows > 0 and not s.training.retrain
    return replace(schedule, epochs=0) if untouched else schedule


def _taken(rows: Tensor, index: Tensor) -> Tensor:
    """Return rows by ascending or any other index; all of them in order without a copy."""
    whole = len(index) == len(rows) and bool((index[1:] > index[:-1]).all())
    return rows if whole else rows[index]


def _by_distance(state: LearnerState) -> tuple[StatsMemory, StatsMemory]:
    """Return the components of the past whose rows are near, and those whose rows are far."""
    far = torch.tensor([i in state.imprints and state.imprints[i].is_far for i in state.memory.ids]).bool()
    near_memory, far_memory = state.memory.coarse(), state.memory.coarse()
    near_memory.select((~far).nonzero()[:, 0])
    far_memory.select(far.nonzero()[:, 0])
    return near_memory, far_memory


def _codes(trainer: Trainer, use_variance: bool) -> Points:
    """Return the codes of the rows in memory as the mixture sees them."""
    mean, var = trainer.encode()
    return Points.from_rows(mean, var if use_variance else None)


def _alternate(
    trainer: Trainer,
    schedule: Schedule,
    clock: Clock,
    fit: CodeMixture,
    follow: Callable[[CodeMixture, bool], CodeMixture],
) -> Generator[Progress, None, CodeMixture]:
    """Train the networks under the mixture and the mixture on the codes, until neither changes much."""
    s, n_epochs, before = trainer.settings, schedule.joint_epochs, None
    fit = follow(fit, len(fit.labels) == 0)  # unless clusters were sought before
    yield _progress(clock, "search", fit)
    for epoch in range(n_epochs):
        trainer.redraw()
        terms = trainer.epoch(
            lambda part: _joint_rate(s, epoch, part, n_epochs),  # noqa: B023
            fit.frozen(trainer.device),
            # Responsibilities of the clean rows: those of changed ones would follow the change.
            fit.responsibilities_with(trainer.encode_replayed()) if trainer.augment is not None else None,
        )
        fit = follow(fit, s.joint_births)
        yield _progress(clock, "joint", fit, epoch, n_epochs, terms=terms)
        stands_still = before is not None and terms.elbo - before <= s.stable_gain * abs(before)
        if stands_still and fit.changed_share <= s.stable_share:
            break
        before = terms.elbo
    return fit


def _joint_rate(s: TrainingSettings, epoch: int, part: float, n_epochs: int) -> float:
    """Return the learning rate when `part` of an epoch of the alternation is done."""
    if s.decay is not None:
        return s.joint_learning_rate * s.decay**epoch
    return decayed(s.joint_learning_rate, (epoch + part) / n_epochs)


def _progress(clock: Clock, stage: str, fit: CodeMixture, *epoch: int, **details: Any) -> Progress:
    """Describe the present moment and the mixture as it stands."""
    clock.n_components = max(1, fit.memory.n_components)
    if stage in ("search", "joint"):
        details |= {"moves": fit.moves, "changed_share": fit.changed_share}
    return clock.now(stage, *epoch, **details)
