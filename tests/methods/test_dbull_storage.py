"""A model in a folder is the model in memory: same answers, same course when it goes on, or a refusal."""

import copy
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits
from sklearn.exceptions import NotFittedError

import dbull
from dbull import DBULL
from dbull.codec.learner import pack_state
from dbull.errors import ConflictError, ModelFileError, SettingsError
from dbull.nets.augment import MaskingNoise
from dbull.store import ModelFolder
from forgery import forge
from synthetic import gaussian_clusters

GOLDEN = Path(__file__).parent.parent / "reference"
X, Y = gaussian_clusters(np.random.default_rng(3), (60, 50, 40), 12, distance=14.0)
pytestmark = pytest.mark.usefixtures("quick_module")
QUICK = {"hidden_dims": (6,), "latent_dim": 2, "epochs": 3, "joint_epochs": 0, "random_state": 0}


@pytest.fixture(scope="module")
def first():
    return DBULL(encoder="mlp", **QUICK).partial_fit(X[Y < 2])


@pytest.fixture
def model(first):
    return copy.deepcopy(first)


@pytest.fixture
def narrow():
    """No networks: learns in a moment."""
    return DBULL(random_state=0).partial_fit(X[Y < 2, :3])


def assert_same(a, b):
    tensors, document = pack_state(a.state_)
    others, other_document = pack_state(b.state_)
    assert document == other_document
    assert {g: set(group) for g, group in tensors.items()} == {g: set(group) for g, group in others.items()}
    for name, group in tensors.items():
        for part, tensor in group.items():
            assert tensor.dtype == others[name][part].dtype
            assert torch.equal(tensor, others[name][part]), (name, part)
    assert a.state_.ledger.table() == b.state_.ledger.table()
    assert a.state_.fingerprint == b.state_.fingerprint
    for name in ("mean", "scale_inv", "dof"):
        assert torch.equal(
            getattr(a.state_.posterior.components, name), getattr(b.state_.posterior.components, name)
        )


def test_answers_are_the_same_to_the_bit(model, tmp_path):
    model.save(tmp_path / "m")
    loaded = dbull.load(tmp_path / "m")
    assert_same(model, loaded)
    for answer in ("predict", "predict_proba", "transform", "score_samples"):
        np.testing.assert_array_equal(getattr(model, answer)(X), getattr(loaded, answer)(X))
    assert loaded.get_params() == model.get_params()
    assert (loaded.elbo_, loaded.n_data_sets_) == (model.elbo_, 1)
    assert not hasattr(loaded, "labels_"), "labels are about rows, and no row is kept"


@pytest.mark.parametrize(
    "parameters", [{"encoder": "mlp", **QUICK}, {"encoder": "identity", "random_state": 4}]
)
def test_going_on_after_a_load_is_the_straight_run(parameters, tmp_path):
    straight = DBULL(**parameters).partial_fit(X[Y < 2]).partial_fit(X[Y == 2]).partial_fit(X[::3])
    stored = DBULL(**parameters).partial_fit(X[Y < 2]).save(tmp_path / "m")
    stored = dbull.load(tmp_path / "m").partial_fit(X[Y == 2]).save(tmp_path / "m")
    stored = dbull.load(tmp_path / "m", events=False).partial_fit(X[::3])
    assert_same(straight, stored)
    assert stored.elbo_ == straight.elbo_


def test_images_with_a_front_end_and_float32_come_back(tmp_path):
    digits = load_digits().data[:60].astype(np.float32)
    model = DBULL(image_shape=(8, 8), **QUICK).fit(digits).save(tmp_path / "m")
    assert_same(model, dbull.load(tmp_path / "m"))
    np.testing.assert_array_equal(dbull.load(tmp_path / "m").predict(digits), model.labels_)


def test_a_pretrained_model_that_has_learned_nothing(tmp_path):
    model = DBULL(encoder="mlp", **QUICK).pretrain(X).save(tmp_path / "m")
    loaded = dbull.load(tmp_path / "m")
    with pytest.raises(NotFittedError):
        loaded.predict(X)
    assert_same(model.partial_fit(X), loaded.partial_fit(X))


def test_events_and_names_come_back(narrow, tmp_path):
    narrow.save(tmp_path / "m").rename(0, "näme").partial_fit(X[Y == 2, :3]).merge_clusters([0, 2]).save(
        tmp_path / "m"
    )
    loaded, short = dbull.load(tmp_path / "m"), dbull.load(tmp_path / "m", events=False)
    said = [(e.kind, e.clusters, e.evidence) for e in narrow.events_]
    assert [(e.kind, e.clusters, e.evidence) for e in loaded.events_] == said
    assert all(e.time for e in loaded.events_)
    assert (short.events_, short.state_.ledger.n_events) == ((), len(said))
    assert loaded.clusters_ == short.clusters_ == narrow.clusters_
    assert loaded.resolve([2]).tolist() == [0]
    assert ModelFolder(tmp_path / "m").generations() == [1, 2]


def test_a_model_whose_early_events_were_left_out_can_be_saved_elsewhere(narrow, tmp_path):
    narrow.save(tmp_path / "a")
    short = dbull.load(tmp_path / "a", events=False).rename(0, "x").save(tmp_path / "b")
    loaded = dbull.load(tmp_path / "b")
    assert [e.kind for e in loaded.events_] == ["rename"]
    assert loaded.state_.ledger.n_events == short.state_.ledger.n_events


def test_ids_of_a_rolled_back_generation_are_not_given_again(narrow, tmp_path):
    narrow.save(tmp_path / "m").partial_fit(X[Y == 2, :3]).save(tmp_path / "m")
    ModelFolder(tmp_path / "m").rollback(1)
    loaded = dbull.load(tmp_path / "m").partial_fit(X[Y == 2, :3])
    assert loaded.cluster_ids_.tolist() == [0, 1, 3]
    loaded.save(tmp_path / "m")
    assert [e.kind for e in dbull.load(tmp_path / "m").events_] == [
        "arrival",
        "birth",
        "birth",
        "arrival",
        "birth",
    ]


def test_columns_are_part_of_the_model(tmp_path):
    import pandas as pd

    frame = pd.DataFrame(X[:, :3], columns=["a", "b", "c"])
    DBULL(random_state=0).fit(frame).save(tmp_path / "m")
    loaded = dbull.load(tmp_path / "m")
    assert loaded.feature_names_in_.tolist() == ["a", "b", "c"]
    with pytest.raises(ValueError, match="feature names"):
        loaded.predict(frame[["b", "a", "c"]])


def test_no_row_and_no_class_name_is_in_the_folder(model, tmp_path):
    model.save(tmp_path / "m")
    text = b"".join(p.read_bytes() for p in (tmp_path / "m").rglob("*") if p.is_file())
    assert b"pickle" not in text
    assert b"DBULL" not in text
    for row in (X, X.astype(np.float32), pack_state(model.state_)[0]["view"]["shift"].numpy() + X):
        assert not any(bytes(r.tobytes()) in text for r in row)


def test_parameters_that_only_the_caller_has(narrow, tmp_path):
    narrow.set_params(
        augment=MaskingNoise(0.3), random_state=np.random.RandomState(0), max_clusters=np.int64(50)
    )
    narrow.save(tmp_path / "a")
    loaded = dbull.load(tmp_path / "a")
    assert (loaded.augment, loaded.random_state, loaded.max_clusters) == (MaskingNoise(0.3), None, 50)

    def own(rows, generator):
        return rows

    narrow.set_params(augment=own, callback=print).save(tmp_path / "b")
    with pytest.raises(SettingsError, match="augment"):
        dbull.load(tmp_path / "b")
    assert dbull.load(tmp_path / "b", augment=own).augment is own
    with pytest.raises(SettingsError, match="load it without"):
        dbull.load(tmp_path / "a", augment=own)


def test_another_model_is_not_written_over(narrow, tmp_path):
    narrow.save(tmp_path / "m")
    with pytest.raises(SettingsError, match="another model is here"):
        DBULL(random_state=0).fit(X[:, :3]).save(tmp_path / "m")
    narrow.fit(X[:, :3])
    with pytest.raises(SettingsError, match="another model is here"):
        narrow.save(tmp_path / "m")
    assert ModelFolder(tmp_path / "m").generations() == [1]


def test_two_writers(narrow, tmp_path):
    narrow.save(tmp_path / "m")
    a, b = dbull.load(tmp_path / "m"), dbull.load(tmp_path / "m")
    a.rename(0, "a").save(tmp_path / "m")
    with pytest.raises(ConflictError):
        b.rename(0, "b").save(tmp_path / "m")
    assert dbull.load(tmp_path / "m").clusters_[0]["name"] == "a"


def test_an_older_generation_can_be_looked_at(narrow, tmp_path):
    narrow.save(tmp_path / "m").rename(0, "later").save(tmp_path / "m")
    old = dbull.load(tmp_path / "m", 1)
    assert old.clusters_[0]["name"] is None
    with pytest.raises(SettingsError, match="another model is here"):
        old.save(tmp_path / "m")


def test_an_unfitted_model_is_not_saved(tmp_path):
    with pytest.raises(NotFittedError):
        DBULL().save(tmp_path / "m")
    with pytest.raises(ModelFileError, match="no model here"):
        dbull.load(tmp_path / "m")


FORGERIES = {
    "wide networks": ("learner", lambda d: d["networks"].update(hidden_dims=[9_000_000, 9_000_000])),
    "wide codes": ("learner", lambda d: d["networks"].update(latent_dim=9_000_000)),
    "an unknown encoder": ("learner", lambda d: d["networks"].update(encoder="os.system")),
    "a front end": (
        "learner",
        lambda d: d["view"].update(
            front_end={
                **{"height": 9**6, "width": 9**6, "n_channels": 1, "straighten": True},
                **{"n_orientations": 8, "n_cells": 9},
            }
        ),
    ),
    "a lost component": ("learner", lambda d: d["components"]["ids"].pop()),
    "a foreign cluster": ("learner", lambda d: d["components"]["clusters"].__setitem__(0, 7)),
    "a field too many": ("learner", lambda d: d.update(code="import os")),
    "a field too few": ("learner", lambda d: d.pop("seed")),
    "text for a number": ("learner", lambda d: d["prior"].update(dof="many")),
    "columns": ("columns", lambda d: d.update(names=["a"])),
    "another method": ("settings", lambda d: d.update(method="other")),
    "an unknown parameter": ("settings", lambda d: d["parameters"].update(epoch=3)),
    "weights of another network": ("networks", lambda t: t.update({"mean_head.bias": torch.zeros(2)})),
    "a missing weight": ("networks", lambda t: t.pop("mean_head.bias")),
    "a missing tensor": ("mixture", lambda t: t.pop("counts")),
    "integers for reals": (
        "mixture",
        lambda t: t.update(prior_scale_inv=torch.zeros(2, 2, dtype=torch.int64)),
    ),
    "imprints of other ranks": ("imprints", lambda t: t.update(rank=t["rank"] + 1)),
}


@pytest.mark.parametrize("name", FORGERIES)
def test_content_that_does_not_fit_is_refused(model, name, tmp_path):
    model.save(tmp_path / "m")
    forge(tmp_path / "m", *FORGERIES[name])
    with pytest.raises(ModelFileError):
        dbull.load(tmp_path / "m")


@pytest.mark.parametrize("version", [1, 2])
def test_the_model_of_a_format_gives_its_answers(version):
    """Written once by benchmarks/golden_model.py; whatever changes, it must load and answer the same."""
    place = GOLDEN / f"model-format-{version}"
    answers = json.loads((place / "answers.json").read_text())
    model = dbull.load(place / "model")
    rows = load_digits().data[: answers["n_rows"]]
    assert model.predict(rows).tolist() == answers["ids"]
    np.testing.assert_allclose(model.transform(rows[:5]), answers["codes"], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(model.score_samples(rows[:5]), answers["scores"], rtol=1e-4)
    assert [row["name"] for row in model.clusters_][:1] == [answers["name"]]
    assert [event.kind for event in model.events_] == answers["events"]
    assert ModelFolder(place / "model").check().ok


def test_the_former_name_of_a_parameter_is_understood(tmp_path):
    """With a warning as a parameter; a stored model, old or new, has the present name."""
    X = np.random.default_rng(0).normal(size=(60, 12))
    quick = {"epochs": 1, "joint_epochs": 0, "hidden_dims": (8,), "random_state": 0}
    with pytest.warns(FutureWarning, match="n_neighbors"):
        model = DBULL(**quick, n_neighbours=7).fit(X)
    assert model.chosen_["settings"].graph.n_neighbors == 7
    model.save(tmp_path / "model")
    back = dbull.load(tmp_path / "model")
    assert (back.n_neighbors, back.n_neighbours) == (7, "deprecated")
    same = DBULL(**quick, n_neighbors=7).fit(X)
    np.testing.assert_array_equal(same.transform(X), model.transform(X))
