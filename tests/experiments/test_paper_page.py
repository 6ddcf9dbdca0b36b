"""From nothing to a page: runs of methods that learn little, and what is made of them."""

import re
from dataclasses import replace

import pytest

from dbull.data import scenario
from dbull.experiments.generated import read_generated
from dbull.experiments.paper import plan as planning
from dbull.experiments.paper.page import write_paper
from dbull.experiments.paper.plan import EXHIBITS, Plan, Runs, make_runs, state
from dbull.experiments.paper.sheets import TABLES
from dbull.experiments.run import RunDone
from dbull.experiments.settings import MethodChoice

QUICK = {
    "dbull": {"epochs": 2, "joint_epochs": 0, "max_clusters": 4, "hidden_dims": (8,), "latent_dim": 2},
    "curl-d": {"joint_epochs": 1, "hidden_dims": (8,), "latent_dim": 2},
}


def short_stream(name, seed, folder):
    """The first arrival of each task, and a part of its rows."""
    stream = scenario(name, seed, folder)
    firsts = {arrival.task: arrival for arrival in reversed(stream.arrivals)}
    kept = [
        replace(firsts[task], index=i, x=firsts[task].x[:200], y_true=firsts[task].y_true[:200])
        for i, task in enumerate(sorted(firsts))
    ]
    return replace(stream, arrivals=kept)


@pytest.fixture(scope="module")
def made(tmp_path_factory, quick_module):
    """Plan, folder and runs of two methods that learn little, and what was done to make them."""
    choice = planning._choice

    def short(name, method):
        given = dict(choice(name, method).parameters)
        return MethodChoice(name=method, parameters={**given, **QUICK[method]})

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(planning, "_known", lambda methods: tuple(m for m in methods if m in QUICK))
        patch.setattr(planning, "_choice", short)
        patch.setattr(planning, "scenario", short_stream)
        plan, folder = Plan(seeds=(0,), quick=True), tmp_path_factory.mktemp("paper")
        assert {row["there"] for row in state(plan, folder)} == {0}
        yield plan, folder, [one for one in make_runs(plan, folder) if isinstance(one, RunDone)]


def test_from_nothing_to_a_page(made, tmp_path):
    """Runs are made once; the page has all that is asked for, and the figures are there as files."""
    pytest.importorskip("matplotlib", reason="needs the extra dbull[plot]")
    plan, runs, done = made
    out = tmp_path / "paper"
    assert {(one.scenario, one.method) for one in done} == {
        (scenario, method) for scenario in ("batch-digits", "split-digits") for method in QUICK
    }
    assert list(make_runs(plan, runs)) == [], "what is there is not made again"
    assert all(row["there"] == row["runs"] for row in state(plan, runs))

    files = {path.name for path in write_paper(Runs.read(plan, runs), out)}
    drawn = {f"fig{n}.{kind}" for n in (3, 4, 5, 6, 7) for kind in ("png", "pdf")}
    tables = {f"{name}.{kind}" for name in TABLES for kind in ("tex", "md")}
    assert files == {"index.html", *drawn, *tables}
    page = (out / "index.html").read_text()
    assert all(f'id="{name}"' in page for name in EXHIBITS)
    assert page.count("data:image/png;base64,") == 5
    assert not re.search(r'(src|href)="https?:', page), "one page, which needs no network"
    (result,) = Runs.read(plan, runs).of("batch-digits", "dbull")
    assert f"{100 * result.final['scores']['nmi_geometric']:.2f}" in (out / "table4.md").read_text()
    assert (out / "fig3.png").read_bytes().startswith(b"\x89PNG")

    part = Runs.read(Plan(only=("table4", "fig5"), seeds=(0,), quick=True), runs)
    for path in write_paper(part, tmp_path / "again"):
        same = path.read_bytes() == (out / path.name).read_bytes()
        assert same or path.name == "index.html", "the same runs, the same bytes"


def test_images_after_each_task(made):
    (done,) = [one for one in made[2] if (one.scenario, one.method) == ("split-digits", "dbull")]
    phases = read_generated(done.folder)
    assert [phase.task for phase in phases] == [0, 1, 2, 3, 4]
    for phase in phases:
        assert phase.images.shape == (len(phase.shares), 4, 8, 8)
        assert phase.shares.sum() == pytest.approx(1.0, abs=1e-5)
    assert len(phases[-1].shares) == done.final["n_clusters"]
