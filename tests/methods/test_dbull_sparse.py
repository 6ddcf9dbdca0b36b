"""Sparse matrices: learned, asked about and stored without being made dense."""

import tracemalloc

import numpy as np
import pytest
import torch
from scipy import sparse

from dbull import DBULL, load
from dbull.errors import DataError, ModelFileError
from dbull.methods.sparse import column_profiles
from dbull.tables import SparseProjection
from dbull.tables.sparse import N_HASHED

N_COLUMNS = 900
QUICK = {"epochs": 30, "joint_epochs": 2, "random_state": 0}


def documents(topics, n_rows, seed, n_words=20):
    """Return rows that have words of their topic, of which each has a hundred, and some of all."""
    rng = np.random.default_rng(seed)
    rows, columns = [], []
    for row in range(n_rows * len(topics)):
        topic = topics[row % len(topics)]
        own = topic * 100 + rng.permutation(100)[: n_words - 4]
        columns.append(np.concatenate([own, 800 + rng.permutation(100)[:4]]))
        rows.append(np.full(n_words, row))
    places = np.concatenate(rows), np.concatenate(columns)
    return sparse.csr_matrix((1 + rng.random(len(places[0])), places), shape=(len(rows), N_COLUMNS))


@pytest.fixture(scope="module")
def days():
    return documents((0, 1), 60, seed=0), documents((1, 2), 60, seed=1)


@pytest.fixture(scope="module")
def model(days):
    learner = DBULL(**QUICK)
    for day in days:
        learner.partial_fit(day)
    return learner


def test_what_is_new_is_a_cluster_of_its_own(model, days):
    assert model.chosen_["kind"] == "sparse"
    assert model.n_features_in_ == N_COLUMNS
    second = model.predict(days[1])
    known, new = second[0::2], second[1::2]
    assert len(set(new.tolist())) == 1
    assert int(new[0]) in model.report_.born  # of words that no row had at first
    assert not set(known.tolist()) & set(new.tolist())


def test_clusters_are_told_by_their_columns(model, days):
    new = int(model.predict(days[1])[1])
    for trait in model.explain(new).traits:
        column = int(trait.column.removeprefix("column "))
        assert 200 <= column < 300
        having = (days[1][1::2, column] > 0).sum() / 60
        assert trait.here == pytest.approx(having, abs=0.02)
        assert trait.others == 0
    assert model.report_.born[new].because.startswith("column 2")
    for cluster in model.cluster_ids_.tolist():
        told = model.explain(cluster, 900)
        assert all(trait.effect > 0 for trait in (*told.traits, *told.from_nearest))  # what it has, not lacks
    model.feature_names_in_ = np.array([f"word {i}" for i in range(N_COLUMNS)], dtype=object)
    assert model.explain(new).traits[0].column.startswith("word 2")
    del model.feature_names_in_


@pytest.mark.parametrize("kind", ["coo_matrix", "csc_array", "lil_matrix", "toarray"])
def test_every_format_is_answered_alike(model, days, kind):
    other = days[1].toarray() if kind == "toarray" else getattr(sparse, kind)(days[1])
    np.testing.assert_array_equal(model.transform(other), model.transform(days[1]))


def test_a_stored_model_goes_on_to_the_bit(model, days, tmp_path, quick_learning):
    model.save(tmp_path / "model")
    kept = load(tmp_path / "model")
    np.testing.assert_array_equal(kept.predict_proba(days[0]), model.predict_proba(days[0]))
    assert kept.explain(0) == model.explain(0)
    third = documents((0, 3), 30, seed=3)
    np.testing.assert_array_equal(kept.preview(third).rows, model.preview(third).rows)


def test_what_was_tampered_with_is_refused(model, tmp_path):
    model.save(tmp_path / "model")
    document = next((tmp_path / "model").rglob("sparse.json"))
    document.write_text(document.read_text().replace('"counts": false', '"counts": 1'))
    with pytest.raises(ModelFileError):
        load(tmp_path / "model")


def test_merged_clusters_share_their_columns(days, quick_learning):
    learner = DBULL(**QUICK, resolution=2.0).fit(days[0])
    assert learner.n_clusters_ == 2
    before = column_profiles(learner)[1]
    ((one,), (other,)) = before[0], before[1]
    expected = (one.n_rows * one.mean + other.n_rows * other.mean) / (one.n_rows + other.n_rows)
    ((both,),) = column_profiles(learner.merge_clusters([0, 1]))[1].values()
    assert both.n_rows == 120
    torch.testing.assert_close(both.mean, expected)


def test_narrow_matrices_are_rows_as_they_are(quick_learning):
    rows = documents((0, 1), 60, seed=0)[:, :200]
    one, other = (DBULL(**QUICK).fit(x) for x in (rows, rows.toarray()))
    np.testing.assert_array_equal(one.labels_, other.labels_)
    np.testing.assert_array_equal(one.transform(rows), other.transform(rows.toarray()))


@pytest.mark.parametrize("make", [sparse.csr_matrix, sparse.csr_array])
def test_small_ones_of_every_format_and_index(make):
    rng = np.random.RandomState(0)
    rows = rng.uniform(size=(40, 3))
    rows[rows < 0.6] = 0
    for x in (make(rows), make(rows).tocoo(), make(rows).tolil(), make(rows).todok()):
        learner = DBULL(random_state=0).fit(x)
        assert learner.predict(x).shape == (40,)
        assert learner.predict_proba(x).shape == (40, learner.n_clusters_)
    wide = make(rows)
    wide.indices, wide.indptr = wide.indices.astype(np.int64), wide.indptr.astype(np.int64)
    np.testing.assert_array_equal(learner.predict(wide), learner.predict(rows))


def test_refusals_say_where(model, days):
    broken = days[0].copy()
    broken.data[30] = np.nan
    with pytest.raises(DataError, match=r"NaN: first at row 1, column \d+"):
        model.predict(broken)
    with pytest.raises(ValueError, match="X has 899 features, but DBULL is expecting 900"):
        model.predict(days[0][:, 1:])
    with pytest.raises(TypeError, match="complex"):
        model.predict(days[0].astype(complex))
    with pytest.raises(ValueError, match="minimum of 2"):
        DBULL().fit(days[0][:1])
    with pytest.raises(DataError, match="no value but 0"):
        DBULL().fit(sparse.csr_matrix((5, 900)))
    with pytest.raises(ValueError, match="minimum of 1"):
        model.predict(days[0][:0])


def test_an_empty_row_has_an_answer(model):
    assert model.predict(sparse.csr_matrix((1, N_COLUMNS))).shape == (1,)


def half_way(weighted):
    """Return rows of length 1 whose columns were divided by the root of their size, by the definition."""
    of_length_1 = weighted / np.linalg.norm(weighted, axis=1, keepdims=True)
    size = np.sqrt((of_length_1**2).mean(0))
    scaled = weighted / np.sqrt(np.maximum(size, size[size > 0].mean() / 2))
    return scaled / np.linalg.norm(scaled, axis=1, keepdims=True)


def test_projection_keeps_angles_of_what_the_first_rows_span():
    rows = documents((0, 1, 2), 30, seed=5)
    projection = SparseProjection.fit(rows)
    dense = half_way(rows.toarray())
    projected = projection.project(rows)
    assert not projected[:, -N_HASHED:].any()  # no column is new
    np.testing.assert_allclose(projected @ projected.T, dense @ dense.T, atol=1e-4)
    scaled = projection.project(rows * 1e30)
    np.testing.assert_allclose(scaled, projected, atol=1e-5)


def test_counts_are_weighted_by_how_rare_their_columns_are():
    rng = np.random.default_rng(0)
    rare = sparse.random(50, 300, density=0.05, random_state=0, data_rvs=lambda n: rng.integers(1, 9, n))
    rows = sparse.hstack([sparse.csr_matrix(np.full((50, 1), 40.0)), rare]).tocsr()
    projection = SparseProjection.fit(rows)
    assert projection.counts
    assert projection.weights[1:].min() > 2.0 * projection.weights[0]  # in every row
    assert not SparseProjection.fit(rows * 1.5).counts
    having = (rows.toarray() > 0).sum(0)
    weighted = half_way(np.log1p(rows.toarray()) * (np.log(51 / (1 + having)) + 1))
    projected = projection.project(rows)
    np.testing.assert_allclose(projected @ projected.T, weighted @ weighted.T, atol=1e-4)


def test_memory_is_bounded_by_what_is_there():
    """A hundred thousand rows of fifty thousand columns would be 20 GB, were they dense."""
    rng = np.random.default_rng(0)
    n_rows, n_columns, n_values = 100_000, 50_000, 100
    tracemalloc.start()  # the peak of a process that this one starts counts what this one has
    try:
        columns = rng.integers(0, n_columns, n_rows * n_values, dtype=np.int32)
        values = rng.random(n_rows * n_values, dtype=np.float32)
        rows = sparse.csr_matrix((values, columns, np.arange(n_rows + 1) * n_values), (n_rows, n_columns))
        assert SparseProjection.fit(rows).project(rows).shape[0] == n_rows
        assert 100e6 < tracemalloc.get_traced_memory()[1] < 800e6
    finally:
        tracemalloc.stop()
