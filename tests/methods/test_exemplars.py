"""Exemplars: keys of the rows nearest to each centre, whatever the order in which they come."""

import numpy as np
import pandas as pd
import pytest

from dbull import DBULL, load
from dbull.errors import ModelFileError
from dbull.methods.exemplars import N_KEYS, Exemplar, nearest_of


def blobs(seed, n_rows=80, centres=(0.0, 12.0)):
    rng = np.random.default_rng(seed)
    return np.concatenate([rng.normal(size=(n_rows, 3)) + centre for centre in centres])


@pytest.fixture(scope="module")
def model():
    return DBULL(random_state=0).fit(blobs(0), keys=[f"k{i}" for i in range(160)])


def test_exemplars_are_the_rows_nearest_to_the_centre(model):
    rows = blobs(0)
    for record in model.clusters_:
        members = np.flatnonzero(model.labels_ == record["id"])
        mean, covariance = rows[members].mean(0), np.cov(rows[members].T)
        away = rows[members] - mean
        distances = np.einsum("ni,ij,nj->n", away, np.linalg.inv(covariance), away)
        nearest = members[np.argsort(distances)]
        assert len(record["exemplars"]) == N_KEYS
        assert {int(key[1:]) for key in record["exemplars"]} <= set(nearest[: 2 * N_KEYS].tolist())
        assert int(record["exemplars"][0][1:]) in nearest[:3]


def test_what_comes_later_and_nearer_takes_the_place(model):
    later = DBULL(random_state=0).fit(blobs(0), keys=range(160))
    means = np.stack([later.prototype(i) for i in (0, 1)])
    rows = np.concatenate([blobs(1, 30), means])
    later.partial_fit(rows, keys=[*("x" * 60), "centre 0", "centre 1"])
    assert [record["exemplars"][0] for record in later.clusters_] == ["centre 0", "centre 1"]
    assert all(len(record["exemplars"]) == N_KEYS for record in later.clusters_)


def test_names_of_rows():
    frame = pd.DataFrame(blobs(0), columns=["a", "b", "c"])
    numbered = DBULL(random_state=0).fit(frame)
    assert all(key.startswith("1:") for key in numbered.clusters_[0]["exemplars"])
    frame.index = [f"flight {i}" for i in range(160)]
    named = DBULL(random_state=0).fit(frame)
    rows = [int(key.removeprefix("1:")) - 1 for key in numbered.clusters_[0]["exemplars"]]
    assert named.clusters_[0]["exemplars"] == [f"flight {row}" for row in rows]
    with pytest.raises(ValueError, match="one for each row; got 2 for 160"):
        numbered.partial_fit(frame, keys=["a", "b"])


def test_rows_are_kept_only_if_asked_for(model, tmp_path):
    keys, rows = model.exemplar_rows(0)
    assert keys == []
    assert rows.shape == (0, 3)
    asked = DBULL(random_state=0, keep_exemplars=2).fit(blobs(0))
    keys, rows = asked.exemplar_rows(0)
    assert keys == asked.clusters_[0]["exemplars"][:2]
    np.testing.assert_allclose(rows, blobs(0)[[int(key[2:]) - 1 for key in keys]], rtol=1e-6)
    for name, one in (("keys", model), ("rows", asked)):
        one.save(tmp_path / name)
        kept = load(tmp_path / name)
        assert kept.clusters_ == one.clusters_
        np.testing.assert_array_equal(kept.exemplar_rows(1)[1], one.exemplar_rows(1)[1])
    assert not list((tmp_path / "keys").rglob("exemplars.safetensors"))
    document = next((tmp_path / "rows").rglob("exemplars.json"))
    document.write_text(document.read_text().replace('"row": true', '"row": false', 1))
    with pytest.raises(ModelFileError):
        load(tmp_path / "rows")


def test_merged_clusters_share_theirs(model):
    merged = DBULL(random_state=0).fit(blobs(0)).merge_clusters([0, 1])
    assert len(merged.clusters_[0]["exemplars"]) == N_KEYS
    assert merged.clusters_[1]["exemplars"] == []


def test_the_order_of_data_sets_does_not_matter():
    some = [Exemplar(f"k{i}", float(depth)) for i, depth in enumerate((3, 1, 4, 1, 5, 9, 2, 6))]
    whole = nearest_of(some, 3, 0)
    parts = nearest_of([*nearest_of(some[5:], 3, 0), *nearest_of(some[:5], 3, 0)], 3, 0)
    assert [one.key for one in whole] == [one.key for one in parts] == ["k1", "k3", "k6"]


def test_a_key_that_comes_again_counts_once_as_near_as_it_was_ever():
    twice = nearest_of([Exemplar("a", 3.0), Exemplar("a", 1.0), Exemplar("b", 2.0)], 3, 0)
    assert [(one.key, one.depth) for one in twice] == [("a", 1.0), ("b", 2.0)]


def test_copies_are_one_exemplar():
    rows = np.concatenate([blobs(0), np.repeat(blobs(0).mean(0, keepdims=True), 60, axis=0)])
    told = DBULL(random_state=0).fit(rows)
    for record in told.clusters_:
        copies = [key for key in record["exemplars"] if int(key[2:]) > 160]
        assert len(copies) <= 1
