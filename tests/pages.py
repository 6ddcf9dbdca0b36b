"""Pages of the documentation, run as a reader would run them: blocks in their order, in an empty folder."""

import re
import shlex
import shutil
from pathlib import Path

from typer.testing import CliRunner

from dbull.cli import app

ROOT = Path(__file__).parent.parent
BLOCK = re.compile(r"```(python|sh)\n(.*?)```", re.DOTALL)
EXITS = re.compile(r"exits (\d+)")


def text_of(page):
    return (ROOT / page).read_text(encoding="utf-8")


def run_page(page, names=None):
    """Run the Python and shell blocks of a page here; return the names that Python has at the end.

    A shell line may be a dbull command, `cp`, or either with its output to a file; a remark "exits 6" says
    which exit code it has.
    """
    names = {} if names is None else names
    for language, block in BLOCK.findall(text_of(page)):
        if language == "python":
            exec(block, names)
        else:
            for line in block.splitlines():
                run_line(line)
    return names


def run_line(line):
    command, _, remark = line.partition("#")
    command, _, target = command.partition(" > ")
    words = shlex.split(command)
    if words[0] == "cp":
        *sources, place = words[1:]
        for source in sources:
            shutil.copy(source, place)
        return
    assert words[0] == "dbull", line
    result = CliRunner().invoke(app, words[1:])
    expected = EXITS.search(remark)
    assert result.exit_code == int(expected[1] if expected else 0), (line, result.stdout, result.stderr)
    if target:
        Path(target.strip()).write_text(result.stdout)
