"""The map in CONTRIBUTING.md names every room and module of the source, and none that is not there.

A line of the map is modules and folders, two spaces or more, then words about them. Indentation says in which
folder they are. `*.py` stands for all modules of its folder that no other line names.
"""

import re
from pathlib import Path

ROOT = Path(__file__).parent.parent
ENTRY = re.compile(r"[\w/]+/|(?:\w+|\*)\.py")
BESIDE_THE_MAP = {"__init__.py", "__main__.py"}  # a room's own; its line in the map speaks for them


def entries_of_map():
    """Return the paths that the map names, relative to the repository."""
    block = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").split("## The map")[1].split("```")[1]
    folders: list[tuple[int, str]] = []
    found = []
    for line in block.splitlines():
        names = re.split(r"\s{2,}", line.strip())[0].split()
        indent = len(line) - len(line.lstrip())
        folders = [folder for folder in folders if folder[0] < indent]
        inside = folders[-1][1] if folders else ""
        for name in names:
            assert ENTRY.fullmatch(name), f"{line!r}: {name!r} is no module or folder"
            found.append(inside + name)
            if name.endswith("/"):
                folders.append((indent, inside + name))
    return found


def modules():
    """Return every module of the source but those that stand for their room."""
    paths = (ROOT / "src" / "dbull").rglob("*.py")
    return {path.relative_to(ROOT).as_posix() for path in paths if path.name not in BESIDE_THE_MAP}


def test_every_name_is_there_once():
    found = entries_of_map()
    assert len(found) == len(set(found)), sorted({name for name in found if found.count(name) > 1})
    missing = [name for name in found if "*" not in name and not (ROOT / name).exists()]
    assert missing == [], "the map names what is not there"


def test_every_module_is_named_or_covered():
    found = set(entries_of_map())
    covered = {name.removesuffix("*.py") for name in found if name.endswith("*.py")}
    unnamed = modules() - found
    lost = {name for name in unnamed if name.rpartition("/")[0] + "/" not in covered}
    assert lost == set(), "give these a line in the map of CONTRIBUTING.md"
    assert covered == {name.rpartition("/")[0] + "/" for name in unnamed}, "a *.py that stands for nothing"


def test_every_room_is_named():
    rooms = {module.rpartition("/")[0] + "/" for module in modules()}
    assert rooms <= set(entries_of_map())
