"""The manifest of a generation: what it is, where it comes from, and what its files must be."""

from __future__ import annotations

import os
import platform
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

from dbull.errors import ModelFileError, SettingsError
from dbull.lifelong.records import Reader, check_fields, fail, list_of, or_none, text, whole
from dbull.store.checkpoint import LearnedInput, with_bytes
from dbull.store.documents import dump_document, parse_document
from dbull.store.layout import (
    EVENTS,
    FORMAT_VERSION,
    LEARNED,
    MANIFEST,
    MANIFEST_BYTES,
    MANIFEST_HASH,
    check_name,
    damaged,
    hash_bytes,
    is_sha256,
    read_bounded,
)

__all__ = ["FileRecord", "Manifest", "read_manifest", "running_versions", "wrap_manifest"]

FORMAT = "dbull-model"


@dataclass(frozen=True)
class FileRecord:
    """Size and content of a file."""

    bytes: int
    sha256: str


@dataclass(frozen=True)
class Manifest:
    """Everything about a generation but the content of its files."""

    generation: int
    parent: int | None
    parent_sha256: str | None  # of the parent's manifest; None for the first, or over a damaged parent
    restores: int | None  # the generation that this one brings back
    versions: dict[str, str]
    note: str
    time: str | None
    settings: dict[str, Any]
    data_schema: dict[str, Any]
    encoder_fingerprint: str | None
    learned_inputs: tuple[LearnedInput, ...]
    ids_given: int
    n_events: int
    log_offset: int  # where the events of this generation begin in the event log of the model
    files: dict[str, FileRecord]

    @property
    def log_end(self) -> int:
        """Where the events of the next generation begin in the event log."""
        return self.log_offset + self.files[EVENTS].bytes

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
                "versions": self.versions,
                "note": self.note,
                "time": self.time,
                "settings": self.settings,
                "data_schema": self.data_schema,
                "encoder_fingerprint": self.encoder_fingerprint,
                "learned_inputs": [vars(one) for one in self.learned_inputs],
                "ids_given": self.ids_given,
                "n_events": self.n_events,
                "log_offset": self.log_offset,
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
        """Read the text of a manifest.json, of this format version."""
        value = parse_document(data, where)
        _check_format(value, where)
        fields = check_fields(value, where, _READERS)
        parent = fields.pop("parent") or {"generation": None, "manifest_sha256": None}
        del fields["format"], fields["format_version"]
        manifest = cls(
            parent=parent["generation"],
            parent_sha256=parent["manifest_sha256"],
            **{**fields, "learned_inputs": tuple(fields["learned_inputs"])},
        )
        if manifest.parent != (manifest.generation - 1 or None):
            fail(where, f"parent {manifest.parent} of generation {manifest.generation}")
        if manifest.restores is not None and not 0 < manifest.restores < manifest.generation:
            fail(where, f"generation {manifest.generation} cannot bring back {manifest.restores}")
        for needed in (EVENTS, LEARNED):
            if needed not in manifest.files:
                fail(f"{where}.files", f"{needed} is not listed")
        return manifest


def wrap_manifest(data: bytes) -> bytes:
    """Return the text of manifest.sha256, in the form of `sha256sum`."""
    return f"{hash_bytes(data)}  {MANIFEST}\n".encode("ascii")


def read_manifest(folder: Path, number: int) -> tuple[Manifest, str]:
    """Return the manifest of a generation's folder, and its hash."""
    path = folder / MANIFEST
    if not os.path.isdir(folder):
        raise damaged(folder, "is not a folder")
    data = read_bounded(path, MANIFEST_BYTES)
    wrapped = wrap_manifest(data)
    if read_bounded(folder / MANIFEST_HASH, 1024) != wrapped:
        raise damaged(path, f"does not agree with {MANIFEST_HASH}: one of the two has changed")
    manifest = Manifest.from_bytes(data, str(path))
    if manifest.generation != number:
        raise damaged(path, f"is that of generation {manifest.generation}: the folder was renamed or copied")
    return manifest, hash_bytes(data)


@cache
def running_versions() -> dict[str, str]:
    """Return the versions that write now."""
    return {"dbull": _version("dbull"), "python": platform.python_version(), "torch": _version("torch")}


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "unknown"


def _check_format(value: object, where: str) -> None:
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


def _files(value: object, where: str) -> dict[str, FileRecord]:
    found = {}
    for name, part in _object(value, where).items():
        stem, _, suffix = name.rpartition(".")
        if name not in (EVENTS, LEARNED) and not (check_name(stem) and suffix in ("json", "safetensors")):
            fail(where, f"{name!r:.80} cannot be a file of a model")
        found[name] = FileRecord(**check_fields(part, f"{where}.{name}", {"bytes": whole, "sha256": _sha256}))
    return found


_READERS: dict[str, Reader] = {
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
    "learned_inputs": list_of(_learned),
    "ids_given": whole,
    "n_events": whole,
    "log_offset": whole,
    "files": _files,
}
