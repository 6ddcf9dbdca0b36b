"""The examples of docs/command-line.md in their order, and that every command and exit code is there."""

import re
from pathlib import Path

from dbull.cli import app
from dbull.cli.exits import ExitCode
from pages import run_page, text_of

PAGE = "docs/command-line.md"


def test_the_week(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run_page(PAGE)
    assert Path("clusters.csv").read_text().count("\n") == 121


def test_every_command_and_exit_code_is_there():
    text = text_of(PAGE)
    names = [command.name or command.callback.__name__ for command in app.registered_commands]
    for name in names:
        assert re.search(rf"`{name}\b", text), name
    for code in ExitCode:
        assert re.search(rf"^\| .*\b{int(code)}\b", text, re.MULTILINE), code
