"""What each table and figure of the paper is made from, and the runs that are still to be made."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from dbull.data import catalogue, scenario
from dbull.errors import DbullError, check_known
from dbull.experiments.paper.published import CURL_BOUNDS
from dbull.experiments.registry import METHODS
from dbull.experiments.results import Result, find_results
from dbull.experiments.run import RunDone, RunSkipped, StepDone, Watch, run, run_folder
from dbull.experiments.settings import MethodChoice
from dbull.experiments.tables import capabilities_of

# As the paper names them, and as `dbull bench` does; in the order of the tables.
TITLES = {
    "dbull": "DBULL",
    "dbull-warm": "DBULL, pretrained",
    "dbull-paper": "DBULL, paper",
    "dbull-paper-warm": "DBULL, paper, pretrained",
    "dbull-paper-literal": "DBULL, paper as printed",
    "dbull-paper-literal-warm": "DBULL, paper as printed, pretrained",
    "curl-d": "CURL-D",
    "vae-dp": "VAE+DP",
    "curl-f": "CURL-F",
    "dec": "DEC",
    "vade": "VaDE",
    "kmeans": "k-means",
}
BATCH = ("dbull", "dbull-paper", "curl-d", "vae-dp", "curl-f", "dec", "vade", "kmeans")
STREAMS = ("dbull", "dbull-warm", "dbull-paper", "dbull-paper-warm", "curl-d", "curl-f")
LITERAL = ("dbull-paper-literal", "dbull-paper-literal-warm")  # MNIST only
CURVES = ("dbull", "dbull-paper-warm", "curl-d")
OWN = ("dbull", "dbull-paper-warm")  # of which the paper shows images, precision and recall


@dataclass(frozen=True)
class Source:
    """A data set of the tables."""

    title: str
    dataset: str
    printed: str | None = None  # its name in the paper, None for one that the paper has not
    note: str = ""

    @property
    def scenario(self) -> str:
        """Name of the scenario in which all rows come at once."""
        return f"batch-{self.dataset}"


SOURCES = (
    Source("MNIST", "mnist", "MNIST"),
    Source("Reuters10k", "reuters10k", "Reuters10k"),
    Source("STL-10 features", "stl10-features", "STL-10"),
    Source("CIFAR-10 features", "cifar10-features", note="stand in for STL-10; not in the paper"),
    Source("20 Newsgroups", "20newsgroups", note="not in the paper"),
)
QUICK_SOURCES = (Source("digits, 8 × 8", "digits", note="a rehearsal: none of the paper's data"),)
EXHIBITS = {
    "table2": "Data sets",
    "table3": "Capabilities",
    "table4": "Clustering quality, all rows at once",
    "table5": "Numbers of clusters",
    "table6": "Accuracy of the largest clusters",
    "fig3": "ARI and completeness of each task over the stream",
    "fig4": "Homogeneity, NMI and V-measure of each task over the stream",
    "fig5": "Number of clusters over the stream",
    "fig6": "Decoded means and samples after each task",
    "fig7": "Precision and recall of each digit over the stream",
    "streams": "Where the streams end (in the paper only as curves)",
}


@dataclass(frozen=True)
class Plan:
    """What is asked for."""

    only: tuple[str, ...] = tuple(EXHIBITS)
    seeds: tuple[int, ...] = (0, 1, 2, 3, 4)
    quick: bool = False
    data_folder: Path | None = None
    missing: frozenset[str] = field(default=frozenset(), init=False)  # data sets that are not here

    def __post_init__(self) -> None:
        for name in self.only:
            check_known("table or figure", name, EXHIBITS)
        missing = frozenset(entry.name for entry in catalogue(self.data_folder) if not entry.found)
        object.__setattr__(self, "missing", missing)

    @property
    def sources(self) -> tuple[Source, ...]:
        """Data sets of the tables."""
        return QUICK_SOURCES if self.quick else SOURCES

    @property
    def stream(self) -> str:
        """Scenario of the figures."""
        return "split-digits" if self.quick else "split-mnist"

    def methods(self, source: Source) -> tuple[str, ...]:
        """Methods that are compared on a data set."""
        more = () if source.dataset != "mnist" else LITERAL[:1]
        return _known((*BATCH[:2], *more, *BATCH[2:]))

    @property
    def stream_methods(self) -> tuple[str, ...]:
        """Methods that are compared on the stream."""
        return _known((*STREAMS[:4], *(() if self.quick else LITERAL[1:]), *STREAMS[4:]))

    def runs(self, exhibits: Sequence[str] | None = None) -> list[tuple[str, MethodChoice]]:
        """Return scenario and method of every run, each once, whether or not its data are here."""
        wanted = dict.fromkeys(
            pair for name in exhibits or self.only for pair in self._pairs(name)
        )  # in this order
        return [(one, _choice(one, method)) for one, method in wanted]

    def _pairs(self, exhibit: str) -> list[tuple[str, str]]:
        if exhibit in ("table4", "table5"):
            pairs = [(source, method) for source in self.sources for method in self.methods(source)]
            told = [pair for pair in pairs if exhibit == "table4" or counts_itself(pair[1])]
            return [(source.scenario, method) for source, method in told]
        if exhibit == "table6":
            return [(self.sources[0].scenario, method) for method in self.methods(self.sources[0])]
        of_stream = {"fig3": CURVES, "fig4": CURVES, "fig5": CURVES, "fig6": OWN, "fig7": OWN}
        methods = self.stream_methods if exhibit == "streams" else of_stream.get(exhibit, ())
        return [(self.stream, method) for method in _known(methods)]

    def lacks(self, scenario_name: str) -> str | None:
        """Return the data set that a scenario needs and that is not here, None if all is here."""
        dataset = scenario_name.partition("-")[2]
        return dataset if dataset in self.missing else None


@cache
def counts_itself(method: str) -> bool:
    """Whether a method finds the number of clusters, as it declares."""
    declared = capabilities_of(method)
    return declared is not None and declared.learns_k


def _known(methods: Sequence[str]) -> tuple[str, ...]:
    return tuple(method for method in methods if method in METHODS)


def _choice(scenario_name: str, method: str) -> MethodChoice:
    bound = CURL_BOUNDS.get(scenario_name) if method == "curl-d" else None
    return MethodChoice(name=method, parameters={} if bound is None else {"max_clusters": bound})


def make_runs(
    plan: Plan, folder: Path, watch: Watch | None = None
) -> Iterator[StepDone | RunDone | RunSkipped]:
    """Make what is not there, seed by seed; a run that is under way elsewhere or fails holds up no other."""
    wanted: dict[str, list[MethodChoice]] = {}
    for name, choice in plan.runs():
        wanted.setdefault(name, []).append(choice)
    for seed in plan.seeds:
        for name, choices in wanted.items():
            left = [one for one in choices if not is_done(folder, name, one.label, seed)]
            if not left:
                continue
            if (dataset := plan.lacks(name)) is not None:
                for choice in left:
                    yield RunSkipped(name, choice.label, seed, f"not run here: needs {dataset}")
                continue
            stream = scenario(name, seed, plan.data_folder)
            for choice in left:
                try:
                    yield from run(stream, choice, folder, watch=watch)
                except DbullError as error:
                    yield RunSkipped(name, choice.label, seed, str(error))


def is_done(folder: Path, scenario_name: str, method: str, seed: int) -> bool:
    """Whether a run is complete."""
    return (run_folder(folder, scenario_name, method, seed) / "final.json").exists()


@dataclass(frozen=True)
class Runs:
    """Complete runs of a plan, by scenario and method."""

    plan: Plan
    found: dict[tuple[str, str], list[Result]]

    @classmethod
    def read(cls, plan: Plan, folder: Path) -> "Runs":
        """Read all that a plan needs and that is there."""
        found: dict[tuple[str, str], list[Result]] = {}
        for name, choice in plan.runs(tuple(EXHIBITS)):
            done = [seed for seed in plan.seeds if is_done(folder, name, choice.label, seed)]
            folders = [run_folder(folder, name, choice.label, seed) for seed in done]
            if folders:
                found[name, choice.label] = find_results(folders)[0]
        return cls(plan, found)

    def of(self, scenario_name: str, method: str) -> list[Result]:
        """Return the runs of one method, by seed."""
        return self.found.get((scenario_name, method), [])

    def absence(self, scenario_name: str) -> str:
        """Say why there is no run."""
        dataset = self.plan.lacks(scenario_name)
        return "not run yet" if dataset is None else f"not run here: needs {dataset}"

    def all_of(self, exhibits: Sequence[str]) -> list[Result]:
        """Return all runs that some exhibits are made from."""
        return [result for name, choice in self.plan.runs(exhibits) for result in self.of(name, choice.label)]


def state(plan: Plan, folder: Path) -> list[dict[str, Any]]:
    """Return, for each table and figure, how many of its runs are there."""
    rows = []
    for name in plan.only:
        wanted = [(one, choice.label, seed) for one, choice in plan.runs([name]) for seed in plan.seeds]
        needs = sorted({lack for one, _, _ in wanted if (lack := plan.lacks(one)) is not None})
        done = sum(is_done(folder, *which) for which in wanted)
        told = {"name": name, "title": EXHIBITS[name], "runs": len(wanted), "there": done}
        rows.append({**told, "needs": ", ".join(needs)})
    return rows
