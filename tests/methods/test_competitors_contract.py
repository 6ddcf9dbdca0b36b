"""scikit-learn's checks of the competing systems, none left out."""

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from dbull.methods.competitors.curl import CURL
from dbull.methods.competitors.dec import DEC
from dbull.methods.competitors.vade import VaDE
from dbull.methods.competitors.vae_dp import VAEDP

pytestmark = pytest.mark.usefixtures("quick_module")

# Small networks and few epochs for the sake of time; test_competitors.py has defaults on such data.
QUICK = {
    "random_state": 0,
    "hidden_dims": (16,),
    "latent_dim": 2,
    "epochs": 2,
    "learning_rate": 1e-2,
    "batch_size": 16,
}
JOINT = {**QUICK, "joint_epochs": 2}


@parametrize_with_checks(
    [
        DEC(2, **JOINT, n_init=2),
        VaDE(2, **JOINT, n_init=1),
        VAEDP(**QUICK),
        CURL(2, **JOINT),
        CURL(**JOINT, wait_steps=5, buffer_rows=5),
    ]
)
def test_scikit_learns_contract(estimator, check):
    check(estimator)
