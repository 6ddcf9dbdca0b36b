"""Settings that must stand before any test imports scipy, and one profile for all properties."""

import os
import signal

import pytest
from hypothesis import HealthCheck, settings

import quick

# Without it scikit-learn skips its array-API check of estimators instead of running it.
os.environ.setdefault("SCIPY_ARRAY_API", "1")

# A suite started in the background ignores interrupts, and so would the processes that it interrupts.
signal.signal(signal.SIGINT, signal.default_int_handler)

# No test loses its power: none need wait for a disk. Whoever must see the calls puts a spy in this place.
os.fsync = os.fstat

# A busy machine is no reason to fail: no limit of time, neither for an example nor for making one.
settings.register_profile("dbull", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("dbull")


@pytest.fixture
def quick_learning():
    """Short training and searches while the test runs."""
    with quick.quick_learning():
        yield


@pytest.fixture(scope="module")
def quick_module():
    """The same for all of a module, and for what its tests share."""
    with quick.quick_learning():
        yield
