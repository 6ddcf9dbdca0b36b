"""Removing the tensors and documents of old generations; their manifests, events and learned inputs stay.

First a generation is written that says which is the oldest to be kept. From then on a writer or a rollback
that does not know of it is in conflict, so that nobody can come to need what is removed afterwards. A file
that was not listed by a kept generation then will never be listed again: whoever was stopped in between may
go on at any time, and the next one finishes what was left.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from dbull.errors import ModelFileError
from dbull.store.layout import EVENTS, LEARNED, generation_name
from dbull.store.manifest import Manifest, read_manifest

KEPT = (EVENTS, LEARNED)


def remove_pruned(model: Path, newest: Manifest) -> int:
    """Remove what no generation from `newest.oldest` on needs, and return how many files that were.

    Goes down to the first generation whose files are gone, then up: what is left by a kill is always next to
    the oldest that is kept, and the cost does not grow with those that were pruned long ago.
    """
    needed: set[Path] = set()
    for number in range(newest.oldest, newest.generation + 1):
        if os.path.lexists(model / generation_name(number)):
            try:
                manifest = read_manifest(model, number)
            except ModelFileError:  # which files it needs cannot be told; it may come back from a copy
                return 0
            needed |= {manifest.path(model, name) for name in manifest.files}
    waiting: list[list[Path]] = []
    for number in range(newest.oldest - 1, 0, -1):
        unneeded = pruned_files(model, number, needed)
        there = [path for path in unneeded if os.path.lexists(path)]
        if unneeded and not there:
            break
        waiting.append(there)
    count = 0
    for paths in reversed(waiting):
        for path in paths:
            if not os.path.islink(path.parent):  # never remove through a link
                with suppress(FileNotFoundError):
                    os.unlink(path)
                    count += 1
    return count


def pruned_files(model: Path, number: int, needed: set[Path]) -> list[Path]:
    """Return the files of a pruned generation that are to be gone."""
    try:
        manifest = read_manifest(model, number)
    except ModelFileError:  # missing or damaged: nothing is known of its files
        return []
    own = [manifest.path(model, name) for name in manifest.files if name not in KEPT]
    return [path for path in own if path not in needed]
