"""Constructors are generated from fields: what scikit-learn and callers see of them."""

import copy
import inspect
import pickle

import pytest
from sklearn.base import clone

from dbull import CURL, DBULL, DEC, VAEDP, DPMixture, VaDE

NETWORKS = {
    **{
        "kind": "auto",
        "image_shape": None,
        "latent_dim": "auto",
        "hidden_dims": "auto",
        "likelihood": "auto",
    },
    **{"front_end": False, "augment": "auto", "pretraining": "end-to-end", "epochs": "auto"},
    **{"batch_size": "auto", "learning_rate": "auto"},
    **{"random_state": None, "device": "cpu", "callback": None},
}
MIXTURE = {"concentration": 1.0, "max_evidence": "auto", "max_clusters": 1000}
JOINT = {**NETWORKS, "joint_epochs": "auto", "joint_learning_rate": "auto"}
PARAMETERS = {
    DPMixture: {**MIXTURE, "prior": "data", "fresh_sizes": (2, 3, 5, 10), "random_state": None},
    VAEDP: {**NETWORKS, **MIXTURE},
    VaDE: {**JOINT, "n_clusters": 8, "n_init": 20},
    DEC: {
        **{**JOINT, "n_clusters": 8, "n_init": 20, "joint_learning_rate": 0.01},
        **{"dof": 1.0, "update_interval": 140, "tolerance": 1e-3},
    },
    CURL: {
        **{**JOINT, "n_clusters": None, "max_clusters": 50, "threshold": "auto"},
        **{"buffer_rows": 100, "wait_steps": 100, "replay": True},
    },
    DBULL: {
        **{**NETWORKS, **MIXTURE, "objective": "default", "encoder": "auto", "front_end": "auto"},
        **dict.fromkeys(
            ("neighbourhood", "n_neighbors", "graph_index", "join", "pooling", "joint_epochs"), "auto"
        ),
        **dict.fromkeys(("replay", "n_replay", "consistency", "carry", "novelty", "freeze"), "auto"),
        **{"resolution": "normal", "use_encoder_variance": False, "strict_scale": False, "keep_exemplars": 0},
        "columns": None,
        "embeddings": None,
        "threads": "auto",
        "n_neighbours": "deprecated",
    },
}


@pytest.mark.parametrize("kind", PARAMETERS)
def test_parameters_and_their_defaults(kind):
    found = inspect.signature(kind).parameters.values()
    assert {parameter.name: parameter.default for parameter in found} == PARAMETERS[kind]
    assert kind().get_params() == PARAMETERS[kind]
    by_place = [p.name for p in found if p.kind is not inspect.Parameter.KEYWORD_ONLY]
    assert by_place == (["n_clusters"] if kind in (DEC, VaDE, CURL) else [])
    assert repr(kind()) == f"{kind.__name__}()"


@pytest.mark.parametrize("kind", PARAMETERS)
def test_an_estimator_is_what_it_was_given_and_equal_to_itself_alone(kind):
    model = kind(random_state=5)
    assert vars(model) == {**PARAMETERS[kind], "random_state": 5}
    assert repr(model) == f"{kind.__name__}(random_state=5)"
    for other in (clone(model), copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert type(other) is kind
        assert other.get_params() == model.get_params()
        assert other != model
    assert len({model, clone(model)}) == 2
