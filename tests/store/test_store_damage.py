"""Damaged, missing, foreign and too new files: our own error that names the file and the fix."""

import importlib.util
import json
import os
import shutil
import sys
import tracemalloc
from functools import partial
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dbull.documents import MAX_DEPTH, dump_document, parse_document
from dbull.errors import ModelFileError, SettingsError
from dbull.store import Checkpoint, ModelFolder
from dbull.store.layout import generation_name, generation_number, hash_bytes
from dbull.store.manifest import wrap_manifest
from dbull.store.tensors import pack_tensors, read_header, read_tensors

FILES = (
    *("manifest.json", "manifest.sha256", "events.jsonl", "clusters.json"),
    *("networks.safetensors", "mixture.safetensors"),
)


def forge(folder: ModelFolder, number: int, changes: dict | None = None, **files: bytes) -> None:
    """Change the manifest and files of a generation, and make all hashes agree with it."""
    place = folder.folder(number)
    manifest = json.loads((place / "manifest.json").read_text())
    for stem, data in files.items():
        name = next(n for n in manifest["files"] if n.startswith(stem))
        (place / name).write_bytes(data)
        manifest["files"][name] |= {"bytes": len(data), "sha256": hash_bytes(data)}
    data = json.dumps({**manifest, **(changes or {})}).encode()
    (place / "manifest.json").write_bytes(data)
    (place / "manifest.sha256").write_bytes(wrap_manifest(data))


def assert_refused(folder: ModelFolder, name: str, *words: str) -> None:
    with pytest.raises(ModelFileError) as caught:
        folder.load()
    message = str(caught.value)
    assert name in message
    assert "gen-00000003" in message
    for word in words:
        assert word in message, message
    report = folder.check()
    assert not report.ok
    assert 3 not in report.sound
    assert report.sound == (1, 2), "damage to one generation does not touch the others"


@pytest.mark.parametrize("name", FILES)
def test_one_flipped_bit_anywhere_is_found(three, name):
    path = three.folder(3) / name
    sound = path.read_bytes()
    for at in {0, len(sound) // 3, len(sound) // 2, len(sound) - 1}:
        data = bytearray(sound)
        data[at] ^= 1
        path.write_bytes(data)
        assert_refused(three, "manifest" if name.startswith("manifest") else name, "roll back")
    path.write_bytes(sound)
    assert three.check().ok


@pytest.mark.parametrize("name", FILES)
def test_a_cut_grown_missing_or_special_file_is_named(three, name):
    path = three.folder(3) / name
    sound = path.read_bytes()
    shown = "manifest" if name.startswith("manifest") else name
    for data, word in ((sound[:-1], "cut off"), (b"", "cut off"), (sound + b"\n", "grown")):
        path.write_bytes(data)
        assert_refused(three, shown, *([] if shown == "manifest" else [word]))
    path.unlink()
    assert_refused(three, name, "missing", "copy")
    path.mkdir()
    assert_refused(three, name, "is a folder")
    path.rmdir()
    os.mkfifo(path)
    assert_refused(three, name, "special file")
    path.unlink()
    for target in (name, "/dev/zero", "nowhere", sound):
        if target is sound:
            (target := three.path / "elsewhere").write_bytes(sound)
        path.symlink_to(target)
        assert_refused(three, name, "symbolic link")
        path.unlink()
    os.link(three.path / "elsewhere", path)
    assert_refused(three, name, "hard link")
    path.unlink()
    path.write_bytes(sound)
    assert three.check().ok


def test_a_generation_behind_a_link_is_refused(three):
    shutil.move(three.folder(3), three.path / "elsewhere")
    three.folder(3).symlink_to("elsewhere")
    assert_refused(three, "gen-00000003", "symbolic link")
    three.folder(3).unlink()
    three.folder(3).symlink_to("nowhere")
    assert_refused(three, "gen-00000003", "symbolic link")


def test_a_foreign_file_is_named(three):
    (three.folder(3) / "notes.txt").write_text("hello")
    assert_refused(three, "notes.txt", "move it elsewhere")
    assert three.load(2).generation == 2


def test_files_of_other_places_are_refused(three, tmp_path):
    path = three.folder(3) / "mixture.safetensors"
    path.write_bytes((three.folder(2) / "mixture.safetensors").read_bytes())
    assert_refused(three, "mixture.safetensors")
    shutil.rmtree(three.folder(3))
    shutil.copytree(three.folder(2), three.folder(3))
    assert_refused(three, "manifest.json", "generation 2", "renamed or copied")


def test_a_file_in_the_place_of_a_generation_is_refused(three):
    (three.path / generation_name(4)).write_text("")
    with pytest.raises(ModelFileError, match="gen-00000004: is not a folder"):
        three.load()


def test_a_git_lfs_pointer_is_recognised(three):
    pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:12\nsize 345\n"
    (three.folder(3) / "networks.safetensors").write_text(pointer)
    assert_refused(three, "networks.safetensors", "git lfs pull")


def test_a_newer_format_says_upgrade(three):
    """Fields that this version cannot know must not hide what is to be done."""
    forge(three, 3, {"format_version": 3, "versions": {"dbull": "9.9"}, "new_field": 1})
    assert_refused(three, "manifest.json", "format 3", "dbull 9.9", "upgrade dbull")


def test_another_programs_manifest_is_refused(three):
    forge(three, 3, {"format": "other"})
    assert_refused(three, "manifest.json", "not the manifest of a dbull model")


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("format_version", 0),
        ("format_version", "1"),
        ("format_version", True),
        ("generation", 2),
        ("generation", -3),
        ("parent", None),
        ("parent", {"generation": 1, "manifest_sha256": None}),
        ("parent", {"generation": 2, "manifest_sha256": "x"}),
        ("restores", 3),
        ("restores", 0),
        ("versions", []),
        ("versions", {"dbull": 1}),
        ("note", None),
        ("time", 1.5),
        ("settings", []),
        ("data_schema", None),
        ("encoder_fingerprint", 1),
        ("oldest", 0),
        ("oldest", 4),
        ("rows", -1),
        ("base", 3),
        ("log_sha256", "0"),
        ("ids_given", -1),
        ("n_events", 1),
        ("log_offset", "0"),
        ("offsets", {"log": [-1]}),
        ("offsets", {"log": 1}),
        ("files", {}),
        ("files", {"../../x.json": {"bytes": 0, "sha256": "0" * 64, "generation": 3}}),
        ("files", {"net.pkl": {"bytes": 0, "sha256": "0" * 64, "generation": 3}}),
        ("files", {"a.json": {"bytes": 0, "sha256": "0" * 64, "generation": 4}}),
        ("files", {"learned.json": {"bytes": 0, "sha256": "0" * 64, "generation": 3}}),
        ("files", {"events.jsonl": {"bytes": 0, "sha256": "0" * 64, "generation": 2}}),
        ("stranger", 1),
    ],
)
def test_a_forged_manifest_is_refused(three, field, value):
    forge(three, 3, {field: value})
    assert_refused(three, "events.jsonl" if field == "n_events" else "manifest.json")


def test_every_manifest_field_is_needed(three):
    path = three.folder(3) / "manifest.json"
    sound = json.loads(path.read_text())
    for name in sound:
        data = json.dumps({key: value for key, value in sound.items() if key != name}).encode()
        path.write_bytes(data)
        (three.folder(3) / "manifest.sha256").write_bytes(wrap_manifest(data))
        assert_refused(three, "manifest.json", *([] if name == "format" else [name]))


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"{",
        b"\xff",
        b"[NaN]",
        b"[Infinity]",
        b"[1e999]",
        b'{"a":1,"a":2}',
        b"[" * 60 + b"]" * 60,
        b"[" * 10**5,
    ],
    ids=lambda text: str(text[:20]),
)
def test_forged_json_is_refused(three, text):
    forge(three, 3, clusters=text)
    assert_refused(three, "clusters.json")


def test_a_base_that_is_no_old_generation_is_refused(three):
    forge(three, 3, {"base": 1})
    with pytest.raises(ModelFileError, match="format 1"):
        ModelFolder(three.path).learned()


@pytest.mark.parametrize(
    "text",
    [b"{}\n{}\n", b'{"generation": 3}\n', b'{"generation": 3}\n{"generation": 2}\n', b"1\n2\n", b"\n\n"],
)
def test_forged_events_are_refused(three, text):
    forge(three, 3, events=text)
    assert_refused(three, "events.jsonl")
    with pytest.raises(ModelFileError, match=r"events\.jsonl"):
        three.events()


def safetensors_file(header: object, data: bytes = bytes(8), length: int | None = None) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return (len(text) if length is None else length).to_bytes(8, "little") + text + data


ENTRY = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}


def test_the_hand_made_safetensors_file_is_sound(three):
    """What the forged ones below are changed from."""
    forge(three, 3, networks=safetensors_file({"a": ENTRY}))
    assert three.load().checkpoint.tensors["networks"]["a"].tolist() == [0.0, 0.0]


@pytest.mark.parametrize(
    "data",
    [
        b"",
        bytes(7),
        safetensors_file({"a": ENTRY}, length=2**63),
        safetensors_file({"a": ENTRY}, length=2**64 - 1),
        safetensors_file({"a": ENTRY}, length=5),
        safetensors_file({"a": ENTRY}, b""),
        safetensors_file({"a": ENTRY}, bytes(9)),
        safetensors_file({"a": {**ENTRY, "shape": [3]}}),
        safetensors_file({"a": {**ENTRY, "shape": [2**40, 2**40]}}),
        safetensors_file({"a": {**ENTRY, "shape": [-2]}}),
        safetensors_file({"a": {**ENTRY, "shape": [2.0]}}),
        safetensors_file({"a": {**ENTRY, "shape": [1] * 65 + [2]}}),
        safetensors_file({"a": {**ENTRY, "dtype": "C64", "shape": [1]}}),
        safetensors_file({"a": {**ENTRY, "dtype": ["F32"]}}),
        safetensors_file({"a": {**ENTRY, "data_offsets": [0, 2**60], "shape": [2**58]}}),
        safetensors_file({"a": {**ENTRY, "data_offsets": [8, 16]}}),
        safetensors_file({"a": {**ENTRY, "data_offsets": [0, 8, 8]}}),
        safetensors_file({"a": ENTRY, "b": ENTRY}),
        safetensors_file({"a": {**ENTRY, "extra": 1}}),
        safetensors_file({"a": [ENTRY]}),
        safetensors_file([ENTRY]),
        safetensors_file(b"[" * 10**5, b""),
        safetensors_file(b"not json"),
        safetensors_file(
            {f"t{i}": {**ENTRY, "shape": [0], "data_offsets": [0, 0]} for i in range(10001)}, b""
        ),
    ],
    ids=range(24),
)
def test_a_forged_safetensors_header_is_refused(three, data):
    forge(three, 3, networks=data)
    assert_refused(three, "networks.safetensors")
    with pytest.raises(ModelFileError, match=r"networks\.safetensors"):
        read_header(three.folder(3) / "networks.safetensors")


def test_nothing_large_is_held_before_the_hash_is_checked(tmp_path):
    """A model of 40 MB with one flipped byte, and a manifest that has grown to 1 GB."""
    folder = ModelFolder(tmp_path / "model")
    folder.commit(Checkpoint(tensors={"networks": {"w": torch.zeros(10**7)}}), None)
    path = folder.folder(1) / "networks.safetensors"
    with open(path, "r+b") as handle:
        handle.seek(-1, os.SEEK_END)
        handle.write(b"\1")
    tracemalloc.start()
    with pytest.raises(ModelFileError, match="content has changed"):
        folder.load()
    os.truncate(folder.folder(1) / "manifest.json", 2**30)
    with pytest.raises(ModelFileError, match=r"manifest\.json.*1073741824 bytes, more than"):
        folder.load()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 5 * 2**20


def test_check_finds_what_one_generation_alone_cannot_tell(three, tmp_path, checkpoint):
    other = ModelFolder(tmp_path / "other")
    for number in (1, 2):
        other.commit(checkpoint(number, settings={"other": True}), number - 1 or None)
    shutil.rmtree(three.folder(2))
    assert "missing" in three.check().problems[0].text
    shutil.copytree(other.folder(2), three.folder(2))
    texts = [finding.text for finding in three.check().problems]
    assert any("from another model" in text for text in texts)


def test_check_finds_a_removed_newest_generation(three):
    shutil.rmtree(three.folder(3))
    assert three.load().generation == 2
    (problem,) = three.check().problems
    assert problem.path.name == "events.jsonl"
    assert "a later generation was removed" in problem.text


def test_check_notes_strangers_in_the_folder(three):
    (three.path / "README.md").write_text("card")
    (three.path / "gen-3").mkdir()
    (three.path / ".tmp-elsewhere-1-00000000").mkdir()
    report = three.check()
    assert report.ok
    assert [finding.path.name for finding in report.notes] == [".tmp-elsewhere-1-00000000", "gen-3"]


@given(number=st.integers(1, 10**12))
def test_generation_names_are_one_to_one(number):
    assert generation_number(generation_name(number)) == number


@pytest.mark.parametrize(
    "name",
    ["gen-0000001", "gen-00000000", "gen-000000001", "gen-00000001 ", "gen-0000000a", "gen-٠٠٠٠٠٠٠١", ""],
)
def test_other_names_are_no_generations(name):
    assert generation_number(name) is None


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda parts: st.lists(parts, max_size=4) | st.dictionaries(st.text(), parts, max_size=4),
    max_leaves=20,
)


@given(JSON_VALUES)
@settings(max_examples=50)
def test_documents_come_back_exactly(value):
    for dump in (dump_document, partial(dump_document, indent=None)):
        data = dump(value, "x")
        back = parse_document(data, "x")
        assert back == value
        assert dump(back, "x") == data
    assert dump_document(value, "x", indent=None).count(b"\n") == 1


@given(st.binary(max_size=200) | st.text(alphabet='[]{}"\\,:01eE.-nulltrufase ', max_size=80).map(str.encode))
@settings(max_examples=200)
def test_any_bytes_are_a_document_or_our_error(data):
    try:
        value = parse_document(data, "x")
    except ModelFileError:
        return
    assert value == json.loads(data)


def test_depth_is_bounded_both_ways():
    def nested(depth):
        return [] if depth == 1 else [nested(depth - 1)]

    assert parse_document(dump_document(nested(MAX_DEPTH), "x"), "x") == nested(MAX_DEPTH)
    with pytest.raises(SettingsError, match="deeper"):
        dump_document(nested(MAX_DEPTH + 1), "x")
    with pytest.raises(ModelFileError, match="deeper"):
        parse_document(b"[" * (MAX_DEPTH + 1) + b"]" * (MAX_DEPTH + 1), "x")
    circle: list = []
    circle.append(circle)
    with pytest.raises(SettingsError, match="deeper"):
        dump_document(circle, "x")
    assert parse_document(b'["' + b"[" * 1000 + b'\\""]', "x") == ["[" * 1000 + '"']


@given(data=st.data())
@settings(max_examples=100)
def test_any_damage_to_a_tensor_file_is_refused_or_reads_whole(data, tmp_path_factory):
    """Without the hash before it, the header check alone must let nothing strange through."""
    sound = pack_tensors({"a": torch.arange(6.0).reshape(2, 3), "b": torch.tensor([True])}, "x")
    at = data.draw(st.integers(0, len(sound) - 1))
    changed = sound[:at] + data.draw(st.binary(max_size=4)) + sound[at + data.draw(st.integers(0, 4)) :]
    path = tmp_path_factory.mktemp("tensors") / "x.safetensors"
    path.write_bytes(changed)
    try:
        told = read_header(path)
        tensors = read_tensors(path, len(changed))
    except ModelFileError:
        return
    assert {name: shape for name, (_, shape) in told.items()} == {
        n: tuple(t.shape) for n, t in tensors.items()
    }


def test_random_corruptions_end_in_our_error(tmp_path):
    """The script that does it ten thousand times, with fewer."""
    script = Path(__file__).parents[2] / "benchmarks" / "corruption.py"
    spec = importlib.util.spec_from_file_location("corruption", script)
    module = sys.modules["corruption"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    outcome = module.run(120, seed=7, place=tmp_path)
    assert outcome.wrong == []
    assert sum(outcome.refused.values()) > 80
    assert sum(outcome.loaded.values()) > 0
