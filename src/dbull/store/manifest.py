"""The manifest of a generation: what it is, where it comes from, and what its files must be."""

from __future__ import annotations

import os
import platform
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

from dbull.documents import (
    Reader,
    check_fields,
    dump_document,
    fail,
    list_of,
    or_none,
    parse_document,
    text,
    whole,
)
from dbull.errors import ModelFileError, SettingsError
from dbull.store.checkpoint import LearnedInput, with_bytes
from dbull.store.layout import (
    EVENTS,
    FORMAT_VERSION,
    LEARNED,
    MANIFEST,
    MANIFEST_BYTES,
    MANIFEST_HASH,
    check_name,
    damaged,
    generation_name,
    hash_bytes,
    is_sha256,
    read_bounded,
)

FORMAT = "dbull-model"


@dataclass(frozen=True)
class FileRecord:
    """Size and content of a file, and in the folder of which generation it lies."""

    bytes: int
    sha256: str
    generation: int


@dataclass(frozen=True)
class Manifest:
    """Everything about a generation but the content of its files."""

    generation: int
    parent: int | None
    parent_sha256: str | None  # of the parent's manifest; None for the first, or over a damaged parent
    restores: int | None  # the generation that this one brings back
    oldest: int  # the lowest generation that was kept when this one was written; never falls
    versions: dict[str, str]
    note: str
    time: str | None
    settings: dict[str, Any]
    data_schema: dict[str, Any]
    encoder_fingerprint: str | None
    rows: int  # of the first input learned in this generation
    ids_given: int
    n_events: int  # lines of its events.jsonl
    log_offset: int  # where the events of this generation begin in the event log of the model
    log_sha256: str  # of the events of all generations that this one rests on, see `chained`
    base: int | None  # the newest generation of format 1 that this one rests on
    files: dict[str, FileRecord]
    old_inputs: tuple[LearnedInput, ...] = ()  # of format 1, which had learned inputs here
    sha256: str = ""  # of manifest.json itself

    @property
    def log_end(self) -> int:
        """Where the events of the next generation begin in the event log."""
        return self.log_offset + (self.files[EVENTS].bytes if EVENTS in self.files else 0)

    @property
    def rests_on(self) -> int | None:
        """The generation whose content and past this one goes on from."""
        return self.parent if self.restores is None else self.restores

    def path(self, model: Path, name: str) -> Path:
        """Return where a file of this generation lies."""
        return model / generation_name(self.files[name].generation) / name

    def to_bytes(self) -> bytes:
        """Return the text of manifest.json."""
        parent = {"generation": self.parent, "manifest_sha256": self.parent_sha256}
        data = dump_document(
            {
                "format": FORMAT,
                "format_version": FORMAT_VERSION,
                "generation": self.generation,
                "parent": None if self.parent is None else parent,
                "restores": self.restores,
                "oldest": self.oldest,
                "versions": self.versions,
                "note": self.note,
                "time": self.time,
                "settings": self.settings,
                "data_schema": self.data_schema,
                "encoder_fingerprint": self.encoder_fingerprint,
                "rows": self.rows,
                "ids_given": self.ids_given,
                "n_events": self.n_events,
                "log_offset": self.log_offset,
                "log_sha256": self.log_sha256,
                "base": self.base,
                "files": {name: vars(record) for name, record in self.files.items()},
            },
            MANIFEST,
        )
        if len(data) > MANIFEST_BYTES:
            raise SettingsError(
                f"settings and data_schema make a manifest of {len(data)} bytes, at most {MANIFEST_BYTES} "
                "are allowed; put long lists into a document"
            )
        return data

    @classmethod
    def from_bytes(cls, data: bytes, where: str) -> Manifest:
        """Read the text of a manifest.json, of this format version or an earlier one."""
        value = parse_document(data, where)
        version, sha256 = _check_format(value, where), hash_bytes(data)
        fields = check_fields(value, where, _READERS if version > 1 else _READERS_1)
        parent = fields.pop("parent") or {"generation": None, "manifest_sha256": None}
        del fields["format"], fields["format_version"]
        number = fields["generation"]
        if version == 1:
            inputs = tuple(fields.pop("learned_inputs"))
            rows = inputs[0].rows if inputs else 0
            fields |= {"old_inputs": inputs, "rows": rows, "oldest": 1, "log_sha256": sha256, "base": number}
            fields["files"] = {
                name: FileRecord(part[0], part[1], number) for name, part in fields["files"].items()
            }
            for needed in (EVENTS, LEARNED):
                if needed not in fields["files"]:
                    fail(f"{where}.files", f"{needed} is not listed")
        manifest = cls(
            parent=parent["generation"], parent_sha256=parent["manifest_sha256"], sha256=sha256, **fields
        )
        if manifest.parent != (number - 1 or None):
            fail(where, f"parent {manifest.parent} of generation {number}")
        for other in (manifest.restores, manifest.base if version > 1 else None):
            if other is not None and not 0 < other < number:
                fail(where, f"generation {number} cannot rest on {other}")
        if not 0 < manifest.oldest <= number:
            fail(where, f"generation {number} cannot have {manifest.oldest} as the oldest")
        for name, record in manifest.files.items():
            lowest = number if name == EVENTS else 1
            if not lowest <= record.generation <= number or (name == LEARNED and version > 1):
                fail(f"{where}.files", f"{name} cannot lie in generation {record.generation}")
        if version > 1 and (manifest.n_events > 0) != (EVENTS in manifest.files):
            fail(where, f"{EVENTS} is listed if there are events, and there are {manifest.n_events}")
        return manifest


def chained(before: str, events: bytes | str) -> str:
    """Return the hash of all events up to a generation, from the one before it and its own events.

    A reader of the log, which holds the events of many generations, compares with one manifest and thereby
    knows all of them to be true; a writer needs only its own.
    """
    own = hash_bytes(events) if isinstance(events, bytes) else events
    return hash_bytes(f"{before}{own}".encode("ascii"))


def wrap_manifest(data: bytes) -> bytes:
    """Return the text of manifest.sha256, in the form of `sha256sum`."""
    return f"{hash_bytes(data)}  {MANIFEST}\n".encode("ascii")


def read_manifest(model: Path, number: int) -> Manifest:
    """Return the manifest of a generation of a model."""
    folder = model / generation_name(number)
    path = folder / MANIFEST
    if os.path.islink(folder):
        raise damaged(folder, "is a symbolic link, not a folder of this model")
    if not os.path.isdir(folder):
        raise damaged(folder, "is not a folder")
    data = read_bounded(path, MANIFEST_BYTES)
    if read_bounded(folder / MANIFEST_HASH, 1024) != wrap_manifest(data):
        raise damaged(path, f"does not agree with {MANIFEST_HASH}: one of the two has changed")
    manifest = Manifest.from_bytes(data, str(path))
    if manifest.generation != number:
        raise damaged(path, f"is that of generation {manifest.generation}: the folder was renamed or copied")
    return manifest


@cache
def running_versions() -> dict[str, str]:
    """Return the versions that write now."""
    return {"dbull": _version("dbull"), "python": platform.python_version(), "torch": _version("torch")}


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "unknown"


def _check_format(value: object, where: str) -> int:
    if not isinstance(value, dict) or value.get("format") != FORMAT:
        raise ModelFileError(f"{where}: is not the manifest of a dbull model; name the folder of a model")
    version = value.get("format_version")
    if not isinstance(version, int) or isinstance(version, bool) or version < 1:
        fail(f"{where}.format_version", f"expected a whole number, got {version!r:.50}")
    if version > FORMAT_VERSION:
        writer = value.get("versions")
        name = writer.get("dbull") if isinstance(writer, dict) else None
        raise ModelFileError(
            f"{where}: written in format {version} by dbull {name!s:.30}; this dbull reads formats up to "
            f"{FORMAT_VERSION}: upgrade dbull"
        )
    return version


def _object(value: object, where: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        fail(where, f"expected an object, got {value!r:.50}")
    return value


def _sha256(value: object, where: str) -> str:
    if not is_sha256(value):
        fail(where, f"expected a SHA-256 in hexadecimal, got {value!r:.50}")
    return str(value)


def _parent(value: object, where: str) -> dict[str, Any]:
    return check_fields(value, where, {"generation": whole, "manifest_sha256": or_none(_sha256)})


def _learned(value: object, where: str) -> LearnedInput:
    readers = {"sha256": _sha256, "name": text, "rows": whole, "bytes": whole}
    return LearnedInput(**check_fields(with_bytes(value), where, readers))


def _versions(value: object, where: str) -> dict[str, str]:
    return {name: text(part, f"{where}.{name}") for name, part in _object(value, where).items()}


def _files_read_by(reader: Reader) -> Reader:
    def read(value: object, where: str) -> dict[str, Any]:
        found = {}
        for name, part in _object(value, where).items():
            stem, _, suffix = name.rpartition(".")
            if name not in (EVENTS, LEARNED) and not (check_name(stem) and suffix in ("json", "safetensors")):
                fail(where, f"{name!r:.80} cannot be a file of a model")
            found[name] = reader(part, f"{where}.{name}")
        return found

    return read


def _record(value: object, where: str) -> FileRecord:
    return FileRecord(**check_fields(value, where, {"bytes": whole, "sha256": _sha256, "generation": whole}))


def _record_1(value: object, where: str) -> tuple[int, str]:
    fields = check_fields(value, where, {"bytes": whole, "sha256": _sha256})
    return fields["bytes"], fields["sha256"]


_BOTH: dict[str, Reader] = {
    "format": text,
    "format_version": whole,
    "generation": whole,
    "parent": or_none(_parent),
    "restores": or_none(whole),
    "versions": _versions,
    "note": text,
    "time": or_none(text),
    "settings": _object,
    "data_schema": _object,
    "encoder_fingerprint": or_none(text),
    "ids_given": whole,
    "n_events": whole,
    "log_offset": whole,
}
_READERS_1 = _BOTH | {"learned_inputs": list_of(_learned), "files": _files_read_by(_record_1)}
_READERS = _BOTH | {
    "oldest": whole,
    "rows": whole,
    "log_sha256": _sha256,
    "base": or_none(whole),
    "files": _files_read_by(_record),
}
