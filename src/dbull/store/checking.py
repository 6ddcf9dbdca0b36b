"""Looking over a whole model folder: every generation, their order, and the event log."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from dbull.errors import DbullError, ModelFileError
from dbull.store.layout import EVENTS, generation_number
from dbull.store.manifest import Manifest, read_manifest
from dbull.store.writing import is_leftover

if TYPE_CHECKING:
    from dbull.store.folder import ModelFolder

__all__ = ["CheckReport", "Finding", "check_folder"]


@dataclass(frozen=True)
class Finding:
    """Something about a file that is wrong, or only worth knowing, with what to do."""

    path: Path
    text: str
    generation: int | None = None


@dataclass(frozen=True)
class CheckReport:
    """What a check found. Notes do not touch the model; problems do."""

    generations: tuple[int, ...]
    sound: tuple[int, ...]  # generations that load
    problems: tuple[Finding, ...]
    notes: tuple[Finding, ...]

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong."""
        return not self.problems


def check_folder(folder: ModelFolder) -> CheckReport:
    """Check everything; an error of one generation does not hide those of the others."""
    numbers = folder.generations()
    problems: list[Finding] = []
    left_behind: list[Finding] = []
    needed = _needed(folder)
    manifests: dict[int, tuple[Manifest, str]] = {}
    sound = []
    for number in numbers:
        try:
            folder.load(number)
            manifests[number] = read_manifest(folder.folder(number), number)
            sound.append(number)
        except ModelFileError as error:
            path = folder.folder(number)
            if number in needed:
                problems.append(Finding(path, str(error), number))
            else:
                what = str(error).partition(";")[0]
                text = f"a rollback left it behind, damaged, and the model does not need it ({what})"
                left_behind.append(Finding(path, text, number))
    problems += _check_order(folder, numbers, manifests)
    log_problems, notes = _check_log(folder, numbers, manifests)
    problems += log_problems
    notes += [*left_behind, *_strangers(folder)]
    return CheckReport(tuple(numbers), tuple(sound), tuple(problems), tuple(notes))


def _needed(folder: ModelFolder) -> set[int]:
    """Return the generations that the newest rests on, or all of them where it cannot be told."""
    try:
        return {manifest.generation for manifest in folder.lineage()}
    except DbullError:
        return set(folder.generations())


def _check_order(
    folder: ModelFolder, numbers: list[int], manifests: dict[int, tuple[Manifest, str]]
) -> list[Finding]:
    found = []
    for missing in sorted(set(range(1, max(numbers, default=0))) - set(numbers)):
        text = "the generation is missing; bring it back from a copy"
        found.append(Finding(folder.folder(missing), text, missing))
    for number, (manifest, _) in manifests.items():
        path = folder.folder(number)
        if manifest.parent not in manifests:
            continue
        parent, sha256 = manifests[manifest.parent]
        if manifest.parent_sha256 is not None and manifest.parent_sha256 != sha256:
            text = f"was not written on top of generation {manifest.parent}: one is from another model"
            found.append(Finding(path, text, number))
        if manifest.ids_given < parent.ids_given:
            text = (
                f"{manifest.ids_given} ids given, {parent.ids_given} in its parent: ids could be given twice"
            )
            found.append(Finding(path, text, number))
        if manifest.parent_sha256 is not None and manifest.log_offset != parent.log_end:
            found.append(Finding(path, "its events do not follow those of its parent in the log", number))
    return found


def _check_log(
    folder: ModelFolder, numbers: list[int], manifests: dict[int, tuple[Manifest, str]]
) -> tuple[list[Finding], list[Finding]]:
    path = folder.path / EVENTS
    remake = "delete it, and the next write makes it anew"
    if not numbers:
        return [], []
    size = os.path.getsize(path) if os.path.isfile(path) else 0
    behind = []
    for number, (manifest, _) in manifests.items():
        text = (folder.folder(number) / EVENTS).read_bytes()
        found = _part(path, manifest.log_offset, len(text)) if size else b""
        if found == text:
            continue
        if text.startswith(found) and manifest.log_offset + len(found) >= size:
            behind.append(number)
        else:
            problem = (
                f"has other than the events of generation {number} at byte {manifest.log_offset}; {remake}"
            )
            return [Finding(path, problem, number)], []
    if behind:
        note = f"lacks the events of generations {behind}; the next write adds them"
        return [], [Finding(path, note)]
    newest = manifests.get(numbers[-1])
    if newest is not None and size > newest[0].log_end:
        problem = (
            f"goes on after generation {numbers[-1]}: a later generation was removed, or the log was edited; "
            f"bring the generation back, or {remake}"
        )
        return [Finding(path, problem)], []
    return [], []


def _part(path: Path, offset: int, length: int) -> bytes:
    with open(path, "rb") as log:
        log.seek(offset)
        return log.read(length)


def _strangers(folder: ModelFolder) -> list[Finding]:
    notes = []
    for path in sorted(folder.path.iterdir()) if folder.path.is_dir() else []:
        if path.name.startswith(".tmp-"):
            state = "left by a writer that is gone; the next write removes it"
            notes.append(Finding(path, state if is_leftover(path) else "a generation being written"))
        elif path.name.startswith("gen-") and generation_number(path.name) is None:
            notes.append(Finding(path, "has the name of a generation almost; nothing reads it"))
    return notes
