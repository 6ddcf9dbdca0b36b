"""Arrays with heavy tails: the rule is stored with the model, and answers are in the units of the data."""

import warnings

import numpy as np
import pytest

import dbull
from dbull import DBULL

QUICK = {"epochs": 20, "random_state": 0}


@pytest.fixture(scope="module", params=[4, 12], ids=["as they are", "networks"])
def rows(request):
    """Two kinds that differ by orders of magnitude in one column; others have another unit."""
    random = np.random.default_rng(0)
    money = np.exp(random.normal([2.0, 9.0], 1.0, (150, 2)).T.ravel())
    others = random.normal(0, 0.01, (300, request.param - 1))
    others[150:, ::2] += 0.06
    return np.column_stack([money, others])


@pytest.fixture(scope="module")
def model(rows):
    return DBULL(**QUICK).fit(rows)


def test_the_rule_is_stored(model, rows, tmp_path):
    assert model.state_.view.curves[0].rule != "linear"
    model.save(tmp_path / "model")
    again = dbull.load(tmp_path / "model")
    for answer in ("predict", "score_samples", "transform", "novelty_scores"):
        np.testing.assert_array_equal(getattr(again, answer)(rows), getattr(model, answer)(rows))
    np.testing.assert_array_equal(again.prototype(0), model.prototype(0))


def test_explanations_are_in_the_units_of_the_data(model, rows):
    ids = model.predict(rows)
    poor, rich = (int(np.bincount(ids[part]).argmax()) for part in (slice(150), slice(150, None)))
    assert poor != rich
    (trait,) = [trait for trait in model.explain(rich, n_traits=12).traits if trait.column == "column 0"]
    assert 3e3 < trait.here < 3e4  # a median of 8,100
    assert trait.others < 100


def test_another_unit_is_noticed(model, rows):
    with pytest.warns(UserWarning, match="column"):
        model.preview(rows * np.where(np.arange(rows.shape[1]) == 0, 1e9, 1.0))
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        model.preview(rows[::2])
