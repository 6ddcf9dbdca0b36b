"""Write the reference model of a format version; run once when the format changes, then keep it for ever.

python benchmarks/golden_model.py tests/reference/model-format-2
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from sklearn.datasets import load_digits

from dbull import DBULL

N_ROWS = 200


def main() -> int:
    place = Path(sys.argv[1])
    X = load_digits().data
    model = DBULL(
        image_shape=(8, 8),
        front_end=False,
        hidden_dims=(12,),
        latent_dim=4,
        join=0.0,
        epochs=10,
        random_state=0,
    )
    model.partial_fit(X[:400]).save(place / "model", note="first")
    model.partial_fit(X[400:700]).rename(0, "a name").merge_clusters(model.cluster_ids_[-2:].tolist())
    model.save(place / "model", note="second")
    answers = {
        "n_rows": N_ROWS,
        "ids": model.predict(X[:N_ROWS]).tolist(),
        "codes": model.transform(X[:5]).tolist(),
        "scores": model.score_samples(X[:5]).tolist(),
        "name": model.clusters_[0]["name"],
        "events": [event.kind for event in model.events_],
    }
    (place / "answers.json").write_text(json.dumps(answers) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
