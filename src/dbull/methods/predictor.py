"""Answers of a stored model as a function that other engines can send to where the rows are."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from dbull.errors import check_known
from dbull.methods.block_work import slim_model
from dbull.methods.storage import load
from dbull.threads import working

KINDS = {"cluster": "int64", "name": "object", "status": "object"}
SCORES = {"probability": "float64", "log_density": "float64", "novelty": "float64"}


class Predictor:
    """What a model says of rows: call it with a frame or an array.

    It pickles with all that it needs, and works on one thread, so that Dask (`map_partitions`), Ray
    (`map_batches`) and Spark (`mapInPandas`) can spread it. The answer for a row depends neither on the rows
    beside it nor on where it is given.

    Parameters
    ----------
    model
        Folder of a stored `DBULL`.
    generation
        The newest unless named.
    scores
        Whether probability, log density and novelty are told, which takes several times as long.
    outliers
        "flag" answers -1, with status "outlier", for rows that every cluster finds strange.

    Examples
    --------
    >>> from dbull import Predictor                                      # doctest: +SKIP
    >>> predictor = Predictor("model")
    >>> frame.map_partitions(predictor, meta=predictor.meta)             # Dask
    """

    def __init__(
        self,
        model: str | os.PathLike[str],
        generation: int | None = None,
        *,
        scores: bool = False,
        outliers: str = "assign",
    ):
        check_known("answer to outliers", outliers, ("assign", "flag"))
        loaded = load(model, generation, events=False)
        self.scores, self.outliers = scores, outliers
        self._known = {row["id"]: (row["name"] or "", row["status"]) for row in loaded.clusters_}
        self._model = slim_model(loaded, loaded.state_)

    @property
    def kinds(self) -> dict[str, str]:
        """Names and types of the columns of an answer."""
        if not self.scores:
            return KINDS
        without = () if self._model.tells_novelty else ("novelty",)
        return {**KINDS, **{name: kind for name, kind in SCORES.items() if name not in without}}

    @property
    def meta(self) -> Any:
        """An answer without rows, as Dask asks for it."""
        import pandas

        # Of one row, since what text is to pandas depends on its version.
        example = {name: [""] if kind == "object" else np.zeros(1, kind) for name, kind in self.kinds.items()}
        return pandas.DataFrame(example).iloc[:0]

    def __call__(self, rows: Any) -> Any:
        """Return the answers: for a frame of pandas a frame with its index, else a dict of columns."""
        with working(1), threadpool_limits(1):
            told = self.columns(rows)
        if not hasattr(rows, "iloc"):
            return told
        import pandas

        return pandas.DataFrame(told, index=rows.index)

    def columns(self, rows: Any) -> dict[str, Any]:
        """Return the answers as columns."""
        model = self._model
        names = getattr(model, "feature_names_in_", None)
        if names is not None and hasattr(rows, "iloc") and not hasattr(model, "column_encoder_"):
            rows = rows[list(names)]  # a frame may have more, in any order
        rows = model.encoded(rows)
        told: dict[str, Any] = {}
        if self.scores:
            proba = model.predict_proba(rows)
            ids = model.cluster_ids_[proba.argmax(1)]
            told = {"probability": proba.max(1), "log_density": model.score_samples(rows)}
            if model.tells_novelty:
                told["novelty"] = model.novelty_scores(rows)
        else:
            ids = model.predict(rows)
        names, statuses = zip(*(self._known[i] for i in ids.tolist()), strict=True)
        found = {"cluster": ids, "name": np.array(names, object), "status": np.array(statuses, object)}
        if self.outliers == "flag":
            strange = model.predict(rows, outliers="flag") < 0
            for name, flag in (("cluster", -1), ("name", ""), ("status", "outlier")):
                found[name] = np.where(strange, flag, found[name])
        return {**found, **told}
