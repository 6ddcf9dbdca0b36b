"""Break the learner in small ways, one at a time: for each, the tests named beside it must fail.

    python benchmarks/mutations.py             # all of them
    python benchmarks/mutations.py replay      # those whose names contain a word

Each mutation is made in a temporary copy of src; the checkout is never touched. The tests must pass on an
unbroken copy first, or their failure would show nothing. Ends with exit code 1 if a mutation survives, or if
its text is not found exactly once: then the code has changed, and the mutation must be written anew.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]


class Mutation(NamedTuple):
    """A text of a file under src/dbull, what it becomes, and the tests that must notice."""

    name: str
    file: str
    old: str
    new: str
    tests: str  # as given to pytest, below tests/


REPLAY = "lifelong/test_lifelong_replay.py"
FOLDING = "lifelong/test_lifelong_folding.py"
LEARN = "lifelong/test_lifelong_learn.py"
GRAPH = "lifelong/test_lifelong_neighbourhood.py"
GROUPS = "lifelong/test_lifelong_groups.py"
IMPRINT = "lifelong/test_lifelong_imprint.py"
NOVELTY = "lifelong/test_lifelong_novelty.py"
SEARCH = "mixture/test_mixture_search.py"
OUTLIERS = "methods/test_dbull_outliers.py"
STREAM = "methods/test_dbull_stream.py"
CLAIMS = "methods/test_capabilities.py"
TABLE = "experiments/test_capability_table.py"
COMPETITORS = "methods/competitors/"
BLOCKS = "lifelong/test_lifelong_blocks.py"
FILE_BLOCKS = "data/test_data_blocks.py"
BEGINNING = "lifelong/test_lifelong_beginning.py"
WAITING = "lifelong/test_lifelong_waiting.py"

MUTATIONS = (
    # Few rows.
    Mutation(
        "young streams are never sought anew",
        "methods/arrival.py",
        "everything.due(FEWEST_SOUGHT)",
        "everything.due(10**6)",
        BEGINNING,
    ),
    Mutation(
        "what is found counts means, not rows",
        "lifelong/beginning.py",
        "times = n_rows.clamp_min(1.0) / n_means.clamp_min(1.0)",
        "times = torch.ones_like(n_rows)",
        BEGINNING,
    ),
    Mutation(
        "one row sets the scale",
        "lifelong/beginning.py",
        "before.beginning.n_rows < SUPPORT",
        "before.beginning.n_rows < 0",
        BEGINNING,
    ),
    Mutation(
        "single rows are stored",
        "lifelong/few_rows.py",
        "single = np.flatnonzero(sizes == 1)",
        "single = np.flatnonzero(sizes == 0)",
        BEGINNING,
    ),
    Mutation(
        "huge rows are pooled",
        "lifelong/few_rows.py",
        "return far & (int(far.sum()) <= MOST_ALONE)",
        "return far & False",
        BEGINNING,
    ),
    Mutation(
        "rows that were taken go on waiting",
        "lifelong/learn.py",
        "few = few.without(taken)",
        "few = few",
        WAITING,
    ),
    Mutation(
        "rows that waited are told again",
        "lifelong/learn.py",
        "order < n_own,",
        "order >= 0,",
        WAITING,
    ),
    Mutation(
        "whether replayed rows look like rows is not asked",
        "lifelong/learn.py",
        "state.alone_usually = _alone_usually(state, inputs, s)",
        "pass",
        LEARN,
    ),
    Mutation(
        "the graph is believed where drawn rows look like none",
        "lifelong/learn.py",
        "graph is not None and state.alone_usually <= TELLING",
        "graph is not None",
        LEARN,
    ),
    Mutation(
        "contact is believed where drawn rows look like none",
        "lifelong/learn.py",
        "if replay is not None and state.alone_usually <= TELLING",
        "if replay is not None",
        "lifelong/test_lifelong_contact.py",
    ),
    # Replay.
    Mutation(
        "nothing is replayed",
        "lifelong/learn.py",
        "past.replay(s.past, generator) if past",
        "None if past",
        REPLAY,
    ),
    Mutation(
        "the paper's recipe replays nothing",
        "lifelong/settings.py",
        'PastSettings(replay="decoded", n_replay=100, redraw=True)',
        'PastSettings(replay="none", n_replay=100, redraw=True)',
        f"{STREAM} -k paper",
    ),
    Mutation(
        "the paper's replay does not reach the networks",
        "lifelong/training_rows.py",
        "if replay is None:",
        "if replay is None or replay.from_values:",
        f"{STREAM} -k paper",
    ),
    Mutation(
        "replayed rows are not trained on",
        "lifelong/training.py",
        "for kind in (present, replayed))",
        "for kind in (present, replayed[:0]))",
        f"{STREAM} -k paper",
    ),
    Mutation(
        "decoded rows come from the prior",
        "lifelong/past.py",
        "components.mean[component] + noise",
        "noise",
        REPLAY,
    ),
    Mutation(
        "replay follows the networks under training",
        "lifelong/past.py",
        "copy.deepcopy(state.vae).eval()",
        "state.vae",
        REPLAY,
    ),
    Mutation(
        "replay is by component, not by cluster",
        "lifelong/past.py",
        "self.cluster_of == c for c in self.cluster_of.unique()",
        "torch.arange(len(weights)) == c for c in range(len(weights))",
        REPLAY,
    ),
    # Drift.
    Mutation(
        "statistics are not carried",
        "lifelong/past.py",
        "    sums, squares = [], []\n",
        "    return stats\n    sums, squares = [], []\n",
        "lifelong/test_lifelong_carrying.py",
    ),
    Mutation(
        "learning does not ask for carried statistics",
        "lifelong/learn.py",
        "past.carried(state.vae) if s.past.carry else past.overall",
        "past.overall",
        REPLAY,
    ),
    Mutation(
        "replayed codes are not held",
        "lifelong/training.py",
        "self.settings.consistency * terms[4]",
        "0 * terms[4]",
        REPLAY,
    ),
    Mutation(
        "replayed rows find new places",
        "lifelong/learn.py",
        "along(data.graph, start, len(data.kept_codes),",
        "along(data.graph, start, 0,",
        REPLAY,
    ),
    Mutation(
        "held rows move",
        "lifelong/neighbourhood.py",
        "n_rows, n_free = len(start), len(start) - n_held",
        "n_rows, n_free = len(start), len(start)",
        GRAPH,
    ),
    Mutation(
        "the fingerprint of the first encoder is kept",
        "lifelong/folding.py",
        "fingerprint=encoder_fingerprint(state.vae)",
        "fingerprint=state.fingerprint or encoder_fingerprint(state.vae)",
        f"{STREAM} -k straight_run",
    ),
    # Strangers and novelty.
    Mutation("no calibration", "lifelong/folding.py", "before + Calibration.of(", "before or (", FOLDING),
    Mutation(
        "strangers count",
        "lifelong/folding.py",
        "counted[members] = usual | newborn[components]",
        "counted[members] = True",
        FOLDING,
    ),
    Mutation(
        "a row is scored by an imprint that has seen it",
        "lifelong/novelty.py",
        "cluster_scores(inputs[~half], imprints)",
        "cluster_scores(inputs[half], imprints)",
        NOVELTY,
    ),
    Mutation("all is new", "lifelong/learn.py", "parts.near_novel_share > ", "1.0 > ", FOLDING),
    Mutation("nothing is new", "lifelong/learn.py", "parts.near_novel_share > ", "0.0 > ", FOLDING),
    Mutation("nobody is alone", "lifelong/learn.py", "alone > ALONE_SHARE", "False", FOLDING),
    Mutation(
        "who has a replayed neighbour is not alone",
        "lifelong/neighbourhood.py",
        "(replayed < 0.5 * n_replay / (n_replay + n_present))",
        "(replayed <= 0)",
        GRAPH,
    ),
    Mutation(
        "any cluster's scale will do",
        "lifelong/novelty.py",
        "thresholds[best.indices]",
        "thresholds[0]",
        NOVELTY,
    ),
    Mutation(
        "the familiar is learned as if it were new",
        "lifelong/settings.py",
        "if novel:",
        "if True:",
        FOLDING,
    ),
    # Clusters.
    Mutation(
        "all that touches is joined", "lifelong/groups.py", "float(mixed.max()) < threshold", "False", GROUPS
    ),
    Mutation("nothing is joined", "lifelong/groups.py", "float(mixed.max()) < threshold", "True", GROUPS),
    Mutation(
        "learning joins nothing",
        "lifelong/placing.py",
        "group = join_components(",
        "join_components(",
        LEARN,
    ),
    Mutation(
        "old clusters are joined",
        "lifelong/groups.py",
        "forbidden = old[:, None] & old[None, :]",
        "forbidden = torch.zeros(n, n, dtype=torch.bool)",
        GROUPS,
    ),
    Mutation(
        "mixing does not know how many edges there are",
        "lifelong/groups.py",
        "volume[:, None] * volume[None, :] / (volume[:, None] + volume[None, :]).clamp_min(TINY)",
        "(volume[:, None] + volume[None, :]) / 4",
        GROUPS,
    ),
    Mutation("joined sizes do not add up", "lifelong/groups.py", "sizes[a] += sizes[b]", "", GROUPS),
    Mutation(
        "clusters are numbered as they come",
        "lifelong/groups.py",
        "key=lambda g: -int(sizes[g])",
        "key=lambda g: g",
        GROUPS,
    ),
    Mutation(
        "components that no row chooses stay",
        "lifelong/learn.py",
        ".without_unchosen(points)",
        "",
        LEARN,
    ),
    # Imprints.
    Mutation(
        "variances are pooled without what lies between",
        "lifelong/past.py",
        "share_b * b.variance + between[0].square()",
        "share_b * b.variance",
        IMPRINT,
    ),
    Mutation(
        "directions are pooled without the one between",
        "lifelong/past.py",
        "b.factor, between])",
        "b.factor])",
        IMPRINT,
    ),
    # Statistics and streams of numbers.
    Mutation(
        "statistics are folded in twice",
        "mixture/memory.py",
        "self.overall = self.total\n",
        "self.overall = self.total + self.stream\n",
        LEARN,
    ),
    Mutation(
        "the past is forgotten in a fold",
        "mixture/memory.py",
        "self.overall = self.total\n",
        "self.overall = self.stream\n",
        FOLDING,
    ),
    Mutation(
        "every data set has the numbers of the first",
        "lifelong/state.py",
        " + 1_000_003 * self.n_data_sets",
        "",
        f"{STREAM} -k random",
    ),
    Mutation(
        "no places in the loss",
        "lifelong/training.py",
        "self.settings.neighbourhood * terms[3]",
        "0",
        LEARN,
    ),
    Mutation(
        "the decoder moves codes that have places",
        "lifelong/training.py",
        "mean[:n_decoded].detach()",
        "mean[:n_decoded]",
        LEARN,
    ),
    Mutation(
        "values are not between neighbours",
        "lifelong/training.py",
        "torch.lerp(shown[:n_decoded], data.values[neighbour[:n_decoded]], part[:n_decoded])",
        "shown[:n_decoded].clone()",
        LEARN,
    ),
    Mutation(
        "an edge counts from one side",
        "lifelong/neighbourhood.py",
        '1 - graph.weights.flatten(), "prod")',
        '1 - graph.weights.flatten(), "amax")',
        GRAPH,
    ),
    Mutation(
        "nothing is pulled",
        "lifelong/neighbourhood.py",
        "pull *= 2 / (1 + pull.square().sum(0))",
        "pull *= 0",
        GRAPH,
    ),
    Mutation(
        "nothing is pushed",
        "lifelong/neighbourhood.py",
        "N_REPELLED / N_OPPONENTS * n_drawn",
        "0.0 * n_drawn",
        GRAPH,
    ),
    # Copies.
    Mutation(
        "copies are all learned from",
        "lifelong/novelty.py",
        "if len(places) < most:",
        "if True:",
        NOVELTY,
    ),
    Mutation(
        "copies do not count",
        "lifelong/learn.py",
        "order = torch.cat([near, parts.far, parts.near[copies]])",
        "copies, of = copies[:0], of[:0]; order = torch.cat([near, parts.far])",
        FOLDING,
    ),
    Mutation(
        "copies keep to themselves",
        "lifelong/neighbourhood.py",
        "telling = ~graph.silent[:n_present]",
        "telling = torch.ones(n_present, dtype=torch.bool)",
        FOLDING,
    ),
    # Evidence and scales.
    Mutation(
        "inputs are not crossed",
        "lifelong/training.py",
        "torch.where(crossed, data.inputs[neighbour], inputs)",
        "inputs",
        LEARN,
    ),
    Mutation(
        "rows without contact stay with an old cluster",
        "lifelong/learn.py",
        "fit = fit.with_newborns(strangers, near_points)",
        "pass",
        "lifelong/test_lifelong_contact.py",
    ),
    Mutation(
        "copies go to whatever cluster finds them usual",
        "lifelong/placing.py",
        "nearest = int(seen.scores.argmax(1).mode().values)",
        "nearest = int((seen.scores >= seen.thresholds(USUAL_STD)).double().mean(0).argmax())",
        FOLDING,
    ),
    Mutation(
        "at a high resolution what is known is in no contact",
        "lifelong/placing.py",
        "min(join, CONTACT)",
        "join",
        "lifelong/test_lifelong_contact.py",
    ),
    Mutation(
        "contact with any old cluster will do",
        "lifelong/placing.py",
        "contact.diagonal(n_old)[:n_old]",
        "contact[:n_old, n_old : 2 * n_old].amax(0)",
        "lifelong/test_lifelong_contact.py",
    ),
    Mutation(
        "silent rows have no contact",
        "lifelong/placing.py",
        "taken[silent] = n_old",
        "pass",
        "lifelong/test_lifelong_contact.py",
    ),
    Mutation(
        "a few rows are asked among themselves",
        "lifelong/learn.py",
        "torch.cat([inputs, replay.inputs]), s.graph, generator, len(inputs), asked)",
        "torch.cat([inputs[asked], replay.inputs]), s.graph, generator, len(asked))",
        LEARN,
    ),
    Mutation(
        "a few rows do not move the mean of an imprint",
        "lifelong/folding.py",
        "n_rows=float(len(members)), mean=members.mean(0))",
        "n_rows=float(len(members)))",
        FOLDING,
    ),
    Mutation(
        "two halves have one mean",
        "lifelong/directions.py",
        "_product(first + second + gap.T @ gap)",
        "_product(first + second)",
        GRAPH,
    ),
    Mutation(
        "flags that complement each other by chance are a category",
        "categories.py",
        " and not _may_be_chance(share[run], len(rows), len(signs))",
        "",
        "nets/test_nets_inputs.py",
    ),
    Mutation(
        "dummies of a table vote each for itself",
        "tables/encoder.py",
        "cls(tuple(_with_one_vote(fitted, columns)), left_out)",
        "cls(tuple(fitted), left_out)",
        "tables/test_tables_encoder.py",
    ),
    Mutation(
        "columns of a category vote each for itself",
        "nets/inputs.py",
        "        for columns in categories:  # all",
        "        for columns in categories[:0]:  # all",
        "nets/test_nets_inputs.py",
    ),
    Mutation(
        "columns of which a row may have none are a category",
        "categories.py",
        "if had.min() >= 1 - ROUNDING:",
        "if end > start:",
        "nets/test_nets_inputs.py",
    ),
    Mutation(
        "tables of categories are taken for text",
        "nets/inputs.py",
        "n_of_categories > rows.shape[1] / 2",
        "n_of_categories > rows.shape[1]",
        "nets/test_nets_inputs.py",
    ),
    Mutation(
        "heavy tails are not bent",
        "nets/inputs.py",
        "0.0 if curve == LINEAR else curve.unit",
        "0.0",
        "nets/test_nets_inputs.py",
    ),
    Mutation(
        "bent columns have the volume of straight ones",
        "nets/inputs.py",
        "return volume + slope.sum(1)",
        "return volume",
        "nets/test_nets_inputs.py",
    ),
    Mutation(
        "the search starts from few clusters",
        "mixture/search.py",
        "self.weight_at(0 if begins else self.n_present)",
        "self.weight_at(1 if begins else self.n_present)",
        SEARCH,
    ),
    Mutation(
        "components of the past ask for evidence",
        "mixture/search.py",
        "return int((self.memory.current.counts >= 1).sum())",
        "return self.memory.n_components",
        SEARCH,
    ),
    Mutation(
        "evidence does not know dimensions",
        "mixture/settings.py",
        "max(1.0, n_features(n_dims) / n_features(FEW_DIMS))",
        "1.0",
        SEARCH,
    ),
    Mutation(
        "resolution is not heard",
        "methods/dbull_choices.py",
        "more = RESOLUTIONS[model.resolution] if isinstance(model.resolution, str) else ",
        "more = 1.0 if isinstance(model.resolution, str) else ",
        "methods/test_dbull.py -k resolution",
    ),
    Mutation(
        "what hardly varies is blown up",
        "nets/inputs.py",
        "torch.where(other & (scale < floor), floor.to(scale), scale)",
        "scale",
        "nets/test_nets_inputs.py",
    ),
    Mutation(
        "all columns have one unit",
        "nets/inputs.py",
        "bool(scale[other].max() > SAME_UNIT * scale[other].median())",
        "False",
        "nets/test_nets_inputs.py",
    ),
    Mutation(
        "a first data set is never searched afresh",
        "lifelong/learn.py",
        "if first and s.training.joint_births",
        "if False and s.training.joint_births",
        LEARN,
    ),
    Mutation(
        "labels decide the seed",
        "methods/dbull.py",
        "self._learn(self._fresh(rows).state, rows, X, keys)",
        "state = self._fresh(rows).state; state.seed += int(y is not None and y[0] != y[-1])\n"
        "            self._learn(state, rows, X, keys)",
        "methods/test_dbull.py -k labels_given",
    ),
    # What methods claim.
    Mutation("DEC claims to find K", COMPETITORS + "dec.py", "learns_k=False", "learns_k=True", CLAIMS),
    Mutation("VAE+DP denies to find K", COMPETITORS + "vae_dp.py", "learns_k=True", "learns_k=False", CLAIMS),
    Mutation("CURL-F claims to find K", COMPETITORS + "curl.py", "learns_k=grows", "learns_k=True", CLAIMS),
    Mutation(
        "a method loses its claims",
        "experiments/tables.py",
        'getattr(learner, "capabilities", None)',
        'getattr(learner, "capabilities", None) if name in PAPER_METHODS else None',
        TABLE,
    ),
    # What the short tests still see.
    Mutation(
        "a graph of one row",
        "lifelong/learn.py",
        "len(inputs) > 0 and len(data.inputs) > 1",
        "len(inputs) > 0",
        f"{STREAM} -k one_row_after_pretraining",
    ),
    Mutation(
        "imprints keep every direction",
        "lifelong/past.py",
        "rank = min(rank, len(spread))",
        "rank = len(spread)",
        IMPRINT,
    ),
    # Rows that could do harm, and rows that must not come back.
    Mutation(
        "outliers are learned",
        "lifelong/novelty.py",
        "outlier[suspicious] = ~_supported",
        "outlier[suspicious] = False & _supported",
        f"{OUTLIERS} -k one_row",
    ),
    Mutation(
        "a new kind is taken for outliers",
        "lifelong/novelty.py",
        "return reach[suspicious] <= away[suspicious] / 4",
        "return reach[suspicious] < 0",
        f"{OUTLIERS} -k units",
    ),
    Mutation(
        "far rows are learned with the others",
        "lifelong/novelty.py",
        "far = (wide.square().mean(1) > FAR**2) & ~outlier",
        "far = torch.zeros_like(outlier)",
        f"{OUTLIERS} -k units",
    ),
    Mutation(
        "a far cluster sets the scale for all",
        "lifelong/learn.py",
        "far = torch.tensor([",
        "far = torch.tensor([False and ",
        f"{OUTLIERS} -k units",
    ),
    Mutation(
        "a few rows keep their shape",
        "lifelong/past.py",
        "if not _enough_rows(inputs):",
        "if len(inputs) == 0:",
        f"{IMPRINT} -k few",
    ),
    Mutation(
        "two rows are their moments",
        "lifelong/folding.py",
        "if not bool(small.any()):",
        "if True:",
        f"{FOLDING} -k small_components",
    ),
    Mutation(
        "the search does not know the past",
        "lifelong/codes.py",
        "overall.with_empty(1).select(index.to(torch.int64))",
        "overall.with_empty(1).select(torch.full_like(index, len(ids)))",
        f"{STREAM} -k more_of_the_same",
    ),
    Mutation(
        "no prototype of the README",
        "methods/answers.py",
        "def prototype(",
        "def prototype_of(",
        "test_docs.py -k readme_python",
    ),
    Mutation(
        "maps by chance",
        "experiments/pictures.py",
        'TSNE(init="pca",',
        "TSNE(init=np.random.default_rng().normal(size=(n_rows, 2)),",
        "experiments/test_pictures.py -k same_each_time",
    ),
    Mutation(
        "epochs are not told",
        "cli/progress.py",
        "if self._pace.due(SECONDS_BETWEEN_EPOCHS):",
        "if False:",
        "cli/test_cli_bench.py -k pictures_and_epochs",
    ),
    Mutation(
        "every epoch is told",
        "cli/progress.py",
        "if self._pace.due(SECONDS_BETWEEN_EPOCHS):",
        "if True:",
        "cli/test_cli_bench.py -k quick_fit",
    ),
    Mutation(
        "another exit code",
        "cli/exits.py",
        "CONDITION_MET = 6",
        "CONDITION_MET = 7",
        "cli/test_cli_models_process.py",
    ),
    # Blocks.
    Mutation(
        "blocks: sums in another order",
        "lifelong/sketches.py",
        "record = self._parts.pop()[1] + record",
        "record = record + self._parts.pop()[1]",
        BLOCKS,
    ),
    Mutation("blocks: sums one by one", "lifelong/sketches.py", "            size *= 2\n", "", BLOCKS),
    Mutation(
        "blocks: the last records are lost",
        "lifelong/sketches.py",
        "in reversed(self._parts):",
        "in reversed(self._parts[:1]):",
        BLOCKS,
    ),
    Mutation(
        "blocks: parts of a component have one mean",
        "lifelong/sketches.py",
        "+ between.square(),",
        "+ 0 * between.square(),",
        BLOCKS,
    ),
    Mutation(
        "blocks: tickets are the same in all",
        "lifelong/blocks.py",
        "+ np.uint64(block)",
        "+ np.uint64(0)",
        BLOCKS,
    ),
    Mutation(
        "blocks: tickets begin anew with each piece",
        "lifelong/blocks.py",
        "np.arange(first, first + n_rows,",
        "np.arange(0, n_rows,",
        BLOCKS,
    ),
    Mutation(
        "blocks: the strangest rows are not kept",
        "lifelong/blocks.py",
        "kept = torch.cat([by_ticket[:half], by_depth[:half]]).unique()",
        "kept = by_ticket[: 2 * half]",
        BLOCKS,
    ),
    Mutation(
        "blocks: usual rows stand for themselves",
        "lifelong/blocks.py",
        "(n_rows / max(len(usual), 1))",
        "1",
        BLOCKS,
    ),
    Mutation(
        "blocks: copies of a row are of a kind",
        "lifelong/blocks.py",
        " and len(strange[members].unique(dim=0)) > k",
        "",
        BLOCKS,
    ),
    Mutation(
        "blocks: distinct rows are forgotten",
        "lifelong/sketches.py",
        "frozenset(sorted(self.some | other.some)[:FEWEST_ROWS])",
        "self.some",
        BLOCKS,
    ),
    Mutation(
        "blocks: each line of a CSV file is a row",
        "data/readers/csv_files.py",
        "        if '\"' in line:\n            return bool(next(",
        "        if False:\n            return bool(next(",
        FILE_BLOCKS,
    ),
    Mutation(
        "blocks: the mark of UTF-8 is not counted",
        "data/readers/csv_files.py",
        "lines = CountedLines(bounded_lines(text, where), length_of_mark(path))",
        "lines = CountedLines(bounded_lines(text, where))",
        FILE_BLOCKS,
    ),
    Mutation(
        "blocks: letters are counted for bytes",
        "data/readers/text_parts.py",
        "len(line) if line.isascii() else len(line.encode())",
        "len(line)",
        FILE_BLOCKS,
    ),
)


def passes(source: Path, tests: str) -> bool:
    """Return whether tests pass with the package in a folder; none found, or an error, ends everything."""
    words = [f"tests/{word}" if word.endswith(".py") else word for word in tests.split()]
    environment = {**os.environ, "PYTHONPATH": str(source), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *words]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    if done.returncode not in (0, 1):
        raise SystemExit(f"pytest {tests}: exit code {done.returncode}\n{done.stdout}{done.stderr}")
    return done.returncode == 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("word", nargs="?", default="", help="only mutations whose names contain it")
    word = parser.parse_args().word
    chosen = [m for m in MUTATIONS if word in m.name]
    outcomes = []
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "src"
        shutil.copytree(ROOT / "src", copy, ignore=shutil.ignore_patterns("__pycache__"))
        sound = {tests: passes(copy, tests) for tests in dict.fromkeys(m.tests for m in chosen)}
        for mutation in chosen:
            path = copy / "dbull" / mutation.file
            text = path.read_text(encoding="utf-8")
            if text.count(mutation.old) != 1:
                outcome = f"text found {text.count(mutation.old)} times: write it anew"
            elif not sound[mutation.tests]:
                outcome = "its tests fail without it"
            else:
                path.write_text(text.replace(mutation.old, mutation.new), encoding="utf-8")
                outcome = "SURVIVED" if passes(copy, mutation.tests) else "killed"
                path.write_text(text, encoding="utf-8")
            outcomes.append(outcome)
            print(f"{outcome:9} {mutation.file}: {mutation.name}", flush=True)
    print(f"{outcomes.count('killed')} of {len(outcomes)} killed")
    raise SystemExit(outcomes.count("killed") < len(outcomes))


if __name__ == "__main__":
    main()
