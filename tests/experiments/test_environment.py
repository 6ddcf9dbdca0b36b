"""Peak memory is that of the run, and the record of the machine holds what a reader would ask for."""

import json
import shutil
import subprocess
import sys

import numpy as np
import pytest

from dbull.experiments import environment
from dbull.experiments.environment import PeakMemory, describe_environment

MIB = 2**20


def test_peak_sees_what_was_allocated_and_given_back():
    peak = PeakMemory()
    before = peak.bytes()
    block = np.ones(200 * MIB, dtype=np.uint8)
    del block
    assert peak.bytes() >= before + 150 * MIB


def test_peak_starts_anew_with_every_run():
    block = np.ones(300 * MIB, dtype=np.uint8)
    first = PeakMemory()
    with_block = first.bytes()
    del block
    second = PeakMemory()
    if second.scope != "run":
        pytest.skip("this system cannot restart the count")
    assert second.bytes() <= with_block - 200 * MIB


def test_environment_is_json_and_names_versions():
    record = json.loads(json.dumps(describe_environment()))
    assert record["python"] == ".".join(map(str, sys.version_info[:3]))
    assert record["packages"]["numpy"] == np.__version__
    assert record["cpus"] >= 1
    assert record["thread_pools"]


def test_commit_of_another_project_is_not_ours(tmp_path, monkeypatch):
    """A package installed inside somebody's repository does not take its commit for our own."""
    if shutil.which("git") is None:
        pytest.skip("needs git")

    def git(*arguments):
        identity = ("-c", "user.name=a", "-c", "user.email=a@b")
        subprocess.run(["git", *identity, *arguments], cwd=tmp_path, check=True, capture_output=True)

    module = tmp_path / "environment.py"
    module.touch()
    git("init")
    git("commit", "--allow-empty", "-m", "theirs")
    monkeypatch.setattr(environment, "__file__", str(module))
    assert describe_environment()["commit"] is None
    git("add", "environment.py")
    git("commit", "-m", "ours")
    assert len(describe_environment()["commit"]) == 40
