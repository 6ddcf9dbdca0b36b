"""Peak memory is that of the run, and the record of the machine holds what a reader would ask for."""

import json
import shutil
import subprocess
import sys

import numpy as np
import pytest

from dbull.errors import SettingsError
from dbull.experiments import environment
from dbull.experiments.environment import describe_environment, refuse_changed_source

MIB = 2**20


MEASURE = """
import mmap
from dbull.experiments.environment import PeakMemory

def touch(n_bytes):
    block = mmap.mmap(-1, n_bytes)
    for page in range(0, n_bytes, 4096):
        block[page] = 1
    return block

first = PeakMemory()
before = first.bytes()
block = touch(200 * 2**20)
block.close()
after = first.bytes()
second = PeakMemory()
print(first.scope, before, after, second.bytes())
"""


def test_peak_sees_what_was_given_back_and_starts_anew_with_every_run():
    """In a process of its own: elsewhere memory that other tests gave back may be handed out again."""
    run = subprocess.run([sys.executable, "-c", MEASURE], capture_output=True, text=True, check=True)
    scope, *numbers = run.stdout.split()
    before, after, anew = map(int, numbers)
    assert after >= before + 150 * MIB
    if scope == "run":  # other systems cannot restart the count, and say so
        assert anew <= after - 150 * MIB


def test_environment_is_json_and_names_versions():
    record = json.loads(json.dumps(describe_environment()))
    assert record["python"] == ".".join(map(str, sys.version_info[:3]))
    assert record["packages"]["numpy"] == np.__version__
    assert record["cpus"] >= 1
    assert record["thread_pools"]


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    """A repository in which our module seems to be, and git in it; the module itself is not committed yet."""
    if shutil.which("git") is None:
        pytest.skip("needs git")

    def git(*arguments):
        identity = ("-c", "user.name=a", "-c", "user.email=a@b")
        subprocess.run(["git", *identity, *arguments], cwd=tmp_path, check=True, capture_output=True)

    (tmp_path / "src").mkdir()
    module = tmp_path / "src" / "environment.py"
    module.touch()
    git("init")
    git("commit", "--allow-empty", "-m", "theirs")
    monkeypatch.setattr(environment, "__file__", str(module))
    environment.source_of.cache_clear()
    yield module, git
    environment.source_of.cache_clear()


def test_commit_of_another_project_is_not_ours(checkout):
    """A package installed inside somebody's repository does not take its commit for our own."""
    record = describe_environment()
    assert record["commit"] is None
    assert record["source"].startswith("not in a git checkout")
    refuse_changed_source()  # nothing to compare with


def test_changed_code_is_refused_and_told(checkout):
    module, git = checkout
    git("add", ".")
    git("commit", "-m", "ours")
    (module.parent.parent / "README.md").write_text("pages decide no number")
    assert len(describe_environment()["commit"]) == 40
    assert describe_environment()["source"] == "as committed"
    refuse_changed_source()
    (module.parent / "new.py").touch()
    refuse_changed_source()  # what was loaded when the process began is what runs
    environment.source_of.cache_clear()
    with pytest.raises(SettingsError, match=r"src/new\.py.*--allow-dirty"):
        refuse_changed_source()
    assert "src/new.py" in describe_environment()["source"]
