"""Names of the code in the documentation are those of the code: looked up in its syntax trees."""

import ast
import re
from functools import cache

import pytest

from pages import ROOT, text_of

SOURCE = ROOT / "src" / "dbull"
HISTORY = {"CHANGELOG.md", "docs/log.md"}  # tell of what was
PAGES = sorted(
    {str(path.relative_to(ROOT)) for path in (*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"))} - HISTORY
)
NAME = re.compile(r"`(\w+)(?:\.(\w+))?(?:\(([\w, ]*)\)|\[\w+\])?`")


@cache
def definitions(file):
    """Return what a module defines at its top: each name with its members, and with its parameters."""
    found = {}
    for node in ast.parse((SOURCE / file).read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef):
            found[node.name] = {}, parameters(node)
        elif isinstance(node, ast.ClassDef):
            members = {}
            for part in ast.walk(node):
                if isinstance(part, ast.FunctionDef):
                    members[part.name] = parameters(part)
                elif isinstance(part, ast.Name | ast.Attribute) and isinstance(part.ctx, ast.Store):
                    members[part.id if isinstance(part, ast.Name) else part.attr] = []
            fields = [part.target.id for part in node.body if isinstance(part, ast.AnnAssign)]
            found[node.name] = members, fields
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            found |= {target.id: ({}, []) for target in targets if isinstance(target, ast.Name)}
    return found


def parameters(function):
    names = [argument.arg for argument in (*function.args.args, *function.args.kwonlyargs)]
    return [name for name in names if name not in ("self", "cls")]


def is_there(name, member, given, file):
    """Return whether a file defines this name, with this member, and takes these parameters in this order."""
    if name not in definitions(file):
        return False
    members, takes = definitions(file)[name]
    if member:
        if member not in members:
            return False
        takes = members[member]
    wanted = [part.strip() for part in given.split(",") if part.strip()] if given else []
    return [part for part in takes if part in wanted] == wanted


def cells(page):
    for line in text_of(page).splitlines():
        if line.startswith("|"):
            yield [cell.strip() for cell in line.strip("|").split(" | ")]


def test_notation():
    n_names = 0
    for _, names, *_, where in (row for row in cells("docs/notation.md") if len(row) > 2):
        files = re.findall(r"`([\w/]+\.py)`", where)
        for name in NAME.finditer(names) if files else ():
            n_names += 1
            assert any(is_there(*name.groups(), file) for file in files), (name[0], files)
    assert n_names > 80


def test_errata():
    places = re.findall(r"`([\w/]+\.py): (\w+)(?:\.(\w+))?`", text_of("docs/errata.md"))
    assert len(places) > 25
    for file, name, member in places:
        assert is_there(name, member, "", file), (file, name, member)


@pytest.mark.parametrize("page", PAGES)
def test_files_that_a_page_names_are_there(page):
    kept = [
        path.as_posix()
        for folder in ("src", "tests", "benchmarks", "examples", "experiments")
        for path in (ROOT / folder).rglob("*.py")
    ]
    for name in re.findall(r"(?<![\w/.:-])([\w/]+\.py)\b", text_of(page)):
        assert any(path.endswith(f"/{name}") for path in kept), name
