"""The examples of docs/command-line.md in their order, and that every command and exit code is there."""

import re
import shlex
from pathlib import Path

from typer.testing import CliRunner

from dbull.cli import app
from dbull.cli.exits import ExitCode

TEXT = (Path(__file__).parent.parent.parent / "docs" / "command-line.md").read_text()


def block(language):
    found = re.search(rf"```{language}\n(.*?)```", TEXT, re.DOTALL)
    assert found is not None
    return found[1]


def test_the_week(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    exec(block("python"), {})
    for line in block("sh").splitlines():
        command, _, remark = line.partition("#")
        expected = re.search(r"exits (\d+)", remark)
        result = CliRunner().invoke(app, shlex.split(command)[1:])
        assert result.exit_code == int(expected[1] if expected else 0), (line, result.stdout, result.stderr)
    assert (tmp_path / "clusters.csv").read_text().count("\n") == 121


def test_every_command_and_exit_code_is_there():
    names = [command.name or command.callback.__name__ for command in app.registered_commands]
    for name in names:
        assert re.search(rf"`{name}\b", TEXT), name
    for code in ExitCode:
        assert re.search(rf"^\| .*\b{int(code)}\b", TEXT, re.MULTILINE), code
