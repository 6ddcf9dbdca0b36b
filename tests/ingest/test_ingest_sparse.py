"""Sparse matrices in files: learned once, known again by what they hold; forged ones are refused."""

import json
import shutil

import numpy as np
import pytest
from scipy import sparse

from dbull.data.readers import read_chunks
from dbull.errors import AlreadyLearnedError, DataError
from dbull.ingest import Learner, open_model

SETTINGS = {"epochs": 4, "joint_epochs": 1, "arrival_rows": 80}


def documents(n_rows, topics, seed):
    rng = np.random.default_rng(seed)
    topic = rng.choice(topics, n_rows)
    columns = np.concatenate([100 * t + rng.permutation(100)[:12] for t in topic])
    places = np.repeat(np.arange(n_rows), 12), columns
    return sparse.csr_matrix((1 + rng.random(len(columns)), places), shape=(n_rows, 400))


@pytest.fixture(scope="module")
def place(tmp_path_factory, quick_module):
    place = tmp_path_factory.mktemp("sparse")
    sparse.save_npz(place / "a.npz", documents(160, (0, 1), 0))
    told = list(Learner(place / "model", SETTINGS).learn(place / "a.npz"))
    assert [one.report.n_rows for one in told] == [80, 80]
    return place


def test_a_file_is_learned_once_in_whatever_format(place, quick_module):
    with pytest.raises(AlreadyLearnedError):
        list(Learner(place / "model", SETTINGS).learn(place / "a.npz"))
    sparse.save_npz(place / "again.npz", sparse.load_npz(place / "a.npz").tocsc(), compressed=False)
    with pytest.raises(AlreadyLearnedError):
        list(Learner(place / "model", SETTINGS).learn(place / "again.npz"))


def test_of_a_file_that_grew_only_the_new_rows(place, tmp_path, monkeypatch, quick_module):
    shutil.copytree(place / "model", tmp_path / "model")
    both = sparse.vstack([sparse.load_npz(place / "a.npz"), documents(40, (1, 2), 1)])
    sparse.save_npz(tmp_path / "a.npz", both)
    learner, asked = Learner(tmp_path / "model", SETTINGS | {"arrival_rows": 100}), []
    real = learner.model.partial_fit
    monkeypatch.setattr(
        learner.model, "partial_fit", lambda x, keys: asked.append(keys) or real(x, keys=keys)
    )
    (told,) = learner.learn(tmp_path / "a.npz")
    assert told.report.n_rows == 40
    assert asked == [tuple(f"a.npz:{row}" for row in range(161, 201))]


def test_other_values_in_the_same_columns_are_other_rows(place, tmp_path, quick_module):
    shutil.copytree(place / "model", tmp_path / "model")
    other = sparse.load_npz(place / "a.npz")
    other.data = other.data[::-1].copy()
    sparse.save_npz(tmp_path / "other.npz", other)
    assert len(list(Learner(tmp_path / "model", SETTINGS).learn(tmp_path / "other.npz"))) == 2


def test_rows_are_those_of_the_matrix(place):
    matrix = sparse.load_npz(place / "a.npz")
    chunks = list(read_chunks(place / "a.npz"))
    assert [len(chunk.x) for chunk in chunks] == [160]
    assert abs(chunks[0].x.matrix - matrix.astype(np.float32)).max() == 0


def forged(path, **changes):
    matrix = sparse.csr_matrix(np.eye(4, 300))
    parts = {"data": matrix.data, "indices": matrix.indices, "indptr": matrix.indptr}
    parts |= {"shape": np.array(matrix.shape), "format": np.array(b"csr")}
    np.savez(path, **{**parts, **changes})
    return path


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"indices": np.array([0, 1, 2, 300])}, "holds together"),
        ({"indices": np.array([0, 1, 2, -1])}, "holds together"),
        ({"indptr": np.array([0, 9, 2, 3, 4])}, "holds together"),
        ({"indptr": np.array([0, 1, 2, 3])}, "holds together"),
        ({"shape": np.array([4, 1 << 40])}, "more than the"),
        ({"shape": np.array([4])}, "rows and columns"),
        ({"shape": np.array([0, 300])}, "rows and columns"),
        ({"shape": np.array([2.0, 300.0])}, "rows and columns"),
        ({"format": np.array(b"dia")}, "save it as one of"),
        ({"format": np.array([b"csr", b"csr"])}, "save it as one of"),
        (
            {"format": np.array(b"coo"), "row": np.arange(4), "col": np.array([0, 1, 2, 900])},
            "holds together",
        ),
        ({"format": np.array(b"coo"), "shape": np.array([1 << 50, 300])}, "damaged"),
        ({"data": np.array([1.0, np.nan, 1, 1])}, "row 2, column 1"),
        ({"data": np.array(["a"] * 4)}, "real numbers"),
    ],
)
def test_forged_files_are_refused(tmp_path, changes, message):
    with pytest.raises(DataError, match=message):
        list(read_chunks(forged(tmp_path / "x.npz", **changes)))


def test_keys_of_files_are_told(place, tmp_path, quick_module):
    rng = np.random.default_rng(0)
    rows = np.concatenate([rng.normal(size=(30, 3)), rng.normal(size=(30, 3)) + 20])
    lines = ["a,b,c,id", *(",".join(map(str, [*row.round(3), f"flight {i}"])) for i, row in enumerate(rows))]
    (tmp_path / "x.csv").write_text("\n".join(lines))
    (told,) = Learner(tmp_path / "model", {"key": "id"}).learn(tmp_path / "x.csv")
    model = open_model(tmp_path / "model")[0]
    assert told.report.n_clusters == 2
    for row in model.clusters_:
        numbers = [int(key.removeprefix("flight ")) for key in row["exemplars"]]
        assert len(numbers) == 5
        assert len({number < 30 for number in numbers}) == 1
    assert json.dumps(model.clusters_)
