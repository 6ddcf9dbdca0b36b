"""The manifest of a generation: what it is, where it comes from, and what its files must be."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

from dbull import documents
from dbull.documents import Reader, fail, list_of, mapping, object_of, or_none, text, value_that, whole
from dbull.errors import ModelFileError, SettingsError
from dbull.store import layout
from dbull.store.checkpoint import LearnedInput, with_bytes
from dbull.store.layout import EVENTS, LEARNED, MANIFEST, MANIFEST_BYTES, damaged, hash_bytes

FORMAT = "dbull-model"


@dataclass(frozen=True)
class FileRecord:
    """Size and content of a file, and in the folder of which generation it lies."""

    bytes: int
    sha256: str
    generation: int


@dataclass(frozen=True)
class Manifest:
    """Everything about a generation but the content of its files; by default what is before the first one."""

    generation: int = 0
    parent: int | None = None
    parent_sha256: str | None = None  # of the parent's manifest; None for the first, or over a damaged parent
    restores: int | None = None  # the generation that this one brings back
    oldest: int = 1  # the lowest generation that was kept when this one was written; never falls
    versions: dict[str, str] = field(default_factory=dict)
    note: str = ""
    time: str | None = None
    settings: dict[str, Any] = field(default_factory=dict)
    data_schema: dict[str, Any] = field(default_factory=dict)
    encoder_fingerprint: str | None = None
    rows: int = 0  # of the first input learned in this generation
    ids_given: int = 0
    n_events: int = 0  # lines of its events.jsonl
    log_offset: int = 0  # where the events of this generation begin in the event log of the model
    log_sha256: str = ""  # of the events of all generations that this one rests on, see `chained`
    base: int | None = None  # the newest generation of format 1 that this one rests on
    offsets: dict[str, list[int]] = field(default_factory=dict)  # of logs: what to learn next, by partition
    files: dict[str, FileRecord] = field(default_factory=dict)
    old_inputs: tuple[LearnedInput, ...] = ()  # of format 1, which had learned inputs here
    sha256: str = ""  # of manifest.json itself

    @property
    def log_end(self) -> int:
        """Where the events of the next generation begin in the event log."""
        return self.log_offset + (self.files[EVENTS].bytes if EVENTS in self.files else 0)

    @property
    def content(self) -> dict[str, FileRecord]:
        """Its tensors and documents; learned inputs of format 1 are found where they were learned."""
        return {name: part for name, part in self.files.items() if name not in (EVENTS, LEARNED)}

    @property
    def rests_on(self) -> int | None:
        """The generation whose content and past this one goes on from."""
        return self.parent if self.restores is None else self.restores

    def next(self, **changes: Any) -> Manifest:
        """Return the manifest of the generation after this one: the same content but for the changes."""
        number, sha256 = self.generation or None, self.sha256 or None
        own = {"restores": None, "log_offset": self.log_end, "old_inputs": (), "versions": running_versions()}
        told = {"parent": number, "parent_sha256": sha256, **own, **changes}
        return replace(self, generation=self.generation + 1, **told)

    def path(self, model: Path, name: str) -> Path:
        """Return where a file of this generation lies."""
        return model / layout.generation_name(self.files[name].generation) / name

    def to_bytes(self) -> bytes:
        """Return the text of manifest.json: the fields in their order, the parent's two as one."""
        told = {name: value for name, value in vars(self).items() if name not in _NOT_WRITTEN}
        parent = {"generation": self.parent, "manifest_sha256": self.parent_sha256}
        told["parent"] = None if self.parent is None else parent
        told["files"] = {name: vars(record) for name, record in self.files.items()}
        if not self.offsets:  # most models learn from no log
            del told["offsets"]
        told = {"format": FORMAT, "format_version": layout.FORMAT_VERSION, **told}
        data = documents.dump_document(told, MANIFEST)
        if len(data) > MANIFEST_BYTES:
            raise SettingsError(
                f"settings and data_schema make a manifest of {len(data)} bytes, at most {MANIFEST_BYTES} "
                "are allowed; put long lists into a document"
            )
        return data

    @classmethod
    def from_bytes(cls, data: bytes, where: str) -> Manifest:
        """Read the text of a manifest.json, of this format version or an earlier one."""
        value = documents.parse_document(data, where)
        version, sha256 = _check_format(value, where), hash_bytes(data)
        if version > 1:
            value = {"offsets": {}, **value}
        fields = documents.check_fields(value, where, _READERS if version > 1 else _READERS_1)
        parent = fields.pop("parent") or {"generation": None, "manifest_sha256": None}
        del fields["format"], fields["format_version"]
        number = fields["generation"]
        if version == 1:
            inputs = tuple(LearnedInput(**told) for told in fields.pop("learned_inputs"))
            rows = inputs[0].rows if inputs else 0
            fields |= {"old_inputs": inputs, "rows": rows, "oldest": 1, "log_sha256": sha256, "base": number}
            for needed in (EVENTS, LEARNED):
                if needed not in fields["files"]:
                    fail(f"{where}.files", f"{needed} is not listed")
        files = fields.pop("files").items()
        manifest = cls(
            parent=parent["generation"],
            parent_sha256=parent["manifest_sha256"],
            files={name: FileRecord(**{"generation": number, **part}) for name, part in files},
            sha256=sha256,
            **fields,
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
    folder = model / layout.generation_name(number)
    path = folder / MANIFEST
    layout.refuse_link(folder)
    if not os.path.isdir(folder):
        raise damaged(folder, "is not a folder")
    data = layout.read_bounded(path, MANIFEST_BYTES)
    if layout.read_bounded(folder / layout.MANIFEST_HASH, 1024) != wrap_manifest(data):
        raise damaged(path, f"does not agree with {layout.MANIFEST_HASH}: one of the two has changed")
    manifest = Manifest.from_bytes(data, str(path))
    if manifest.generation != number:
        raise damaged(path, f"is that of generation {manifest.generation}: the folder was renamed or copied")
    return manifest


@cache
def running_versions() -> dict[str, str]:
    """Return the versions that write now."""
    dbull, torch = (package_version(name) or "unknown" for name in ("dbull", "torch"))
    return {"dbull": dbull, "python": platform.python_version(), "torch": torch}


def package_version(package: str) -> str | None:
    """Return the version of an installed package, None if it is not there."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _check_format(value: object, where: str) -> int:
    if not isinstance(value, dict) or value.get("format") != FORMAT:
        raise ModelFileError(f"{where}: is not the manifest of a dbull model; name the folder of a model")
    version = value.get("format_version")
    if not isinstance(version, int) or isinstance(version, bool) or version < 1:
        fail(f"{where}.format_version", f"expected a whole number, got {version!r:.50}")
    if version > layout.FORMAT_VERSION:
        writer = value.get("versions")
        name = writer.get("dbull") if isinstance(writer, dict) else None
        raise ModelFileError(
            f"{where}: written in format {version} by dbull {name!s:.30}; this dbull reads formats up to "
            f"{layout.FORMAT_VERSION}: upgrade dbull"
        )
    return version


def _versions(value: object, where: str) -> dict[str, str]:
    return {name: text(part, f"{where}.{name}") for name, part in mapping(value, where).items()}


def _offsets(value: object, where: str) -> dict[str, list[int]]:
    return {name: list_of(whole)(part, f"{where}.{name}") for name, part in mapping(value, where).items()}


def _files(record: Mapping[str, Reader]) -> Reader:
    def read(value: object, where: str) -> Any:
        names = mapping(value, where)
        for name in names:
            stem, _, suffix = name.rpartition(".")
            named = layout.check_name(stem) and suffix in ("json", "safetensors")
            if name not in (EVENTS, LEARNED) and not named:
                fail(where, f"{name!r:.80} cannot be a file of a model")
        return object_of(dict.fromkeys(names, object_of(record)))(value, where)

    return read


_sha256 = value_that(layout.is_sha256, "a SHA-256 in hexadecimal")
LEARNED_INPUT: dict[str, Reader] = {"sha256": _sha256, "name": text, "rows": whole, "bytes": whole}
_RECORD_1: dict[str, Reader] = {"bytes": whole, "sha256": _sha256}
_NOT_WRITTEN = ("parent_sha256", "old_inputs", "sha256")
_BOTH: dict[str, Reader] = {
    "format": text,
    "format_version": whole,
    "generation": whole,
    "parent": or_none(object_of({"generation": whole, "manifest_sha256": or_none(_sha256)})),
    "restores": or_none(whole),
    "versions": _versions,
    "note": text,
    "time": or_none(text),
    "settings": mapping,
    "data_schema": mapping,
    "encoder_fingerprint": or_none(text),
    "ids_given": whole,
    "n_events": whole,
    "log_offset": whole,
}
_read_input = object_of(LEARNED_INPUT)
_READERS_1 = _BOTH | {
    "learned_inputs": list_of(lambda value, where: _read_input(with_bytes(value), where)),
    "files": _files(_RECORD_1),
}
_READERS = _BOTH | {
    "oldest": whole,
    "rows": whole,
    "log_sha256": _sha256,
    "base": or_none(whole),
    "offsets": _offsets,
    "files": _files(_RECORD_1 | {"generation": whole}),
}
