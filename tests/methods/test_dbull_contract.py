"""scikit-learn's checks of `DBULL`, none left out, without networks and with them."""

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from dbull import DBULL

pytestmark = pytest.mark.usefixtures("quick_module")

SMALL = {"encoder": "mlp", "hidden_dims": (16,), "latent_dim": 2, "epochs": 1, "joint_epochs": 0}


# The checks' data are narrow, so that the default needs no networks; the other forces them.
@parametrize_with_checks([DBULL(random_state=0), DBULL(random_state=0, **SMALL)])
def test_scikit_learns_contract(estimator, check):
    check(estimator)
