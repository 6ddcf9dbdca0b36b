"""Write the result tables of README.md and docs/results.md from the folders in experiments/results/.

make results                            # or: python experiments/publish.py
python experiments/publish.py --old     # folders that another state of the learners has made

Tables stand between two marks, `<!-- results: NAME -->` and `<!-- end of results -->`; what stands there is
written anew. `tests/test_published_results.py` fails if a page differs from what the folders give.
"""

import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from itertools import groupby
from pathlib import Path

from dbull.data import scenario_names
from dbull.experiments.paper import published
from dbull.experiments.paper.sheets import between
from dbull.experiments.results import Result, commits_of, find_results, read_steps
from dbull.experiments.sheet import Sheet, markdown
from dbull.experiments.summary import summarise

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "experiments" / "results"
PAGES = ("README.md", "docs/results.md")
BLOCK = re.compile(r"(<!-- results: (\w+) -->\n).*?(<!-- end of results -->)", re.DOTALL)
LEARNERS = [f"src/dbull/{room}" for room in ("lifelong", "methods", "mixture", "nets", "probability")]
OLD = "†"
OLD_NOTE = f"{OLD} made before results named their commit, by older code than the present\n"
DEEP_DPM = "DeepDPM {}, on UMAP codes (Ronen et al., CVPR 2022)"

Group = list[Result]  # one method on one scenario, by seed


def paper_says(name: str) -> str:
    """Return the figures that the paper has for its DBULL."""
    nmi, ari, *_ = (cell.split()[0] for cell in published.QUALITY[name]["dbull-paper"])
    return f"paper's DBULL {float(nmi):.1f} / {float(ari):.1f}, K {published.CLUSTERS[name]['dbull-paper']}"


# What README shows: its words, scenario, method, and what others have published.
README_ROWS = (
    ("Split MNIST, 50 arrivals of 1,000, nothing seen before", "split-mnist", "dbull", "paper: curves, K 12"),
    ('the same, `objective="paper"`', "split-mnist", "dbull-paper", ""),
    ('the same, `objective="paper"`, networks pretrained', "split-mnist", "dbull-paper-warm", ""),
    ("the same, CURL-D", "split-mnist", "curl-d", "paper: curves, K 23-25"),
    ("MNIST at once", "batch-mnist", "dbull", paper_says("MNIST")),
    ('MNIST at once, `objective="paper"`', "batch-mnist", "dbull-paper", "the same"),
    ("USPS at once", "batch-usps", "dbull", DEEP_DPM.format("88 / 86")),
    ("Fashion-MNIST at once", "batch-fashion-mnist", "dbull", DEEP_DPM.format("68 / 51")),
    ("CIFAR-10 features at once", "batch-cifar10-features", "dbull", ""),
    ("the same, two classes at a time", "split-cifar10-features", "dbull", ""),
    ("20 Newsgroups at once", "batch-20newsgroups", "dbull", ""),
    ("Reuters10k at once", "batch-reuters10k", "dbull", paper_says("Reuters10k")),
)


def groups_of(results: Sequence[Result]) -> dict[tuple[str, str], Group]:
    """Return the runs of each scenario and method."""
    ordered = sorted(results, key=lambda r: (r.scenario, r.method, r.seed))
    return {key: list(own) for key, own in groupby(ordered, key=lambda r: (r.scenario, r.method))}


def readme(groups: dict[tuple[str, str], Group]) -> str:
    """Return the table of README; rows without a run are left out."""
    body = []
    for title, name, method, others in README_ROWS:
        own = groups.get((name, method))
        if own is not None:
            nmi, ari = scores(own, "nmi_geometric", "ari")
            counts = f"{clusters(own)} ({own[0].final['n_classes']})"
            body.append([title + (f" {OLD}" if is_old(own) else ""), seeds(own), nmi, ari, counts, others])
    head = ("data", "seeds", "NMI", "ARI", "clusters (classes)", "published")
    return with_note(Sheet(head, body))


def batch(groups: dict[tuple[str, str], Group]) -> str:
    """Return all runs in which all rows came at once."""
    columns = ("nmi_geometric", "ari", "homogeneity", "v_measure", "accuracy_hungarian")
    body = [
        [f"`{name}`", f"`{method}`", told(own), seeds(own), *scores(own, *columns), clusters(own), *cost(own)]
        for (name, method), own in ordered(groups)
        if name.startswith("batch-")
    ]
    head = ("scenario", "method", "told K", "seeds", "NMI", "ARI", "HS", "VM", "ACC", "K", "minutes", "code")
    return with_note(Sheet(head, body, n_text=2))


def streams(groups: dict[tuple[str, str], Group]) -> str:
    """Return all runs of streams."""
    columns = ("nmi_geometric", "ari", "forgetting.nmi_geometric", "id_stability")
    body = [
        [
            f"`{name}`",
            f"`{method}`",
            told(own),
            seeds(own),
            *scores(own, *columns),
            after_tasks(own),
            *cost(own),
        ]
        for (name, method), own in ordered(groups)
        if not name.startswith("batch-")
    ]
    head = ("scenario", "method", "told K", "seeds", "NMI", "ARI", "forgetting", "ids kept", "K")
    return with_note(Sheet((*head, "minutes", "code"), body, n_text=2))


BLOCKS: dict[str, Callable[[dict[tuple[str, str], Group]], str]] = {
    "readme": readme,
    "batch": batch,
    "streams": streams,
}


def filled(text: str, results: Sequence[Result]) -> str:
    """Return a page with every block written anew."""
    groups = groups_of(results)
    return BLOCK.sub(lambda found: f"{found[1]}{BLOCKS[found[2]](groups)}\n{found[3]}", text)


def ordered(groups: dict[tuple[str, str], Group]) -> list[tuple[tuple[str, str], Group]]:
    """Return groups in the order of scenarios, ours before others, the old last."""
    names = scenario_names()
    return sorted(
        groups.items(), key=lambda item: (names.index(item[0][0]), is_old(item[1]), _rank(item[0][1]))
    )


def _rank(method: str) -> tuple[bool, str]:
    return not method.startswith("dbull"), method


def with_note(sheet: Sheet) -> str:
    """Return a table, and what its sign for old code means if it has any."""
    table = markdown(sheet)
    return f"{table}\n\n{OLD_NOTE}" if OLD in table else table


def scores(own: Group, *columns: str) -> list[str]:
    """Return means in percent, with standard errors where there are several seeds."""
    (row,) = summarise(own, columns)
    cells = []
    for column in columns:
        value = row.columns[column]
        if value is None:
            cells.append("–")
            continue
        spread = "" if value.standard_error is None else f" ({100 * value.standard_error:.1f})"
        cells.append(f"{100 * value.mean:.1f}{spread}")
    return cells


def clusters(own: Group) -> str:
    """Return the number of clusters, and how many are in use where these are fewer."""
    said, used = (between([run.final[key] for run in own]) for key in ("n_clusters", "n_clusters_used"))
    return said if said == used else f"{said}, in use {used}"


def after_tasks(own: Group) -> str:
    """Return the number of clusters at the end of each task; of a long stream only at the end of all."""
    ends = [list({step["task"]: step["n_clusters"] for step in read_steps(run)}.values()) for run in own]
    return " ".join(map(between, zip(*ends, strict=True))) if len(ends[0]) <= 5 else clusters(own)


def seeds(own: Group) -> str:
    """Return seeds in words."""
    numbers = [run.seed for run in own]
    in_a_row = numbers == list(range(numbers[0], numbers[0] + len(numbers)))
    if len(numbers) > 2 and in_a_row:
        return f"{numbers[0]} to {numbers[-1]}"
    return ", ".join(map(str, numbers))


def told(own: Group) -> str:
    """Return whether a method was told the true number of classes."""
    return "yes" if own[0].settings["told_true_k"] is not None else "no"


def cost(own: Group) -> tuple[str, str]:
    """Return minutes for one seed, of CPU where that was measured, and the commit that made the runs."""
    costs = [run.final["cost"] for run in own]
    minutes = sum(one.get("cpu_seconds", one["seconds"]) for one in costs) / len(own) / 60
    made_by = sorted({commits_of(run)[-1][:7] or OLD for run in own})
    return f"{minutes:.1f}", ", ".join(made_by)


def is_old(own: Group) -> bool:
    """Whether some of these runs do not say which code made them."""
    return any(not commits_of(run)[-1] for run in own)


def made_by_others(results: Sequence[Result]) -> list[str]:
    """Return the folders of which the learners' code is not known, or is not that of the present checkout."""
    same: dict[str, bool] = {"": False}
    told = []
    for result in results:
        commit = commits_of(result)[-1]
        if commit not in same:
            command = ["git", "diff", "--quiet", commit, "HEAD", "--", *LEARNERS]
            same[commit] = subprocess.run(command, cwd=ROOT, capture_output=True, check=False).returncode == 0
        if not same[commit]:
            told.append(f"{commit[:12] or 'no commit':<12}  {result.folder.relative_to(ROOT)}")
    return told


def main() -> None:
    """Write the pages, or list what is old."""
    results, _ = find_results([RESULTS])
    if sys.argv[1:] == ["--old"]:
        print("\n".join(made_by_others(results)))
        return
    for name in PAGES:
        page = ROOT / name
        before = page.read_text(encoding="utf-8")
        after = filled(before, results)
        page.write_text(after, encoding="utf-8")
        print(f"{name}: {'written anew' if after != before else 'as it was'}")


if __name__ == "__main__":
    main()
