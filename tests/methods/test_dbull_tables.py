"""Tables of mixed columns in `DBULL`: any library, any order, stored, refused with help."""

import warnings

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline

import dbull
from dbull import DBULL, DataError
from dbull.errors import ModelFileError, SettingsError
from dbull.tables import ColumnEncoder
from forgery import forge

pytestmark = pytest.mark.usefixtures("quick_module")


def orders(n=120, seed=0):
    """Return a table with two groups of rows, and which row is of which."""
    rng = np.random.default_rng(seed)
    group = rng.integers(0, 2, n)
    amount = np.where(group == 1, 40.0, 5.0) + rng.normal(size=n)
    amount[rng.random(n) < 0.1] = np.nan
    table = pd.DataFrame(
        {
            "order_id": np.arange(7000, 7000 + n),
            "amount": amount,
            "paid": rng.random(n) < 0.5,
            "shop": np.where(group == 1, "north", "south"),
            "at": pd.date_range("2024-01-01", periods=n, freq="7h"),
        }
    )
    return table, group


TABLE = orders()[0]


@pytest.fixture(scope="module")
def model():
    with pytest.warns(UserWarning, match=r"columns left out: 'order_id' \(a different number"):
        return DBULL(random_state=0, epochs=1, joint_epochs=0).fit(TABLE)


@pytest.fixture(autouse=True)
def _no_warnings():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


def same_tables():
    polars, pyarrow = pytest.importorskip("polars"), pytest.importorskip("pyarrow")
    return {
        "pandas": TABLE,
        "other order": TABLE[TABLE.columns[::-1]],
        "without what is left out": TABLE.drop(columns="order_id"),
        "polars": polars.from_pandas(TABLE),
        "polars, lazy": polars.from_pandas(TABLE).lazy(),
        "pyarrow": pyarrow.Table.from_pandas(TABLE),
        "dict": TABLE.to_dict("list"),
        "list of dicts": TABLE.to_dict("records"),
        "all text": TABLE.astype(str).replace("nan", ""),
    }


@pytest.mark.parametrize("kind", list(same_tables()))
def test_every_library_and_order_gives_the_same_answers(model, kind):
    table = same_tables()[kind]
    np.testing.assert_array_equal(model.predict(table), model.labels_)
    np.testing.assert_array_equal(model.score_samples(table), model.score_samples(TABLE))


def test_the_learner_sees_encoded_rows_as_they_are(model):
    encoder = model.column_encoder_
    assert list(model.feature_names_in_) == list(encoder.names) == ["amount", "paid", "shop", "at"]
    assert model.n_features_in_ == 4
    encoded = encoder.encode(TABLE)
    values = model.state_.view.values(model._rows(TABLE)).numpy()
    np.testing.assert_array_equal(values, encoded)
    assert model.reconstruct(TABLE).shape == encoded.shape
    assert model.value_names_[:2] == ["amount", "amount: missing"]


def test_numbers_alone_are_rows_as_ever(model):
    table = TABLE[["amount"]].assign(twice=2 * TABLE["amount"], n=np.arange(len(TABLE)) % 7).dropna()
    plain = clone(model).fit(table)
    assert not hasattr(plain, "column_encoder_")
    other = clone(model).fit(table.to_numpy())
    np.testing.assert_array_equal(plain.labels_, other.labels_)
    np.testing.assert_array_equal(plain.predict(table.to_dict("records")), plain.labels_)
    for other in (table.assign(more=1), table.assign(n=np.nan), table.assign(n="x"), table[["n"]]):
        with pytest.raises(TypeError, match=r"amount, twice, n\); got a list"):
            plain.predict(other.to_dict("records"))
    asked = clone(model).set_params(columns={"n": "category"}).fit(table)
    assert [f.role for f in asked.column_encoder_.features][2:] == ["category"] * 8


def test_numbers_that_a_frame_declares_to_be_categories(model):
    table = pd.DataFrame({"a": np.arange(60) % 7 + 0.5, "n": pd.Categorical(np.arange(60) % 3)})
    encoder = clone(model).fit(table).column_encoder_
    assert [f.part for f in encoder.features] == ["value", "0", "1", "2", "other"]
    told = clone(model).set_params(columns={"n": "number"}).fit(table).column_encoder_
    assert [f.part for f in told.features] == ["value", "value"]


def test_fit_forgets_the_encoder(model):
    again = clone(model)
    with pytest.warns(UserWarning, match="left out"):
        again.fit(TABLE)
    with pytest.raises(DataError, match="NaN"):
        again.fit(TABLE[["amount"]].to_numpy())
    np.testing.assert_array_equal(again.predict(TABLE), model.labels_)  # as it was
    again.fit(np.random.default_rng(0).normal(size=(30, 3)))
    assert not hasattr(again, "column_encoder_")
    assert not hasattr(again, "feature_names_in_")


def test_a_stored_model_answers_and_goes_on_the_same(model, tmp_path):
    copied = clone(model).set_params(columns={"shop": "category", "order_id": "ignore"}).fit(TABLE)
    copied.save(tmp_path / "m")
    loaded = dbull.load(tmp_path / "m")
    assert loaded.columns == {"shop": "category", "order_id": "ignore"}
    assert loaded.column_encoder_.features == copied.column_encoder_.features
    later = orders(80, seed=1)[0]
    for one in (copied, loaded):
        one.partial_fit(later)
    np.testing.assert_array_equal(loaded.labels_, copied.labels_)
    np.testing.assert_array_equal(loaded.score_samples(later), copied.score_samples(later))


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("table", lambda d: d.update(version=9), "version 9"),
        ("table", lambda d: d["columns"].pop(), "array"),
        ("table", lambda d: d["columns"][2]["part"]["levels"].pop(), "means and spreads"),
        ("encoding", lambda t: t.pop("0.means"), "arrays"),
        ("encoding", lambda t: t.clear(), "arrays"),
        ("columns", lambda d: d["names"].reverse(), "other names"),
        ("columns", lambda d: d.update(names=None), "other names"),
    ],
)
def test_forged_encoders_are_refused(model, tmp_path, name, change, message):
    model.save(tmp_path / "m")
    del model.origin_
    forge(tmp_path / "m", name, change)
    with pytest.raises(ModelFileError, match=message):
        dbull.load(tmp_path / "m")


def test_later_tables(model):
    later = orders(40, seed=2)[0]
    with pytest.warns(UserWarning, match="new columns are ignored: 'colour'") as caught:
        model.predict(later.assign(colour="red"))
    assert caught[0].filename == __file__
    with pytest.warns(UserWarning, match="'amount' is not there"):
        model.predict(later.drop(columns="amount"))
    with pytest.raises(DataError, match="no rows"):
        model.partial_fit(later[:0])
    with pytest.raises(DataError, match="no column 'shop', which was never missing"):
        model.predict(later.drop(columns="shop"))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (TABLE.to_numpy(), "learned a table with the columns amount, paid, shop, at; .* got ndarray"),
        ("orders.csv", "got str. For files"),
        (None, "got NoneType"),
        ((row for row in [[1.0]]), "got generator"),
    ],
)
def test_what_is_no_table_is_refused_with_help(model, given, message):
    with pytest.raises(TypeError, match=message):
        model.predict(given)


def test_roles_and_kinds_that_do_not_fit(model):
    with pytest.raises(TypeError, match="ndarray has no names"):
        clone(model).set_params(columns={"a": "key"}).fit(np.zeros((3, 2)))
    with pytest.raises(TypeError, match=r"kind='sparse' .* are for rows of numbers"):
        clone(model).set_params(kind="sparse").fit(TABLE)
    with pytest.raises(SettingsError, match=r"unknown column 'shp'.*did you mean 'shop'"):
        clone(model).set_params(columns={"shp": "key"}).fit(TABLE)
    with pytest.raises(SettingsError, match=r"columns, of 'shop': 'categry': did you mean 'category'"):
        clone(model).set_params(columns={"shop": "categry"}).fit(TABLE)
    with pytest.raises(DataError, match="1 rows"):
        clone(model).fit(TABLE[:1])
    numbers = clone(model).fit(np.random.default_rng(0).normal(size=(30, 3)))
    with pytest.raises(TypeError, match=r"3 without names.*got a dict"):
        numbers.predict({"a": [1.0]})


def test_scikit_learn_tools(model):
    indexed = TABLE.set_index(pd.Index(range(500, 500 + len(TABLE)), name="n")).drop(columns="order_id")
    output = clone(model).set_output(transform="pandas").fit(indexed)
    assert list(output.transform(indexed).index) == list(indexed.index)
    pipeline = make_pipeline(clone(model)).fit(indexed)
    np.testing.assert_array_equal(pipeline.predict(indexed), model.labels_)
    search = GridSearchCV(clone(model), {"columns": [None, {"paid": "ignore"}]}, cv=2).fit(indexed)
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()
    assert isinstance(search.best_estimator_.column_encoder_, ColumnEncoder)
