"""Methods that are not ours, as a user might bring them: plain classes, reached by path."""

import os
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np


def place(x):
    """The right answer on blobs: class c sits at 10 c on the first axis."""
    return np.rint(x[:, 0] / 10).astype(np.int64)


class Knowing:
    """Answers right from the start, and can learn step by step."""

    def __init__(self, shift: int = 0):
        self.shift = shift

    def partial_fit(self, X):
        return self

    def predict(self, X):
        return place(X) + self.shift


class Recording:
    """Keeps the arguments of every call."""

    calls: list = []  # noqa: RUF012 - shared on purpose, the runner makes the object

    def fit(self, *args, **kwargs):
        type(self).calls.append(("fit", args, kwargs))
        return self

    def partial_fit(self, *args, **kwargs):
        type(self).calls.append(("partial_fit", args, kwargs))
        return self

    def predict(self, *args, **kwargs):
        type(self).calls.append(("predict", args, kwargs))
        return place(args[0])


class FitOnly:
    """Cannot go on learning; counts the rows of its last fit."""

    n_rows: list = []  # noqa: RUF012

    def fit(self, X):
        type(self).n_rows.append(len(X))
        return self

    def predict(self, X):
        return place(X)


class Renaming(Knowing):
    """Adds 100 to every id at each arrival; its lineage can translate one step back."""

    def __init__(self, tells: bool = False):
        super().__init__()
        self.tells = tells
        if tells:
            self.resolve = lambda ids: np.asarray(ids) + 100

    def partial_fit(self, X):
        self.shift += 100
        return self


class Told(Knowing):
    """Is told the true number of classes."""

    told_true_k_as = "k"

    def __init__(self, k: int, random_state: int = 7):
        super().__init__()
        self.k = k
        self.n_clusters_ = k


class Warning_(Knowing):
    def partial_fit(self, X):
        import warnings

        warnings.warn("did not converge", UserWarning, stacklevel=1)
        return self


class WrongShape(Knowing):
    def predict(self, X):
        return place(X)[:, None]


class Writing(Knowing):
    """Writes into its input."""

    def partial_fit(self, X):
        X *= 0
        return self


class Forgetful(Knowing):
    """Not repeatable: answers by chance."""

    def predict(self, X):
        return np.random.default_rng().integers(0, 5, len(X))


class Slow(Knowing):
    """Does not end its fourth arrival as long as TOY_HOLDS is set."""

    def partial_fit(self, X):
        self.n_arrivals_ = getattr(self, "n_arrivals_", 0) + 1
        while "TOY_HOLDS" in os.environ and self.n_arrivals_ == 4:
            time.sleep(0.01)
        return self

    def predict(self, X):
        # Ids with some errors in them, so that scores are no round numbers.
        return (np.abs(X).sum(axis=1) * 10).astype(np.int64) % 7


class Nothing:
    """No method at all."""


class CallsBack(Knowing):
    """Has a callback of its own kind, which the runner knows nothing of."""

    def __init__(self, callback=None):
        super().__init__()
        self.callback = callback


class Watched(Knowing):
    """Tells how it goes to whoever listens."""

    watched_as = "listener"

    def __init__(self, listener=None):
        super().__init__()
        self.listener = listener

    def partial_fit(self, X):
        if self.listener is not None:
            self.listener(len(X))
        return self


class Calling:
    """Has a callback, which it calls only if that can be called."""

    watched_as = "callback"

    def __init__(self, callback=None):
        self.callback = callback

    def fit(self, X):
        if callable(self.callback):
            self.callback("learning")
        return self

    def predict(self, X):
        return place(X)


class Epochs(Calling):
    """Says in the manner of `DBULL` that two of four epochs are done; ends when TOY_SEEN is there."""

    def fit(self, X):
        terms = SimpleNamespace(log_prior=-1.0, entropy=-0.5, elbo=-3.5, rows_per_second=1200.0)
        if callable(self.callback):
            self.callback(
                SimpleNamespace(
                    stage="represent", epoch=2, n_epochs=4, n_components=7, seconds_left=3665.4, terms=terms
                )
            )
            while not Path(os.environ["TOY_SEEN"]).exists():
                time.sleep(0.01)
        return self
