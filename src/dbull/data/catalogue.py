"""What is known of the data sets before any file of them is read: `catalogue.toml`, beside this module."""

import sys
from pathlib import Path
from typing import Any

from dbull.data.files import DataFile

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

CATALOGUE: dict[str, Any] = tomllib.loads(
    Path(__file__).with_name("catalogue.toml").read_text(encoding="utf-8")
)


def files_of(group: str) -> tuple[DataFile, ...]:
    """Return the files of a group, in the order in which the catalogue has them."""
    facts: list[dict[str, Any]] = CATALOGUE["files"][group]
    lists = ("stored", "content", "urls")
    return tuple(DataFile(**{**file, **{key: tuple(file.get(key, ())) for key in lists}}) for file in facts)
