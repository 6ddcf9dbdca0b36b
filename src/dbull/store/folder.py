"""The model folder: commit, load, history and rollback over immutable generations.

Readers never lock: a generation that has its name is whole and never changes. Writers do not lock either:
each says on which generation it builds, and the one that comes second is told so.
"""

import logging
import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from dbull.documents import plain
from dbull.errors import ConflictError, DbullError, ModelFileError, SettingsError
from dbull.store import layout
from dbull.store.checking import CheckReport, check_folder
from dbull.store.checkpoint import OWN_KINDS, Checkpoint
from dbull.store.comparison import Difference, compare
from dbull.store.contents import file_records, pack_files, read_checkpoint, remove_pruned, verify_files
from dbull.store.eventlog import ancestor, event_lines, own_events, parse_events, past_events, sync_log
from dbull.store.layout import EVENTS, generation_name, generation_number, ranges
from dbull.store.learned import LearnedRecord, known_inputs, learned_lines, refuse_known, remember
from dbull.store.manifest import FileRecord, Manifest, chained, read_manifest, wrap_manifest
from dbull.store.writing import check_writable, publish, remove_leftovers

_log = logging.getLogger(__name__)
# Ids kept free for each generation whose manifest cannot be read, when a rollback goes over it.
IDS_PER_LOST_GENERATION = 1000


@dataclass(frozen=True)
class HistoryEntry:
    """One line of the history; the manifest, or what is wrong with it."""

    generation: int
    manifest: Manifest | None
    problem: str | None = None


@dataclass(frozen=True)
class Loaded:
    """A generation as read back: the checkpoint that was given, and its manifest."""

    checkpoint: Checkpoint
    manifest: Manifest

    @property
    def generation(self) -> int:
        """Number of the generation."""
        return self.manifest.generation


class ModelFolder:
    """A model on disk.

    >>> folder = ModelFolder("model")                                    # doctest: +SKIP
    >>> folder.commit(Checkpoint(documents={"clusters": {}}), parent=None)
    >>> loaded = folder.load()
    >>> folder.commit(changed, parent=loaded.manifest)
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

    def number(self, generation: int | None = None) -> int:
        """Return the number of a generation, the newest if none is named; refuse what is not there."""
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
                f"{self.path}: there is no generation {number}; there are {ranges(self.generations())}"
            )
        return number

    def check_writable(self) -> None:
        """Refuse early, by ModelWriteError, a folder that cannot be written to, so that no work is lost."""
        check_writable(self.path)

    def manifest(self, generation: int | None = None) -> Manifest:
        """Return the manifest of a generation, the newest if none is named."""
        return read_manifest(self.path, self.number(generation))

    def folder(self, generation: int) -> Path:
        """Return the folder of a generation."""
        return self.path / generation_name(generation)

    def verify(self, generation: int | None = None) -> Manifest:
        """Check that every file of a generation is there and as it was written, and that there is no other.

        Nothing larger than the manifest is held in memory.
        """
        manifest = self.manifest(generation)
        if generation is not None:
            with suppress(ModelFileError):  # a damaged newest says so itself
                oldest = self.manifest().oldest
                if generation < oldest:
                    raise SettingsError(
                        f"{self.path}: generation {generation} was pruned, only its history is left; name "
                        f"one from {oldest} on"
                    )
        verify_files(self.path, manifest)
        return manifest

    def load(self, generation: int | None = None) -> Loaded:
        """Return a generation, the newest if none is named, after `verify`: all of it or an error.

        Raises `ModelFileError` if there is none, or anything about it is not as it was written.
        """
        manifest = self.verify(generation)
        return Loaded(read_checkpoint(self.path, manifest), manifest)

    def commit(
        self,
        checkpoint: Checkpoint,
        parent: Manifest | int | None,
        *,
        again: bool = False,
        keep: int | None = None,
        inherit: bool = False,
    ) -> Manifest:
        """Write the next generation on top of `parent` (None for a new model) and return its manifest.

        When this returns, the generation is on disk. When it raises, the model is as it was, with two
        exceptions: after an interrupt, or if the disk fails to confirm the last step (the message says so),
        the generation may be there, whole. With the manifest of its parent, as loaded or returned by the
        commit before, another model under the same name is noticed; with its number it is not. `keep` is how
        many generations to keep, this one included; see `prune`. With `inherit` the generation also has the
        tensors and documents of its parent that the checkpoint does not name.

        Raises
        ------
        ConflictError
            if the model has gone on from `parent` already, or is another one by now
        AlreadyLearnedError
            if one of the learned inputs was learned before, unless `again`
        ModelWriteError
            if the file system refuses
        """
        _check_keep(keep)
        before = self._parent(parent)
        number, inputs, logged = before.generation + 1, checkpoint.learned_inputs, True
        if inputs and not again:
            known, logged = known_inputs(self.path, before) if before.generation else ({}, True)
            refuse_known(known, inputs)
        files = pack_files(checkpoint)
        records = file_records(self.path, before, number, files)
        if inherit:
            records = before.content | records
        events = [*checkpoint.events, *learned_lines(inputs)]
        text = event_lines(number, events)
        if events:
            files[EVENTS] = text
            records |= file_records(self.path, Manifest(), number, {EVENTS: text})
        manifest = before.next(
            oldest=max(before.oldest, 1 if keep is None else number - keep + 1),
            note=checkpoint.note,
            time=checkpoint.time,
            settings=plain(checkpoint.settings, "settings"),
            data_schema=plain(checkpoint.data_schema, "data_schema"),
            encoder_fingerprint=checkpoint.encoder_fingerprint,
            rows=inputs[0].rows if inputs else 0,
            ids_given=max(checkpoint.ids_given, before.ids_given),
            n_events=len(events),
            log_sha256=chained(before.log_sha256, text),
            offsets={**before.offsets, **plain(checkpoint.offsets, "offsets")},
            files=records,
        )
        manifest = self._publish(manifest, files, anew=not logged)
        remember(manifest.parent_sha256, manifest.sha256, inputs, number)
        if keep is not None:
            with suppress(OSError, DbullError):  # the next commit goes on with it
                remove_pruned(self.path, manifest)
        return manifest

    def rollback(self, to: int, *, note: str = "", time: str | None = None) -> Manifest:
        """Bring back generation `to` as a new one. Nothing is deleted; ids given since are not given again.

        Also goes over generations that are damaged, as long as `to` is sound.
        """
        target = self.verify(to)
        entries = self.history()
        newest = entries[-1]
        if to == newest.generation:
            others = [entry.generation for entry in entries[:-1]]
            raise SettingsError(f"generation {to} is the newest already; earlier ones are {ranges(others)}")
        line = {"kind": "rollback", "restores": to, "time": time, "note": note}
        manifest = target.next(
            parent=newest.generation,
            parent_sha256=None if newest.manifest is None else newest.manifest.sha256,
            restores=to,
            oldest=max(entry.manifest.oldest for entry in entries if entry.manifest is not None),
            note=note,
            time=time,
            ids_given=_ids_given_ever(entries),
            log_offset=_log_end(self.path, entries),
        )
        manifest = replace(manifest, generation=newest.generation + 1)
        return self._repeat(manifest, [line])

    def prune(self, keep: int, *, leftovers: bool = False, note: str = "", time: str | None = None) -> int:
        """Remove tensors and documents of all but the newest `keep` generations; return how many files.

        History, events and learned inputs stay. Which generations are kept is written down first, as a
        generation of its own that has all files of its parent and is the newest of those kept; where no more
        than `keep` are left, only what an earlier pruning has left undone is removed.

        With `leftovers` also what unfinished writers left of whom it cannot be known here whether they still
        run: those of other machines and containers. Only if none of them writes at the moment.
        """
        _check_keep(keep)
        newest = self.verify()
        if newest.generation - newest.oldest + 1 > keep:
            oldest = newest.generation + 2 - keep
            newest = self._repeat(newest.next(oldest=oldest, note=note, time=time), [])
        if leftovers:
            with suppress(FileNotFoundError):
                remove_leftovers(self.path, of_others=True)
        return remove_pruned(self.path, newest)

    def history(self) -> list[HistoryEntry]:
        """Return every generation, oldest first; a damaged one with what is wrong instead of a manifest."""
        entries = []
        for number in self.generations():
            try:
                entries.append(HistoryEntry(number, read_manifest(self.path, number)))
            except ModelFileError as error:
                entries.append(HistoryEntry(number, None, str(error)))
        return entries

    def lineage(self, generation: int | None = None) -> Iterator[Manifest]:
        """Yield the generations that a generation rests on, newest first, without those rolled back."""
        manifest = self.manifest(generation)
        yield manifest
        while manifest.rests_on is not None:
            manifest = ancestor(self.path, manifest.rests_on)
            yield manifest

    def events(self, generation: int | None = None, *, abandoned: bool = False) -> list[dict[str, Any]]:
        """Return what happened up to a generation, oldest first, each event with its ``generation``.

        Events of generations that were rolled back, and the rollbacks themselves, only if `abandoned`.
        """
        newest = self.manifest(generation)
        parts: list[tuple[int, bytes]] = []
        if abandoned:
            numbers = [number for number in self.generations() if number <= newest.generation]
            parts = [(n, own_events(self.path, read_manifest(self.path, n))) for n in numbers]
        else:
            if newest.base is not None:
                old = list(self.lineage(newest.base))[::-1]
                parts = [(m.generation, own_events(self.path, m)) for m in old]
            parts += past_events(self.path, newest)[0]
        hidden = ("learned",) if abandoned else OWN_KINDS
        return [
            event
            for number, text in parts
            for event in parse_events(text, number, str(self.folder(number) / EVENTS))
            if event.get("kind") not in hidden
        ]

    def learned(self, generation: int | None = None) -> dict[str, LearnedRecord]:
        """Return the inputs that a generation has learned, by the SHA-256 of their content."""
        return dict(known_inputs(self.path, self.manifest(generation))[0])

    def diff(self, a: int, b: int) -> Difference:
        """Return what generation `b` has different from generation `a`."""
        return compare(self.load(a), self.load(b), self.learned(a), self.learned(b))

    def check(self) -> CheckReport:
        """Verify every generation, their order and the event log; list what is wrong and how to mend it."""
        return check_folder(self)

    def _parent(self, parent: Manifest | int | None) -> Manifest:
        """Return the manifest of a parent as it is on disk, if the next generation can be written on it."""
        number = parent.generation if isinstance(parent, Manifest) else parent
        if number is None:
            if not self.generations():
                return Manifest()
        elif not os.path.lexists(self.folder(number)):
            raise ModelFileError(f"{self.path}: generation {number} is gone; load the model again")
        elif not os.path.lexists(self.folder(number + 1)):
            before = read_manifest(self.path, number)
            if isinstance(parent, Manifest) and parent.sha256 != before.sha256:
                raise ConflictError(
                    f"{self.path}: another model has been put here since this run began; nothing was added: "
                    "load it, or save to another folder"
                )
            return before
        raise ConflictError(
            f"{self.path}: another process has written generation {self.latest()} since this run began at "
            f"{'an empty folder' if number is None else number}; nothing was added: "
            "load the model again and repeat"
        )

    def _repeat(self, manifest: Manifest, lines: list[dict[str, Any]]) -> Manifest:
        """Write a generation that refers to the content of another and has these events of its own."""
        text = event_lines(manifest.generation, lines)
        files = manifest.content
        if lines:
            files[EVENTS] = FileRecord(len(text), layout.hash_bytes(text), manifest.generation)
        manifest = replace(
            manifest, rows=0, n_events=len(lines), log_sha256=chained(manifest.log_sha256, text), files=files
        )
        return self._publish(manifest, {EVENTS: text})

    def _publish(self, manifest: Manifest, files: dict[str, bytes], *, anew: bool = False) -> Manifest:
        data, number = manifest.to_bytes(), manifest.generation
        own = {name: files[name] for name, record in manifest.files.items() if record.generation == number}
        publish(self.path, number, {**own, layout.MANIFEST: data, layout.MANIFEST_HASH: wrap_manifest(data)})
        # The generation is there now. The log is made from generations, by the next writer at the latest.
        manifest = replace(manifest, sha256=layout.hash_bytes(data))
        with suppress(OSError, DbullError):
            sync_log(self.path, manifest, anew=anew)
        _log.info("%s: generation %d is written: %r", self.path, number, manifest.note)
        return manifest


def _check_keep(keep: int | None) -> None:
    if keep is not None and (not isinstance(keep, int) or isinstance(keep, bool) or keep < 1):
        raise SettingsError(f"keep must be a whole number of at least 1, got {keep!r:.50}")


def _ids_given_ever(entries: list[HistoryEntry]) -> int:
    """Return how many ids were given at most."""
    given = [entry.manifest.ids_given for entry in entries if entry.manifest is not None]
    return max(given, default=0) + IDS_PER_LOST_GENERATION * (len(entries) - len(given))


def _log_end(model: Path, entries: list[HistoryEntry]) -> int:
    """Return where the log goes on, also if the newest manifest, which would tell, is lost."""
    newest = entries[-1].manifest
    if newest is not None:
        return newest.log_end
    log = model / EVENTS
    size = os.lstat(log).st_size if os.path.isfile(log) and not os.path.islink(log) else 0
    return max([size, *(entry.manifest.log_end for entry in entries if entry.manifest is not None)])
