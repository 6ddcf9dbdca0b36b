"""Under the logger `dbull`: nothing unless somebody listens, then what was learned and written."""

import logging
import subprocess
import sys

import numpy as np
import pytest

import dbull
from dbull.ingest import Learner

ROWS = np.random.default_rng(0).normal(size=(60, 2)) + np.repeat([[0, 0], [30, 0]], 30, axis=0)


def test_arrivals_generations_and_what_is_left_out_are_told(tmp_path, caplog):
    inbox = tmp_path / "inbox"
    inbox.mkdir()
    np.save(inbox / "monday.npy", ROWS)
    with caplog.at_level(logging.INFO, logger="dbull"):
        for _ in range(2):
            list(Learner(tmp_path / "model", {"encoder": "identity"}).learn_folder(inbox))
    assert all(record.name.startswith("dbull.") for record in caplog.records)
    first, second, third = [record.getMessage() for record in caplog.records]
    assert first == "data set 1: 60 rows, 2 clusters, new: 0 1, 100% novel"
    assert second == f"{tmp_path / 'model'}: generation 1 is written: 'monday.npy'"
    assert third.startswith("left out: ")
    assert "learned in generation 1" in third


def test_each_step_is_told_to_who_wants_to_know(caplog):
    with caplog.at_level(logging.DEBUG, logger="dbull"):
        model = dbull.DBULL(encoder="identity", random_state=0).fit(ROWS)
    steps = [record.getMessage() for record in caplog.records if record.levelno == logging.DEBUG]
    assert steps == list(map(str, model.history_))
    assert "stage='done'" in steps[-1]


@pytest.mark.parametrize(("level", "n_lines"), [("", 0), ("logging.basicConfig(level='INFO'); ", 1)])
def test_nothing_is_said_unless_asked_for(level, n_lines, tmp_path):
    code = f"import logging, sys; {level}from dbull.store import Checkpoint, ModelFolder; "
    code += "ModelFolder(sys.argv[1]).commit(Checkpoint(), None)"
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "m")], capture_output=True, text=True, check=True
    )
    assert (done.stdout, len(done.stderr.splitlines())) == ("", n_lines)
