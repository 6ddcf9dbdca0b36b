"""Settings that must stand before any test imports scipy, and one profile for all properties."""

import os
import signal
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, settings

# Without it scikit-learn skips its array-API check of estimators instead of running it.
os.environ.setdefault("SCIPY_ARRAY_API", "1")

# A suite started in the background ignores interrupts, and so would the processes that it interrupts.
signal.signal(signal.SIGINT, signal.default_int_handler)

# A busy machine is no reason to fail: no limit of time, neither for an example nor for making one.
settings.register_profile("dbull", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("dbull")


@pytest.fixture
def few_epochs(monkeypatch):
    """Recipes with hardly any training, for what does not depend on how well anything is learned."""
    from dbull.lifelong.settings import RECIPES

    few = {"novel_epochs": 3, "familiar_epochs": 2, "novel_joint_epochs": 1}
    for key, recipe in RECIPES.items():
        settings = replace(recipe.settings, training=replace(recipe.settings.training, **few))
        monkeypatch.setitem(RECIPES, key, replace(recipe, settings=settings, epoch_range=(2, 2)))
