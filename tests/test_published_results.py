"""Figures of README and docs/results.md are those of the result folders, and README has no others."""

import importlib.util
import re
import shutil

import pytest

from dbull.experiments.results import find_results
from pages import ROOT, text_of

# A score as people write it: 94.1, or a pair of them, 94 / 95.
SCORE = re.compile(r"\b\d{2}\.\d{1,2}\b|\b\d{2} ?/ ?\d{2}\b")


@pytest.fixture(scope="module")
def publish():
    """The script of `make results`."""
    spec = importlib.util.spec_from_file_location("publish", ROOT / "experiments" / "publish.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def results(publish):
    return find_results([publish.RESULTS])[0]


@pytest.mark.parametrize(("page", "n_blocks"), [("README.md", 1), ("docs/results.md", 2)])
def test_tables_are_what_the_folders_give(publish, results, page, n_blocks):
    text = text_of(page)
    assert len(publish.BLOCK.findall(text)) == n_blocks
    assert publish.filled(text, results) == text, "run `make results`"


def test_a_figure_that_is_changed_is_found(publish, results):
    text = text_of("README.md")
    figure = SCORE.search(publish.BLOCK.search(text)[0])[0]
    assert publish.filled(text.replace(figure, "99.9"), results) == text


def test_readme_has_no_score_outside_of_its_table(publish):
    outside = publish.BLOCK.sub("", text_of("README.md"))
    assert SCORE.findall(outside) == []
    assert SCORE.findall("reaches 94.1 and 88 / 86") == ["94.1", "88 / 86"]


def test_every_run_is_in_a_table(publish, results):
    text = text_of("docs/results.md")
    for name, method in publish.groups_of(results):
        assert f"| `{name}` | `{method}` |" in text


def test_code_of_runs_is_told(publish, results, tmp_path):
    """A run of a known commit shows it; one that does not say, or whose code was changed, is old."""
    folder = next(run.folder for run in results if (run.scenario, run.method) == ("batch-usps", "dbull"))
    copy = tmp_path / "run"
    shutil.copytree(folder, copy)
    (run,) = find_results([copy])[0]
    record = copy / "environment.json"
    for commit, source, shown in (
        ("a" * 40, "as committed", "aaaaaaa"),
        ("a" * 40, "changed since the commit: src/x.py", publish.OLD),
        (None, "not in a git checkout", publish.OLD),
    ):
        record.write_text(
            f'{{"commit": {"null" if commit is None else repr(commit)}, "source": "{source}"}}'.replace(
                "'", '"'
            )
        )
        assert publish.cost([run])[1] == shown
        assert publish.is_old([run]) == (shown == publish.OLD)
