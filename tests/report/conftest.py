"""Models to report on: one with named columns that is learned here, one with images from a file."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from dbull import DBULL, load
from dbull.report import build_report

GOLDEN = Path(__file__).parent.parent / "reference" / "model-format-1" / "model"
NASTY_NAME = "<script>alert('name')</script>"
NASTY_COLUMN = '"><img src=x onerror=alert(1)>'
COLUMNS = ["width", "height", NASTY_COLUMN]
CENTRES = {"a": (0.0, 0.0, 0.0), "b": (20.0, 0.0, 0.0), "c": (0.0, 20.0, 3.0), "d": (20.0, 20.0, -9.0)}
STREAM = ({"a": 120, "b": 90}, {"c": 150, "a": 30}, {"d": 100, "b": 40})


def drawn(rng, sources):
    rows = np.concatenate([rng.normal(size=(n, 3)) + CENTRES[source] for source, n in sources.items()])
    return pd.DataFrame(rows, columns=COLUMNS)


@pytest.fixture(scope="session")
def frames():
    rng = np.random.default_rng(5)
    return [drawn(rng, sources) for sources in STREAM]


@pytest.fixture(scope="session")
def model(frames):
    """Four blobs over three arrivals; one is named, one merged into an older one, one retired."""
    learner = DBULL(random_state=0, concentration=2.0)
    for frame in frames:
        learner.partial_fit(frame)
    assert learner.n_clusters_ == 4, "the tests below need one cluster per blob"
    learner.rename(0, NASTY_NAME)
    learner.merge_clusters([1, 3])
    learner.retire(2)
    return learner


@pytest.fixture(scope="session")
def data(model):
    return build_report(model, title="Blobs & <b>bold</b> claims", written="2026-11-16T05:20:00Z")


@pytest.fixture(scope="session")
def image_model():
    return load(GOLDEN)


@pytest.fixture(scope="session")
def image_data(image_model):
    return build_report(image_model)
