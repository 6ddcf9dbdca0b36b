"""Young streams: means of the first rows, and clusters sought anew among them."""

import json

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import load_file
from scipy.stats import entropy
from sklearn.metrics import mutual_info_score, normalized_mutual_info_score

import dbull
from dbull import DBULL
from dbull.errors import ModelFileError
from dbull.lifelong import beginning as module
from dbull.lifelong import few_rows
from dbull.lifelong.beginning import ENOUGH, YOUNG, continued, news
from dbull.lifelong.few_rows import FewRows, grouped

KINDS, ROWS, SOME = 6, 360, 60


@pytest.fixture(scope="module")
def mixed():
    """Six kinds in four columns, in any order, and which row is of which kind."""
    rng = np.random.default_rng(3)
    kinds = rng.integers(KINDS, size=ROWS)
    return 2.5 * rng.normal(size=(KINDS, 4))[kinds] + 0.5 * rng.normal(size=(ROWS, 4)), kinds


def learned(X, n_rows, **parameters):
    """Learn rows in arrivals of `n_rows`."""
    model = DBULL(random_state=0, **parameters)
    for start in range(0, len(X), n_rows):
        model.partial_fit(X[start : start + n_rows])
    return model


def test_without_a_beginning_they_would_not(mixed, monkeypatch):
    """The same stream as it would be: what makes the difference is the beginning."""
    monkeypatch.setattr(module, "YOUNG", 0)
    X, kinds = mixed
    assert normalized_mutual_info_score(kinds, learned(X, SOME).predict(X)) < 0.75


def test_small_arrivals_show_in_the_end_what_all_rows_show(mixed):
    """Of six kinds in an arrival of sixty rows few are told apart, and no later row would look strange.

    Ids go on meanwhile, and no row is lost.
    """
    X, kinds = mixed
    model, known = DBULL(random_state=0), set()
    for start in range(0, ROWS, SOME):
        model.partial_fit(X[start : start + SOME])
        clusters = model.clusters_
        assert known <= {one["id"] for one in clusters}  # no id is ever forgotten, and none given twice
        known = {one["id"] for one in clusters}
        assert len(known) == len(clusters)
        assert sum(one["rows"] for one in clusters) == start + SOME
        assert set(model.labels_) <= set(model.cluster_ids_)
        assert set(model.resolve(sorted(known))) == set(model.cluster_ids_)
        born = [event.clusters[0] for event in model.events_ if event.kind == "birth"]
        assert sorted(born) == sorted(known)
        for one in clusters:
            assert all(parent < one["id"] for parent in one["parents"])
        assert model.state_.n_rows == start + SOME
        assert float(model.state_.memory.overall.counts.sum()) == pytest.approx(start + SOME, rel=0.05)
    assert normalized_mutual_info_score(kinds, model.predict(X)) > 0.9
    parted = [one for one in clusters if one["parents"]]
    assert parted, "clusters that came out of another say so"


def test_a_preview_tells_what_learning_will_do(mixed):
    X, _ = mixed
    model = learned(X[:60], 60)
    before = model.state_
    told = model.preview(X[60:120])
    assert model.state_ is before
    done = model.partial_fit(X[60:120]).report_
    assert (told.rows, told.born) == (done.rows, done.born)


def test_stored_in_the_middle_it_goes_on_to_the_bit(mixed, tmp_path):
    X, _ = mixed
    through, stopped = learned(X[:60], 30), learned(X[:60], 30).save(tmp_path / "model")
    stopped = dbull.load(tmp_path / "model")
    for rows in (X[60:90], X[90:130]):
        through.partial_fit(rows)
        stopped.partial_fit(rows)
    assert torch.equal(through.state_.beginning.means, stopped.state_.beginning.means)
    assert torch.equal(through.state_.memory.overall.sum_zz, stopped.state_.memory.overall.sum_zz)
    np.testing.assert_array_equal(through.predict(X), stopped.predict(X))


def test_a_model_folder_holds_no_row_but_means(mixed, tmp_path):
    X, _ = mixed
    learned(X[:100], 50).save(tmp_path / "model")
    (file,) = tmp_path.glob("model/**/beginning.safetensors")
    stored = load_file(file)
    assert stored["counts"].sum() == 100
    assert stored["counts"].min() >= 2
    apart = np.abs(stored["means"][:, None] - X[None, :100]).max(2)
    assert apart.min() > 1e-6


@pytest.mark.parametrize(
    "change",
    [
        {"means": np.zeros((3, 5))},
        {"counts": np.full(3, 0.5)},
        {"counts": np.full(3, 1e9)},
        {"means": np.full((3, 4), np.nan)},
        {"means": np.zeros((2, 4))},
    ],
    ids=["columns", "no row", "too many rows", "nan", "fewer means"],
)
def test_damaged_means_are_refused(mixed, change, tmp_path):
    from dbull.codec.learner import pack_state, unpack_state

    state = learned(mixed[0][:60], 60).state_
    tensors, document = pack_state(state)
    document = json.loads(json.dumps(document))  # as it is read
    sound = {"means": np.zeros((3, 4)), "counts": np.full(3, 2.0), "n_tried": np.array(6)}
    for stored in (sound, {**sound, **change}):
        tensors["beginning"] = {name: torch.from_numpy(part) for name, part in stored.items()}
        if stored is sound:
            assert unpack_state(tensors, document, state.ledger, state.fingerprint, "here").beginning
            continue
        with pytest.raises(ModelFileError, match="beginning has means"):
            unpack_state(tensors, document, state.ledger, state.fingerprint, "here")


def test_who_is_young(mixed):
    X, _ = mixed
    many = np.concatenate([X, X + 1e-3, X + 2e-3])
    assert learned(X[:60], 60).state_.beginning.n_rows == 60
    assert learned(many[:ENOUGH], ENOUGH).state_.beginning is None  # shows what there is by itself
    assert learned(many[:YOUNG], ENOUGH - 8).state_.beginning is None  # not any more
    named = learned(X[:60], 60)
    named.rename(0, "sevens")
    assert named.partial_fit(X[60:120]).state_.beginning is None
    merged = learned(X[:120], 60)
    merged.merge_clusters(merged.cluster_ids_[:2])
    assert merged.state_.beginning is None  # what a person has decided stays
    assert merged.partial_fit(X[120:180]).state_.beginning is None


def test_a_row_without_company_is_pooled_with_none(mixed):
    X, _ = mixed
    model = learned(X[:60], 60)
    odd = X[60:120].copy()
    odd[7] *= 1e6
    model.partial_fit(odd)
    assert model.report_.n_outliers >= 1
    beginning = model.state_.beginning
    assert beginning.n_rows == 120
    assert int((beginning.means.abs().amax(1) > 100).sum()) == 1, "nothing is pooled with it"
    assert model.n_clusters_ >= learned(X[:60], 60).n_clusters_


def test_single_rows_become_clusters(mixed):
    X, _ = mixed
    two = np.concatenate([X[:40] * 0.1, X[:40] * 0.1 + 20])[np.random.default_rng(0).permutation(80)]
    model = learned(two, 1)
    assert model.n_clusters_ == 2
    assert len(set(model.predict(two[two[:, 0] > 10]))) == 1
    state = model.state_
    assert int((state.beginning.counts == 1).sum()) <= few_rows.MOST_ALONE + 1


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4), st.integers(1, 5)), min_size=1, max_size=40))
def test_news_is_what_is_not_known_yet(triples):
    """H(found | known) = H(found) - I(found, known), as scikit-learn has both."""
    known, found, counts = (np.array(part) for part in zip(*triples, strict=True))
    expected = entropy(np.bincount(found.repeat(counts))) - mutual_info_score(
        known.repeat(counts), found.repeat(counts)
    )
    told = news(torch.from_numpy(known), torch.from_numpy(found), torch.from_numpy(counts).double())
    assert told == pytest.approx(expected / np.log(2), abs=1e-9)
    assert news(*[torch.from_numpy(found)] * 2, torch.from_numpy(counts).double()) == pytest.approx(
        0, abs=1e-9
    )


@settings(max_examples=50)
@given(st.integers(1, 6), st.integers(1, 6), st.integers(0, 2**31 - 1))
def test_each_id_goes_on_or_lives_in_an_older_one(n_old, n_found, seed):
    rng = np.random.default_rng(seed)
    shared = torch.from_numpy(rng.integers(0, 3, size=(n_old, n_found)).astype(float))
    shared[:, 0] += 1  # each old cluster has some row (`goes_on`)
    ids = tuple(sorted(rng.choice(50, n_old, replace=False).tolist()))
    id_of, merges = continued(ids, shared)
    assert len(set(id_of.values())) == len(id_of)
    assert set(id_of.values()) | set(merges) == set(ids)
    assert not set(id_of.values()) & set(merges)
    assert all(older < newer for newer, older in merges.items())
    best = divmod(int(shared.argmax()), n_found)
    assert id_of[best[1]] <= ids[best[0]]


def test_a_cluster_that_came_apart_keeps_its_id_where_most_of_it_is():
    assert continued((3, 8), torch.tensor([[5.0, 40.0, 0.0], [0.0, 1.0, 9.0]])) == ({1: 3, 2: 8}, {})
    assert continued((3, 8), torch.tensor([[5.0], [40.0]])) == ({0: 3}, {8: 3})


@settings(max_examples=30)
@given(st.integers(2, 60), st.integers(0, 2**31 - 1))
def test_groups_have_two_rows_at_least(n_points, seed):
    rng = np.random.default_rng(seed)
    counts = rng.integers(1, 4, size=n_points).astype(float)
    labels = grouped(rng.normal(size=(n_points, 3)), counts)
    sizes = np.bincount(labels, counts)
    assert sizes.min() >= 2
    assert len(sizes) <= max(1, counts.sum() // 2)


def test_means_keep_count_and_sum(mixed):
    X, _ = mixed
    model = learned(X[:60], 60)
    rows = torch.from_numpy(X[:100])
    condensed = FewRows.none(rows).followed_by(rows).pooled(model.state_.view)
    assert condensed.n_rows == 100
    assert len(condensed.means) <= 50
    torch.testing.assert_close(condensed.counts @ condensed.means, rows.sum(0), rtol=1e-5, atol=1e-3)
