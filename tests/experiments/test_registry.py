"""From a method's name to an object that can learn."""

import pytest

from dbull.errors import SettingsError
from dbull.experiments.baselines import FirstArrivalPCA
from dbull.experiments.registry import METHODS, build, resolve
from dbull.experiments.settings import MethodChoice


def test_defaults_seed_and_true_k_are_filled_in():
    method = resolve(MethodChoice(name="kmeans"), seed=3, true_k=10)
    assert method.parameters == {"n_clusters": 10, "n_init": 10, "random_state": 3}
    assert method.told_true_k == 10
    assert build(method).get_params() == method.parameters


@pytest.mark.parametrize(
    ("name", "parameter"),
    [("dec", "n_clusters"), ("vade", "n_clusters"), ("curl-f", "n_clusters"), ("gmm", "n_components")],
)
def test_those_who_must_know_are_told_the_true_k(name, parameter):
    method = resolve(MethodChoice(name=name), 0, 7)
    assert (method.parameters[parameter], method.told_true_k) == (7, 7)
    own = resolve(MethodChoice(name=name, parameters={parameter: 3}), 0, 7)
    assert (own.parameters[parameter], own.told_true_k) == (3, None)


@pytest.mark.parametrize("name", ["curl-d", "vae-dp", "dbull", "dp-mixture", "bgmm"])
def test_those_who_find_out_are_told_nothing(name):
    method = resolve(MethodChoice(name=name), 0, 7)
    assert method.told_true_k is None
    assert 7 not in method.parameters.values()


def test_registered_parameters_win_over_the_class_and_the_user_over_both():
    assert resolve(MethodChoice(name="bgmm"), 0, 10).parameters["n_components"] == 30
    assert resolve(MethodChoice(name="bgmm"), 0, 10).told_true_k is None
    own = MethodChoice(name="bgmm", parameters={"n_components": 5, "random_state": 99})
    method = resolve(own, 0, 10)
    assert (method.parameters["n_components"], method.parameters["random_state"]) == (5, 99)


def test_projection_belongs_to_the_method_and_can_be_set():
    built = build(resolve(MethodChoice(name="bgmm", parameters={"pca_dims": 4}), 0, 10))
    assert isinstance(built, FirstArrivalPCA)
    assert built.n_dims == 4
    assert not hasattr(built, "partial_fit"), "BayesianGaussianMixture cannot go on learning"
    plain = build(resolve(MethodChoice(name="bgmm", parameters={"pca_dims": 0}), 0, 10))
    assert type(plain).__name__ == "BayesianGaussianMixture"


def test_any_class_by_path():
    method = resolve(MethodChoice(path="toy_methods:Knowing", parameters={"shift": 2}), 0, 10)
    assert build(method).shift == 2
    assert method.told_true_k is None


def test_shape_of_images_goes_to_those_who_declare_it_and_the_user_wins():
    assert resolve(MethodChoice(name="dbull"), 0, 10, (8, 8)).parameters["image_shape"] == (8, 8)
    assert resolve(MethodChoice(name="dbull"), 0, 10).parameters["image_shape"] is None
    own = MethodChoice(name="dbull", parameters={"image_shape": [4, 16]})
    assert resolve(own, 0, 10, (8, 8)).parameters["image_shape"] == [4, 16]
    assert "image_shape" not in resolve(MethodChoice(name="kmeans"), 0, 10, (8, 8)).parameters


def test_projected_rows_are_no_images():
    method = resolve(MethodChoice(name="dbull", parameters={"pca_dims": 10}), 0, 10, (8, 8))
    assert method.parameters["image_shape"] is None
    plain = resolve(MethodChoice(name="dbull", parameters={"pca_dims": 0}), 0, 10, (8, 8))
    assert plain.parameters["image_shape"] == (8, 8)


def test_objective_of_the_paper_by_name():
    assert resolve(MethodChoice(name="dbull"), 0, 10).parameters["objective"] == "default"
    assert build(resolve(MethodChoice(name="dbull-paper"), 0, 10)).objective == "paper"


def test_listener_goes_to_those_who_declare_it_and_the_user_wins():
    assert build(resolve(MethodChoice(name="dbull"), 0, 10), print).callback is print
    assert (
        build(resolve(MethodChoice(name="dbull", parameters={"pca_dims": 4}), 0, 10), print).learner.callback
        is print
    )
    own = MethodChoice(name="dbull", parameters={"callback": repr})
    assert build(resolve(own, 0, 10), print).callback is repr
    assert build(resolve(MethodChoice(path="toy_methods:CallsBack"), 0, 10), print).callback is None


@pytest.mark.parametrize(
    ("choice", "words"),
    [
        (MethodChoice(name="kmean"), "unknown method 'kmean': did you mean 'kmeans'"),
        (MethodChoice(name="kmeans", parameters={"n_cluster": 3}), "did you mean 'n_clusters'"),
        (MethodChoice(name="bgmm", parameters={"pca_dim": 3}), "did you mean 'pca_dims'"),
        (MethodChoice(name="bgmm", parameters={"pca_dims": -1}), "pca_dims"),
        (MethodChoice(path="toy_methods:Knowin"), "did you mean 'Knowing'"),
        (MethodChoice(path="toy_methods:Nothing"), "no method: it must have predict"),
        (MethodChoice(path="no_such_module:Class"), "cannot be imported"),
        (MethodChoice(path="toy_methods.Knowing", label="x"), "write package.module:Class"),
    ],
)
def test_wrong_names_are_refused_with_the_nearest(choice, words):
    with pytest.raises(SettingsError, match=words):
        resolve(choice, 0, 10)


@pytest.mark.parametrize("name", METHODS)
def test_every_registered_method_can_be_built(name):
    learner = build(resolve(MethodChoice(name=name), 0, 10))
    assert hasattr(learner, "fit")
    assert hasattr(learner, "predict")
