"""What the generations of a folder tell together, also where some of them are damaged."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from dbull.store.layout import EVENTS
from dbull.store.manifest import Manifest

# Ids kept free for each generation whose manifest cannot be read, when a rollback goes over it.
IDS_PER_LOST_GENERATION = 1000


@dataclass(frozen=True)
class HistoryEntry:
    """One line of the history; the manifest, or what is wrong with it."""

    generation: int
    manifest: Manifest | None
    problem: str | None = None


def ids_given_ever(entries: list[HistoryEntry]) -> int:
    """Return how many ids were given at most."""
    given = [entry.manifest.ids_given for entry in entries if entry.manifest is not None]
    return max(given, default=0) + IDS_PER_LOST_GENERATION * (len(entries) - len(given))


def log_end(model: Path, entries: list[HistoryEntry]) -> int:
    """Return where the log goes on, also if the newest manifest, which would tell, is lost."""
    newest = entries[-1].manifest
    if newest is not None:
        return newest.log_end
    log = model / EVENTS
    size = os.lstat(log).st_size if os.path.isfile(log) and not os.path.islink(log) else 0
    return max([size, *(entry.manifest.log_end for entry in entries if entry.manifest is not None)])
