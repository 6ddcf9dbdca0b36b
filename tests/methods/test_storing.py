"""Every estimator in a folder is the estimator in memory: same answers, same course, or a refusal."""

import copy
import json
import shutil

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.datasets import load_digits
from sklearn.exceptions import NotFittedError
from typer.testing import CliRunner

import dbull
from dbull import CURL, DEC, VAEDP, DPMixture, VaDE
from dbull.cli import app
from dbull.errors import ConflictError, ModelFileError, SettingsError
from dbull.nets.augment import MaskingNoise
from dbull.store import ModelFolder
from forgery import forge
from synthetic import gaussian_clusters

X, Y = gaussian_clusters(np.random.default_rng(3), (60, 50, 40), 12, distance=14.0)
pytestmark = pytest.mark.usefixtures("quick_module")
QUICK = {"random_state": 0, "hidden_dims": (6,), "latent_dim": 2, "epochs": 2, "learning_rate": 1e-2}
JOINT = {**QUICK, "joint_epochs": 2}
GROWING = {**JOINT, "wait_steps": 1, "buffer_rows": 200, "threshold": 1e6, "batch_size": 16}
MODELS = {
    "dec": DEC(3, **JOINT, n_init=2),
    "vade": VaDE(3, **JOINT, n_init=1),
    "vae-dp": VAEDP(**QUICK),
    "curl-f": CURL(3, **JOINT),
    "curl-d": CURL(**GROWING),
    "dp-mixture": DPMixture(random_state=0),
}
NOT_KEPT = {"labels_", "history_", "origin_"}
GOES_ON = ("curl-f", "curl-d", "dp-mixture")


@pytest.fixture(scope="module", params=MODELS)
def fitted(request):
    model = copy.deepcopy(MODELS[request.param])
    return (model.partial_fit if request.param in GOES_ON else model.fit)(X[Y < 2])


@pytest.fixture
def model(fitted):
    return copy.deepcopy(fitted)


def answers_of(model, rows=X):
    names = ("predict", "predict_proba", "transform", "score_samples")
    return {name: getattr(model, name)(rows) for name in names if hasattr(model, name)}


def assert_same(a, b):
    assert type(a) is type(b)
    assert a.get_params() == b.get_params()
    for name, answer in answers_of(a).items():
        np.testing.assert_array_equal(answer, getattr(b, name)(X), err_msg=name)
    shown = {name for name in vars(a) if name.endswith("_") and name not in NOT_KEPT}
    for name in shown:
        ours, theirs = getattr(a, name), getattr(b, name)
        if isinstance(ours, np.ndarray | int | float):
            np.testing.assert_array_equal(ours, theirs, err_msg=name)
            assert np.asarray(ours).dtype == np.asarray(theirs).dtype, name


def test_answers_and_attributes_are_the_same_to_the_bit(model, tmp_path):
    assert model.save(tmp_path / "m", note="first") is model
    loaded = dbull.load(tmp_path / "m")
    assert_same(model, loaded)
    assert not hasattr(loaded, "labels_"), "labels are about rows"
    np.testing.assert_array_equal(loaded.predict(X[Y < 2]), model.labels_)
    assert ModelFolder(tmp_path / "m").manifest().note == "first"
    assert ModelFolder(tmp_path / "m").check().ok


@pytest.mark.parametrize("name", GOES_ON)
def test_going_on_after_a_load_is_the_straight_run(name, tmp_path):
    straight = copy.deepcopy(MODELS[name]).partial_fit(X[Y < 2]).partial_fit(X[Y == 2]).partial_fit(X[::3])
    stored = copy.deepcopy(MODELS[name]).partial_fit(X[Y < 2]).save(tmp_path / "m")
    stored = dbull.load(tmp_path / "m").partial_fit(X[Y == 2]).save(tmp_path / "m")
    stored = dbull.load(tmp_path / "m").partial_fit(X[::3])
    assert_same(straight, stored)
    np.testing.assert_array_equal(straight.labels_, stored.labels_)
    stored.save(tmp_path / "m")
    assert ModelFolder(tmp_path / "m").generations() == [1, 2, 3]
    assert_same(dbull.load(tmp_path / "m"), straight)


def test_rows_that_wait_for_a_component_are_not_lost(tmp_path):
    """200 are needed: the next 150 rows suffice only together with those that wait."""
    waiting = CURL(**{**GROWING, "joint_epochs": 1}).partial_fit(X[Y < 2])
    waits = waiting._poor.n_rows
    assert 0 < waits < 200
    assert waiting.n_clusters_ == 1
    waiting.save(tmp_path / "m")
    loaded = dbull.load(tmp_path / "m")
    assert loaded._poor.n_rows == waits
    assert loaded.partial_fit(X).n_clusters_ == waiting.partial_fit(X).n_clusters_ == 2


def test_images_with_a_front_end_come_back(tmp_path):
    digits = load_digits().data[:60].astype(np.float32)
    model = DEC(3, image_shape=(8, 8), front_end=True, **JOINT).fit(digits).save(tmp_path / "m")
    loaded = dbull.load(tmp_path / "m")
    assert loaded.image_shape == (8, 8)
    np.testing.assert_array_equal(loaded.predict_proba(digits), model.predict_proba(digits))


def test_columns_are_part_of_the_model(tmp_path):
    frame = pd.DataFrame(X[:, :3], columns=["a", "b", "c"])
    VaDE(2, **JOINT).fit(frame).save(tmp_path / "m")
    with pytest.raises(ValueError, match="feature names"):
        dbull.load(tmp_path / "m").predict(frame[["b", "a", "c"]])


def test_a_refitted_model_is_another_model(model, tmp_path):
    model.save(tmp_path / "m").save(tmp_path / "m")
    assert ModelFolder(tmp_path / "m").generations() == [1, 2]
    before = dict(vars(model))
    with pytest.raises(ValueError, match="NaN"):
        model.fit(np.full_like(X, np.nan))
    assert vars(model)["origin_"] == before["origin_"], "a failed fit is no other model"
    model.fit(X)
    with pytest.raises(SettingsError, match="another model is here"):
        model.save(tmp_path / "m")


@pytest.mark.parametrize("bad", [np.full((20, 5), np.nan), pd.DataFrame({"z": [1.0, np.inf, 2.0]})])
def test_a_failed_fit_changes_nothing(model, bad, tmp_path):
    with pytest.raises(ValueError, match=r"NaN|infinity"):
        model.fit(bad)
    assert_same(dbull.load(model.save(tmp_path / "m").origin_.path), model)


def test_a_folder_that_was_removed_is_written_anew(model, tmp_path):
    model.save(tmp_path / "m").save(tmp_path / "m")
    shutil.rmtree(tmp_path / "m")
    model.save(tmp_path / "m")
    assert ModelFolder(tmp_path / "m").generations() == [1]
    assert_same(dbull.load(tmp_path / "m"), model)


@pytest.mark.parametrize("note", [None, 5])
def test_what_could_not_be_read_is_not_written(model, note, tmp_path):
    with pytest.raises(SettingsError, match="must be text"):
        model.save(tmp_path / "m", note=note)
    assert not (tmp_path / "m").exists()
    model.save(tmp_path / "m")
    for generation in ("1", True, 1.0):
        with pytest.raises(SettingsError, match="whole number"):
            dbull.load(tmp_path / "m", generation)


def test_a_device_that_is_not_here(tmp_path):
    model = DEC(2, **JOINT, device=torch.device("cpu")).fit(X).save(tmp_path / "a")
    assert dbull.load(tmp_path / "a").device == "cpu"
    model.save(tmp_path / "b")
    forge(tmp_path / "b", "settings", lambda settings: settings["parameters"].update(device="xpu:7"))
    with pytest.warns(UserWarning, match=r"xpu:7.*not here.*on the CPU now"):
        loaded = dbull.load(tmp_path / "b")
    assert loaded.device == "cpu"
    np.testing.assert_array_equal(loaded.predict(X), model.labels_)
    with pytest.raises(ValueError, match="device must be one"):
        dbull.load(tmp_path / "b", device="nonsense")
    with pytest.raises(ValueError, match="device must be one"):
        DEC(2, **JOINT, device="xpu:7").fit(X)


@pytest.mark.parametrize(
    ("parameter", "value"),
    [("dof", "x"), ("dof", 0), ("device", 1e308), ("augment", {}), ("augment", {"name": "x"}), ("kind", [])],
)
def test_parameters_that_cannot_be(parameter, value, tmp_path):
    DEC(2, **JOINT).fit(X).save(tmp_path / "m")
    forge(tmp_path / "m", "settings", lambda settings: settings["parameters"].update({parameter: value}))
    with pytest.raises(ModelFileError, match=r"manifest\.json"):
        dbull.load(tmp_path / "m")


def test_rows_are_not_collected_when_there_is_no_room_for_a_component(tmp_path):
    full = CURL(**{**GROWING, "max_clusters": 2, "buffer_rows": 20}).fit(X)
    assert full.n_clusters_ == 2
    assert full._poor.n_rows == 0
    assert full.partial_fit(X)._poor.n_rows == 0


def test_two_writers_and_older_generations(model, tmp_path):
    model.save(tmp_path / "m")
    a, b = dbull.load(tmp_path / "m"), dbull.load(tmp_path / "m")
    a.save(tmp_path / "m")
    with pytest.raises(ConflictError):
        b.save(tmp_path / "m")
    with pytest.raises(SettingsError, match="another model is here"):
        dbull.load(tmp_path / "m", 1).save(tmp_path / "m")


def test_an_id_of_a_rolled_back_generation_is_not_given_again(tmp_path):
    old, new, place = X[Y < 2, :3], X[Y == 2, :3], tmp_path / "m"
    later = DPMixture(random_state=0).fit(old).save(place).partial_fit(new).save(place)
    assert later.cluster_ids_.tolist() == [0, 1, 2]
    ModelFolder(place).rollback(1)
    assert dbull.load(place).partial_fit(new).cluster_ids_.tolist() == [0, 1, 3]


@pytest.mark.parametrize("name", MODELS)
def test_an_unfitted_model_is_not_saved(name, tmp_path):
    with pytest.raises(NotFittedError):
        copy.deepcopy(MODELS[name]).save(tmp_path / "m")
    assert not (tmp_path / "m").exists()


def test_parameters_that_only_the_caller_has(tmp_path):
    def own(rows, generator):
        return rows

    model = DEC(2, **{**JOINT, "random_state": np.random.RandomState(0)}, augment=MaskingNoise(0.3)).fit(X)
    model.save(tmp_path / "a")
    loaded = dbull.load(tmp_path / "a")
    assert (loaded.augment, loaded.random_state) == (MaskingNoise(0.3), None)
    model.set_params(augment=own, callback=print).save(tmp_path / "b")
    with pytest.raises(SettingsError, match="augment"):
        dbull.load(tmp_path / "b")
    assert dbull.load(tmp_path / "b", augment=own).augment is own
    assert dbull.load(tmp_path / "a", device="cpu").device == "cpu"
    DPMixture().fit(X).save(tmp_path / "c")
    with pytest.raises(SettingsError, match="no device"):
        dbull.load(tmp_path / "c", device="cpu")


def test_no_class_name_is_in_the_folder(model, tmp_path):
    model.save(tmp_path / "m")
    text = b"".join(p.read_bytes() for p in (tmp_path / "m").rglob("*") if p.is_file())
    for word in (b"pickle", type(model).__name__.encode(), b"torch.nn"):
        assert word not in text


def mutations(value):
    """Yield the JSON value with one thing changed, for each thing in it: taken away, or of another kind."""
    parts = list(value.items()) if isinstance(value, dict) else list(enumerate(value))
    for key, part in parts:
        for other in ("x", -1, 10**12, None, [], [7], {}):
            if other != part:
                changed = copy.deepcopy(value)
                changed[key] = other
                yield f"{key}={other}", changed
        less = copy.deepcopy(value)
        del less[key]
        yield f"no {key}", less
        if isinstance(part, dict | list):
            for name, inner in mutations(part):
                changed = copy.deepcopy(value)
                changed[key] = inner
                yield f"{key}.{name}", changed


def test_documents_that_do_not_fit(model, tmp_path):
    """Whatever is written there: our own error, or a model that can be asked. Never another end."""
    model.save(tmp_path / "m")
    sound = ModelFolder(tmp_path / "m").load().checkpoint
    refused = []
    for name, changed in mutations(json.loads(json.dumps(sound.documents["learner"]))):

        def put(document, changed=changed):
            document.clear()
            document.update(changed)

        forge(tmp_path / "m", "learner", put, sound)
        try:
            assert dbull.load(tmp_path / "m").predict(X).shape == (len(X),)
        except ModelFileError as error:
            refused.append((name, str(error)))
    assert len(refused) > 40
    for name, said in refused:
        assert "learner.json" in said, name


def test_tensors_that_do_not_fit(model, tmp_path):
    model.save(tmp_path / "m")
    sound = ModelFolder(tmp_path / "m").load().checkpoint
    for group, parts in sound.tensors.items():
        for name, part in parts.items():
            for what, other in (("shape", part[..., None]), ("kind", part.to(torch.int32)), ("gone", None)):

                def put(tensors, name=name, other=other):
                    del tensors[name]
                    if other is not None:
                        tensors[name] = other

                forge(tmp_path / "m", group, put, sound)
                try:
                    dbull.load(tmp_path / "m")
                except ModelFileError:
                    continue
                pytest.fail(f"{group}.{name}: another {what} was taken")


def test_a_method_that_nobody_knows(tmp_path):
    DPMixture(random_state=0).fit(X).save(tmp_path / "m")
    forge(tmp_path / "m", "settings", lambda settings: settings.update(method="os.system"))
    with pytest.raises(ModelFileError, match=r"os\.system.*does not know"):
        dbull.load(tmp_path / "m")


@pytest.mark.parametrize(
    "command",
    [
        ["clusters", "MODEL"],
        ["learn", "MODEL", "ROWS"],
        ["preview", "MODEL", "ROWS"],
        ["predict", "MODEL", "ROWS"],
        ["report", "MODEL", "-o", "PAGE"],
        ["rename", "MODEL", "0", "x"],
    ],
    ids=lambda command: command[0],
)
def test_the_command_line_is_for_models_of_dbull(command, tmp_path):
    DPMixture(random_state=0).fit(X).save(tmp_path / "m")
    np.save(tmp_path / "x.npy", X)
    places = {"MODEL": tmp_path / "m", "ROWS": tmp_path / "x.npy", "PAGE": tmp_path / "r.html"}
    result = CliRunner().invoke(app, [str(places.get(word, word)) for word in command])
    assert result.exit_code == 4
    assert "is a model of 'dp-mixture' and not of DBULL; use dbull.load in Python" in result.output
    assert ModelFolder(tmp_path / "m").generations() == [1]


def test_the_command_line_looks_after_any_model(model, tmp_path):
    place = str(tmp_path / "m")
    model.save(place, note="one").save(place, note="two")
    run = CliRunner().invoke
    assert run(app, ["check", place]).exit_code == 0
    assert "two" in run(app, ["history", place]).output
    assert "answer alike" in run(app, ["diff", place, "1", "2"]).output
    assert run(app, ["rollback", place, "1"]).exit_code == 0
    assert_same(dbull.load(place), model)


def test_check_is_content_with_a_function_that_only_the_caller_has(tmp_path):
    DEC(2, **JOINT, augment=lambda rows, generator: rows).fit(X).save(tmp_path / "m")
    assert CliRunner().invoke(app, ["check", str(tmp_path / "m")]).exit_code == 0
