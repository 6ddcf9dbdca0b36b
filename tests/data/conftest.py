"""Real data are used where the environment variable DBULL_DATA names a folder that holds them."""

import os
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from dbull.data import Dataset, load


@pytest.fixture(scope="session")
def real_data() -> Path:
    folder = os.environ.get("DBULL_DATA")
    if not folder:
        pytest.skip("set DBULL_DATA to the folder with the benchmark data")
    return Path(folder)


@pytest.fixture(scope="session")
def real_set(real_data) -> Callable[[str], Dataset]:
    """Load a real data set, each only once for all tests."""
    return cache(lambda name: load(name, real_data))


@pytest.fixture
def empty_home(tmp_path, monkeypatch) -> Path:
    """No DBULL_DATA, and a per-user cache that is empty."""
    monkeypatch.delenv("DBULL_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr("sys.platform", "linux")
    return tmp_path
