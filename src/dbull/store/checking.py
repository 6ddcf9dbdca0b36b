"""Looking over a whole model folder: every generation, their order, and the event log."""

from __future__ import annotations

import os
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from dbull.errors import DbullError, ModelFileError
from dbull.store.contents import check_listing, pruned_files, read_checkpoint, verify_files
from dbull.store.eventlog import own_events
from dbull.store.layout import EVENTS, WRITING, generation_number, oddity, open_regular
from dbull.store.learned import known_inputs
from dbull.store.manifest import Manifest, chained, read_manifest
from dbull.store.writing import is_gone

if TYPE_CHECKING:
    from dbull.store.folder import ModelFolder


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
    oldest: int = 1  # generations before this one were pruned, as was asked for

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
    manifests: dict[int, Manifest] = {}
    oldest = max((e.manifest.oldest for e in folder.history() if e.manifest is not None), default=1)
    seen: set[Path] = set()
    for number in numbers:
        try:
            manifest = read_manifest(folder.path, number)
            if number >= oldest:
                verify_files(folder.path, manifest, seen)
                read_checkpoint(folder.path, manifest)
            else:
                check_listing(folder.path, manifest)
                own_events(folder.path, manifest)
            manifests[number] = manifest
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
    notes += [*left_behind, *_unremoved(folder, manifests, oldest)]
    odd, strange = _strangers(folder)
    sound = tuple(number for number in manifests if number >= oldest)
    return CheckReport(tuple(numbers), sound, (*problems, *odd), (*notes, *strange), oldest)


def _needed(folder: ModelFolder) -> set[int]:
    """Return the generations that the newest rests on, or all of them where it cannot be told."""
    try:
        return {manifest.generation for manifest in folder.lineage()}
    except DbullError:
        return set(folder.generations())


def _check_order(folder: ModelFolder, numbers: list[int], manifests: dict[int, Manifest]) -> list[Finding]:
    found = []
    for before, after in pairwise([0, *numbers]):
        if after > before + 1:
            what = "generation is" if after == before + 2 else f"generations up to {after - 1} are"
            text = f"the {what} missing; bring back from a copy what was there"
            found.append(Finding(folder.folder(before + 1), text, before + 1))
    for number, manifest in manifests.items():
        path = folder.folder(number)
        last = manifests.get(manifest.rests_on or 0)
        own = manifest.files[EVENTS].sha256 if EVENTS in manifest.files else b""
        if manifest.base != number and (last is not None or manifest.rests_on is None):
            past, base = ("", None) if last is None else (last.log_sha256, last.base)
            if (chained(past, own), base) != (manifest.log_sha256, manifest.base):
                found.append(Finding(path, "does not go on from the past that it names", number))
        if manifest.parent not in manifests:
            continue
        parent = manifests[manifest.parent]
        if manifest.parent_sha256 is not None and manifest.parent_sha256 != parent.sha256:
            text = f"was not written on top of generation {manifest.parent}: one is from another model"
            found.append(Finding(path, text, number))
        for name, now, then in (
            ("ids given", manifest.ids_given, parent.ids_given),
            ("as the oldest generation", manifest.oldest, parent.oldest),
        ):
            if now < then:
                text = f"{now} {name}, {then} in its parent: it fell, which it never does"
                found.append(Finding(path, text, number))
        if manifest.parent_sha256 is not None and manifest.log_offset != parent.log_end:
            found.append(Finding(path, "its events do not follow those of its parent in the log", number))
    if numbers and numbers[-1] in manifests and not found:
        try:
            known_inputs(folder.path, manifests[numbers[-1]])
        except ModelFileError as error:
            found.append(Finding(folder.folder(numbers[-1]), str(error), numbers[-1]))
    return found


def _check_log(
    folder: ModelFolder, numbers: list[int], manifests: dict[int, Manifest]
) -> tuple[list[Finding], list[Finding]]:
    path = folder.path / EVENTS
    remake = "delete it, and the next write makes it anew"
    if not any(manifest.n_events for manifest in manifests.values()) and not os.path.lexists(path):
        return [], []
    if os.path.lexists(path) and (what := oddity(os.lstat(path))) is not None:
        return [Finding(path, f"{what}; {remake}")], []
    try:
        log = os.fdopen(open_regular(path), "rb")
    except ModelFileError:
        return [], [Finding(path, "is missing; the next write makes it anew")]
    with log:
        size = os.fstat(log.fileno()).st_size
        behind = []
        for number, manifest in manifests.items():
            text = own_events(folder.path, manifest)
            log.seek(min(manifest.log_offset, size))
            found = log.read(len(text))
            if text.startswith(found) and manifest.log_offset + len(found) >= size:
                behind += [number] if found != text else []
            elif found != text:
                where = f"at byte {manifest.log_offset}"
                problem = f"has other than the events of generation {number} {where}; {remake}"
                return [Finding(path, problem, number)], []
    if behind:
        note = f"lacks the events of generations {behind}; the next write adds them"
        return [], [Finding(path, note)]
    newest = manifests.get(numbers[-1])
    if newest is not None and size > newest.log_end:
        problem = (
            f"goes on after generation {numbers[-1]}: a later generation was removed, or the log was edited; "
            f"bring the generation back, or {remake}"
        )
        return [Finding(path, problem)], []
    return [], []


def _unremoved(folder: ModelFolder, manifests: dict[int, Manifest], oldest: int) -> list[Finding]:
    """Return the pruned generations that still have files which nothing needs."""
    needed = {m.path(folder.path, name) for n, m in manifests.items() if n >= oldest for name in m.files}
    return [
        Finding(folder.folder(number), "was pruned, and the next prune removes what is left of it", number)
        for number in manifests
        if number < oldest and any(map(os.path.lexists, pruned_files(folder.path, number, needed)))
    ]


def _strangers(folder: ModelFolder) -> tuple[list[Finding], list[Finding]]:
    """Return what is wrong, and what is worth knowing, about everything beside the generations."""
    problems, notes = [], []
    names = sorted(os.listdir(folder.path)) if folder.path.is_dir() else []
    for name in names:
        path = folder.path / name
        what = oddity(os.lstat(path))
        if name == WRITING:
            if os.path.islink(path) or not path.is_dir():
                problems.append(Finding(path, f"{what or 'is a file'}; remove it, or nothing can be written"))
            else:
                notes += [_unfinished(path / inner) for inner in sorted(os.listdir(path))]
        elif name.startswith(".tmp-"):
            notes.append(Finding(path, "was left by an earlier dbull; remove it"))
        elif name.startswith("gen-") and generation_number(name) is None:
            notes.append(Finding(path, "has the name of a generation almost; nothing reads it"))
        elif name != EVENTS and generation_number(name) is None and what is not None and not path.is_dir():
            notes.append(Finding(path, f"{what}; nothing reads it"))
    return problems, notes


def _unfinished(path: Path) -> Finding:
    gone = is_gone(path.name)
    if gone is None:
        return Finding(path, "is being written elsewhere, or was left there; `prune --leftovers` removes it")
    left = "left by a writer that is gone; the next write removes it"
    return Finding(path, left if gone else "a generation being written")
