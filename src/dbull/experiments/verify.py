"""Run a stored result again and compare: is it what this code makes of these data?"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dbull.data import Scenario, scenario
from dbull.errors import ResultsError, SettingsError
from dbull.experiments.registry import ResolvedMethod, listener_of
from dbull.experiments.results import Result, commits_of, find_results, read_steps
from dbull.experiments.run import RunDone, StepDone, Watch, run_resolved


@dataclass(frozen=True)
class Comparison:
    """What a run gave then and now."""

    folder: Path
    commits: tuple[str, ...]  # then
    n_steps: int
    first_difference: int | None  # the arrival from which steps differ; None: none does, in no digit
    largest: float  # difference of a score on all held-out rows, over the arrivals
    then: dict[str, Any]
    now: dict[str, Any]


def stored_run(folder: Path) -> Result:
    """Return the one complete result that a folder holds."""
    results, _ = find_results([folder])
    if len(results) != 1:
        raise SettingsError(f"{folder}: holds {len(results)} complete runs; name the folder of one (seed-N)")
    return results[0]


def rerun(
    result: Result, out: Path, data_folder: Path | None = None, watch: Watch | None = None
) -> Iterator[StepDone | RunDone]:
    """Run the settings of a stored result again, into a folder of its own."""
    settings = result.settings
    stream = scenario(result.scenario, result.seed, data_folder)
    _refuse_other_data(result, stream)
    parameters = {key: _plain(key, value) for key, value in settings["parameters"].items()}
    watched_as = listener_of(settings["path"])
    if watched_as is not None:
        parameters[watched_as] = None
    method = ResolvedMethod(
        label=result.method,
        path=settings["path"],
        parameters=parameters,
        pca_dims=settings["pca_dims"],
        seed=result.seed,
        told_true_k=settings["told_true_k"],
        watched_as=watched_as,
        warm="pretrained_on" in settings,
    )
    yield from run_resolved(stream, method, out, watch=watch)


def compare(before: Result, now: Result) -> Comparison:
    """Compare two runs of the same settings step by step."""
    steps, again = read_steps(before), read_steps(now)
    if len(steps) != len(again):
        raise ResultsError(f"{before.folder}: {len(steps)} arrivals then, {len(again)} now")
    differing = [i for i, (one, two) in enumerate(zip(steps, again, strict=True)) if one != two]
    apart = [
        abs(one["cumulative"][name] - two["cumulative"][name])
        for one, two in zip(steps, again, strict=True)
        for name in one["cumulative"]
    ]
    first = differing[0] if differing else None
    sums = before.final, now.final
    return Comparison(before.folder, commits_of(before), len(steps), first, max(apart), *sums)


def _refuse_other_data(result: Result, stream: Scenario) -> None:
    if stream.fingerprint != result.settings["scenario_fingerprint"]:
        raise ResultsError(
            f"{result.folder}: was made from other data (fingerprints of {stream.name} differ): "
            "the same files and the same version of the scenario are needed to verify it"
        )


def _plain(key: str, value: Any) -> Any:
    if isinstance(value, str) and value.startswith("<") and value.endswith(">"):
        raise ResultsError(f"parameter {key!r} was the object {value}, which a record cannot hold")
    return tuple(value) if isinstance(value, list) else value
