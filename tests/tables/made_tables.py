"""One table with a column of every role, in plain Python values, for the tests of this room."""

import datetime

import numpy as np

TOPICS = (
    "disk failed on server and was replaced after midnight",
    "customer asks to reset the password of an account",
    "invoice was paid twice so a refund is due",
)
ROLES = {
    "row_id": "key",
    "delay": "number",
    "cancelled": "flag",
    "carrier": "category",
    "day": "date",
    "note": "text",
    "embedding": "vector",
    "country": "ignore",
}


def table(n=300, seed=0):
    """Return columns as lists; `delay` and `carrier` lack some values."""
    random = np.random.default_rng(seed)
    kinds = random.integers(0, 3, n)
    start = datetime.datetime(1969, 12, 30)
    return {
        "row_id": [f"R{seed}-{i}" for i in range(n)],
        "delay": [None if random.random() < 0.1 else float(x) for x in random.normal(12, 40, n)],
        "cancelled": [bool(x) for x in random.random(n) < 0.3],
        "carrier": [[None, "UA", "B6", "EV"][i] for i in random.integers(0, 4, n)],
        "day": [start + datetime.timedelta(hours=int(h)) for h in random.integers(0, 24 * 900, n)],
        "note": [f"{TOPICS[k]} {random.integers(100)}" for k in kinds],
        "embedding": [[float(x) for x in random.normal(k, 1, 5)] for k in kinds],
        "country": ["US"] * n,
    }
