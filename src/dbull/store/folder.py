"""The model folder: commit, load, history and rollback over immutable generations.

Readers never lock: a generation that has its name is whole and never changes. Writers do not lock either:
each says on which generation it builds, and the one that comes second is told so.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from dbull.errors import ConflictError, ModelFileError, ModelWriteError, SettingsError
from dbull.lifelong.records import plain
from dbull.store.checking import CheckReport, check_folder
from dbull.store.checkpoint import Checkpoint
from dbull.store.comparison import Difference, compare
from dbull.store.documents import dump_document, parse_document
from dbull.store.eventlog import event_lines, read_events, sync_log
from dbull.store.layout import (
    DOCUMENT_BYTES,
    EVENTS,
    LEARNED,
    MANIFEST,
    MANIFEST_HASH,
    check_hash,
    check_size,
    damaged,
    generation_name,
    generation_number,
    hash_bytes,
    read_bounded,
)
from dbull.store.learned import LearnedRecord, add_learned, dump_learned, read_learned
from dbull.store.manifest import FileRecord, Manifest, read_manifest, running_versions, wrap_manifest
from dbull.store.tensors import pack_tensors, read_header, read_tensors
from dbull.store.writing import publish

__all__ = ["HistoryEntry", "Loaded", "ModelFolder"]

# Ids kept free for each generation whose manifest cannot be read, when a rollback goes over it.
IDS_PER_LOST_GENERATION = 1000


@dataclass(frozen=True)
class Loaded:
    """A generation as read back: the checkpoint that was given, and its manifest."""

    checkpoint: Checkpoint
    manifest: Manifest

    @property
    def generation(self) -> int:
        """Number of the generation; the `parent` of the next commit."""
        return self.manifest.generation


@dataclass(frozen=True)
class HistoryEntry:
    """One line of the history; the manifest, or what is wrong with it."""

    generation: int
    manifest: Manifest | None
    problem: str | None = None


class ModelFolder:
    """A model on disk.

    >>> folder = ModelFolder("model")                                    # doctest: +SKIP
    >>> folder.commit(Checkpoint(documents={"clusters": {}}), parent=None)
    >>> loaded = folder.load()
    >>> folder.commit(changed, parent=loaded.generation)
    """

    def __init__(self, path: str | os.PathLike[str]):
        self.path = Path(path)

    def generations(self) -> list[int]:
        """Return the numbers of all generations, oldest first; empty where there is no model yet."""
        try:
            names = os.listdir(self.path)
        except FileNotFoundError:
            return []
        except OSError as error:
            raise ModelFileError(
                f"{self.path}: cannot be read as a folder ({error.strerror}); name the folder of a model"
            ) from error
        return sorted(number for name in names if (number := generation_number(name)) is not None)

    def latest(self) -> int | None:
        """Return the newest generation, None where there is no model yet."""
        return max(self.generations(), default=None)

    def check_writable(self) -> None:
        """Refuse early a folder in which nothing can be written, so that no work is lost by it.

        Raises
        ------
        ModelWriteError
            if the system says that the folder, or the one that it would be made in, cannot be written to
        """
        place = self.path.absolute()
        while not os.path.lexists(place) and place != place.parent:
            place = place.parent
        if os.path.isdir(place) and not os.access(place, os.W_OK | os.X_OK):
            raise ModelWriteError(
                f"{self.path}: cannot be written, since {place} is not writable; make it so, or put the "
                "model in a place that is"
            )

    def manifest(self, generation: int | None = None) -> Manifest:
        """Return the manifest of a generation, the newest if none is named."""
        number = self._number(generation)
        return read_manifest(self.folder(number), number)[0]

    def folder(self, generation: int) -> Path:
        """Return the folder of a generation."""
        return self.path / generation_name(generation)

    def verify(self, generation: int | None = None) -> Manifest:
        """Check that every file of a generation is there and as it was written, and that there is no other.

        Nothing larger than the manifest is held in memory.
        """
        manifest = self.manifest(generation)
        folder = self.folder(manifest.generation)
        for name in _listing(folder):
            if name not in manifest.files and name not in (MANIFEST, MANIFEST_HASH):
                raise ModelFileError(
                    f"{folder / name}: does not belong to this generation; move it elsewhere"
                )
        for name, record in manifest.files.items():
            limit = None if name.endswith(".safetensors") else DOCUMENT_BYTES
            check_size(folder / name, record.bytes, limit=limit)
        for name, record in manifest.files.items():
            check_hash(folder / name, record.sha256)
        for name in manifest.files:
            if name.endswith(".safetensors"):
                read_header(folder / name)
        return manifest

    def load(self, generation: int | None = None) -> Loaded:
        """Return a generation, the newest if none is named, after `verify`: all of it or an error.

        Raises
        ------
        ModelFileError
            if there is no such generation, or anything about it is not as it was written
        """
        manifest = self.verify(generation)
        folder = self.folder(manifest.generation)
        groups, documents = {}, {}
        for name in manifest.files:
            stem, _, suffix = name.rpartition(".")
            if suffix == "safetensors":
                groups[stem] = read_tensors(folder / name)
            elif name not in (EVENTS, LEARNED):
                documents[stem] = parse_document(
                    read_bounded(folder / name, DOCUMENT_BYTES), str(folder / name)
                )
        read_learned(folder)
        events = read_events(folder, manifest)
        checkpoint = Checkpoint(
            tensors=groups,
            documents=documents,
            events=[{key: value for key, value in e.items() if key != "generation"} for e in events],
            settings=manifest.settings,
            data_schema=manifest.data_schema,
            encoder_fingerprint=manifest.encoder_fingerprint,
            learned_inputs=manifest.learned_inputs,
            ids_given=manifest.ids_given,
            note=manifest.note,
            time=manifest.time,
        )
        return Loaded(checkpoint, manifest)

    def commit(self, checkpoint: Checkpoint, parent: int | None, *, again: bool = False) -> Manifest:
        """Write the next generation on top of `parent` (None for a new model) and return its manifest.

        When this returns, the generation is on disk. When it raises, the model is as it was, with two
        exceptions: after an interrupt, or if the disk fails to confirm the last step (the message says so),
        the generation may be there, whole.

        Parameters
        ----------
        parent
            The generation that the checkpoint goes on from.
        again
            Accept inputs that the model has learned before.

        Raises
        ------
        ConflictError
            if the model has gone on from `parent` already
        AlreadyLearnedError
            if one of the learned inputs was learned before
        ModelWriteError
            if the file system refuses
        """
        self._check_parent(parent)
        number = 1 if parent is None else parent + 1
        before, before_sha256, learned = None, None, {}
        if parent is not None:
            before, before_sha256 = read_manifest(self.folder(parent), parent)
            self._check(before, LEARNED)
            learned = read_learned(self.folder(parent))
        learned = add_learned(learned, checkpoint.learned_inputs, number, again=again)
        files: dict[str, bytes] = {
            f"{name}.safetensors": pack_tensors(group, name) for name, group in checkpoint.tensors.items()
        }
        files |= {
            f"{name}.json": dump_document(value, f"{name}.json")
            for name, value in checkpoint.documents.items()
        }
        files |= {
            LEARNED: dump_learned(learned),
            EVENTS: event_lines(number, checkpoint.events),
        }
        for name, data in files.items():
            if len(data) > DOCUMENT_BYTES and not name.endswith(".safetensors"):
                raise SettingsError(
                    f"{name}: {len(data)} bytes, at most {DOCUMENT_BYTES} are allowed; use tensors"
                )
        manifest = Manifest(
            generation=number,
            parent=parent,
            parent_sha256=before_sha256,
            restores=None,
            versions=running_versions(),
            note=checkpoint.note,
            time=checkpoint.time,
            settings=plain(checkpoint.settings, "settings"),
            data_schema=plain(checkpoint.data_schema, "data_schema"),
            encoder_fingerprint=checkpoint.encoder_fingerprint,
            learned_inputs=tuple(checkpoint.learned_inputs),
            ids_given=max(checkpoint.ids_given, 0 if before is None else before.ids_given),
            n_events=len(checkpoint.events),
            log_offset=0 if before is None else before.log_end,
            files={name: FileRecord(len(data), hash_bytes(data)) for name, data in sorted(files.items())},
        )
        self._publish(manifest, files)
        return manifest

    def rollback(self, to: int, *, note: str = "", time: str | None = None) -> Manifest:
        """Bring back generation `to` as a new one. Nothing is deleted; ids given since are not given again.

        Also goes over generations that are damaged, as long as `to` is sound.
        """
        target = self.verify(to)
        *earlier, newest = self.history()
        latest, number = newest.generation, newest.generation + 1
        if to == latest:
            others = [entry.generation for entry in earlier]
            raise SettingsError(f"generation {to} is the newest already; earlier ones are {_ranges(others)}")
        line: dict[str, Any] = {"kind": "rollback", "restores": to, "time": time, "note": note}
        text = event_lines(number, [line])
        files = {name: self._content(target, name) for name in target.files} | {EVENTS: text}
        manifest = replace(
            target,
            generation=number,
            parent=latest,
            parent_sha256=None if newest.manifest is None else read_manifest(self.folder(latest), latest)[1],
            restores=to,
            versions=running_versions(),
            note=note,
            time=time,
            learned_inputs=(),
            ids_given=_ids_given_ever([*earlier, newest]),
            n_events=1,
            log_offset=self._log_end([*earlier, newest]),
            files={**target.files, EVENTS: FileRecord(len(text), hash_bytes(text))},
        )
        self._publish(manifest, files)
        return manifest

    def history(self) -> list[HistoryEntry]:
        """Return every generation, oldest first; a damaged one with what is wrong instead of a manifest."""
        entries = []
        for number in self.generations():
            try:
                entries.append(HistoryEntry(number, self.manifest(number)))
            except ModelFileError as error:
                entries.append(HistoryEntry(number, None, str(error)))
        return entries

    def lineage(self, generation: int | None = None) -> Iterator[Manifest]:
        """Yield the generations that a generation rests on, newest first, without those rolled back."""
        number: int | None = self._number(generation)
        while number is not None:
            if not os.path.lexists(self.folder(number)):
                raise ModelFileError(
                    f"{self.folder(number)}: the generation is missing, and later ones rest on it; "
                    "bring it back from a copy"
                )
            manifest = self.manifest(number)
            yield manifest
            number = manifest.parent if manifest.restores is None else manifest.restores

    def events(self, generation: int | None = None, *, abandoned: bool = False) -> list[dict[str, Any]]:
        """Return what happened up to a generation, oldest first, each event with its ``generation``.

        Events of generations that were rolled back, and the rollbacks themselves, only if `abandoned`.
        """
        if abandoned:
            newest = self._number(generation)
            manifests = [self.manifest(number) for number in self.generations() if number <= newest]
        else:
            manifests = [m for m in self.lineage(generation) if m.restores is None][::-1]
        found = []
        for manifest in manifests:
            self._check(manifest, EVENTS)
            found += read_events(self.folder(manifest.generation), manifest)
        return found

    def learned(self, generation: int | None = None) -> dict[str, LearnedRecord]:
        """Return the inputs that a generation has learned, by the SHA-256 of their content."""
        manifest = self.manifest(generation)
        self._check(manifest, LEARNED)
        return read_learned(self.folder(manifest.generation))

    def diff(self, a: int, b: int) -> Difference:
        """Return what generation `b` has different from generation `a`."""
        return compare(self.load(a), self.load(b), self.learned(a), self.learned(b))

    def check(self) -> CheckReport:
        """Verify every generation, their order and the event log; list what is wrong and how to mend it."""
        return check_folder(self)

    def _number(self, generation: int | None) -> int:
        latest = self.latest()
        if latest is None:
            raise ModelFileError(
                f"{self.path}: there is no model here; name the folder of a model, or learn one"
            )
        number = latest if generation is None else generation
        if not isinstance(number, int) or isinstance(number, bool):
            raise SettingsError(f"a generation is a whole number, got {number!r:.50}")
        if generation_number(generation_name(number)) is None or not os.path.lexists(self.folder(number)):
            raise SettingsError(
                f"{self.path}: there is no generation {number}; there are {_ranges(self.generations())}"
            )
        return number

    def _check_parent(self, parent: int | None) -> None:
        latest = self.latest()
        if latest == parent:
            return
        if parent is not None and (latest is None or latest < parent):
            raise ModelFileError(f"{self.path}: generation {parent} is gone; load the model again")
        raise ConflictError(
            f"{self.path}: another process has written generation {latest} since this run began at "
            f"{'an empty folder' if parent is None else parent}; nothing was added: "
            "load the model again and repeat"
        )

    def _publish(self, manifest: Manifest, files: dict[str, Any]) -> None:
        data = manifest.to_bytes()
        publish(self.path, manifest.generation, {**files, MANIFEST: data, MANIFEST_HASH: wrap_manifest(data)})
        # The generation is there now. The log is made from generations, by the next writer at the latest.
        with suppress(OSError):
            sync_log(self.path, manifest.generation, self.manifest)

    def _check(self, manifest: Manifest, name: str) -> Path:
        path, record = self.folder(manifest.generation) / name, manifest.files[name]
        check_size(path, record.bytes)
        check_hash(path, record.sha256)
        return path

    def _content(self, manifest: Manifest, name: str) -> bytes:
        path, record = self.folder(manifest.generation) / name, manifest.files[name]
        data = read_bounded(path, record.bytes)
        if hash_bytes(data) != record.sha256:
            raise damaged(path, "its content has changed")
        return data

    def _log_end(self, entries: list[HistoryEntry]) -> int:
        """Return where the log goes on, also if the newest manifest, which would tell, is lost."""
        newest = entries[-1].manifest
        if newest is not None:
            return newest.log_end
        log = self.path / EVENTS
        size = os.path.getsize(log) if os.path.isfile(log) else 0
        return max([size, *(entry.manifest.log_end for entry in entries if entry.manifest is not None)])


def _ids_given_ever(entries: list[HistoryEntry]) -> int:
    given = [entry.manifest.ids_given for entry in entries if entry.manifest is not None]
    return max(given, default=0) + IDS_PER_LOST_GENERATION * (len(entries) - len(given))


def _ranges(numbers: list[int]) -> str:
    """Return numbers, oldest first, as text: 1 to 4, 7."""
    parts: list[list[int]] = []
    for number in numbers:
        if parts and parts[-1][-1] == number - 1:
            parts[-1][1:] = [number]
        else:
            parts.append([number])
    return ", ".join(" to ".join(map(str, part)) for part in parts) or "none"


def _listing(folder: Path) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except OSError as error:
        raise damaged(folder, f"cannot be read ({error.strerror})") from error
