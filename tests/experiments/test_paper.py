"""The paper's tables and figures: the right runs, what was printed, and pages made from folders alone."""

import json
from pathlib import Path

import numpy as np
import pytest

from dbull.errors import FolderInUseError, NumericalError, SettingsError
from dbull.experiments.paper import plan as planning
from dbull.experiments.paper import published
from dbull.experiments.paper.drawings import draw_counts
from dbull.experiments.paper.page import write_paper
from dbull.experiments.paper.plan import Plan, Runs, make_runs
from dbull.experiments.paper.sheets import TABLES
from dbull.experiments.registry import METHODS
from dbull.experiments.run import RunDone, RunSkipped, run
from dbull.experiments.settings import MethodChoice
from dbull.experiments.sheet import SPANNED, Sheet, latex, markdown, spans


def finished(events):
    return [event for event in events if isinstance(event, RunDone)]


def test_pages_without_a_run_say_so(tmp_path):
    plan = Plan(only=("table4", "fig6"), seeds=(0,), quick=True)
    list(write_paper(Runs.read(plan, tmp_path), tmp_path / "paper"))
    page = (tmp_path / "paper" / "index.html").read_text()
    assert page.count("not run yet") == len(plan.methods(plan.sources[0])) + 1
    assert 'id="table5"' not in page


def test_a_run_that_fails_or_is_under_way_holds_up_no_other(monkeypatch, tmp_path):
    errors = {
        "dbull": NumericalError("not finite"),
        "kmeans": FolderInUseError("another run is writing here"),
    }

    def failing(stream, choice, out, *, watch=None):
        if choice.label in errors:
            raise errors[choice.label]
        yield from run(stream, MethodChoice(name="kmeans", label=choice.label), out, watch=watch)

    monkeypatch.setattr(planning, "run", failing)
    events = list(make_runs(Plan(only=("table6",), seeds=(0,), quick=True), tmp_path))
    assert {one.method for one in events if isinstance(one, RunSkipped)} == set(errors)
    assert len(finished(events)) == len(BATCH_HERE) - len(errors)


BATCH_HERE = [method for method in planning.BATCH if method in METHODS]


def test_data_that_are_not_here_are_named(tmp_path, monkeypatch):
    monkeypatch.delenv("DBULL_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    plan = Plan(only=("table2", "table4"), seeds=(0, 1), data_folder=tmp_path)
    events = list(make_runs(plan, tmp_path / "runs"))
    assert all(isinstance(event, RunSkipped) for event in events)
    assert {event.reason for event in events} == {
        f"not run here: needs {source.dataset}" for source in planning.SOURCES
    }
    runs = Runs.read(plan, tmp_path / "runs")
    rows = [row for row in TABLES["table4"](runs).sheet.body if row[0] == "STL-10 features"]
    assert {row[3] for row in rows} == {"not run here: needs stl10-features"}
    dbull = next(row for row in rows if row[1] == "DBULL, paper")
    assert dbull[-4:] == ["75.26 (0.53)", "70.72 (0.81)", "77.61 (1.29)", "75.22 (0.52)"]
    assert "not here: needs stl10-features" in TABLES["table2"](runs).sheet.body[2]


def test_names_are_checked():
    with pytest.raises(SettingsError, match="did you mean 'table4'"):
        Plan(only=("tabel4",))


def test_curl_has_the_printed_bound():
    choices = dict.fromkeys(("batch-reuters10k", "batch-mnist"))
    for name, choice in Plan(only=("table5",)).runs():
        if choice.label == "curl-d" and name in choices:
            choices[name] = dict(choice.parameters)
    assert choices == {"batch-reuters10k": {"max_clusters": 40}, "batch-mnist": {}}


def test_what_a_method_is_given_is_what_its_runs_record():
    told = {row[1]: row[2] for row in TABLES["table4"](Runs(Plan(), {})).sheet.body}
    told |= {row[0]: row[1] for row in TABLES["streams"](Runs(Plan(), {})).sheet.body}
    n_compared = 0
    for path in (Path(__file__).parents[2] / "experiments" / "results").rglob("settings.json"):
        settings = json.loads(path.read_text())
        title = planning.TITLES.get(settings["method"])
        if title in told:
            n_compared += 1
            assert ("K" in told[title].split(", ")) == (settings["told_true_k"] is not None), path
            assert ("later rows" in told[title]) == ("pretrained_on" in settings), path
    assert n_compared > 10


def test_a_text_goes_on_into_empty_cells():
    sheet = Sheet(("a", "b", "c"), [("x", "not run yet", SPANNED), ("y", "1", "2")], n_text=1)
    assert spans(sheet.body[0]) == [("x", 1), ("not run yet", 2)]
    assert r"x & \multicolumn{2}{l}{not run yet} \\" in latex(sheet)
    assert "| x | not run yet |  |" in markdown(sheet)


def test_printed_numbers_are_consistent():
    """NMI of the paper is the geometric mean of homogeneity and completeness, which VM gives."""
    for rows in published.QUALITY.values():
        for nmi, _, hs, vm in rows.values():
            nmi, hs, vm = (float(cell.split()[0]) / 100 for cell in (nmi, hs, vm))
            completeness = vm * hs / (2 * hs - vm)
            assert np.sqrt(hs * completeness) == pytest.approx(nmi, abs=0.008)


def test_printed_counts_stand_at_the_ends_of_tasks(monkeypatch):
    """On the paper's own stream, whose tasks have ten arrivals each."""
    pytest.importorskip("matplotlib", reason="needs the extra dbull[plot]")
    steps = [{"task": i // 10, "n_clusters": 2, "n_classes": 2 * (i // 10 + 1)} for i in range(50)]
    monkeypatch.setattr("dbull.experiments.paper.drawings._curves", lambda runs: {"DBULL": [steps]})
    (figure,) = draw_counts(Runs(Plan(), {})).values()
    lines = {line.get_label(): line for line in figure.axes[0].get_lines()}
    assert list(lines["printed: DBULL"].get_xdata()) == [10, 20, 30, 40, 50]
