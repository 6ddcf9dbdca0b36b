"""Learners for tests: settings by name, drained generators, mixtures fitted to codes."""

import hashlib
from dataclasses import fields, replace

import torch

from dbull.lifelong.codes import CodeMixture, CodeSearch
from dbull.lifelong.settings import GraphSettings, LearnSettings, TrainingSettings
from dbull.mixture.memory import StatsMemory
from dbull.mixture.prior import paper_prior
from dbull.mixture.settings import FitSettings
from dbull.mixture.updates import Points

# The terms of the paper; what is added to them is named by the test.
PLAIN = LearnSettings(
    TrainingSettings(batch_size=256, learning_rate=1e-3, neighbourhood=0.0), GraphSettings(join=0.0)
)


def learn_settings(**given):
    """Return settings with the given values, each put into the record that has its name."""
    parts = {"use_encoder_variance": given.pop("use_encoder_variance", False)}
    parts |= {"mixture": given.pop("mixture", FitSettings())}
    for part in ("training", "graph", "past"):
        record = getattr(PLAIN, part)
        names = {field.name for field in fields(record)} & set(given)
        parts[part] = replace(record, **{name: given.pop(name) for name in names})
    assert not given, f"no setting is called {list(given)}"
    return LearnSettings(**parts)


def drained(learning):
    """Run a learner to its end; return what it told and the new state."""
    history = []
    while True:
        try:
            history.append(next(learning))
        except StopIteration as end:
            return history, end.value[0] if isinstance(end.value, tuple) else end.value


def nothing(n_dims):
    """Return the mixture of no rows and no past."""
    return CodeMixture.of_past(StatsMemory.empty(n_dims), paper_prior(n_dims))


def searched(codes, var=None, settings=None, seed=0, births=True):
    """Return the mixture that a search from nothing finds on codes (N, D)."""
    search = CodeSearch(settings or FitSettings(), torch.Generator().manual_seed(seed))
    return search(nothing(codes.shape[1]), Points.from_rows(codes, var), births)


def fingerprint(model):
    """Return a hash of what a fitted `DBULL` has learned: statistics, imprints, calibrations, clusters."""
    state = model.state_
    digest = hashlib.sha256(
        repr((sorted(state.calibrations.items()), state.owner, state.ledger.table())).encode()
    )
    for part in (*state.memory.overall.parts, state.column_rms):
        digest.update(part.numpy().tobytes())
    for component in sorted(state.imprints):
        for part in ("mean", "factor", "leftover"):
            digest.update(getattr(state.imprints[component], part).numpy().tobytes())
    return digest.hexdigest()
