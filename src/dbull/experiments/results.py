"""The result folder of one (scenario, method, seed): written as it goes, resumable, never overwritten.

==================  ==========================================================================
settings.json       what decides the numbers: scenario with fingerprint, method, parameters, seed
environment.json    what may explain a difference: commit, versions, machine, threads
steps.jsonl         one line per arrival: every score; the same bytes on every run
timings.jsonl       one line per arrival: seconds, and warnings the method gave
final.json          final scores, score matrices, cost; its presence means the run is complete
generated.npz       images of the clusters after each task, where a method can make them
pictures/           what was learned, if asked for; may be deleted
==================  ==========================================================================
"""

import hashlib
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dbull.errors import FolderInUseError, MethodError, ResultsError, SettingsError
from dbull.writing import replacing

try:
    import fcntl
except ImportError:  # not a POSIX system: two runs into one folder at once are then not caught
    fcntl = None  # type: ignore[assignment]

Record = dict[str, Any]
MOVED = re.compile(r"^dbull\.methods\.(?=(dec|vade|vae_dp|curl):)")  # into a room of their own

# What a complete record must hold for tables and figures to be made of it.
SETTINGS_KEYS = ("scenario", "method", "seed", "scenario_fingerprint", "told_true_k", "parameters")
FINAL_KEYS = (
    *("scores", "lifelong", "cost", "tasks", "phases", "steps_sha256"),
    *("n_clusters", "n_clusters_used", "n_classes", "id_stability"),
)


class RunFolder:
    """A result folder open for writing; use :meth:`open`."""

    def __init__(self, path: Path):
        self.path = path
        lines = _keep_complete_lines(path / "steps.jsonl")
        _keep_complete_lines(path / "timings.jsonl", at_most=len(lines))
        self._lines_before = lines
        self._n_added = 0

    @classmethod
    @contextmanager
    def open(cls, path: Path, settings: Record, environment: Record) -> Iterator["RunFolder"]:
        """Make or re-enter the folder of a run, and hold it against other writers.

        Raises SettingsError if it holds a run with other settings, FolderInUseError if another one writes.
        """
        with _held(path):
            folder = cls(path)
            if not folder.finished and not folder._lines_before:
                # The traces of a run that ended before its first line, such as one with a wrong parameter.
                for trace in (path / "settings.json", *path.glob("environment*.json")):
                    trace.unlink(missing_ok=True)
            _same_or_new_settings(path, settings)
            if not folder.finished:
                start = folder.n_starts() + 1
                name = "environment.json" if start == 1 else f"environment-start-{start}.json"
                _write_new(path / name, environment)
            yield folder

    @property
    def finished(self) -> bool:
        """Whether the run is complete."""
        return (self.path / "final.json").exists()

    def final(self) -> Record:
        """Return the final record of a complete run."""
        return _read_json(self.path / "final.json")

    def add_step(self, step: Record, timing: Record) -> bool:
        """Write a step, or compare it with that of an interrupted run; return whether it was there."""
        line = _line(step)
        index, self._n_added = self._n_added, self._n_added + 1
        if index < len(self._lines_before):
            if line != self._lines_before[index]:
                raise MethodError(
                    f"{self.path}: arrival {index} scores otherwise than the interrupted run in steps.jsonl; "
                    "the method is not repeatable or its version changed. Move the folder away to start anew"
                )
            return True
        # Timing first: a kill in between leaves a timing too many, which the next start cuts off.
        _append(self.path / "timings.jsonl", _line(timing))
        _append(self.path / "steps.jsonl", line)
        return False

    def timings(self) -> list[Record]:
        """Return the timings of all steps written."""
        return _read_lines(self.path / "timings.jsonl")

    def n_starts(self) -> int:
        """How often the run was started: once, and once more after every kill."""
        return len(list(self.path.glob("environment*.json")))

    def finish(self, final: Record) -> Record:
        """Write the final record in one piece, with the hash of the steps it rests on, and return it."""
        steps = (self.path / "steps.jsonl").read_bytes()
        final = {**final, "steps_sha256": hashlib.sha256(steps).hexdigest()}
        _write_new(self.path / "final.json", final)
        return final


@dataclass(frozen=True)
class Result:
    """A complete run as read back from its folder."""

    folder: Path
    settings: Record
    final: Record
    # Of the settings, those that name the run; the method by its label.
    scenario: str = field(init=False)
    method: str = field(init=False)
    seed: int = field(init=False)

    def __post_init__(self) -> None:
        for name in ("scenario", "method", "seed"):
            object.__setattr__(self, name, self.settings[name])


def find_results(folders: Iterable[Path]) -> tuple[list[Result], list[Path]]:
    """Return the complete results at any depth below the folders, and the folders of incomplete ones."""
    results: list[Result] = []
    unfinished: list[Path] = []
    seen: set[Path] = set()
    for top in folders:
        if not top.is_dir():
            raise SettingsError(f"{top}: no such folder of results")
        found = sorted(path.parent for path in top.rglob("settings.json"))
        if not found:
            raise SettingsError(
                f"{top}: holds no results (no settings.json below it); run `dbull bench` first"
            )
        for folder in found:
            if folder.resolve() in seen:
                continue
            seen.add(folder.resolve())
            if (folder / "final.json").exists():
                settings = _read_json(folder / "settings.json", SETTINGS_KEYS)
                results.append(Result(folder, settings, _read_json(folder / "final.json", FINAL_KEYS)))
            else:
                unfinished.append(folder)
    return results, unfinished


def commits_of(result: Result) -> tuple[str, ...]:
    """Return the commits that made a run, "" for code that has none or was not as committed.

    There is one for each start with other code, after an interruption; the last has made all of it again.
    """
    starts = sorted(result.folder.glob("environment*.json"), key=lambda path: (len(path.name), path.name))
    told = [_read_json(path) for path in starts]
    clean = [
        str(one.get("commit") or "") if one.get("source", "as committed") == "as committed" else ""
        for one in told
    ]
    return tuple(dict.fromkeys("" if commit.endswith("+changes") else commit for commit in clean))


def read_steps(result: Result) -> list[Record]:
    """Return the records of all steps of a complete run, held to the hash in its final record."""
    path = result.folder / "steps.jsonl"
    steps = _read_lines(path)
    if hashlib.sha256(path.read_bytes()).hexdigest() != result.final["steps_sha256"]:
        raise ResultsError(
            f"{path}: changed or cut off since the run ended; run it again into another folder"
        )
    return steps


@contextmanager
def _held(path: Path) -> Iterator[None]:
    """Make a folder and hold it for one writer; the system lets go when the process ends, however it ends."""
    try:
        path.mkdir(parents=True, exist_ok=True)
        lock = (path / ".lock").open("a")
    except OSError as error:
        raise SettingsError(
            f"{path}: cannot be made or written to ({error.strerror}); choose another --out"
        ) from error
    with lock as handle:
        try:
            if fcntl is not None:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise FolderInUseError(
                f"{path}: another run is writing here; wait for it or choose another --out"
            ) from error
        yield


def _same_or_new_settings(path: Path, settings: Record) -> None:
    target = path / "settings.json"
    if not target.exists():
        _write_new(target, settings)
        return
    stored = _flat(_read_json(target))
    asked = _flat(json.loads(json.dumps(settings)))  # tuples become lists, as in the file
    differing = sorted(
        f"{key} ({stored.get(key)!r} there, {asked.get(key)!r} asked)"
        for key in stored.keys() | asked.keys()
        if stored.get(key) != asked.get(key)
    )
    if differing:
        raise SettingsError(
            f"{path} holds a run with other settings and is left alone: {'; '.join(differing)}. "
            "Give this run another --label or --out"
        )


def _flat(settings: Record) -> Record:
    """Put the parameters beside the other settings, so that each is compared and named by itself."""
    parameters = settings.get("parameters", {})
    return {**settings, "parameters": None, **{f"parameter {key}": v for key, v in parameters.items()}}


def _keep_complete_lines(path: Path, at_most: int | None = None) -> list[bytes]:
    """Cut off a half-written last line, and lines beyond ``at_most``; return the lines kept."""
    if not path.exists():
        return []
    content = path.read_bytes()
    lines = content[: content.rfind(b"\n") + 1].splitlines(keepends=True)[:at_most]
    kept = sum(map(len, lines))
    if kept < len(content):
        os.truncate(path, kept)
    return lines


def _line(record: Record) -> bytes:
    return json.dumps(record, allow_nan=False).encode() + b"\n"


def _append(path: Path, line: bytes) -> None:
    with path.open("ab") as handle:
        handle.write(line)
        handle.flush()
        os.fsync(handle.fileno())


def _write_new(path: Path, record: Record) -> None:
    """Write a JSON file whole or not at all, and never over another."""
    if path.exists():
        raise ResultsError(f"{path} exists already and is never overwritten")
    with replacing(path) as handle:
        handle.write(json.dumps(record, indent=2, allow_nan=False).encode() + b"\n")


def _read_json(path: Path, keys: Iterable[str] = ()) -> Record:
    record = _parsed(path, json.loads)
    if not isinstance(record, dict):
        raise ResultsError(f"{path}: not a record of a run")
    missing = [key for key in keys if key not in record]
    if missing:
        raise ResultsError(f"{path}: not a whole record of a run, {missing[0]!r} is missing")
    if "path" in record:  # of a class that has moved since
        record["path"] = MOVED.sub("dbull.methods.competitors.", str(record["path"]))
    return record


def _read_lines(path: Path) -> list[Record]:
    lines: list[Record] = _parsed(path, lambda text: [json.loads(line) for line in text.splitlines()])
    return lines


def _parsed(path: Path, parse: Callable[[str], Any]) -> Any:
    try:
        return parse(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise ResultsError(f"{path}: cannot be read ({error})") from error
