"""The figure's curves are the numbers of the steps; files are images; what cannot be drawn is refused."""

import json

import numpy as np
import pytest

from dbull.errors import ResultsError, SettingsError
from dbull.experiments import figures
from dbull.experiments.figures import draw_streams, task_curves
from dbull.experiments.results import find_results
from dbull.experiments.run import run
from dbull.experiments.settings import MethodChoice

pytest.importorskip("matplotlib", reason="needs the extra dbull[plot]")


@pytest.fixture
def results(make_stream, tmp_path):
    for seed in (0, 1):
        for name in ("Knowing", "Slow"):
            list(
                run(make_stream((0, 0, 1, 2), seed=seed), MethodChoice(path=f"toy_methods:{name}"), tmp_path)
            )
    return find_results([tmp_path])[0]


def test_curves_start_when_a_task_is_met():
    runs = [
        [{"tasks": {"0": {"ari": 0.1}}}, {"tasks": {"0": {"ari": 0.2}, "1": {"ari": 0.3}}}],
        [{"tasks": {"0": {"ari": 0.5}}}, {"tasks": {"0": {"ari": 0.6}, "1": {"ari": 0.7}}}],
    ]
    np.testing.assert_array_equal(task_curves(runs, 0, "ari"), [[0.1, 0.2], [0.5, 0.6]])
    np.testing.assert_array_equal(task_curves(runs, 1, "ari"), [[np.nan, 0.3], [np.nan, 0.7]])


def test_figure_shows_means_over_seeds_and_the_truth(results, tmp_path, monkeypatch):
    from matplotlib.figure import Figure

    drawn = []
    monkeypatch.setattr(Figure, "savefig", lambda self, *args, **kwargs: drawn.append(self))
    draw_streams(results, tmp_path / "f.png", "ari")
    panels = [panel for panel in drawn[0].axes if panel.get_title()]
    assert [panel.get_title() for panel in panels] == ["task 1", "task 2", "task 3", "clusters"]
    finals = [r.final["lifelong"]["ari"]["matrix"] for r in results if r.method == "Slow"]
    _, slow = panels[1].get_lines()
    np.testing.assert_array_equal(slow.get_xdata(), [3, 4])
    assert slow.get_ydata()[-1] == pytest.approx(np.mean([matrix[-1][1] for matrix in finals]))
    knowing, _, truth = panels[-1].get_lines()
    np.testing.assert_array_equal(truth.get_ydata(), [2, 2, 4, 6])
    np.testing.assert_array_equal(knowing.get_ydata(), [2, 2, 4, 6])
    assert truth.get_label() == "true classes seen"


@pytest.mark.parametrize(("suffix", "start"), [(".png", b"\x89PNG"), (".pdf", b"%PDF"), (".svg", b"<?xml")])
def test_file_is_an_image(results, tmp_path, suffix, start):
    target = tmp_path / "deep" / f"f{suffix}"
    draw_streams(results, target)
    assert target.read_bytes().startswith(start)


def test_what_cannot_be_drawn(results, tmp_path, monkeypatch):
    with pytest.raises(SettingsError, match=r"\.png, \.pdf, \.svg"):
        draw_streams(results, tmp_path / "f.jpeg")
    with pytest.raises(SettingsError, match="did you mean 'ari'"):
        draw_streams(results, tmp_path / "f.png", "arri")
    with pytest.raises(ResultsError, match="no complete results"):
        draw_streams([], tmp_path / "f.png")
    settings = results[0].folder / "settings.json"
    settings.write_text(json.dumps({**results[0].settings, "scenario": "other"}))
    with pytest.raises(ResultsError, match="blobs, other"):
        draw_streams(find_results([tmp_path])[0], tmp_path / "f.png")
    monkeypatch.setattr(figures, "find_spec", lambda name: None)
    with pytest.raises(SettingsError, match=r"dbull\[plot\]"):
        draw_streams(results, tmp_path / "f.png")
