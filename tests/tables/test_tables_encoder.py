"""What encoders promise: one vote per column, rows by themselves, tolerance, the same bits when stored."""

import copy
import datetime
import json
import math
import subprocess
import sys
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from made_tables import table

from dbull.documents import dump_document, parse_document
from dbull.errors import DataError, ModelFileError
from dbull.scaling import ALL_OR_NOTHING, FARTHEST, Curve
from dbull.tables import ColumnEncoder, propose_roles
from dbull.tables.scales import LARGEST
from pages import run_page


def fitted(columns, **roles):
    return ColumnEncoder.fit(columns, propose_roles(columns, roles))


def encoded(columns, **roles):
    return fitted(columns, **roles).encode(columns).astype(np.float64)


def votes(encoder, columns):
    """Return the variance of each column, in all its features."""
    found = {}
    for feature, variance in zip(encoder.features, encoder.encode(columns).astype(float).var(0), strict=True):
        found[feature.column] = found.get(feature.column, 0) + variance
    return found


def of(encoder, column):
    return {f.part: (i, f) for i, f in enumerate(encoder.features) if f.column == column}


ENCODER = fitted(table())


# --- one column, one vote


def test_every_column_has_its_vote():
    found = votes(ENCODER, table())
    assert found.pop("embedding") == pytest.approx(math.sqrt(5), rel=1e-5)
    assert found.pop("day") == pytest.approx(3, rel=1e-3)  # time of day, day of week, day of year
    assert set(found) == {"delay", "cancelled", "carrier", "note"}
    for name, vote in found.items():
        # What is missing counts as in a number: it may be what a day is about.
        missing = np.mean([cell is None for cell in table()[name]])
        whole = ALL_OR_NOTHING if name in ("cancelled", "carrier") else 1
        assert vote == pytest.approx((1 - missing) * whole + missing, rel=1e-3), name
    assert np.abs(ENCODER.encode(table()).mean(0)).max() < 1e-5


@given(st.integers(2, 200), st.floats(0, 3), st.integers(0, 5))
@settings(max_examples=40)
def test_levels_of_a_category_share_one_vote_and_none_is_far_out(n_levels, skew, seed):
    shares = np.arange(1, n_levels + 1) ** -skew
    drawn = np.random.default_rng(seed).choice(n_levels, 2000, p=shares / shares.sum())
    columns = {"c": [f"L{i}" for i in drawn], "x": drawn}
    rows = encoded(columns, c="category", x="number")[:, :-1]
    assert rows.var(0).sum() <= ALL_OR_NOTHING + 1e-5
    points = np.unique(rows, axis=0)
    distances = np.linalg.norm(points[:, None] - points[None], axis=-1)
    assert distances.max() <= FARTHEST + 1e-5
    if distances.max() < FARTHEST - 1e-5 and len(points) > 1:
        assert rows.var(0).sum() == pytest.approx(ALL_OR_NOTHING, rel=1e-4)


def test_a_number_of_few_values_goes_by_steps():
    values = np.arange(600)
    several, few = (encoded({"n": values % n}, n="number").var() for n in (6, 5))
    assert several == pytest.approx(1, rel=1e-4)
    assert few == pytest.approx(ALL_OR_NOTHING, rel=1e-4)


def test_dummies_of_a_category_are_that_category():
    """As a column of labels, or as flags side by side: rows are as far from each other."""
    random = np.random.default_rng(0)
    label = random.integers(0, 9, 400)
    paid, other = random.random(400) < 0.3, random.random(400) < 0.6
    dummies = {f"shop {i}": label == i for i in range(9)}
    columns = {"paid": paid, **dummies, "other": other}
    found = votes(fitted(columns), columns)
    assert sum(found[name] for name in dummies) == pytest.approx(ALL_OR_NOTHING, rel=1e-3)
    assert found["paid"] == pytest.approx(ALL_OR_NOTHING, rel=1e-3)
    whole = encoded({"shop": np.array([f"s{i}" for i in label])}, shop="category")
    apart = encoded(dummies)
    assert np.linalg.norm(apart[:50, None] - apart[:50], axis=2) == pytest.approx(
        np.linalg.norm(whole[:50, None] - whole[:50], axis=2), rel=1e-3, abs=1e-6
    )
    dummies["shop 3"] = dummies["shop 3"] & (np.arange(400) != np.flatnonzero(label == 3)[0])
    found = votes(fitted(dummies), dummies)  # one row has none: flags
    assert found["shop 0"] == pytest.approx(ALL_OR_NOTHING, rel=1e-3)


@pytest.mark.parametrize("share", [0.5, 0.1, 0.01, 0.006, 0.001])
def test_a_rare_flag_neither_rules_nor_vanishes(share):
    flags = np.arange(10_000) < round(share * 10_000)
    rows = encoded({"f": flags})
    gap = np.ptp(rows)
    deviation = math.sqrt(share * (1 - share))
    assert gap == pytest.approx(min(math.sqrt(ALL_OR_NOTHING) / deviation, FARTHEST), rel=1e-5)
    as_category = encoded({"f": np.where(flags, "yes!", "no!")}, f="category")
    assert np.linalg.norm(as_category[0] - as_category[-1]) == pytest.approx(gap, rel=1e-5)


@given(
    st.lists(st.floats(-1e30, 1e30), min_size=30, max_size=60, unique=True),
    st.floats(0, 0.9),
)
def test_numbers_have_at_most_one_vote_and_come_back(numbers, missing):
    values = [None if i < missing * len(numbers) else x for i, x in enumerate(numbers)]
    encoder = fitted({"x": values, "y": list(range(5, 5 + len(values)))}, x="number")
    rows = encoder.encode({"x": values, "y": values}, tell=lambda notice: None).astype(float)
    width = len(of(encoder, "x"))
    assert rows[:, :width].var(0).sum() <= 1 + 1e-4
    there = [i for i, x in enumerate(values) if x is not None]
    feature = encoder.features[0]
    back = feature.restored(rows[there, 0])
    reach = np.abs(feature.curve.unbend(feature.mean + feature.spread * np.abs(rows[there, 0]))) + 1e-30
    expected = np.array([values[i] for i in there])
    assert (np.abs(back - expected) <= 1e-4 * np.maximum(reach, np.ptp(expected))).all()


def test_a_column_with_gaps_still_has_one_vote():
    numbers = np.random.default_rng(0).normal(size=5000)
    for share in (0.0, 0.02, 0.3, 0.8):
        values = np.where(np.arange(5000) < share * 5000, np.nan, numbers)
        rows = encoded({"x": values})
        assert rows.shape[1] == (2 if share else 1)
        assert rows.var(0).sum() == pytest.approx(1, rel=1e-3)
        assert (rows[np.isnan(values), 0] == 0).all()


def test_vectors_keep_their_angles():
    vectors = np.random.default_rng(0).normal(size=(200, 6)) * [1, 2, 3, 1, 1, 9]
    rows = encoded({"v": vectors})
    centred = vectors - vectors.mean(0)
    np.testing.assert_allclose(rows / rows[0, 0], centred / centred[0, 0], rtol=1e-3, atol=1e-4)


def test_vectors_may_lack_some_or_all_numbers():
    vectors = [[float(i), i % 7.0] for i in range(90)] + [[None, 3.0], None, [1.0]] * 3
    rows = ColumnEncoder.fit({"v": vectors}).encode({"v": vectors}, tell=lambda notice: None)
    assert rows.shape == (99, 3)
    assert rows[90, 0] == 0 != rows[90, 1]
    np.testing.assert_array_equal(rows[:, 2] > 0, [False] * 90 + [False, True, True] * 3)


# --- the curves of numbers


def test_curves_by_the_shape_of_the_data():
    random = np.random.default_rng(0)
    normal = random.normal(size=4000)
    rules = {
        "linear": [normal, random.random(4000), random.exponential(size=4000), np.ones(9), np.arange(2.0)],
        "log": [np.exp(3 * normal), 10.0 ** random.uniform(-3, 3, 4000), np.exp(2 * normal) * (normal > 1)],
        "robust": [random.standard_t(1.5, 4000), np.exp(2 * normal) * np.sign(normal - 0.1)],
    }
    for rule, columns in rules.items():
        assert [Curve.of(column).rule for column in columns] == [rule] * len(columns)


def test_numbers_three_decades_apart_need_no_tail_for_a_log():
    small, large = 10 ** np.linspace(-3, -1, 50), np.linspace(300, 900, 50)
    curve = Curve.of(np.concatenate([small, large]))
    assert (curve.rule, curve.centre) == ("log", 0)
    assert curve.unit == pytest.approx(np.quantile([*small, *large], 0.05))


def test_numbers_that_are_mostly_one_value():
    changes = np.where(np.arange(1000) % 20 == 0, np.random.default_rng(0).standard_t(2, 1000), 0.0)
    curve = Curve.of(changes)
    assert (curve.rule, curve.centre) == ("robust", 0)
    assert curve.unit == pytest.approx(np.median(np.abs(changes[changes != 0])))
    for n_rare in (10, 20, 40):  # of 1000, as a rare flag
        rare = encoded({"x": np.where(np.arange(1000) < n_rare, np.arange(1000) % 5 + 5, 0)})
        assert FARTHEST / 2 < np.median(rare[:n_rare]) - rare[-1, 0] <= FARTHEST + 1e-5
    rounding = 1e6 + np.arange(1000) % 2 * 1e-10
    assert np.abs(encoded({"x": rounding}, x="number")).max() < 1e-6


def test_an_outlier_does_not_flatten_the_rest():
    numbers = np.random.default_rng(0).normal(size=1000)
    broken = np.where(np.arange(1000) == 0, 1e9, numbers)
    rows = encoded({"x": broken})[:, 0]
    assert rows[1:].std() > 0.5
    assert rows[0] > 10 * rows[1:].std()


def test_numbers_a_million_times_too_large_stay_finite():
    columns = table()
    rows = ENCODER.encode({**columns, "delay": [1e9, -1e80, *columns["delay"][2:]]})
    assert np.abs(rows).max() <= LARGEST  # false of NaN
    told = []
    rows = ENCODER.encode({**columns, "delay": [math.inf, 10**400, *columns["delay"][2:]]}, told.append)
    assert np.isfinite(rows).all()
    assert ["'delay': 2 of 300" in notice for notice in told] == [True]


# --- dates


def test_parts_of_dates_are_those_of_the_calendar():
    pandas = pytest.importorskip("pandas")
    days = pandas.date_range("1950-03-01", periods=9000, freq="7h")
    columns = {"t": days.to_numpy()}
    encoder = fitted(columns)
    rows, parts = encoder.encode(columns), of(encoder, "t")
    assert len(parts) == 6  # not the days themselves, which grow with the stream
    circles = {
        "hour of day": (days.hour + days.minute / 60) / 24,
        "day of week": days.day_of_week / 7,
        "day of year": (days.day_of_year - 1) / 365.2425,
    }
    for name, turns in circles.items():
        sin, cos = (f.restored(rows[:, i]) for i, f in (parts[f"sin of {name}"], parts[f"cos of {name}"]))
        found = np.arctan2(sin, cos) / (2 * np.pi)
        off = (found - np.asarray(turns) + 0.5) % 1 - 0.5
        assert np.abs(off).max() < (0.005 if "year" in name else 1e-5), name


def test_only_cycles_that_dates_run_through():
    def parts(*dates):
        encoder = fitted({"t": list(dates), "n": [i % 7 for i in range(len(dates))]})
        return {name.split(" of ", 1)[-1] for name in of(encoder, "t")}

    day, start = datetime.timedelta(days=1), datetime.datetime(2001, 2, 3)
    assert parts(*(start + i * day for i in range(10))) == set()
    assert parts(*(start + i * day for i in range(100))) == {"day of week"}
    assert parts(*(start + i * day / 4 for i in range(100))) == {"hour of day", "day of week"}
    assert parts(*(start + i * day for i in range(900))) == {"day of week", "day of year"}
    assert parts(*(datetime.date(2000 + i // 12, 1 + i % 12, 1) for i in range(60))) == {"day of year"}
    assert parts(*(datetime.date(1950 + i, 1, 1) for i in range(60))) == set()


# --- rows by themselves, and tolerance of later data


@given(st.permutations(range(40)), st.integers(0, 40))
@settings(max_examples=20)
def test_a_row_is_encoded_by_itself(order, cut):
    columns = table(40, seed=3)
    whole = ENCODER.encode(columns)
    shuffled = {name: [columns[name][i] for i in order] for name in reversed(columns)}
    np.testing.assert_array_equal(ENCODER.encode(shuffled), whole[list(order)])
    parts = [
        ENCODER.encode({name: part[s] for name, part in columns.items()})
        for s in (slice(cut), slice(cut, 40))
    ]
    np.testing.assert_array_equal(np.concatenate(parts), whole)


def test_a_table_read_as_text_is_encoded_the_same():
    columns = table()
    as_text = {name: ["" if x is None else str(x) for x in columns[name]] for name in columns}
    as_text["embedding"] = columns["embedding"]
    np.testing.assert_array_equal(ENCODER.encode(as_text), ENCODER.encode(columns))
    np.testing.assert_array_equal(fitted(as_text).encode(as_text), ENCODER.encode(columns))


def test_unseen_categories_are_other():
    columns = table(2)
    rows = ENCODER.encode({**columns, "carrier": ["never seen", "UA"]})
    parts = of(ENCODER, "carrier")
    assert set(parts) == {"B6", "EV", "UA", "other", "missing"}
    shares = {part: f.restored(rows[:, i]) for part, (i, f) in parts.items()}
    for part, share in shares.items():
        np.testing.assert_allclose(share, [part == "other", part == "UA"], atol=1e-5)


def test_means_of_rows_are_shares_in_the_users_words():
    columns = table()
    rows = ENCODER.encode(columns).astype(float)
    index, feature = of(ENCODER, "cancelled")["true"]
    assert feature.measure == "share"
    assert feature.restored(rows[:50, index].mean()) == pytest.approx(
        np.mean(columns["cancelled"][:50]), abs=1e-5
    )
    index, feature = of(ENCODER, "delay")["missing"]
    gaps = np.mean([x is None for x in columns["delay"][:50]])
    assert feature.restored(rows[:50, index].mean()) == pytest.approx(gaps, abs=1e-5)


def test_what_is_missing_later():
    columns = table(5, seed=1)
    gone = ENCODER.encode({**columns, "delay": [None] * 5, "carrier": np.full(5, np.nan)})
    told = []
    absent = ENCODER.encode({n: c for n, c in columns.items() if n not in ("delay", "carrier")}, told.append)
    np.testing.assert_array_equal(gone, absent)
    assert [notice.split("'")[1] for notice in told] == ["delay", "carrier"]
    everything = ENCODER.encode({name: [None] for name in columns})
    for i, feature in enumerate(ENCODER.features):
        assert (everything[0, i] != 0) == (feature.part == "missing")
    with pytest.raises(DataError, match="no column 'cancelled', which was never missing"):
        ENCODER.encode({n: c for n, c in columns.items() if n != "cancelled"})
    with pytest.raises(DataError, match="never missing"):
        ENCODER.encode({"other": [1]})


def test_notices():
    columns = {**table(5), "brand_new": [1] * 5, "delay": ["word", 1, 2, 3, 4]}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        ENCODER.encode(columns)
    assert caught[0].filename == __file__
    texts = [str(warning.message) for warning in caught]
    assert texts[0] == "new columns are ignored: 'brand_new'"
    assert "column 'delay': 1 of 5 values cannot be read as number, such as 'word'" in texts[1]
    ENCODER.encode(table(5), tell=pytest.fail)  # columns left out at first are not new


def test_no_rows_and_no_columns():
    assert ENCODER.encode(table(0)).shape == (0, len(ENCODER.features))
    for columns in ({"id": list(range(50))}, {}, {"x": []}):
        with pytest.raises(DataError, match="no column is left"):
            fitted(columns)


def test_roles_that_no_value_fits():
    with pytest.raises(DataError, match=r"'place': none of its 60 values can be read as number.*'north'"):
        fitted({"place": ["north", "south"] * 30}, place="number")
    with pytest.raises(DataError, match=r"'place'.*date"):
        fitted({"place": ["north", "south"] * 30}, place="date")
    with pytest.raises(DataError, match=r"'place'.*vector"):
        fitted({"place": ["north", "south"] * 30}, place="vector")
    with pytest.raises(DataError, match="no column 'x'"):
        ColumnEncoder.fit({"y": [1, 2, 3]}, propose_roles({"x": [1, 2, 3]}))


def test_columns_of_one_value_if_the_user_insists():
    columns = {"n": [3.0] * 9, "c": ["x"] * 9, "f": [True] * 9, "t": ["word"] * 9, "d": ["2020-01-01"] * 9}
    names = dict(zip(columns, ("number", "category", "flag", "text", "date"), strict=True))
    assert (np.abs(encoded(columns, **names)) < 1e-6).all()


def test_texts_of_one_topic_lie_together_and_new_words_are_unfamiliar():
    columns = table()
    rows = ENCODER.encode(columns)
    parts = of(ENCODER, "note")
    mine = [i for i, _ in parts.values()]
    assert any("server" in part or "disk" in part for part in parts)
    topics = np.array([text.split()[0] for text in columns["note"]])
    for topic in set(topics):
        same = np.linalg.norm(rows[topics == topic][:, mine] - rows[topics == topic][0, mine], axis=1)
        other = np.linalg.norm(rows[topics != topic][:, mine] - rows[topics == topic][0, mine], axis=1)
        assert same.max() < other.min()
    texts = [columns["note"][0], "zebras graze quietly", "disk failed, zebras graze"]
    later = ENCODER.encode({**table(3), "note": texts})
    places = np.array([feature.restored(later[:, i]) for i, feature in parts.values()])
    np.testing.assert_allclose((places**2).sum(0), 1, atol=1e-4)  # topics and the rest are all of a text
    assert places[-1, :2] == pytest.approx([0, 1], abs=0.1)
    assert 0.2 < places[-1, 2] < 0.999


# --- the stored form


def stored(encoder):
    document, arrays = encoder.to_document()
    return parse_document(dump_document(document, "here"), "here"), arrays


def test_a_stored_encoder_gives_the_same_bits():
    document, arrays = stored(ENCODER)
    assert all(array.dtype in (np.float32, np.float64) for array in arrays.values())
    again = ColumnEncoder.from_document(document, arrays)
    assert again.features == ENCODER.features
    later = {**table(50, seed=9), "new": [1] * 50}
    for columns in (table(), later):
        first, second = (e.encode(columns, tell=lambda notice: None) for e in (ENCODER, again))
        np.testing.assert_array_equal(first, second)
    assert stored(again)[0] == document


@given(st.data())
@settings(max_examples=150)
def test_hostile_documents_are_refused_or_harmless(data):
    """Change one value anywhere: the document is refused with our error, or still encodes to finite rows."""
    document, arrays = copy.deepcopy(stored(ENCODER))
    place, parents = document, []
    while isinstance(place, (dict, list)) and place:
        key = data.draw(st.sampled_from(sorted(place) if isinstance(place, dict) else range(len(place))))
        parents.append((place, key))
        place = place[key]
    parent, key = parents[data.draw(st.integers(0, len(parents) - 1))]
    junk = st.sampled_from(
        [None, True, -1, 0, 10**30, 1.5, -1.0, 1e308, "x", "", [], ["x"] * 3, {}, {"a": 1}]
    )
    parent[key] = data.draw(junk)
    try:
        encoder = ColumnEncoder.from_document(document, arrays)
        rows = encoder.encode(table(5), tell=lambda notice: None)
    except (ModelFileError, DataError):
        return
    assert np.isfinite(rows).all()
    assert rows.shape == (5, len(encoder.features))


@given(st.data())
@settings(max_examples=60)
def test_hostile_arrays_are_refused(data):
    document, arrays = stored(ENCODER)
    name = data.draw(st.sampled_from(sorted(arrays)))
    wrong = data.draw(
        st.sampled_from(
            [
                arrays[name][:-1],
                arrays[name].astype(np.float16),
                np.full_like(arrays[name], np.nan),
                arrays[name][None],
                None,
            ]
        )
    )
    if wrong is None:
        del arrays[name]
    else:
        arrays[name] = wrong
    with pytest.raises(ModelFileError):
        ColumnEncoder.from_document(document, arrays)


def test_what_else_is_refused():
    document, arrays = stored(ENCODER)
    for change in (
        {"version": 2},
        {"columns": document["columns"] * 2},
        {"left_out": ["delay"]},
        {"more": 1},
    ):
        with pytest.raises(ModelFileError, match="tables"):
            ColumnEncoder.from_document({**document, **change}, arrays)
    for extra in ("9.means", "0.more", "means"):
        with pytest.raises(ModelFileError, match="array"):
            ColumnEncoder.from_document(document, {**arrays, extra: np.zeros(1)})
    for i, field in ((2, "levels"), (3, "cycles")):
        twice = copy.deepcopy(document)
        twice["columns"][i]["part"][field][1] = twice["columns"][i]["part"][field][0]
        with pytest.raises(ModelFileError, match=f"{field}: repeats itself"):
            ColumnEncoder.from_document(twice, arrays)
    negative = {**arrays, "0.spreads": -arrays["0.spreads"]}
    with pytest.raises(ModelFileError, match="spread"):
        ColumnEncoder.from_document(document, negative)


def test_the_page_about_tables(capsys):
    run_page("docs/tables.md")
    assert "order_id: key; a different number in each row" in capsys.readouterr().out


def test_only_libraries_of_tables_at_hand_are_imported():
    others = {"torch", "pandas", "polars", "pyarrow", "sklearn"}
    code = f"import sys, dbull.tables; print(*{others} & {{*sys.modules}})"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == ""


def test_no_row_is_stored():
    secret = "Xylophonia"
    columns = {
        "name": [f"{secret} {i}" for i in range(99)],
        "x": list(range(3, 102)),
        "c": ["a", "b", "a"] * 33,
    }
    document, _ = ColumnEncoder.fit(columns).to_document()
    assert secret not in json.dumps(document)
