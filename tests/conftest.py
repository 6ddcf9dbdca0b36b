"""Settings that must stand before any test imports scipy."""

import os

# Without it scikit-learn skips its array-API check of estimators instead of running it.
os.environ.setdefault("SCIPY_ARRAY_API", "1")
