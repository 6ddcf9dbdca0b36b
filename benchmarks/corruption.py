"""Damage model files at random, many times: only our own error may come out, and no large allocation.

    python benchmarks/corruption.py            # 10,000 corruptions, some minutes

Plain damage (bits, bytes, lengths, missing, foreign and swapped files) must be refused every time. Forged
damage has hashes that agree with it, so that it reaches the parsers behind them: it is refused, or the model
loads whole. The address space is limited to 100 MB above that of a process that has loaded the sound model.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter

import torch

from dbull.errors import ModelFileError
from dbull.store import Checkpoint, LearnedInput, ModelFolder
from dbull.store.layout import MANIFEST, MANIFEST_HASH, hash_bytes
from dbull.store.manifest import wrap_manifest

LIMIT_BYTES = 100 * 2**20
FORGED_SHARE = 0.35
ODD_VALUES = (
    *(
        None,
        True,
        -1,
        0,
        1,
        2,
        7,
        10**9,
        2**62,
        2**63,
        10**30,
        0.5,
        -1e308,
        "",
        "x",
        "../../etc/passwd",
        "\0",
    ),
    *([], {}, [[]], {"": {}}, [1, 2], "0" * 64, "F32", "manifest.json", [2**31, 2**31], [10**9] * 4),
)


@dataclass
class Outcome:
    """What came out of all corruptions."""

    refused: Counter[str] = field(default_factory=Counter)
    loaded: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)


def make_model(path: Path) -> ModelFolder:
    """Write three generations with tensors of several kinds."""
    folder = ModelFolder(path)
    for number in (1, 2, 3):
        random_numbers = torch.Generator().manual_seed(number)
        folder.commit(
            Checkpoint(
                tensors={
                    "networks": {
                        f"layer{i}": torch.randn(20, 30, generator=random_numbers) for i in range(4)
                    },
                    "mixture": {"counts": torch.rand(5, generator=random_numbers, dtype=torch.float64)},
                    "memory": {
                        "random": torch.arange(number * 40, dtype=torch.uint8),
                        "on": torch.tensor(True),
                    },
                },
                documents={"clusters": {"rows": [number, 2.5, None], "text": "ä"}, "extra": [number] * 20},
                events=[{"kind": "birth", "clusters": [number]}, {"kind": "arrival", "rows": 10}],
                settings={"latent_dim": 10, "nested": {"a": [1, 2, {"b": None}]}},
                data_schema={"columns": ["x", "y"]},
                encoder_fingerprint="abc",
                learned_inputs=[LearnedInput(hash_bytes(b"%d" % number), f"day-{number}.csv", 10)],
                ids_given=number,
            ),
            parent=number - 1 or None,
        )
    return folder


class Vandal:
    """Damages the newest generation of a model, and puts it right again."""

    def __init__(self, folder: ModelFolder, seed: int):
        self.place = folder.folder(3)
        self.sound = {path.name: path.read_bytes() for path in self.place.iterdir()}
        self.older = {path.name: path.read_bytes() for path in folder.folder(2).iterdir()}
        self.random = random.Random(seed)

    def restore(self) -> None:
        """Make the generation sound again."""
        for path in self.place.iterdir():
            if path.is_dir() and not path.is_symlink():
                path.rmdir()
            elif path.name not in self.sound or path.is_symlink() or not path.is_file():
                path.unlink()
        for name, data in self.sound.items():
            path = self.place / name
            if not path.exists() or path.read_bytes() != data:
                path.write_bytes(data)

    def damage(self) -> str:
        """Change files so that hashes do not agree, or files are missing or foreign; return what was done."""
        name = self.random.choice(sorted(self.sound))
        path, data = self.place / name, self.sound[name]
        how = self.random.choice(
            (
                *("bytes",) * 10,
                "empty",
                "missing",
                "foreign",
                "folder",
                "pipe",
                "link",
                "swapped",
                "older",
                "lfs",
            )
        )
        if how == "bytes":
            changed = self.scramble(data)
            path.write_bytes(changed)
            how += " of " + name
        elif how == "empty":
            path.write_bytes(b"" if data else b"\n")
        elif how == "foreign":
            strange = self.random.choice(
                ("notes.txt", ".DS_Store", "networks.safetensors.bak", "extra2.json")
            )
            (self.place / strange).write_bytes(b"{}")
        elif how == "swapped":
            other = self.random.choice([n for n in sorted(self.sound) if self.sound[n] != data])
            path.write_bytes(self.sound[other])
            (self.place / other).write_bytes(data)
        elif how == "older":
            name = self.random.choice([n for n in sorted(self.sound) if self.older[n] != self.sound[n]])
            (self.place / name).write_bytes(self.older[name])
        elif how == "lfs":
            path.write_bytes(b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 5\n")
        else:
            path.unlink()
            if how == "folder":
                path.mkdir()
            elif how == "pipe":
                os.mkfifo(path)
            elif how == "link":
                path.symlink_to(self.random.choice((name, "/dev/zero", "nowhere", "..")))
        return how

    def forge(self) -> str:
        """Change a file and make the hashes agree again; return what was done."""
        files = {n: d for n, d in self.sound.items() if n not in (MANIFEST, MANIFEST_HASH)}
        name = self.random.choice((*sorted(files), MANIFEST, MANIFEST, "header", "header"))
        manifest = self.sound[MANIFEST]
        if name == MANIFEST:
            manifest = self.scramble_json(manifest)
        elif name == "header":
            name = self.random.choice([n for n in sorted(files) if n.endswith("safetensors")])
            files[name] = self.scramble_header(files[name])
        elif name.endswith("json") and self.random.random() < 0.7:
            files[name] = self.scramble_json(files[name])
        else:
            files[name] = self.scramble(files[name])
        if name != MANIFEST:
            told = json.loads(manifest)
            told["files"][name] |= {"bytes": len(files[name]), "sha256": hash_bytes(files[name])}
            manifest = json.dumps(told).encode()
        for one, data in {**files, MANIFEST: manifest, MANIFEST_HASH: wrap_manifest(manifest)}.items():
            (self.place / one).write_bytes(data)
        return f"forged {name}"

    def scramble(self, data: bytes) -> bytes:
        """Return other bytes than those given."""
        draw = self.random
        result = bytearray(data)
        at, length = draw.randrange(len(data) + 1), draw.choice((1, 1, 2, 7, 100))
        how = draw.randrange(7)
        if how == 0 and at < len(data):
            result[at] ^= 1 << draw.randrange(8)
        elif how == 1:
            result[at : at + length] = draw.randbytes(length)
        elif how == 2:
            del result[at:]
        elif how == 3:
            del result[at : at + length]
        elif how == 4:
            result[at:at] = draw.randbytes(length)
        elif how == 5:
            result[at : at + length] = bytes(min(length, len(data) - at))
        else:
            result = bytearray(draw.randbytes(draw.choice((0, 8, 100, 5000))))
        return bytes(result) if bytes(result) != data else data + b"\n"

    def scramble_json(self, data: bytes) -> bytes:
        """Return JSON with a value, somewhere, replaced, removed, doubled or nested deep."""
        if self.random.random() < 0.15:
            depth = self.random.choice((40, 60, 5000, 100_000))
            return data.strip()[:-1] + b',"deep":' + b"[" * depth + b"]" * depth + b"}"
        try:
            value = json.loads(data)
        except ValueError:  # several lines, each its own
            return self.scramble(data)
        self.change(value)
        return json.dumps(value, allow_nan=True).encode() + b"\n"

    def change(self, value: object) -> None:
        """Change one value somewhere inside."""
        while isinstance(value, (dict, list)) and value:
            key = self.random.choice(list(value) if isinstance(value, dict) else range(len(value)))
            inner = value[key]  # type: ignore[index]
            if not (isinstance(inner, (dict, list)) and inner) or self.random.random() < 0.3:
                how = self.random.random()
                if how < 0.15:
                    del value[key]  # type: ignore[attr-defined]
                elif how < 0.3 and isinstance(value, dict):
                    value["odd"] = self.random.choice(ODD_VALUES)
                else:
                    value[key] = self.random.choice((*ODD_VALUES, float("nan")))  # type: ignore[index]
                return
            value = inner

    def scramble_header(self, data: bytes) -> bytes:
        """Return a safetensors file with another header, sometimes of another length than it tells."""
        length = int.from_bytes(data[:8], "little")
        header = self.scramble_json(data[8 : 8 + length])
        told = (
            len(header) if self.random.random() < 0.7 else self.random.choice((0, 1, 2**31, 2**63, 2**64 - 1))
        )
        return told.to_bytes(8, "little") + header + data[8 + length :]


def attempt(folder: ModelFolder, forged: bool, what: str, outcome: Outcome, also: tuple[str, ...]) -> None:
    """Load and look over the damaged model, and note what came out."""
    try:
        folder.load()
    except ModelFileError as error:
        outcome.refused[what] += 1
        if str(folder.path) not in str(error):
            outcome.wrong.append(f"{what}: the message names no file: {error}")
    except BaseException as error:
        outcome.wrong.append(f"{what}: {type(error).__name__}: {error}")
    else:
        outcome.loaded[what] += 1
        if not forged:
            outcome.wrong.append(f"{what}: loaded as if nothing were wrong")
    for name in also:
        try:
            answer = getattr(folder, name)()
            if name == "check" and not forged and answer.ok:
                outcome.wrong.append(f"{what}: check found nothing")
        except ModelFileError:
            pass
        except BaseException as error:
            outcome.wrong.append(f"{what}: {name}: {type(error).__name__}: {error}")


def run(count: int, seed: int, place: Path) -> Outcome:
    """Make a model, damage it `count` times, and return what came out."""
    folder = make_model(place / "model")
    vandal = Vandal(folder, seed)
    folder.load()
    outcome = Outcome()
    for i in range(count):
        forged = vandal.random.random() < FORGED_SHARE
        what = vandal.forge() if forged else vandal.damage()
        # The slow ones not every time.
        also = ("learned", "events", "history", "check") if i % 4 == 0 else ("learned",)
        attempt(folder, forged, what, outcome, also)
        vandal.restore()
    folder.load()
    return outcome


def status(name: str) -> int:
    """Return a size of this process as the system tells it, in bytes."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(name + ":"):
            return int(line.split()[1]) * 1024
    raise RuntimeError(f"the system does not tell {name}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        run(20, 1, Path(place) / "warm")  # loads every module before memory is measured
        resource.setrlimit(resource.RLIMIT_AS, (status("VmSize") + LIMIT_BYTES,) * 2)
        Path("/proc/self/clear_refs").write_text("5")
        resident, started = status("VmRSS"), perf_counter()
        outcome = run(arguments.count, arguments.seed, Path(place) / "run")
        seconds = perf_counter() - started
        peak = status("VmHWM") - resident
    loaded = sum(outcome.loaded.values())
    forged = loaded + sum(n for what, n in outcome.refused.items() if what.startswith("forged"))
    plain = sum(n for what, n in outcome.refused.items() if not what.startswith("forged"))
    print(f"{arguments.count} corruptions in {seconds:.0f} s, seed {arguments.seed}")
    print(f"plain damage refused: {plain}")
    print(f"forged damage: {forged}, of which {loaded} load whole and the rest are refused")
    print(f"peak memory above the start: {peak / 2**20:.1f} MB; limit on the address space: +100 MB")
    print(f"anything but our own error, or a damage not noticed: {len(outcome.wrong)}")
    for line in outcome.wrong[:20]:
        print("  " + line)
    return bool(outcome.wrong) or peak > LIMIT_BYTES


if __name__ == "__main__":
    sys.exit(main())
