"""Settings that must stand before any test imports scipy, and one profile for all properties."""

import functools
import os
import signal

import pytest
import typer.testing
from hypothesis import HealthCheck, settings

import quick

# Without it scikit-learn skips its array-API check of estimators instead of running it.
os.environ.setdefault("SCIPY_ARRAY_API", "1")

# Who tests is likely to have changed the code; what tests run is not kept as a result.
os.environ.setdefault("DBULL_ALLOW_DIRTY", "1")

# A suite started in the background ignores interrupts, and so would the processes that it interrupts.
signal.signal(signal.SIGINT, signal.default_int_handler)

# The commands are the same in every test, and to make them takes longer than most of what they do.
typer.testing._get_command = functools.cache(typer.testing._get_command)

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


@pytest.fixture(scope="module")
def broker():
    """A broker of messages; the test is skipped where its package is not installed."""
    from broker import Broker

    return Broker()


@pytest.fixture
def topic(broker):
    """A new topic of four partitions."""
    return broker.topic()
