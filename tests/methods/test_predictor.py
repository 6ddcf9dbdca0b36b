"""Answers of a model where the rows are: the same as in one process, sent by pickle."""

import pickle

import numpy as np
import pytest

from dbull import DBULL, Predictor, load
from dbull.errors import SettingsError

pandas = pytest.importorskip("pandas")
ROWS = np.concatenate([np.random.default_rng(0).normal(size=(300, 3)) + centre for centre in (0, 20)])


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("stored") / "model"
    frame = pandas.DataFrame(ROWS, columns=list("abc"))
    DBULL(random_state=0).fit(frame).rename(1, "the far ones").save(path)
    return path


def test_answers_are_those_of_the_model(folder):
    predictor, model = Predictor(folder, scores=True), load(folder)
    frame = pandas.DataFrame(ROWS[::-1], columns=list("abc"), index=np.arange(600) * 7)
    frame["more"] = 1.0
    told = predictor(frame[["c", "more", "a", "b"]])  # columns are found by name
    assert told.index.tolist() == frame.index.tolist()
    assert (told["cluster"].to_numpy() == model.predict(frame[list("abc")])).all()
    assert (told["log_density"].to_numpy() == model.score_samples(frame[list("abc")])).all()
    assert (told["novelty"].to_numpy() == model.novelty_scores(frame[list("abc")])).all()
    assert set(told.loc[told["cluster"] == 1, "name"]) == {"the far ones"}
    assert told.dtypes.astype(str).to_dict() == predictor.meta.dtypes.astype(str).to_dict()
    assert Predictor(folder)(ROWS[:2]).keys() == {"cluster", "name", "status"}


def test_it_is_pickled_with_all_it_needs(folder):
    predictor = Predictor(folder, outliers="flag")
    sent = pickle.dumps(predictor)
    assert len(sent) < 100_000
    far = np.full((1, 3), 500.0)
    told = pickle.loads(sent)(np.concatenate([ROWS[:5], far]))
    assert told["cluster"].tolist() == [*predictor(ROWS[:5])["cluster"].tolist(), -1]
    assert told["status"].tolist() == [*["active"] * 5, "outlier"]


def test_partitions_of_dask_are_answered_as_one_frame_is(folder):
    dask = pytest.importorskip("dask.dataframe")
    frame, predictor = pandas.DataFrame(ROWS, columns=list("abc")), Predictor(folder, scores=True)
    spread = dask.from_pandas(frame, npartitions=7)
    told = spread.map_partitions(predictor, meta=predictor.meta).compute(scheduler="processes", num_workers=2)
    pandas.testing.assert_frame_equal(told, predictor(frame), check_dtype=False)
    assert (told["log_density"] == predictor(frame)["log_density"]).all()


def test_answers_that_are_none_are_refused(folder):
    with pytest.raises(SettingsError, match="did you mean"):
        Predictor(folder, outliers="flags")
