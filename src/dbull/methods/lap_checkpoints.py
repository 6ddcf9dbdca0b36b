"""Finished laps of an arrival in blocks, kept on disk until the arrival is learned: a small model folder."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from dbull.codec.learner import pack_state, unpack_state
from dbull.documents import anything, check_fields, list_of, mapping, number, object_of, or_none, truth, whole
from dbull.errors import SettingsError
from dbull.ledger import ArrivalReport, Ledger, Newborn
from dbull.lifelong.state import LearnerState
from dbull.store import Checkpoint, ModelFolder


@dataclass(frozen=True)
class Reached:
    """How far an arrival has come."""

    state: LearnerState  # the trial of the lap, or the learner as it will be
    reports: tuple[ArrivalReport, ...]  # of the sample, and of strange rows
    lap: int = 1  # the one to come, or the last one
    complete: bool = False  # whether all statistics are in
    n_outliers: int = 0
    grown: Mapping[int, int] = field(default_factory=dict)  # rows of new components, by cluster


class LapCheckpoints:
    """Where finished laps are kept; nowhere, if no folder was named."""

    def __init__(self, folder: ModelFolder | None, identity: str):
        self._folder, self._identity = folder, identity
        self._parent: Any = None

    @classmethod
    def of(cls, path: str | os.PathLike[str] | None, identity: str) -> LapCheckpoints:
        """Return the checkpoints of an arrival that is known by its source, its settings and its past."""
        digest = hashlib.sha256(identity.encode("utf-8", "surrogatepass")).hexdigest()
        return cls(None if path is None else ModelFolder(path), digest)

    def load(self, device: str) -> Reached | None:
        """Return how far the same arrival had come; None if it had not begun, or another had."""
        if self._folder is None or self._folder.latest() is None:
            return None
        where, loaded = str(self._folder.path), self._folder.load()
        checkpoint = loaded.checkpoint
        if "laps" not in checkpoint.documents:
            raise SettingsError(
                f"{where}: holds a model and not the laps of one; name another folder for these"
            )
        if checkpoint.settings.get("identity") != self._identity:
            self._remove()
            return None
        told = check_fields(checkpoint.documents["laps"], f"{where}/laps.json", _DOCUMENT)
        ledger = Ledger.from_json(checkpoint.documents["clusters"], where=where)
        parts = checkpoint.tensors, checkpoint.documents["learner"], ledger, checkpoint.encoder_fingerprint
        state = unpack_state(*parts, where, device)
        self._parent = loaded.manifest
        reports = tuple(_report(one) for one in told["reports"])
        grown = {int(cluster): n for cluster, n in told["grown"].items()}
        return Reached(state, reports, told["lap"], told["complete"], told["n_outliers"], grown)

    def save(self, reached: Reached) -> None:
        """Keep a lap in place of the one before."""
        if self._folder is None:
            return
        state = reached.state
        tensors, learner = pack_state(state)
        told = {
            "lap": reached.lap,
            "complete": reached.complete,
            "n_outliers": reached.n_outliers,
            "grown": {str(cluster): n for cluster, n in reached.grown.items()},
            "reports": [_told(report) for report in reached.reports],
        }
        ledger = state.ledger
        checkpoint = Checkpoint(
            tensors=tensors,
            documents={
                "learner": learner,
                "clusters": ledger.to_json(since=ledger.n_events),
                "laps": told,
            },
            settings={"identity": self._identity},
            encoder_fingerprint=state.fingerprint,
        )
        self._parent = self._folder.commit(checkpoint, self._parent, keep=1)

    def _remove(self) -> None:
        """Remove the laps of another arrival."""
        assert self._folder is not None
        shutil.rmtree(self._folder.path)
        self._parent = None


def _told(report: ArrivalReport) -> dict[str, Any]:
    """Return what is needed of a report, as plain values."""
    newborns = {
        name: [[c, asdict(one)] for c, one in getattr(report, name).items()] for name in ("born", "grown")
    }
    return {**newborns, "novel_share": report.novel_share}


def _report(told: Mapping[str, Any]) -> ArrivalReport:
    born, grown = ({c: Newborn(**one) for c, one in told[name]} for name in ("born", "grown"))
    return replace(ArrivalReport({}, {}), born=born, grown=grown, novel_share=told["novel_share"])


_NEWBORNS = list_of(list_of(anything))
_REPORT = {"born": _NEWBORNS, "grown": _NEWBORNS, "novel_share": or_none(number)}
_DOCUMENT = {
    "lap": whole,
    "complete": truth,
    "n_outliers": whole,
    "grown": mapping,
    "reports": list_of(object_of(_REPORT)),
}
