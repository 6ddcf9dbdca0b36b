"""`DBULL`: a deep representation and its clusters, learned together without labels."""

from __future__ import annotations

import logging
import math
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar

import torch
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from dbull.data.blocks import is_source
from dbull.ledger import ArrivalReport
from dbull.lifelong.learn import Progress, pretrain
from dbull.lifelong.plane import lay_out
from dbull.lifelong.state import LearnerState
from dbull.methods import exemplars
from dbull.methods.answers import LearnedClusters, Rows
from dbull.methods.arrival import learn_arrival
from dbull.methods.base import Capabilities, drained, unchanged_on_failure
from dbull.methods.cells import with_keys
from dbull.methods.dbull_choices import Choices, choose
from dbull.methods.explanation import with_reasons
from dbull.methods.parameters import Check, check_one_of, check_seed, check_truth
from dbull.methods.scale import learn_source
from dbull.methods.sparse import count_columns
from dbull.methods.tables import is_table
from dbull.methods.words import Vocabulary, counted
from dbull.nets.augment import Augmentation
from dbull.nets.inputs import KINDS
from dbull.tables import WordCounts, columns_of
from dbull.threads import on_own_threads

_log = logging.getLogger(__name__)


@on_own_threads("fit", "partial_fit", "pretrain", "preview")
@dataclass(kw_only=True, eq=False, repr=False)
class DBULL(LearnedClusters, BaseEstimator):
    """Deep Bayesian clustering: a variational autoencoder whose prior is a Dirichlet process mixture.

    The networks and the mixture of their codes are learned in turn, from one cluster; births and merges find
    the number of clusters. No label and no number of clusters is ever asked for.

    Parameters
    ----------
    objective : {"default", "paper", "paper-literal"}, default="default"
        "paper": the terms of the paper alone (reconstruction, expected log prior, entropy), pretrained as an
        autoencoder, one component per cluster. "default" adds what helps: codes laid out along a neighbour
        graph, a fixed front end for images, clusters as groups of components. "paper-literal": the paper as
        printed, its settings included; docs/errata.md has what that costs.
    kind : {"auto", "images", "dense", "sparse", "text"}, default="auto"
        What rows are. "auto": images if `image_shape` is given, sparse if non-negative and mostly zero
        (unless most columns are those of categories) or a wide matrix of scipy.sparse, texts if a table has
        nothing else (but ids), else dense. "text" takes lists of texts.
    columns : dict of str or None, default=None
        Roles of columns of a table by name, such as ``{"shop": "category"}``: number, flag, category, date,
        text, vector, key or ignore. Roles of the others are proposed from the first table; docs/tables.md has
        the rules. None leaves tables of plain numbers as they are.
    embeddings : str, list of str or None, default=None
        Columns of a table that hold embeddings of your own, one of vectors or several of numbers, by name or
        by a pattern such as "e*". They are clustered, and nothing else is; texts beside them give the words
        of each cluster. Arrays are embeddings alone.
    image_shape : tuple of int or None, default=None
        (height, width) or (height, width, channels) of the image in each row.
    encoder : {"auto", "mlp", "conv", "identity"}, default="auto"
        "identity" takes rows as embeddings already. "auto": "identity" if rows are no wider than 10 or
        `latent_dim`, since there is little to compress, else "mlp".
    latent_dim : "auto" or int, default="auto"
        Width of a code; 10 in the paper.
    hidden_dims : "auto" or tuple of int, default="auto"
        Widths of the encoder's hidden layers; the decoder mirrors them. (500, 500, 2000) in the paper.
    likelihood : {"auto", "bernoulli", "gaussian", "gaussian-fixed", "gaussian-learned"}, default="auto"
        What the decoder describes: probabilities; values with one variance, learned or fixed; or with a
        variance for each value, bounded from below. "auto": Bernoulli for images, else "gaussian".
    front_end : "auto" or bool, default="auto"
        Whether the encoder sees fixed features of images (straightened, histograms of gradients) instead of
        pixels. The decoder gives back pixels in any case.
    augment : "auto", None, or callable, default="auto"
        Random changes of each sample at each visit: `ImageShifts`, `MaskingNoise`, or any function of rows
        and a torch.Generator.
    pretraining : {"end-to-end", "stacked"}, default="end-to-end"
        "stacked" trains a denoising autoencoder layer by layer first.
    neighbourhood : "auto" or float, default="auto"
        How much codes are held at the places that the neighbour graph has for them, in nats per row and unit
        of log(1 + squared distance); 0 lays out no places.
    n_neighbors : "auto" or int, default="auto"
        Neighbours of a row in the graph. "auto": 15 among up to 1,000 rows, 30 among 8,000 or more.
    graph_index : {"auto", "exact", "faiss"}, default="auto"
        How neighbours are found: among all pairs of rows, or by an index of faiss (the extra ``scale``),
        which misses a few and whose cost grows as n log n. "auto": the index beyond 60,000 rows, where
        faiss is installed. What was used is in ``report_.graph_index`` and in the events of the model.
    n_neighbours
        Deprecated: the former name of `n_neighbors`.
    join : "auto" or float, default="auto"
        Components whose rows lie among each other at least this much in the graph (0: apart, 1: as one) are
        one cluster; 0 keeps each component a cluster, but for floods of copies that an old cluster finds
        usual. "auto": 0.1 times `resolution`; twice as much without networks.
    resolution : {"coarse", "normal", "fine"} or float, default="normal"
        How fine clusters are. "coarse" and "fine" count a third and three times the evidence of "normal" when
        structure is decided, and join what is mixed a third or three times as much; a number so many times as
        much. Not with `max_evidence` or `objective="paper"`.
    use_encoder_variance : bool, default=False
        Whether the statistics of the mixture count the variance of each code, or the means alone.
    concentration, max_evidence, max_clusters
        As in `DPMixture`.
    pooling : "auto" or float, default="auto"
        How much the covariances of components are held together, as a part of all evidence.
    epochs, joint_epochs : "auto" or int, default="auto"
        On the first data set: epochs before the first search for clusters; epochs of networks and mixture in
        turn, at most. Later data sets are trained on for as long as they are new.
    batch_size : "auto" or int, default="auto"
        Rows per gradient step.
    learning_rate : "auto" or float, default="auto"
        Of Adam, before the first search.
    random_state : int, RandomState instance or None, default=None
        With an int, the same data give the same result on the same machine.
    device : str, default="cpu"
        Where the networks live, as torch names it.
    threads : "auto" or int, default="auto"
        How many threads share chunks of rows; answers and clusters do not depend on it. "auto": what
        DBULL_THREADS in the environment says, else one for few rows and up to eight for many. Not stored.
    replay : {"auto", "imprints", "decoded", "none"}, default="auto"
        How rows of the past are made for `partial_fit`: drawn from the imprints that components keep of their
        inputs, or drawn from the mixture and decoded, as in the paper. "auto": "imprints", with
        `objective="paper"` and "paper-literal" "decoded".
    n_replay : "auto" or int, default="auto"
        Replayed rows per cluster. "auto": 30 % of the rows, from 100 to 300, or 8 % up to 1,000; with
        `objective="paper"` 100, or 8 % up to 1,000; with "paper-literal" 100 in all.
    consistency : "auto" or float, default="auto"
        How much replayed rows are held where they were in latent space, in the units of `neighbourhood`.
    carry : "auto" or bool, default="auto"
        Whether the statistics of the past follow the encoder when it moves.
    novelty : "auto" or bool, default="auto"
        Whether strangeness to the clusters of the past decides how long to train, and which rows count.
    freeze : "auto" or bool, default="auto"
        Whether the networks stay as `pretrain`, or without it the first data set, has left them. "auto": only
        after `pretrain`.
    strict_scale : bool, default=False
        Whether a data set in which columns have another scale than all before, a hundredfold (other units?),
        is refused. Otherwise it is learned with a warning and an event that name the columns.
    keep_exemplars : int, default=0
        Rows to keep of each cluster, those nearest to its centre. Of up to five of them the keys are kept in
        any case.
    callback : callable or None, default=None
        Called with each `Progress` while learning.

    Attributes
    ----------
    n_clusters_ : int
        Number of clusters.
    cluster_ids_ : ndarray of shape (n_clusters_,)
        Ids of the clusters that rows can belong to, oldest first, those of the first data set by size.
        Columns of `predict_proba` are in this order. 0, 1, 2, ... until clusters are merged.
    labels_ : ndarray of shape (n_samples,)
        Cluster ids of the rows learned.
    weights_ : ndarray of shape (n_clusters_,)
        Expected weight of each cluster.
    elbo_ : float
        Evidence lower bound of the rows learned, in the units of the data.
    report_ : ArrivalReport
        What learning the latest data set did: rows per cluster, births, growths, outliers, bound, seconds.
    history_ : list of Progress
        What happened while learning the latest data set.
    events_ : tuple of Event
        Arrivals, births, growths, merges, renamings, retirements and columns of another scale, with the
        evidence for them.
    clusters_ : list of dict
        Every cluster that has ever been: id, name, rows, weight, first_seen and last_seen (arrivals, from
        1), spread (root mean square distance of its codes from their mean), parents, status, merged_into,
        exemplars (keys of the rows nearest to its centre, nearest first).
    n_data_sets_ : int
        Data sets learned.
    origin_ : Origin
        Folder and generation that the model was last saved to or loaded from, if any.
    chosen_ : dict
        What "auto" was resolved to.
    n_features_in_ : int
        Number of columns; of a table, those that are used.
    text_reader_ : TextReader
        Of texts: where they are, and how much words weigh.
    vocabulary_ : Vocabulary
        Of tables with texts among their columns, or beside `embeddings`: how many rows of a cluster have each
        word. Clusters of texts and of these have ``words`` in `clusters_`.
    column_encoder_ : ColumnEncoder
        Of tables of mixed columns: what each becomes. Rows that the model gives back are encoded rows;
        ``column_encoder_.features`` says what each of their values is, and has it in the user's units.
    projection_ : SparseProjection
        Of wide sparse matrices: what their rows become. Rows that the model gives back are projected.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from dbull import DBULL
    >>> X = load_digits().data
    >>> model = DBULL(image_shape=(8, 8), random_state=0).fit(X)
    >>> model.predict(X[:3]).shape
    (3,)
    """

    told_shape_as = "image_shape"  # the runner fills this in for images
    capabilities = Capabilities(learns_representation=True, learns_k=True, expands=True, remembers=True)
    watched_as = "callback"  # the runner listens here; who listens decides no number and is no setting
    stored_as = "dbull"
    _allowed: ClassVar[dict[str, Check]] = {
        "kind": partial(check_one_of, known=("auto", *KINDS, "text")),
        "front_end": partial(check_truth, auto=True),
        "random_state": check_seed,
    }

    objective: str = "default"
    kind: str = "auto"
    columns: Mapping[str, str] | None = None
    embeddings: str | Sequence[str] | None = None
    image_shape: tuple[int, ...] | None = None
    encoder: str = "auto"
    latent_dim: str | int = "auto"
    hidden_dims: str | tuple[int, ...] = "auto"
    likelihood: str = "auto"
    front_end: str | bool = "auto"
    augment: str | Augmentation | None = "auto"
    pretraining: str = "end-to-end"
    neighbourhood: str | float = "auto"
    n_neighbors: str | int = "auto"
    graph_index: str = "auto"
    join: str | float = "auto"
    resolution: str | float = "normal"
    use_encoder_variance: bool = False
    concentration: float = 1.0
    max_evidence: str | float | None = "auto"
    pooling: str | float = "auto"
    max_clusters: int = 1000
    epochs: str | int = "auto"
    joint_epochs: str | int = "auto"
    batch_size: str | int = "auto"
    learning_rate: str | float = "auto"
    random_state: Any = None
    device: str = "cpu"
    threads: str | int = "auto"
    replay: str = "auto"
    n_replay: str | int = "auto"
    consistency: str | float = "auto"
    carry: str | bool = "auto"
    novelty: str | bool = "auto"
    freeze: str | bool = "auto"
    strict_scale: bool = False
    keep_exemplars: int = 0
    callback: Callable[[Progress], object] | None = None
    n_neighbours: str | int = "deprecated"

    def fit(self, X: Rows, y: object = None, *, keys: Iterable[Any] | None = None) -> DBULL:
        """Forget everything, then learn the data set X. `y` is ignored; `keys` are as in `partial_fit`.

        A fit that fails leaves the estimator as it was.
        """
        if getattr(self, "n_data_sets_", 0) > 1:
            warnings.warn(
                f"fit forgets the {self.n_data_sets_} data sets learned; partial_fit goes on from them.",
                stacklevel=3,
            )
        elif hasattr(self, "state_") and not self.n_data_sets_:
            warnings.warn("fit forgets the pretraining; partial_fit goes on from it.", stacklevel=3)
        X, keys = with_keys(X, keys)
        with unchanged_on_failure(self):
            for name in ("exemplars_", "map_"):
                self.__dict__.pop(name, None)
            if is_source(X) and not self._is_text(X):
                learn_source(self, X, keys, first=True)
                return self
            rows = self._checked(X, first=True)
            self._learn(self._fresh(rows).state, rows, X, keys)
        return self

    def partial_fit(self, X: Rows, y: object = None, *, keys: Iterable[Any] | None = None) -> DBULL:
        """Learn one more data set; what was learned before is kept, though its rows are gone.

        Unlike in scikit-learn's online estimators, X is a whole arrival, learned in several epochs.
        `labels_`, `elbo_` and `history_` are those of X. `y` is ignored. `keys` are what rows are called, by
        which exemplars are told: the index of a frame, or arrival and row ("2:17"), unless given. A failure
        leaves the estimator as it was.
        """
        X, keys = with_keys(X, keys)
        with unchanged_on_failure(self):
            first = not hasattr(self, "state_")
            if is_source(X) and not self._is_text(X):
                learn_source(self, X, keys, first)
                return self
            if not first and hasattr(self, "text_reader_"):
                self.text_reader_ = self.text_reader_.learned(X)
            rows = self._checked(X, first, fewest=1)
            self._learn(self._fresh(rows).state if first else self.state_, rows, X, keys)
        return self

    def _is_text(self, X: Rows) -> bool:
        """Tell a text that was given in place of a list of texts from the name of a file."""
        return self.kind == "text" and isinstance(X, str)

    def pretrain(self, X: Rows, y: object = None) -> DBULL:
        """Train the networks on unlabelled rows of the domain before the stream; no cluster is learned.

        Recorded in the model. From then on the networks stay as they are unless `freeze=False`.
        """
        if getattr(self, "n_data_sets_", 0) > 0:
            raise ValueError("pretrain comes before the first data set; this model has already learned some.")
        with unchanged_on_failure(self):
            rows = self._checked(X, first=True)
            fresh = self._fresh(rows)
            if not fresh.state.vae.learns:
                raise ValueError("encoder='identity' has no networks to pretrain.")
            learning = pretrain(fresh.state, rows, fresh.settings, fresh.augment)
            self.state_, self.history_ = drained(learning, self.callback)
            self.n_data_sets_ = 0
        return self

    def preview(self, X: Rows) -> ArrivalReport:
        """Return what learning X would change. The model stays as it is; it takes as long as learning."""
        check_is_fitted(self)
        learning = learn_arrival(self, self.state_, self._rows(X))
        (_, report), _ = drained(learning, self.callback)
        return report

    def _fresh(self, rows: torch.Tensor) -> Choices:
        """Make a learner that has seen nothing, with networks for rows like these."""
        choices = choose(self, rows)
        self.chosen_ = choices.described()
        self.__dict__.pop("origin_", None)  # ids begin anew, so this is another model from now on
        return choices

    def _learn(
        self, state: LearnerState, rows: torch.Tensor, X: Rows, keys: Iterable[Any] | None = None
    ) -> None:
        """Learn a data set, X as it was given, and set the fitted attributes."""
        named = exemplars.keys_for(X, keys, state.n_data_sets, len(rows))
        learning = learn_arrival(self, state, rows)
        before = state.memory.ids
        (state, report), self.history_ = drained(learning, self.callback)
        self._adopt(state)
        if before and set(before).isdisjoint(state.memory.ids):
            for name in ("exemplars_", "map_"):  # they cannot follow clusters that were sought anew
                self.__dict__.pop(name, None)
        told = self.n_data_sets_, report.n_rows, report.n_clusters, list(report.born)
        _log.info("data set %d: %d rows, %d clusters, new: %s", *told)
        codes = self._encode(rows)
        self.labels_ = self._ids(codes)
        self.exemplars_ = exemplars.added(getattr(self, "exemplars_", {}), self, rows, codes, named)
        self.map_ = lay_out(state, getattr(self, "map_", None))
        self.report_ = report
        self.elbo_ = report.elbo if math.isfinite(report.elbo) else math.nan
        if self._counted(X):
            self.report_ = with_reasons(self, state, report)[1]

    def _counted(self, X: Rows) -> bool:
        """Count words or columns of rows that were just learned, by cluster; return whether there are any."""
        vocabulary: Vocabulary | None = getattr(self, "vocabulary_", None)
        if vocabulary is not None:
            texts = vocabulary.texts(columns_of(X)) if is_table(X) else []
            if texts:
                counts = counted(vocabulary.counts, texts, self.labels_.tolist())
                self.vocabulary_ = replace(vocabulary, counts=counts)
            return bool(texts)
        if hasattr(self, "text_reader_"):
            before = getattr(self, "column_counts_", WordCounts())
            self.column_counts_ = counted(before, self.text_reader_.texts(X), self.labels_.tolist())
        elif hasattr(self, "projection_"):
            count_columns(self, X)
        return hasattr(self, "column_counts_")

    def __sklearn_tags__(self) -> Any:
        """Say that sparse matrices are welcome."""
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def __sklearn_is_fitted__(self) -> bool:
        """Return whether a data set has been learned to the end."""
        return hasattr(self, "state_") and self.n_data_sets_ > 0
