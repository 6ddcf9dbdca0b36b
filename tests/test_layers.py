"""Imports go one way: the map of who may use whom, checked on the source itself."""

import ast
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent.parent / "src" / "dbull"

# room -> rooms it may import; all may import what is usable everywhere.
EVERYWHERE = {"errors", "documents", "writing", "threads", "scaling", "categories"}
MAY_IMPORT = {
    "errors": set(),
    "documents": set(),
    "writing": set(),
    "threads": set(),
    "scaling": set(),
    "categories": {"scaling"},
    "ledger": set(),
    "store": set(),
    "probability": set(),
    "mixture": {"probability"},
    "nets": {"probability"},
    "data": set(),
    "metrics": set(),
    "tables": set(),
    "lifelong": {"probability", "mixture", "nets", "ledger"},
    "codec": {"probability", "mixture", "nets", "ledger", "lifelong"},
    "methods": {"probability", "mixture", "nets", "ledger", "lifelong", "codec", "store", "tables", "data"},
    "experiments": {"methods", "data", "metrics", "store"},
    "report": {"methods", "ledger", "store", "metrics"},
    "ingest": {"methods", "ledger", "store", "data", "tables"},
    "cli": {"ingest", "experiments", "report", "methods", "ledger", "store", "data", "metrics", "tables"},
}
# Third-party packages that a room must not touch, so that each stays what it says it is.
FORBIDDEN = {
    "probability": {"numpy", "scipy", "sklearn"},
    "mixture": {"numpy", "scipy", "sklearn"},
    "nets": {"numpy", "scipy", "sklearn"},
    "metrics": {"torch"},
    "data": {"torch"},
    "tables": {"torch", "pandas", "polars", "pyarrow"},
}


def room_of(path: Path) -> str:
    parts = path.relative_to(SOURCE).with_suffix("").parts
    return parts[0]


def imported(path: Path) -> set[str]:
    """Return dotted names of everything a file imports at any depth, relative imports resolved."""
    package = ["dbull", *path.relative_to(SOURCE).with_suffix("").parts]
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level] if node.level else []
            stem = ".".join([*base, *([node.module] if node.module else [])])
            names |= {f"{stem}.{alias.name}" for alias in node.names}
    return names


FILES = sorted(
    p for p in SOURCE.rglob("*.py") if p.parent != SOURCE or p.stem not in {"__init__", "__main__"}
)


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(SOURCE)))
def test_imports_follow_the_map(path):
    room = room_of(path)
    assert room in MAY_IMPORT, f"{path}: give the new room '{room}' its place in MAY_IMPORT"
    for name in imported(path):
        top, *rest = name.split(".")
        if top == "dbull":
            other = rest[0] if rest else ""
            allowed = MAY_IMPORT[room] | {room} | EVERYWHERE
            assert other in allowed, f"{path} imports {name}: {room} may import {sorted(allowed)}"
        else:
            assert top not in FORBIDDEN.get(room, set()), f"{path} imports {name}, which {room} must not use"


def test_map_has_no_circles():
    done: set[str] = set()
    while len(done) < len(MAY_IMPORT):
        ready = {room for room, uses in MAY_IMPORT.items() if room not in done and uses <= done}
        assert ready, f"circular permission among {sorted(set(MAY_IMPORT) - done)}"
        done |= ready


def test_library_code_prints_nothing():
    for path in FILES:
        if room_of(path) == "cli":
            continue
        calls = [
            node.lineno
            for node in ast.walk(ast.parse(path.read_text()))
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print"
        ]
        assert not calls, f"{path} prints on lines {calls}; yield progress instead"
