"""``dbull demo``: a short stream in a process of its own, and how it looks with and without colours."""

import io
import json
import os
import subprocess

import numpy as np
import pytest
from forked import forked_command
from rich.console import Console
from typer.testing import CliRunner

from dbull.cli import app
from dbull.cli.demo import Outcome, Step, _stream
from dbull.cli.demo_display import Show, picture_lines, plain_lines
from dbull.cli.exits import ExitCode


@pytest.fixture(scope="module")
def short_run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("demo")
    done = subprocess.run(
        [*forked_command(), "demo", "--arrivals", "2", "--json", "--model", "kept"],
        capture_output=True,
        text=True,
        cwd=folder,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        timeout=600,
        check=False,
    )
    assert done.returncode == ExitCode.DONE, done.stderr
    return folder, json.loads(done.stdout), done.stderr


@pytest.mark.slow
def test_new_digits_are_new_clusters_and_old_ids_stay(short_run):
    folder, told, progress = short_run
    first, second = told["arrivals"]
    assert first["rows"] == 180
    assert first["born"] == list(range(len(first["born"])))
    assert len(first["born"]) >= 2
    assert second["born"]
    assert min(second["born"]) > max(first["born"])
    assert second["novel_share"] > 0.5
    assert sum(second["rows_per_cluster"].values()) == second["rows"]
    assert told["same_id_share"] > 0.95
    assert told["nmi"] > 0.85
    html = (folder / told["report"]).read_text(encoding="utf-8")
    assert html.count("<article") == told["n_clusters"]
    assert "arrival 2 of 2: twos and threes" in progress


@pytest.mark.slow
def test_kept_model_goes_on(short_run):
    folder, told, _ = short_run
    done = CliRunner().invoke(app, ["clusters", str(folder / "kept"), "--json"])
    assert [c["id"] for c in json.loads(done.stdout)] == [c["id"] for c in told["clusters"]]
    again = CliRunner().invoke(app, ["demo", "--model", str(folder / "kept")])
    assert again.exit_code == ExitCode.USAGE
    assert "a model is here already" in again.stderr


def test_report_that_cannot_be_written_is_refused_before_learning(tmp_path):
    done = CliRunner().invoke(app, ["demo", "--out", str(tmp_path)])
    assert done.exit_code == ExitCode.USAGE
    assert "is a folder" in done.stderr


def test_stream_has_every_digit_once_and_the_first_come_back_as_other_rows():
    pieces = _stream()
    rows = np.concatenate([piece.rows for piece in pieces])
    assert len(rows) == 1797
    assert [set(piece.digits.tolist()) for piece in pieces] == [
        {0, 1},
        {2, 3},
        {4, 5},
        {6, 7},
        {8, 9},
        {0, 1},
    ]
    first, last = ({row.tobytes() for row in pieces[i].rows} for i in (0, -1))
    assert not first & last
    assert pieces[-1].what == "zeros and ones again"


class Learner:
    """Prototypes are a white upper half on black."""

    def prototype(self, cluster):
        return np.repeat([16.0, 0.0], 32)


def said(**console):
    """Return what the demo says about one birth and about a class that comes back."""
    show = Show(2, talks=True, watches=False)
    out = io.StringIO()
    show._console = Console(file=out, highlight=False, soft_wrap=True, width=90, **console)
    show.step(Step(1, "zeros", 5, [0], {0: 5}, 1.0, 2.0), Learner())
    show.step(Step(2, "zeros again", 7, [], {0: 6, 3: 1}, 0.04, 1.0), Learner())
    return out.getvalue()


def test_plain_text_has_pictures_ids_and_no_escapes():
    text = said(force_terminal=False)
    assert "\x1b" not in text
    assert "1 new cluster:" in text
    assert "   id 0\n" in text
    assert text.count("█" * 16) == 4
    assert "No new cluster. Recognised by their old ids: 0 (6 rows), 3 (1 row)" in text
    assert "4% of them look like nothing seen before" in text


def test_colours_on_a_terminal():
    text = said(force_terminal=True, color_system="truecolor")
    assert text.count("▀") == 16 * 8
    assert "\x1b[" in text


def test_no_color_is_kept_to():
    text = said(force_terminal=True, color_system="truecolor", no_color=True)
    assert "▀" not in text
    assert text.count("█" * 16) == 4


def test_end_names_the_report(capsys):
    show = Show(1, talks=True, watches=False)
    cluster = {"id": 0, "rows": 5, "first_seen": 1, "last_seen": 2, "digit": 7, "share": 0.5}
    show.end(Outcome(5, 1, 1, 1.0, 0.5, 3.0, [cluster]), "page.html", None)
    text = capsys.readouterr().out
    assert "page.html" in text
    assert "100.0% get the id" in text
    assert "arrival 2" in text


def test_quiet_says_nothing(capsys):
    show = Show(1, talks=False, watches=False)
    show.begin(5)
    show.step(Step(1, "zeros", 5, [0], {0: 5}, 1.0, 2.0), Learner())
    with show.learning(1, "zeros") as tell:
        assert tell is None
    assert capsys.readouterr().out == ""


def test_blocks_show_the_image():
    image = np.array([[0, 255], [128, 0]], dtype=np.uint8)
    assert plain_lines(image) == ["  ██", "▒▒  "]
    assert plain_lines(image, ascii_only=True) == ["  ##", "::  "]
    lines = picture_lines(image)
    assert [len(line) for line in lines] == [4, 4]
    assert "rgb(0,0,0) on" in str(lines[0].spans[0].style)
