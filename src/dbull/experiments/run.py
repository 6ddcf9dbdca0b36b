"""Run methods over scenarios: predict, score, then learn. Labels stay in the scoring half."""

import re
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dbull.data import Scenario, scenario, scenario_names
from dbull.errors import MethodError, SettingsError, check_known
from dbull.experiments.environment import PeakMemory, describe_environment
from dbull.experiments.figures import check_matplotlib
from dbull.experiments.generated import Generated
from dbull.experiments.pictures import can_be_pictured, draw_pictures
from dbull.experiments.registry import ResolvedMethod, build, resolve
from dbull.experiments.results import RunFolder
from dbull.experiments.scoring import Scorer, final_record
from dbull.experiments.settings import BenchSettings, MethodChoice

SETTINGS_FORMAT = 1
PICTURES = "pictures"  # their folder beside the records of a run


@dataclass(frozen=True)
class _Event:
    """Something about one run."""

    scenario: str
    method: str
    seed: int


@dataclass(frozen=True)
class Learning(_Event):
    """A method told how the learning of an arrival goes."""

    arrival: int
    n_arrivals: int
    progress: Any  # what the method tells; `DBULL` gives `Progress`


Watch = Callable[[Learning], object]


@dataclass(frozen=True)
class StepDone(_Event):
    """One arrival was predicted, scored and learnt."""

    n_arrivals: int
    record: dict[str, Any]
    replayed: bool  # an earlier, interrupted run had written this very step


@dataclass(frozen=True)
class RunSkipped(_Event):
    """A run of many that was not made; the others go on."""

    reason: str


@dataclass(frozen=True)
class RunDone(_Event):
    """One result folder is complete."""

    folder: Path
    final: dict[str, Any]
    was_done: bool  # it was complete before, and was left alone
    warnings: tuple[str, ...]  # what the method warned of while learning
    pictures: tuple[Path, ...] = ()  # files drawn now


def bench(
    settings: BenchSettings,
    data_folder: Path | None = None,
    *,
    pictures: bool = False,
    watch: Watch | None = None,
) -> Iterator[StepDone | RunDone]:
    """Run every method with every seed; each scenario is made once per seed and shown to all methods.

    With `pictures` what was learned is drawn, of every method that has what pictures are made from; `watch`
    is told how learning goes, by every method that declares ``watched_as``.
    """
    # Wrong names are refused before any work is done.
    check_known("scenario", settings.scenario, scenario_names())
    methods = [resolve(choice, seed=settings.seeds[0], true_k=1) for choice in settings.methods]
    if pictures:
        check_matplotlib("pictures")
        if not any(can_be_pictured(build(method)) for method in methods):
            raise SettingsError(
                f"no picture can be made of {', '.join(method.label for method in methods)}: "
                "a method needs prototype, sample and transform, and no pca_dims before it"
            )
    for seed in settings.seeds:
        stream = scenario(settings.scenario, seed, data_folder)
        for choice in settings.methods:
            yield from run(stream, choice, settings.out, pictures=pictures, watch=watch)


def run(
    stream: Scenario, choice: MethodChoice, out: Path, *, pictures: bool = False, watch: Watch | None = None
) -> Iterator[StepDone | RunDone]:
    """Run one method over one scenario into its own folder below ``out``.

    An interrupted run is replayed from the start, since a method's state is its own affair, and every score
    the interrupted run had written must come out the same to the byte.
    """
    # Rows of other data than grey images have no shape that a method could use.
    grey = stream.kind == "images" and len(stream.sample_shape) == 2
    shape = stream.sample_shape if grey else None
    method = resolve(choice, stream.seed, Scorer(stream).true_k, shape)
    given = tuple(choice.parameters)
    yield from run_resolved(stream, method, out, set_by_user=given, pictures=pictures, watch=watch)


def run_resolved(
    stream: Scenario,
    method: ResolvedMethod,
    out: Path,
    *,
    set_by_user: tuple[str, ...] = (),
    pictures: bool = False,
    watch: Watch | None = None,
) -> Iterator[StepDone | RunDone]:
    """Run a method of which everything is decided."""
    scorer = Scorer(stream)
    which, n_arrivals = (stream.name, method.label, stream.seed), len(stream.arrivals)

    def tell(progress: Any) -> None:
        if watch is not None:
            watch(Learning(*which, learner.n_learnt, n_arrivals, progress))

    built = build(method, tell)
    learner = _Learner(built, method.label, n_arrivals, set_by_user=set_by_user)
    path = run_folder(out, *which)
    described = _settings_record(stream, method, learner.way)
    with RunFolder.open(path, described, describe_environment()) as folder:
        was_done = folder.finished
        if not was_done:
            peak, started = PeakMemory(), process_time()
            steps = []
            if method.warm:
                learner.pretrain(stream.domain())
            generated = Generated(stream) if can_be_pictured(built) else None
            for step in _steps(stream, learner, scorer, folder):
                steps.append(step.record)
                if generated is not None and scorer.ends_phase(len(steps) - 1):
                    generated.add(built, step.record["task"])
                yield step
            if generated is not None:
                generated.save(path)
            folder.finish({**final_record(steps), "cost": _cost(folder, peak, process_time() - started)})
        drawn: list[Path] = []
        if pictures and not was_done and can_be_pictured(built):
            # After the final record: a picture that cannot be written must not cost the scores.
            held_out = _read_only(scorer.held_out_rows(n_arrivals - 1))
            shape = stream.sample_shape if stream.kind == "images" else getattr(built, "image_shape", None)
            drawn = draw_pictures(built, held_out, path / PICTURES, shape, stream.seed)
        warned = [text for timing in folder.timings() for text in timing["warnings"]]
        yield RunDone(*which, path, folder.final(), was_done, tuple(warned), tuple(drawn))


def run_folder(out: Path, scenario_name: str, method: str, seed: int) -> Path:
    """Where the results of one (scenario, method, seed) live."""
    return out / scenario_name / method / f"seed-{seed}"


def _steps(stream: Scenario, learner: "_Learner", scorer: Scorer, folder: RunFolder) -> Iterator[StepDone]:
    earlier: NDArray[np.int64] | None = None  # ids of held-out rows after the arrival before
    for arrival in stream.arrivals:
        started = perf_counter()
        ids_before = learner.predict(arrival.x) if earlier is not None else None
        predicted = perf_counter()
        learner.learn(arrival.x)
        learnt = perf_counter()
        held_out = scorer.held_out_rows(arrival.index)
        ids_held_out = learner.predict(held_out)
        answered = perf_counter()
        present = learner.present_ids(earlier) if earlier is not None else None
        record = scorer.step_record(arrival.index, ids_before, ids_held_out, present, learner.n_clusters)
        timing = {
            "arrival": arrival.index,
            "learn_seconds": learnt - predicted,
            "predict_seconds": (predicted - started) + (answered - learnt),
            "rows_learnt": len(arrival.x),
            "rows_predicted": len(held_out) + (len(arrival.x) if ids_before is not None else 0),
            "warnings": learner.warnings,
        }
        replayed = folder.add_step(record, timing)
        earlier = ids_held_out
        yield StepDone(stream.name, learner.label, stream.seed, len(stream.arrivals), record, replayed)


class _Learner:
    """A method as the runner sees it: rows in, ids out; never a label, never a task.

    ``way`` says how it learns: ``fit`` once on a stream of one arrival; ``partial_fit`` on each arrival; or,
    for a method that cannot go on learning, ``refit-on-all-rows``, which keeps every row ever seen.
    """

    def __init__(self, method: Any, label: str, n_arrivals: int, set_by_user: tuple[str, ...]):
        self.label = label
        self._set_by_user = set_by_user
        self._method = method
        self._kept: list[NDArray[np.float32]] = []
        self.n_learnt = 0  # arrivals
        self.warnings: list[str] = []  # given while the latest arrival was learnt
        if n_arrivals == 1 and hasattr(method, "fit"):
            self.way = "fit"
        else:
            self.way = "partial_fit" if hasattr(method, "partial_fit") else "refit-on-all-rows"

    def pretrain(self, x: NDArray[np.float32]) -> None:
        """Show unlabelled rows of the domain before the stream begins."""
        self._method.pretrain(_read_only(x))

    def learn(self, x: NDArray[np.float32]) -> None:
        x = _read_only(x)
        with warnings.catch_warnings(record=True) as caught:
            try:
                if self.way == "refit-on-all-rows":
                    self._kept.append(x)
                    self._method.fit(np.concatenate(self._kept))
                else:
                    getattr(self._method, self.way)(x)
            except (TypeError, ValueError) as error:
                # Estimators check their parameters only now; a complaint about what the user set is theirs.
                if any(re.search(rf"\b{name}\b", str(error)) for name in self._set_by_user):
                    raise SettingsError(f"{self.label}: {error}") from error
                raise
        self.n_learnt += 1
        self.warnings = [f"{warning.category.__name__}: {warning.message}" for warning in caught]

    def predict(self, x: NDArray[np.float32]) -> NDArray[np.int64]:
        return self._checked(self._method.predict(_read_only(x)), len(x), "predict")

    def present_ids(self, ids: NDArray[np.int64]) -> NDArray[np.int64]:
        """Translate old ids by the method's own lineage, where it keeps one."""
        if not hasattr(self._method, "resolve"):
            return ids
        return self._checked(self._method.resolve(ids), len(ids), "resolve")

    @property
    def n_clusters(self) -> int | None:
        count = getattr(self._method, "n_clusters_", None)
        return None if count is None else int(count)

    def _checked(self, ids: Any, n_rows: int, verb: str) -> NDArray[np.int64]:
        ids = np.asarray(ids)
        if ids.shape != (n_rows,) or not np.issubdtype(ids.dtype, np.integer):
            raise MethodError(
                f"{self.label}: {verb} must give whole numbers of shape ({n_rows},), "
                f"got {ids.dtype} of shape {ids.shape}"
            )
        checked: NDArray[np.int64] = ids.astype(np.int64)
        return checked


def _read_only(x: NDArray[np.float32]) -> NDArray[np.float32]:
    """Guard the scenario: a method that writes into its input would change what the next one sees."""
    view: NDArray[np.float32] = x.view()
    view.flags.writeable = False
    return view


def _settings_record(stream: Scenario, method: ResolvedMethod, way: str) -> dict[str, Any]:
    # Parameters as they are, not copied: not every object that a user hands over can be.
    return {
        "format": SETTINGS_FORMAT,
        "scenario": stream.name,
        "dataset": stream.dataset,
        "scenario_fingerprint": stream.fingerprint,
        "seed": stream.seed,
        "method": method.label,
        "path": method.path,
        "parameters": {k: _for_json(v) for k, v in method.parameters.items() if k != method.watched_as},
        "pca_dims": method.pca_dims,
        "learning": way,
        "told_true_k": method.told_true_k,
        **({"pretrained_on": "all rows that are not held out, without labels"} if method.warm else {}),
    }


def _for_json(value: Any) -> Any:
    """Keep what JSON can hold; a default that is a Python object is recorded by its type's name."""
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, (list, tuple)):
        return [_for_json(item) for item in value]
    if isinstance(value, dict):
        return {str(key): _for_json(item) for key, item in value.items()}
    return f"<{type(value).__qualname__}>"


def _cost(folder: RunFolder, peak: PeakMemory, cpu_seconds: float) -> dict[str, Any]:
    timings = folder.timings()
    learn, predict = (sum(one[f"{verb}_seconds"] for one in timings) for verb in ("learn", "predict"))
    return {
        "seconds": learn + predict,
        "learn_seconds": learn,
        "predict_seconds": predict,
        "cpu_seconds": cpu_seconds,  # of the whole run, which a restart makes again; a busy machine adds none
        "peak_memory_bytes": peak.bytes(),
        "peak_memory_scope": peak.scope,
        "starts": folder.n_starts(),
    }
