"""Cells say the same in every container; pandas is the reference for dates and for what is missing."""

import datetime
import decimal
import io
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dbull.errors import DataError
from dbull.tables.cells import (
    MISSING,
    MOST_COUNTED,
    count_values,
    epoch_of,
    read_dates,
    read_flags,
    read_labels,
    read_numbers,
    read_vectors,
    tidy,
)
from dbull.tables.frames import columns_of


def cells(*values):
    return tidy(columns_of({"x": list(values)})["x"])


def test_missing_is_what_pandas_takes_as_missing():
    pandas = pytest.importorskip("pandas")
    for text in sorted(MISSING - {""}):
        read = pandas.read_csv(io.StringIO(f"a,b\n1,{text}\n2,word\n"), dtype={"b": object})
        assert read["b"].isna()[0] or text == "NaT", text
        assert cells(text)[0] is None, text
    for text in ("none", "na", "-", "?", "0"):
        assert cells(text)[0] == text


def test_missing_values_of_every_library():
    pandas = pytest.importorskip("pandas")
    gone = cells(None, math.nan, np.float32("nan"), np.datetime64("NaT"), pandas.NA, pandas.NaT, "  ", b"NA")
    assert list(gone) == [None] * 8


@given(st.lists(st.floats(-1e90, 1e90), min_size=1))
def test_numbers_are_the_same_as_text_and_as_objects(numbers):
    expected = np.array(numbers)
    for column in (expected, [str(x) for x in numbers], numbers, [repr(x).encode() for x in numbers]):
        reading = read_numbers(tidy(columns_of({"x": column})["x"]))
        assert reading.n_unreadable == 0
        np.testing.assert_array_equal(reading.values, expected)


def test_numbers_as_people_write_them():
    values = read_numbers(
        cells("1,234,567.5", " 12 ", "-.5", "$3.20", "12.5%", "1e3", True, decimal.Decimal("0.25"), 7)
    ).values
    assert values.tolist() == [1234567.5, 12, -0.5, 3.2, 12.5, 1000, 1, 0.25, 7]
    span = datetime.timedelta(minutes=2)
    assert read_numbers(cells(span)).values.tolist() == [120]
    assert read_numbers(tidy(np.array([span, "NaT"], "m8[s]"))).values[0] == 120


@pytest.mark.parametrize("text", ["1_000", "inf", "-Infinity", "12,34", "1.2.3", "0x10", "abc", "1e999", "٣"])
def test_what_is_no_number_is_told(text):
    reading = read_numbers(cells(1, text))
    assert reading.n_unreadable == 1
    assert reading.example == text
    assert np.isnan(reading.values[1])


def test_what_no_measurement_reaches_is_told():
    reading = read_numbers(np.array([1.0, np.inf, -1e200, np.nan]))
    assert (reading.n_unreadable, np.isnan(reading.values).tolist()) == (2, [False, True, True, True])


@given(st.datetimes(datetime.datetime(1, 1, 2), datetime.datetime(9999, 12, 30)))
def test_dates_are_the_same_in_every_form(moment):
    expected = (moment - datetime.datetime(1970, 1, 1)).total_seconds() / 86400
    forms = [moment, moment.isoformat(), moment.isoformat(" ") + "Z", np.datetime64(moment)]
    for form in [*forms, moment.isoformat() + "+05:30", moment.replace(tzinfo=datetime.timezone.utc)]:
        assert read_dates(cells(form)).values[0] == pytest.approx(expected, rel=1e-12, abs=1e-9), form
    assert read_dates(np.array([moment], "M8[us]")).values[0] == pytest.approx(expected, abs=1e-9)
    day = (moment.date() - datetime.date(1970, 1, 1)).days
    assert read_dates(cells(moment.date(), moment.date().isoformat())).values.tolist() == [day, day]


def test_what_is_no_date_is_told():
    reading = read_dates(cells("2020-02-30", "2020-13-01", "31.12.2020", "20201231", "now", 5, "2020-02"))
    assert reading.n_unreadable == 6
    assert reading.values[6] == (datetime.date(2020, 2, 1) - datetime.date(1970, 1, 1)).days


@pytest.mark.parametrize(("unit", "factor"), [("s", 1), ("ms", 1e3), ("us", 1e6), ("ns", 1e9)])
def test_times_since_1970(unit, factor):
    seconds = np.array([1.2e9, 1.3e9])
    for column in (seconds * factor, cells(*(str(int(x * factor)) for x in seconds))):
        assert epoch_of(column) == unit
        np.testing.assert_allclose(read_dates(column, unit).values, seconds / 86400)
    reading = read_dates(cells(int(1.2e9 * factor), "word"), unit)
    assert (reading.n_unreadable, reading.example) == (1, "word")


def test_flags():
    reading = read_flags(cells("yes", "No", "TRUE", "f", True, 0, 2.0, "1", None, "maybe"))
    np.testing.assert_array_equal(reading.values, [1, 0, 1, 0, 1, 0, 1, 1, np.nan, np.nan])
    assert (reading.n_unreadable, reading.example) == (1, "maybe")


def test_labels_do_not_depend_on_how_codes_are_stored():
    expected = ["4", "5", None]
    for column in ([4, 5, None], [4.0, 5.0, math.nan], ["4", "5", ""], ["4.0", "5.0", "NA"]):
        assert read_labels(cells(*column)) == expected
    assert read_labels(np.array([4.0, 5.0, np.nan])) == expected
    assert read_labels(cells(True, 1, 1.5, [1], datetime.date(2020, 1, 2))) == [
        *("true", "1", "1.5", "[1]", "2020-01-02")
    ]
    assert read_labels(np.array(["2020-01-02", "NaT"], "M8[ns]")) == ["2020-01-02T00:00:00", None]


def test_vectors():
    lists = cells([1, 2], (3.0, None), None, [1, 2, 3], "word", np.array([np.inf, 6]))
    reading = read_vectors(lists, 2)
    nan = np.nan
    expected = [[1, 2], [3, nan], [nan, nan], [nan, nan], [nan, nan], [nan, 6]]
    np.testing.assert_array_equal(reading.values, expected)
    assert (reading.n_unreadable, reading.example) == (2, [1, 2, 3])


def test_counts_are_bounded_and_keep_what_is_frequent():
    many = [f"v{i}" for i in range(3 * MOST_COUNTED)]
    counts, dropped = count_values("often" if i % 3 == 0 else value for i, value in enumerate(many))
    assert dropped
    assert len(counts) <= MOST_COUNTED
    assert counts["often"] == MOST_COUNTED
    assert count_values("aab") == ({"a": 2, "b": 1}, False)


ROWS = [{"a": 1, "b": "x"}, {"a": 2}, {"b": "z", "c": None}]


def test_tables_of_every_library_have_the_same_columns():
    pandas, polars, arrow = (pytest.importorskip(name) for name in ("pandas", "polars", "pyarrow"))
    by_name = {"a": [1, 2, None], "b": ["x", None, "z"], "when": [datetime.datetime(2020, 1, 2, 3)] * 3}
    frames = [
        by_name,
        [dict(zip(by_name, row, strict=True)) for row in zip(*by_name.values(), strict=True)],
        pandas.DataFrame(by_name),
        pandas.DataFrame(by_name).convert_dtypes(),
        pandas.DataFrame(by_name).astype({"b": "category"}),
        polars.DataFrame(by_name),
        polars.LazyFrame(by_name),
        arrow.table(by_name),
        arrow.table(by_name).set_column(1, "b", arrow.array(by_name["b"]).dictionary_encode()),
    ]
    for frame in frames:
        columns = {name: tidy(column) for name, column in columns_of(frame).items()}
        assert list(columns) == ["a", "b", "when"]
        np.testing.assert_array_equal(read_numbers(columns["a"]).values, [1, 2, np.nan])
        assert read_labels(columns["b"]) == ["x", None, "z"]
        assert read_dates(columns["when"]).values.tolist() == [18263.125] * 3


def test_zones_show_the_clock_on_the_wall_in_every_library():
    pandas, polars, arrow = (pytest.importorskip(name) for name in ("pandas", "polars", "pyarrow"))
    moment = pandas.Series(pandas.to_datetime(["2020-07-01 12:00"]).tz_localize("America/New_York"))
    frame = pandas.DataFrame({"when": moment})
    text = {"when": ["2020-07-01T12:00:00-04:00"]}
    for table in (frame, polars.from_pandas(frame), arrow.Table.from_pandas(frame), text):
        days = read_dates(tidy(columns_of(table)["when"])).values
        assert days[0] % 1 == 0.5


def test_types_that_few_tables_have():
    pandas, polars = (pytest.importorskip(name) for name in ("pandas", "polars"))
    time, nested = datetime.time(5, 17), [{"a": 1}, {"a": 2}]
    frame = polars.DataFrame({"s": nested, "t": [time] * 2, "l": [[1, 2], [3, 4]]})
    for table in (frame, frame.to_arrow()):
        columns = columns_of(table)
        assert list(tidy(columns["s"])) == nested
        assert list(tidy(columns["t"])) == ["05:17:00"] * 2
        assert read_vectors(tidy(columns["l"]), 2).values.tolist() == [[1, 2], [3, 4]]
    periods = columns_of(pandas.DataFrame({"p": pandas.period_range("2020-02", periods=1, freq="M")}))
    assert read_dates(tidy(periods["p"])).values[0] == read_dates(cells("2020-02-01")).values[0]


def test_lists_stay_lists_and_masks_are_missing():
    columns = columns_of({"v": [[1, 2], [3, 4]], "m": np.ma.array([1, 2], mask=[False, True])})
    assert columns["v"].shape == (2,)
    assert list(columns["m"]) == [1, None]
    assert [list(column) for column in columns_of(ROWS).values()] == [
        *([1, 2, None], ["x", None, "z"], [None, None, None])
    ]


@pytest.mark.parametrize(
    ("frame", "says"),
    [
        (np.zeros((2, 2)), "columns with names"),
        ([], "columns with names"),
        ({"a": [1], "b": [1, 2]}, "one length"),
        ({1: [1], "1": [2]}, "more than once"),
        ({"a": 5}, "a list or an array"),
        ({"a": "text"}, "a list or an array"),
        ({"a": np.zeros((1, 2, 3))}, "3 dimensions"),
    ],
)
def test_what_is_no_table(frame, says):
    with pytest.raises(DataError, match=says):
        columns_of(frame)
