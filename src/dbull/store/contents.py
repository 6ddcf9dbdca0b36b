"""The files of one generation: checked, read, and told apart from those that its parent has already."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from dbull.documents import dump_document, parse_document
from dbull.errors import ModelFileError, SettingsError
from dbull.store.checkpoint import OWN_KINDS, Checkpoint
from dbull.store.eventlog import own_events, parse_events
from dbull.store.layout import (
    DOCUMENT_BYTES,
    EVENTS,
    LEARNED,
    MANIFEST,
    MANIFEST_HASH,
    check_file,
    damaged,
    generation_name,
    hash_bytes,
    listing,
    read_bounded,
)
from dbull.store.learned import read_inputs
from dbull.store.manifest import FileRecord, Manifest
from dbull.store.tensors import pack_tensors, read_header, read_tensors


def pack_files(checkpoint: Checkpoint) -> dict[str, bytes]:
    """Return the files of a checkpoint's tensors and documents."""
    files: dict[str, bytes] = {
        f"{name}.safetensors": pack_tensors(group, name) for name, group in checkpoint.tensors.items()
    }
    return files | {
        f"{name}.json": dump_document(value, f"{name}.json") for name, value in checkpoint.documents.items()
    }


def shared(
    model: Path, before: Manifest | None, number: int, files: Mapping[str, bytes]
) -> dict[str, FileRecord]:
    """Return the records of all files; one that the parent has with the same content is not written again.

    Only what the parent lists is referred to: pruning keeps it as long as a kept generation lists it.
    """
    records = {}
    for name, data in sorted(files.items()):
        if len(data) > DOCUMENT_BYTES and not name.endswith(".safetensors"):
            raise SettingsError(
                f"{name}: {len(data)} bytes, at most {DOCUMENT_BYTES} are allowed; use tensors"
            )
        record = FileRecord(len(data), hash_bytes(data), number)
        known = None if before is None else before.files.get(name)
        if before is not None and known is not None and known.sha256 == record.sha256:
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
        if os.path.islink(path.parent):
            raise damaged(path.parent, "is a symbolic link, not a folder of this model")
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
    for name in listing(folder):
        if name not in own and name not in (MANIFEST, MANIFEST_HASH):
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
            documents[stem] = parse_document(read_bounded(path, DOCUMENT_BYTES), str(path))
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
