"""AnnData in and out: X, layers and obsm as rows; ids, probabilities and codes back in the file."""

import tracemalloc

import numpy as np
import pytest
import scipy.sparse

import dbull
from dbull import DBULL, DataError
from dbull.data.readers import ReadSettings, read_chunks
from dbull.ingest import Learner

pandas = pytest.importorskip("pandas")
anndata = pytest.importorskip("anndata", reason="anndata is not installed")
pytestmark = [pytest.mark.usefixtures("quick_module"), pytest.mark.filterwarnings("ignore")]
GENES = [f"gene{i}" for i in range(300)]


@pytest.fixture(autouse=True)
def written_names():
    names = {"allow_write_nullable_strings": True}  # which names of cells are in pandas 3
    known = hasattr(anndata.settings, "allow_write_nullable_strings")
    with anndata.settings.override(**(names if known else {})):
        yield


@pytest.fixture
def some_cells():
    rng = np.random.default_rng(0)
    kinds = rng.integers(0, 3, 90)
    rates = rng.gamma(0.3, 1.0, size=(3, 300))
    counts = rng.poisson(rates[kinds]).astype(np.float32)
    adata = anndata.AnnData(scipy.sparse.csr_matrix(counts))
    adata.var_names, adata.obs_names = GENES, [f"cell{i}" for i in range(90)]
    adata.layers["logged"] = np.log1p(counts)
    adata.obsm["X_pca"] = counts[:, :5]
    return adata


@pytest.mark.parametrize("use", ["X", "layers/logged", "obsm/X_pca"])
def test_cells_go_in_and_come_back(some_cells, use, tmp_path):
    model = DBULL(random_state=0).fit(some_cells if use == "X" else dbull.cells(some_cells, use))
    dbull.to_anndata(model, some_cells, use).write_h5ad(tmp_path / "c.h5ad")
    back = anndata.read_h5ad(tmp_path / "c.h5ad")
    assert back.obs["dbull"].astype(int).tolist() == model.labels_.tolist()
    rows = dbull.cells(some_cells, use)
    np.testing.assert_array_equal(back.obsm["dbull_probabilities"], model.predict_proba(rows))
    np.testing.assert_array_equal(back.obsm["X_dbull"], model.transform(rows))
    assert list(back.uns["dbull"]["ids"]) == [str(i) for i in model.cluster_ids_]
    assert (back.obs["dbull_probability"] > 0).all()


def test_files_of_cells(some_cells, tmp_path):
    some_cells[:60].write_h5ad(tmp_path / "a.h5ad")
    some_cells[60:, GENES[::-1]].write_h5ad(tmp_path / "b.h5ad")
    learner = Learner(tmp_path / "m")
    assert [one.report.n_rows for one in learner.learn(tmp_path / "a.h5ad")] == [60]
    assert [one.report.n_rows for one in learner.learn(tmp_path / "b.h5ad")] == [30]
    assert list(learner.model.feature_names_in_) == GENES
    assert {key for row in learner.model.clusters_ for key in row["exemplars"]} <= set(some_cells.obs_names)
    np.testing.assert_array_equal(
        learner.model.predict(some_cells[60:]), dbull.load(tmp_path / "m").predict(some_cells[60:].X)
    )
    learner = Learner(tmp_path / "n", {"array": "obsm/X_pca"})
    assert len(list(learner.learn(tmp_path / "a.h5ad"))) == 1
    assert learner.model.n_features_in_ == 5


def test_files_are_read_in_chunks_however_a_matrix_is_stored(some_cells, tmp_path):
    counts = some_cells.X.toarray()
    some_cells.layers["columns"] = scipy.sparse.csc_matrix(counts)
    some_cells.obsm["frame"] = pandas.DataFrame(counts[:, :2], columns=["u", "v"], index=some_cells.obs_names)
    some_cells.write_h5ad(tmp_path / "a.h5ad")
    wanted = {"X": counts, "layers/columns": counts, "layers/logged": np.log1p(counts)}
    wanted |= {"obsm/X_pca": counts[:, :5], "obsm/frame": counts[:, :2]}
    for array, expected in wanted.items():
        chunks = list(read_chunks(tmp_path / "a.h5ad", ReadSettings(array=array, chunk_rows=40)))
        assert [len(chunk.x) for chunk in chunks] == [40, 40, 10]
        assert [chunk.first_row for chunk in chunks] == [0, 40, 80]
        assert [key for chunk in chunks for key in chunk.keys] == list(some_cells.obs_names)
        parts = [chunk.x.matrix.toarray() if hasattr(chunk.x, "matrix") else chunk.x for chunk in chunks]
        np.testing.assert_array_equal(np.concatenate(parts), expected.astype(np.float32))
    assert chunks[0].columns == ("u", "v")
    two = next(read_chunks(tmp_path / "a.h5ad", ReadSettings(columns=("gene7", "gene2")))).x.matrix
    np.testing.assert_array_equal(two.toarray(), counts[:, [7, 2]])


@pytest.mark.parametrize("sparse", [False, True])
def test_memory_does_not_grow_with_a_file_of_cells(sparse, tmp_path):
    counts = np.ones((8_000, 500), dtype=np.float32)  # 16 MB, as sparse twice as much
    rows = scipy.sparse.csr_matrix(counts) if sparse else counts
    anndata.AnnData(rows).write_h5ad(tmp_path / "a.h5ad")
    del counts, rows
    tracemalloc.start()
    try:
        for _ in read_chunks(tmp_path / "a.h5ad", ReadSettings(chunk_rows=100)):
            pass
        assert tracemalloc.get_traced_memory()[1] < 8e6
    finally:
        tracemalloc.stop()


def test_what_is_not_there(some_cells, tmp_path):
    with pytest.raises(DataError, match="there are X, layers/logged, obsm/X_pca"):
        dbull.cells(some_cells, "layers/raw")
    some_cells.write_h5ad(tmp_path / "a.h5ad")
    with pytest.raises(DataError, match="there are X, layers/logged, obsm/X_pca"):
        list(Learner(tmp_path / "m", {"array": "obsm/pca"}).learn(tmp_path / "a.h5ad"))
    (tmp_path / "b.h5ad").write_bytes(b"not HDF5")
    with pytest.raises(DataError, match=r"not a readable .h5ad"):
        list(Learner(tmp_path / "m").learn(tmp_path / "b.h5ad"))
