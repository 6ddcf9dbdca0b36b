"""What a learned model answers: codes, clusters, strangeness, densities, samples; and changes by hand."""

from collections.abc import Callable, Generator, Iterable
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.base import ClassNamePrefixFeaturesOutMixin, ClusterMixin, DensityMixin, TransformerMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_array, check_is_fitted

from dbull.errors import check_known
from dbull.ledger import NO_CLUSTER, ArrivalReport, Event
from dbull.lifelong.groups import Join
from dbull.lifelong.inference import CHUNK_ROWS, bounds_of, decode_codes, encode_rows, padded
from dbull.lifelong.novelty import Strangeness, strangeness
from dbull.lifelong.plane import lay_out, points_of
from dbull.lifelong.settings import OUTLIER_STD
from dbull.lifelong.state import LearnerState
from dbull.methods.base import as_tensor, check_number, check_rows, draw_points
from dbull.methods.cells import cells, is_cells
from dbull.methods.embeddings import embedding_rows
from dbull.methods.exemplars import of_cluster
from dbull.methods.explanation import Explainer, Explanation
from dbull.methods.sparse import projected_rows
from dbull.methods.storage import StoredLearner
from dbull.methods.tables import Encoded, encoded_rows
from dbull.methods.texts import text_rows
from dbull.methods.words import ClusterWords
from dbull.mixture.posterior import mean_weights
from dbull.threads import mapped, on_own_threads

Model = TypeVar("Model", bound="LearnedClusters")
Rows = Any  # array-like of numbers, or a table: a frame of pandas, polars or pyarrow, a dict, a list of dicts


@on_own_threads(
    *("transform", "inverse_transform", "reconstruct", "predict", "predict_proba", "novelty_scores"),
    *("score_samples", "sample", "prototype", "map_points"),
)
class LearnedClusters(
    ClassNamePrefixFeaturesOutMixin, TransformerMixin, ClusterMixin, DensityMixin, StoredLearner
):
    """An estimator with a learner's state: all that is asked of it once something was learned, a mixin."""

    report_: ArrivalReport
    replay: str
    objective: str
    random_state: Any
    threads: Any
    embeddings: Any

    def transform(self, X: Rows) -> NDArray[np.float64]:
        """Return the latent mean of each row, (n_samples, latent_dim)."""
        return self._encode(self._rows(X)).numpy()

    def map_points(self, X: Rows) -> NDArray[np.float64]:
        """Return where each row lies on the map, (n_samples, 2): the same place in all generations.

        Clusters keep their places when more is learned; new ones are put among them.
        """
        codes = self._encode(self._rows(X))
        plane = getattr(self, "map_", None)  # models of before there were maps have none until they learn
        plane = lay_out(self.state_, None) if plane is None else plane
        return points_of(self.state_, plane, codes).numpy()

    def inverse_transform(self, Z: ArrayLike) -> NDArray[np.float64]:
        """Return the decoded rows of codes, in the units of the data."""
        check_is_fitted(self)
        codes = check_array(Z, dtype=np.float64)
        if codes.shape[1] != self._n_features_out:
            raise ValueError(
                f"codes have {self._n_features_out} columns, got {codes.shape[1]}: give what transform gave."
            )
        return self._decode(torch.from_numpy(codes))

    def reconstruct(self, X: Rows) -> NDArray[np.float64]:
        """Return what the networks make of each row: encoded, then decoded."""
        return self._decode(self._encode(self._rows(X)))

    def predict(self, X: Rows, *, outliers: str = "assign") -> NDArray[np.int64]:
        """Return the id of the most probable cluster of each row.

        With ``outliers="flag"`` it is -1 for rows that every cluster finds strange: alone they would not
        count if they were learned.
        """
        check_known("answer to outliers", outliers, ("assign", "flag"))
        rows = self._rows(X)
        ids = self._ids(self._encode(rows))
        if outliers == "flag":
            strange = [seen.strange_to_all(OUTLIER_STD).numpy() for seen in self._strangeness(rows)]
            ids[np.concatenate(strange)] = NO_CLUSTER
        return ids

    def novelty_scores(self, X: Rows) -> NDArray[np.float64]:
        """Return for each row the share of its cluster's own rows that are as strange or stranger.

        Like a p-value: small for what is new, 0 for a row stranger than all rows of its cluster. Measured in
        the space of the encoder's inputs, which never moves. A cluster's first rows are scored by halves, one
        by the other, which makes the scale of a newborn cluster generous.
        """
        rows = self._rows(X)
        parts = zip(self._strangeness(rows), rows.split(CHUNK_ROWS), strict=True)
        shares = [seen.share_beyond(torch.from_numpy(self._ids(self._encode(part)))) for seen, part in parts]
        return torch.cat(shares).numpy()

    @property
    def tells_novelty(self) -> bool:
        """Whether the model keeps what tells how strange a row is."""
        check_is_fitted(self)
        return bool(self.state_.imprints) and self.state_.imprints.keys() >= set(self.state_.memory.ids)

    def _strangeness(self, rows: torch.Tensor) -> Generator[Strangeness, None, None]:
        """Yield what the clusters make of rows, a chunk at a time."""
        view = self.state_.view
        for part in rows.split(CHUNK_ROWS):
            seen = strangeness(self.state_, padded(view.inputs(view.values(part))))
            if seen is None:
                raise ValueError(
                    f"this model keeps nothing that tells how strange a row is (replay={self.replay!r}, "
                    f"objective={self.objective!r}); learn one with replay='imprints'."
                )
            yield replace(seen, scores=seen.scores[: len(part)])

    def predict_proba(self, X: Rows) -> NDArray[np.float64]:
        """Return the probability of each cluster for each row; columns as in `cluster_ids_`."""
        codes = self._encode(self._rows(X))
        return self.state_.log_proba(codes).exp().numpy()

    def score_samples(self, X: Rows) -> NDArray[np.float64]:
        """Return a lower bound on the log density of each row.

        The expectation over codes is that of four fixed draws. With encoder="identity" the log predictive
        density itself.
        """
        rows = self._rows(X)
        values = self.state_.view.values(rows)
        return bounds_of(self.state_, values, self.state_.view.inputs(values)).numpy()

    def score(self, X: Rows, y: object = None) -> float:
        """Return the mean of `score_samples`."""
        return float(self.score_samples(X).mean())

    def sample(
        self, n_samples: int = 1, cluster: int | None = None
    ) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """Draw codes from the mixture, or from one cluster, and decode them: rows and their cluster ids."""
        codes, clusters = self.sample_codes(n_samples, cluster)
        return self._decode(torch.from_numpy(codes)), clusters

    def sample_codes(
        self, n_samples: int = 1, cluster: int | None = None, random_state: Any = None
    ) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """Draw codes from the mixture, or from one cluster: codes and their cluster ids.

        `random_state` stands in for that of the model, if given.
        """
        check_is_fitted(self)
        check_number("n_samples", n_samples, at_least=1, whole=True)
        rng = check_random_state(self.random_state if random_state is None else random_state)
        weights = mean_weights(self.state_.posterior).numpy().copy()
        cluster_of = self.state_.cluster_of.numpy()
        if cluster is not None:
            weights[cluster_of != self._known(cluster)] = 0.0
        which = rng.choice(len(weights), size=n_samples, p=weights / weights.sum())
        return draw_points(self.state_.posterior.components, which, rng), cluster_of[which]

    def prototype(self, cluster: int) -> NDArray[np.float64]:
        """Return the decoded mean of a cluster; of its largest component if it has several."""
        check_is_fitted(self)
        counts = self.state_.memory.total.counts.clone()
        counts[self.state_.cluster_of != self._known(cluster)] = -1.0
        mean = self.state_.posterior.components.mean[int(counts.argmax())]
        return self._decode(mean[None]).reshape(-1)

    def explain(self, cluster: int, n_traits: int = 6) -> Explanation:
        """Return in which columns a cluster differs from all other rows, and from its nearest neighbour.

        From statistics alone, in the units of the data; images by their parts. `print` shows it as text.
        """
        check_is_fitted(self)
        check_number("n_traits", n_traits, at_least=1, whole=True)
        return Explainer(self)(self._known(cluster), n_traits)

    @property
    def events_(self) -> tuple[Event, ...]:
        """What happened, oldest first."""
        check_is_fitted(self)
        return self.state_.ledger.events

    @property
    def clusters_(self) -> list[dict[str, Any]]:
        """Every cluster that has ever been, oldest first."""
        check_is_fitted(self)
        living = set(self.state_.cluster_ids)
        words = ClusterWords.of(self)
        return [
            {
                **row,
                **({} if words is None else {"words": words.words(row["id"])}),
                "spread": self.state_.spread(row["id"]) if row["id"] in living else None,
                "exemplars": [one.key for one in of_cluster(self, row["id"])],
            }
            for row in self.state_.ledger.table()
        ]

    def exemplar_rows(self, cluster: int) -> tuple[list[str], NDArray[np.float32]]:
        """Return keys and rows of the exemplars of a cluster, nearest first; `keep_exemplars` keeps them."""
        check_is_fitted(self)
        kept = [one for one in of_cluster(self, self._known(cluster)) if one.row is not None]
        rows = np.array([one.row for one in kept], dtype=np.float32)
        return [one.key for one in kept], rows.reshape(len(kept), self.state_.vae.shape.n_values)

    @property
    def hierarchy_(self) -> tuple[Join, ...]:
        """How the clusters would be joined as `resolution` falls, those hardest to tell apart first."""
        check_is_fitted(self)
        return self.state_.hierarchy()

    def resolve(self, ids: ArrayLike) -> NDArray[np.int64]:
        """Return the present id of each id ever given: after merges the one it lives on under."""
        check_is_fitted(self)
        return self.state_.ledger.resolve(ids)

    def rename(self: Model, cluster: int, name: str | None) -> Model:
        """Give a cluster a name, or take it away with None; its id stays."""
        return self._edited(lambda state: state.ledger.rename(cluster, name))

    def merge_clusters(self: Model, ids: Iterable[int]) -> Model:
        """Make one cluster of several. The oldest id stays; `resolve` leads from the others to it.

        Nothing is learned anew: from now on `predict` answers with the oldest id where it would have with one
        of the others, and also where their probabilities together are the largest.
        """
        given = sorted(set(ids))
        if len(given) < 2:
            raise ValueError(f"merge_clusters needs at least two different ids; got {given}.")
        oldest, *others = given

        def merge(state: LearnerState) -> None:
            for other in others:
                state.merge(oldest, other)

        return self._edited(merge)

    def retire(self: Model, cluster: int) -> Model:
        """Mark a cluster as no longer wanted. Rows that belong to it still get its id, and it keeps learning.

        Without it its rows would be forced into clusters where they do not belong; leave out what is retired
        by the status in `clusters_`.
        """
        return self._edited(lambda state: state.ledger.retire(cluster))

    def _edited(self: Model, change: Callable[[LearnerState], None]) -> Model:
        """Change a copy of the state by hand, and take it if all went well."""
        check_is_fitted(self)
        state = self.state_.copy()
        change(state)
        self._adopt(state)
        if hasattr(self, "labels_"):
            self.labels_ = state.ledger.resolve(self.labels_)
        return self

    @property
    def value_names_(self) -> list[str] | None:
        """Names of the values of a row: of its columns, or of what a table's columns became."""
        if hasattr(self, "column_encoder_"):
            return [feature.name for feature in self.column_encoder_.features]
        names = getattr(self, "feature_names_in_", None)
        return None if names is None or hasattr(self, "projection_") else [str(name) for name in names]

    def encoded(self, X: Rows) -> Any:
        """Return rows that can be given to several of the answers here, and are encoded once."""
        reads = (hasattr(self, name) for name in ("column_encoder_", "projection_", "vocabulary_"))
        if isinstance(X, Encoded) or not any(reads):
            return X
        return Encoded(self._rows(X).numpy())

    def _rows(self, X: Rows) -> torch.Tensor:
        check_is_fitted(self)
        return self._checked(X, first=False)

    def _checked(self, X: Rows, first: bool, fewest: int | None = None) -> torch.Tensor:
        if isinstance(X, Encoded):
            return as_tensor(X.rows)
        X, rows = cells(X) if is_cells(X) else X, None
        if self.embeddings is None:
            X = text_rows(self, X, first=first)
            rows = projected_rows(self, X, first=first)
            if rows is None:
                rows = encoded_rows(self, X, first=first)
        else:
            X = embedding_rows(self, X, first=first)
        if rows is None:
            rows = check_rows(self, X, reset=first, min_rows=fewest or 1 + first, keep_float32=True)
        return as_tensor(rows)

    def _encode(self, rows: torch.Tensor) -> torch.Tensor:
        vae, view = self.state_.vae, self.state_.view

        # Chunk by chunk: what is computed on the way to the codes stays in the cache.
        def encode(part: torch.Tensor) -> torch.Tensor:
            return encode_rows(vae, view.inputs(view.values(part)))[0]

        return torch.cat(mapped(encode, rows.split(CHUNK_ROWS)))

    def _decode(self, codes: torch.Tensor) -> NDArray[np.float64]:
        values = decode_codes(self.state_.vae, codes)
        return self.state_.view.rows(values.to(torch.float64)).numpy()

    def _ids(self, codes: torch.Tensor) -> NDArray[np.int64]:
        return self.state_.assign(codes).numpy()

    def _known(self, cluster: int) -> int:
        if cluster not in self.cluster_ids_:
            raise ValueError(f"there is no cluster {cluster!r}; ids are {self.cluster_ids_.tolist()}.")
        return int(cluster)
