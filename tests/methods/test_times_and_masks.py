"""Times and masked values have numbers below them that nobody meant: refused by name, never learned."""

import datetime

import numpy as np
import pytest

from dbull import DBULL, DPMixture
from dbull.errors import DataError

TIMES = np.array(["2026-01-01", "2026-01-02", "2026-01-05", "2026-01-09"], dtype="M8[s]")


def tables():
    pandas, polars = pytest.importorskip("pandas"), pytest.importorskip("polars")
    pyarrow = pytest.importorskip("pyarrow")
    whens = [time.item() for time in TIMES]
    numbers = [1.0, 2.0, 3.0, 4.0]
    return {
        "array": (TIMES[:, None], "every column"),
        "durations": ((TIMES - TIMES[0])[:, None], "every column"),
        "objects": (np.array([[1.0, time] for time in TIMES], dtype=object), "column 1"),
        "lists": ([[time] for time in TIMES], "every column"),
        "lists of Python's": ([[1.0, when] for when in whens], "column 1"),
        "pandas": (pandas.DataFrame({"a": numbers, "when": TIMES}), "column 'when'"),
        "pandas with a zone": (
            pandas.DataFrame({"a": numbers, "when": pandas.to_datetime(TIMES).tz_localize("UTC")}),
            "column 'when'",
        ),
        "pandas objects": (
            pandas.DataFrame({"a": numbers, "when": pandas.Series(whens, dtype=object)}),
            "column 'when'",
        ),
        "pandas periods": (
            pandas.DataFrame({"when": pandas.to_datetime(TIMES).to_period("D")}),
            "column 'when'",
        ),
        "polars": (polars.DataFrame({"a": numbers, "when": whens}), "column 'when'"),
        "polars durations": (polars.DataFrame({"d": [datetime.timedelta(days=1)] * 4}), "column 'd'"),
        "polars, lazy": (polars.DataFrame({"when": whens}).lazy(), "column 'when'"),
        "pyarrow": (pyarrow.table({"a": numbers, "when": TIMES.astype("M8[ns]")}), "column 'when'"),
    }


@pytest.mark.parametrize("kind", list(tables()))
@pytest.mark.parametrize("method", [DBULL, DPMixture])
def test_times_are_refused_by_column(kind, method):
    rows, column = tables()[kind]
    if method is DBULL and "every" not in column and not isinstance(rows, np.ndarray | list):
        return  # DBULL encodes tables
    with pytest.raises(DataError, match=f"times .* in {column}"):
        method().fit(rows)


@pytest.mark.parametrize("wrap", [lambda rows: rows, list])
def test_masked_values_are_refused(wrap):
    rows = np.ma.array(np.random.default_rng(0).normal(size=(30, 3)))
    model = DPMixture(random_state=0).fit(rows)  # a mask that hides nothing
    np.testing.assert_array_equal(model.labels_, DPMixture(random_state=0).fit(rows.data).labels_)
    rows[7, 2] = np.ma.masked
    for use in (DPMixture().fit, DBULL().fit, model.predict):
        with pytest.raises(DataError, match="masked values: first at row 7"):
            use(wrap(rows))


def test_numbers_and_texts_of_numbers_are_still_rows():
    rows = np.random.default_rng(0).normal(size=(30, 2))
    expected = DPMixture(random_state=0).fit(rows).labels_
    for same in (rows.astype(object), rows.tolist(), [*map(tuple, rows.tolist())]):
        np.testing.assert_array_equal(DPMixture(random_state=0).fit(same).labels_, expected)
