"""Rows that are nowhere near anything: old clusters stay, and the answer can be "none of these"."""

import copy
import warnings

import numpy as np
import pytest
from sklearn.metrics import adjusted_rand_score

from dbull import DBULL
from dbull.errors import DataError, SettingsError

pytestmark = pytest.mark.usefixtures("quick_module")

WIDTHS = (5, 24, 64)  # the first without networks


def blobs(rng, centres, n_rows):
    return centres[rng.integers(len(centres), size=n_rows)] + rng.normal(size=(n_rows, centres.shape[1]))


class Case:
    """A model of three blobs, and rows to ask it about."""

    def __init__(self, width):
        self.rng = np.random.default_rng(width)
        self.centres = 6 * self.rng.normal(size=(3, width))
        few = {"epochs": 10, "joint_epochs": 1, "hidden_dims": (32,), "n_neighbors": 15}
        self.model = DBULL(random_state=0, **few).fit(self.draw(300))
        self.asked = self.draw(200)
        self.before = self.model.predict(self.asked)

    def draw(self, n_rows):
        return blobs(self.rng, self.centres, n_rows)

    def after(self, *arrivals):
        model = copy.deepcopy(self.model)
        for arrival in arrivals:
            model.partial_fit(arrival)
        return model

    def kept(self, model):
        return adjusted_rand_score(self.before, model.predict(self.asked))


@pytest.fixture(scope="module", params=WIDTHS)
def case(request):
    case = Case(request.param)
    assert case.model.n_clusters_ == 3
    return case


def arrival_of(model):
    return [event for event in model.events_ if event.kind == "arrival"][-1].evidence


@pytest.mark.parametrize("off", [10.0, 30.0, 1e3, 1e12])
@pytest.mark.parametrize("columns", [slice(0, 1), slice(None)], ids=["one column", "all columns"])
def test_one_row_however_far_moves_nothing(case, off, columns):
    row = case.asked[:1].copy()
    row[:, columns] += off
    model = case.after(row)
    assert case.kept(model) == 1.0
    assert model.n_clusters_ == 3
    assert model.state_.n_rows == 301
    if off >= 30:  # in one of 64 columns less than that is hardly strange
        assert arrival_of(model)["n_outliers"] == 1
        assert arrival_of(model)["novel_share"] == 1.0


def test_outliers_among_known_rows_and_a_new_kind(case):
    arrival = case.draw(300)
    new = case.centres[0] + 20.0 + case.rng.normal(size=(60, arrival.shape[1]))
    arrival[:60] = new
    arrival[99, 2] = -1e6
    arrival[200] += 3e4
    model = case.after(arrival)
    assert case.kept(model) > 0.99  # ordinary rows of the arrival may move a border
    assert arrival_of(model)["n_outliers"] >= 2
    assert len(set(model.predict(new)) - set(case.before)) == 1  # one birth holds the new kind
    assert model.n_clusters_ == 4


def test_all_rows_in_other_units(case):
    """They found clusters of their own and are recognised the next time; the old ones stay."""
    with pytest.warns(UserWarning, match=r"columns .*other units\?"):
        model = case.after(1000 * case.draw(300))
    assert case.kept(model) >= 0.999
    told = [event for event in model.events_ if event.kind == "scale"]
    assert len(told) == 1
    assert len(told[0].evidence["columns"]) >= case.asked.shape[1] // 2
    born = set(model.cluster_ids_) - set(case.before)
    assert born
    again = 1000 * case.draw(300)
    ids = model.predict(again)
    assert np.isin(ids, list(born)).mean() > 0.97
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # the scale is known by now
        model.partial_fit(again)
    assert case.kept(model) >= 0.999
    assert adjusted_rand_score(ids, model.predict(again)) > 0.95
    model.partial_fit(case.draw(300))
    assert case.kept(model) > 0.99


def test_a_change_of_scale_can_be_refused(case):
    strict = copy.deepcopy(case.model).set_params(strict_scale=True)
    state = strict.state_
    arrival = case.draw(40)
    arrival[:, 3] *= 1e4
    with pytest.raises(DataError, match=r"columns 3: .*strict_scale=False"):
        strict.partial_fit(arrival)
    assert strict.state_ is state
    strict.partial_fit(case.draw(40))


def test_smaller_units_are_noticed_by_name():
    pd = pytest.importorskip("pandas")
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(50.0, 5.0, size=(200, 3)), columns=["a", "grams", "c"])
    model = DBULL(random_state=0).fit(frame)
    later = frame[:50].assign(grams=frame["grams"][:50] / 1000)
    with pytest.warns(UserWarning, match="columns grams:"):
        model.partial_fit(later)
    assert model.events_[-1].kind == "scale" or any(e.kind == "scale" for e in model.events_)


def test_a_few_huge_rows_are_set_aside_where_nothing_tells_what_is_strange():
    rng = np.random.default_rng(1)
    centres = 6 * rng.normal(size=(3, 12))
    model = DBULL(random_state=0, epochs=5, joint_epochs=1, replay="none", n_neighbors=10)
    model.fit(blobs(rng, centres, 150))
    asked = blobs(rng, centres, 100)
    before = model.predict(asked)
    model.partial_fit(np.full((1, 12), 1e7))
    assert arrival_of(model)["n_outliers"] == 1
    assert np.array_equal(model.predict(asked), before)


# Answers.


def test_none_of_these(case):
    model = case.model
    far = case.asked[:50] + 1e5
    assert set(model.predict(far)) <= set(model.cluster_ids_)
    assert set(model.predict(far, outliers="flag")) == {-1}
    flagged = model.predict(case.asked, outliers="flag")
    assert (flagged == -1).mean() < 0.05
    assert np.array_equal(flagged[flagged >= 0], case.before[flagged >= 0])
    assert np.array_equal(model.predict(case.asked, outliers="assign"), case.before)
    with pytest.raises(SettingsError, match="flag"):
        model.predict(case.asked, outliers="drop")


def test_the_scale_of_novelty(case):
    """The share of a cluster's own rows that are as strange or stranger; rows further out are stranger."""
    model = case.after(*(case.draw(300) for _ in range(2)))
    shares = model.novelty_scores(case.asked)
    assert ((shares >= 0) & (shares <= 1)).all()
    below = {level: (shares <= level).mean() for level in (0.1, 0.5)}
    assert below[0.1] < 0.2
    assert below[0.5] < 0.65
    assert (model.novelty_scores(case.asked + 1e3) == 0).all()
    outwards = case.centres[0] + np.linspace(0, 30, 7)[:, None]
    assert (np.diff(model.novelty_scores(outwards)) <= 0).all()
    # A row's answer does not depend on the rows beside it.
    assert np.array_equal(model.novelty_scores(case.asked[:7]), shares[:7])


def test_answers_survive_a_folder(case, tmp_path):
    import dbull

    case.model.save(tmp_path / "model")
    loaded = dbull.load(tmp_path / "model")
    assert np.array_equal(loaded.novelty_scores(case.asked), case.model.novelty_scores(case.asked))
    with pytest.warns(UserWarning, match="other units"):
        loaded.partial_fit(1000 * case.draw(50))
    assert case.kept(loaded) >= 0.999


def test_models_that_keep_nothing_say_so():
    rng = np.random.default_rng(1)
    X = rng.normal(size=(60, 12))
    model = DBULL(random_state=0, objective="paper", epochs=1, joint_epochs=1, hidden_dims=(8,)).fit(X)
    with pytest.raises(ValueError, match="replay='imprints'"):
        model.novelty_scores(X)


@pytest.mark.parametrize("width", [1, 2, 5])
def test_narrow_tables_have_the_same_scale(width):
    """As many rows of a cluster are strange as the scale says, also after further arrivals."""
    rng = np.random.default_rng(width)
    centres = np.linspace(0, 60, 3)[:, None] * np.ones(width)
    model = DBULL(random_state=0)
    for _ in range(3):
        model.partial_fit(blobs(rng, centres, 400))
    asked = blobs(rng, centres, 4000)
    shares = model.novelty_scores(asked)
    for level in (0.05, 0.1):
        assert (shares <= level).mean() == pytest.approx(
            level, rel=0.3
        )  # of far clusters, what is usual may be told as 1
    assert (model.predict(asked, outliers="flag") < 0).mean() < 0.005  # one of 40 as if scores were normal
    assert (model.predict(asked + 6.0, outliers="flag") < 0).mean() > 0.95
