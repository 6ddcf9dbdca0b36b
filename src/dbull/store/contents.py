"""The files of generations: told apart from those that the parent has already, checked, read, and removed.

Pruning removes tensors and documents of old generations; manifests, events and learned inputs stay. First a
generation is written that says which is the oldest to be kept. From then on a writer or a rollback that does
not know of it is in conflict, so that nobody can come to need what is removed afterwards. A file that was not
listed by a kept generation then will never be listed again: whoever was stopped in between may go on at any
time, and the next one finishes what was left.
"""

import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from dbull.documents import dump_document, parse_document
from dbull.errors import ModelFileError, SettingsError
from dbull.store import layout
from dbull.store.checkpoint import OWN_KINDS, Checkpoint
from dbull.store.eventlog import own_events, parse_events
from dbull.store.layout import DOCUMENT_BYTES, EVENTS, LEARNED, check_file, damaged, generation_name
from dbull.store.learned import read_inputs
from dbull.store.manifest import FileRecord, Manifest, read_manifest
from dbull.store.tensors import pack_tensors, read_header, read_tensors


def pack_files(checkpoint: Checkpoint) -> dict[str, bytes]:
    """Return the files of a checkpoint's tensors and documents."""
    files: dict[str, bytes] = {
        f"{name}.safetensors": pack_tensors(group, name) for name, group in checkpoint.tensors.items()
    }
    return files | {
        f"{name}.json": dump_document(value, f"{name}.json") for name, value in checkpoint.documents.items()
    }


def file_records(
    model: Path, before: Manifest, number: int, files: Mapping[str, bytes]
) -> dict[str, FileRecord]:
    """Return the records of all files; one that the parent has with the same content is not written again.

    Only what the parent lists is referred to: pruning keeps it as long as a kept generation lists it.
    """
    records = {}
    for name, data in sorted(files.items()):
        size = len(data)
        if size > DOCUMENT_BYTES and not name.endswith(".safetensors"):
            raise SettingsError(f"{name}: {size} bytes, at most {DOCUMENT_BYTES} are allowed; use tensors")
        record = FileRecord(size, layout.hash_bytes(data), number)
        known = before.files.get(name)
        if known is not None and known.sha256 == record.sha256:
            with suppress(ModelFileError):  # damaged since it was loaded: it is written again
                check_file(before.path(model, name), record.bytes, record.sha256)
                record = known
        records[name] = record
    return records


def verify_files(model: Path, manifest: Manifest, seen: set[Path] | None = None) -> None:
    """Check that every file of a generation is as it was written, and that its folder holds no other.

    Nothing larger than the manifest is held in memory. Files in `seen` have been checked before.
    """
    check_listing(model, manifest)
    for name, record in manifest.files.items():
        path = manifest.path(model, name)
        if seen is not None and path in seen:
            continue
        layout.refuse_link(path.parent)
        if record.bytes > DOCUMENT_BYTES and not name.endswith(".safetensors"):
            raise damaged(path, f"{record.bytes} bytes, more than the {DOCUMENT_BYTES} that it may have")
        check_file(path, record.bytes, record.sha256)
        if name.endswith(".safetensors"):
            read_header(path)
        if seen is not None:
            seen.add(path)


def check_listing(model: Path, manifest: Manifest) -> None:
    """Refuse a generation whose folder holds files that are not its own."""
    folder = model / generation_name(manifest.generation)
    own = {name for name, record in manifest.files.items() if record.generation == manifest.generation}
    for name in layout.listing(folder):
        if name not in own and name not in (layout.MANIFEST, layout.MANIFEST_HASH):
            raise ModelFileError(f"{folder / name}: does not belong to this generation; move it elsewhere")


def read_checkpoint(model: Path, manifest: Manifest) -> Checkpoint:
    """Return what was committed as a generation, from files that were verified."""
    groups, documents = {}, {}
    for name, record in manifest.files.items():
        path = manifest.path(model, name)
        stem, _, suffix = name.rpartition(".")
        if suffix == "safetensors":
            groups[stem] = read_tensors(path, record.bytes)
        elif name not in (EVENTS, LEARNED):
            documents[stem] = read_document(model, manifest, stem)
    where = f"{model / generation_name(manifest.generation) / EVENTS}"
    events: list[dict[str, Any]] = parse_events(own_events(model, manifest), manifest.generation, where)
    return Checkpoint(
        tensors=groups,
        documents=documents,
        events=[
            {key: value for key, value in event.items() if key != "generation"}
            for event in events
            if event.get("kind") not in OWN_KINDS
        ],
        settings=manifest.settings,
        data_schema=manifest.data_schema,
        encoder_fingerprint=manifest.encoder_fingerprint,
        learned_inputs=manifest.old_inputs or tuple(read_inputs(events, where)),
        ids_given=manifest.ids_given,
        note=manifest.note,
        time=manifest.time,
    )


def read_document(model: Path, manifest: Manifest, stem: str) -> Any:
    """Return one document of a generation whose files were verified."""
    if f"{stem}.json" not in manifest.files:
        place = model / generation_name(manifest.generation) / stem
        raise ModelFileError(f"{place}.json: is missing; this is no model of dbull's own")
    path = manifest.path(model, f"{stem}.json")
    return parse_document(layout.read_bounded(path, DOCUMENT_BYTES), str(path))


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
    own = [manifest.path(model, name) for name in manifest.files if name not in (EVENTS, LEARNED)]
    return [path for path in own if path not in needed]
