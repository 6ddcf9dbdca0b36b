"""scikit-learn's checks of `DBULL` without networks and with them, none left out.

Two cannot pass: whatever takes sparse matrices and has `predict_proba` is asked for the tags of a classifier.
What they check up to there is in test_dbull_sparse.py.
"""

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from dbull import DBULL

pytestmark = pytest.mark.usefixtures("quick_module")

SMALL = {"encoder": "mlp", "hidden_dims": (16,), "latent_dim": 2, "epochs": 1, "joint_epochs": 0}


# The checks' data are narrow, so that the default needs no networks; the other forces them.
@parametrize_with_checks(
    [DBULL(random_state=0), DBULL(random_state=0, **SMALL)],
    expected_failed_checks=lambda _: dict.fromkeys(
        ("check_estimator_sparse_array", "check_estimator_sparse_matrix"), "asks for the tags of a classifier"
    ),
)
def test_scikit_learns_contract(estimator, check):
    check(estimator)
