"""``dbull demo``: a lifelong stream of handwritten digits, from nothing to a report, without a download."""

from dataclasses import asdict, dataclass
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Annotated, Any

from typer import Option

from dbull.cli.options import Quiet, check_folder
from dbull.cli.output import rows_per_cluster, say, show_json
from dbull.errors import SettingsError

if TYPE_CHECKING:
    import numpy as np

    from dbull.methods.dbull import DBULL

WORDS = ("zeros", "ones", "twos", "threes", "fours", "fives", "sixes", "sevens", "eights", "nines")
PAIRS = ((0, 1), (2, 3), (4, 5), (6, 7), (8, 9), (0, 1))  # the last are other rows of the first
TITLE = "Handwritten digits"


@dataclass(frozen=True)
class Piece:
    """One arrival of the demo; the learner gets the rows alone."""

    what: str
    rows: "np.ndarray"
    digits: "np.ndarray"  # for the last table only


@dataclass(frozen=True)
class Step:
    """What an arrival changed."""

    arrival: int  # counted from 1
    what: str
    rows: int
    born: list[int]
    rows_per_cluster: dict[int, int]
    novel_share: float
    seconds: float


@dataclass(frozen=True)
class Outcome:
    """What is left at the end. Labels are used here for the first time, to score."""

    n_rows: int
    n_clusters: int
    n_digits: int
    same_id_share: float  # rows that still get the id that they got when they came
    nmi: float
    seconds: float
    clusters: list[dict[str, Any]]  # id, rows, first_seen, digit, share


def demo(
    out: Annotated[
        Path, Option("--out", "-o", help="Where the report goes; what is there is replaced.")
    ] = Path("dbull-demo.html"),
    model: Annotated[
        Path | None, Option("--model", help="Keep the model in this folder, to go on with.")
    ] = None,
    arrivals: Annotated[int, Option(help="Stop after so many.", min=1, max=len(PAIRS))] = len(PAIRS),
    seed: Annotated[int, Option(help="Of the learner.", min=0)] = 0,
    as_json: Annotated[bool, Option("--json", help="What happened as JSON.")] = False,
    quiet: Quiet = False,
) -> None:
    """Learn a stream of handwritten digits, arrival by arrival, and write a report about it.

    Nobody tells the learner which digits come, or how many kinds there are; rows are gone once they were
    learned. Needs no download and takes about a minute. With --quiet only the place of the report is printed.

    Example: `dbull demo`, then open dbull-demo.html in a browser.
    """
    from dbull.cli.demo_display import Show
    from dbull.methods.dbull import DBULL
    from dbull.report import build_report, check_target, write_report
    from dbull.store import ModelFolder

    check_folder(out)
    check_target(out)
    if model is not None and ModelFolder(model).generations():
        raise SettingsError(f"{model}: a model is here already; name a folder that is free")
    pieces = _stream()[:arrivals]
    show = Show(len(pieces), talks=not (quiet or as_json), watches=not quiet)
    learner = DBULL(image_shape=(8, 8), random_state=seed)
    show.begin(sum(len(piece.rows) for piece in pieces))
    steps: list[Step] = []
    first_ids: list[np.ndarray] = []
    for piece in pieces:
        steps.append(_learn(learner, piece, len(steps) + 1, show))
        first_ids.append(learner.labels_.copy())
        if model is not None:
            learner.save(model, note=piece.what)
        show.step(steps[-1], learner)
    outcome = _outcome(learner, pieces, first_ids, steps)
    learner.callback = None
    facts = {"Data": "the digits that come with scikit-learn"}
    path = write_report(build_report(learner, title=TITLE, facts=facts), out)
    show.end(outcome, path, model)
    if as_json:
        show_json({"arrivals": [asdict(s) for s in steps], **asdict(outcome), "report": str(path)})
    elif quiet:
        say(path)


def _stream() -> list[Piece]:
    """Return the arrivals; zeros and ones are divided, so that those that come back are rows never seen."""
    import numpy as np
    from sklearn.datasets import load_digits

    bunch = load_digits()
    pieces = []
    for i, pair in enumerate(PAIRS):
        members = [np.flatnonzero(bunch.target == digit) for digit in pair]
        if pair == PAIRS[0]:
            half = int(i > 0)
            # Shuffled first: neighbours in this data set come from one writer.
            mixed = [np.random.default_rng(digit).permutation(part) for digit, part in enumerate(members)]
            members = [np.array_split(part, 2)[half] for part in mixed]
        chosen = np.sort(np.concatenate(members))
        what = f"{WORDS[pair[0]]} and {WORDS[pair[1]]}" + (" again" if pair in PAIRS[:i] else "")
        pieces.append(Piece(what, bunch.data[chosen], bunch.target[chosen]))
    return pieces


def _learn(learner: "DBULL", piece: Piece, number: int, show: Any) -> Step:
    started = perf_counter()
    with show.learning(number, piece.what) as tell:
        learner.callback = tell
        learner.partial_fit(piece.rows)
    report = learner.report_
    novel_share = 1.0 if report.novel_share is None else report.novel_share
    told = list(report.born), rows_per_cluster(report), novel_share, perf_counter() - started
    return Step(number, piece.what, len(piece.rows), *told)


def _outcome(
    learner: "DBULL", pieces: list[Piece], first_ids: "list[np.ndarray]", steps: list[Step]
) -> Outcome:
    """Ask about all rows once more, and only now compare with the labels."""
    import numpy as np

    from dbull.metrics import clustering_scores

    ids = learner.predict(np.concatenate([piece.rows for piece in pieces]))
    digits = np.concatenate([piece.digits for piece in pieces])
    same = float((ids == learner.resolve(np.concatenate(first_ids))).mean())
    clusters = []
    for record in learner.clusters_:
        inside = np.bincount(digits[ids == record["id"]], minlength=10)
        digit = int(inside.argmax())
        share = float(inside[digit] / inside.sum()) if inside.sum() else 0.0
        told = {name: record[name] for name in ("id", "rows", "first_seen", "last_seen")}
        clusters.append({**told, "digit": digit, "share": share})
    counts = len(ids), learner.n_clusters_, len(np.unique(digits))
    nmi = clustering_scores(digits, ids)["nmi_geometric"]
    return Outcome(*counts, same, nmi, sum(step.seconds for step in steps), clusters)
