"""Settings that must stand before any test imports scipy, and one profile for all properties."""

import os

from hypothesis import HealthCheck, settings

# Without it scikit-learn skips its array-API check of estimators instead of running it.
os.environ.setdefault("SCIPY_ARRAY_API", "1")

# A busy machine is no reason to fail: no limit of time, neither for an example nor for making one.
settings.register_profile("dbull", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("dbull")
