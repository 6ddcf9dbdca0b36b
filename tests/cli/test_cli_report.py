"""``dbull report``: one page about the model of a folder, and exit codes when there is none."""

from pathlib import Path
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

from dbull.cli import app, options
from dbull.cli.exits import ExitCode

GOLDEN = Path(__file__).parent.parent / "reference" / "model-format-1" / "model"


def dbull(*arguments):
    return CliRunner().invoke(app, [str(a) for a in arguments])


def test_report_is_written_and_named(tmp_path):
    path = tmp_path / "page.html"
    done = dbull("report", GOLDEN, "-o", path)
    assert done.exit_code == ExitCode.DONE, done.stderr
    assert done.stdout.strip() == str(path)
    html = path.read_text(encoding="utf-8")
    assert "<h1>model</h1>" in html  # called after its folder
    assert "<dt>Generation</dt><dd>2</dd>" in html
    assert "<dt>arrivals</dt><dd>2</dd>" in html  # events of earlier generations are there too
    assert str(GOLDEN.parent) not in html  # nor where it lies on the machine


def test_an_older_generation_with_a_title(tmp_path):
    path = tmp_path / "page.html"
    done = dbull("report", GOLDEN, "-o", path, "--generation", 1, "--title", "<before>")
    assert done.exit_code == ExitCode.DONE, done.stderr
    html = path.read_text(encoding="utf-8")
    assert "<h1>&lt;before&gt;</h1>" in html
    assert "<dt>Generation</dt><dd>1</dd>" in html


def test_a_missing_folder_is_made_only_if_wanted(tmp_path, monkeypatch):
    path = tmp_path / "missing" / "page.html"
    done = dbull("report", GOLDEN, "-o", path)
    assert (done.exit_code, path.parent.exists()) == (ExitCode.USAGE, False)
    assert "mkdir" in done.stderr
    terminal = SimpleNamespace(isatty=lambda: True)
    monkeypatch.setattr(options, "sys", SimpleNamespace(stdin=terminal, stderr=terminal))
    for answer, code in ((False, ExitCode.USAGE), (True, ExitCode.DONE)):
        monkeypatch.setattr(options, "confirm", lambda question, answer=answer, **_: answer)
        assert dbull("report", GOLDEN, "-o", path).exit_code == code
        assert path.exists() is answer


def test_no_model_and_no_place_to_write(tmp_path):
    done = dbull("report", tmp_path / "none", "-o", tmp_path / "page.html")
    assert done.exit_code == ExitCode.MODEL_DAMAGED
    assert not (tmp_path / "page.html").exists()
    done = dbull("report", GOLDEN, "-o", tmp_path)
    assert done.exit_code == ExitCode.USAGE
    assert "is a folder" in done.stderr


@pytest.mark.parametrize("command", ["report", "demo"])
def test_help_has_an_example(command):
    done = dbull(command, "--help")
    assert done.exit_code == 0
    assert "Example" in done.stdout
