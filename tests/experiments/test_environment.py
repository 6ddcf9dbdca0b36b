"""Peak memory is that of the run, and the record of the machine holds what a reader would ask for."""

import json
import sys

import numpy as np
import pytest

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
