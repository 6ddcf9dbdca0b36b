"""What docs/privacy.md promises: attacks on the stored numbers of real digits, and what they may find."""

import copy
import itertools

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits

import dbull
from dbull import DBULL
from dbull.lifelong.past import FEWEST_ROWS
from dbull.store import ModelFolder

NEAR = 1e-2  # distance at which a row counts as found, as a part of how far rows are from their mean


def found(rows, guesses):
    """Return how many rows a list of guesses holds, up to that error."""
    if len(guesses) == 0:
        return 0
    apart = np.linalg.norm(rows[:, None] - np.asarray(guesses)[None], axis=2)
    return int((apart.min(1) < NEAR * np.linalg.norm(rows - rows.mean(0), axis=1).mean()).sum())


def guesses_from_factors(model):
    """Mean plus or minus each stored direction, scaled as the deviations of n rows from their mean are."""
    view, guesses = model.state_.view, []
    for imprint in model.state_.imprints.values():
        for n_rows in {imprint.n_rows, imprint.n_rows - 1, 1.0}:
            for sign in (1, -1):
                inputs = imprint.mean + sign * np.sqrt(max(n_rows, 1.0)) * imprint.factor
                guesses.append(view.rows((inputs * view.input_scale + view.input_shift).double()).numpy())
    return np.concatenate(guesses) if guesses else np.zeros((0, model.n_features_in_))


def guesses_from_moments(model):
    """Two rows are their mean plus and minus the root of their covariance, in latent space; decoded."""
    total = model.state_.memory.overall
    guesses = []
    for n, s, ss in zip(total.counts, total.sum_z, total.sum_zz, strict=True):
        mean = s / n
        values, vectors = torch.linalg.eigh(ss / n - torch.outer(mean, mean))
        for sign in (1, -1):
            guesses.append((mean + sign * vectors[:, -1] * values[-1].clamp_min(0).sqrt()).numpy())
    return model.inverse_transform(np.asarray(guesses))


@pytest.fixture(scope="module")
def digits():
    return load_digits()


def test_a_small_cluster_of_digits_does_not_come_back(digits):
    """Eight zeros beside many ones: neither directions nor moments lead back to one of the eight."""
    ones = digits.data[digits.target == 1]
    zeros = digits.data[digits.target == 0][:8]
    # All evidence counts, so that so few rows are a component of their own.
    quick = {"epochs": 5, "joint_epochs": 1, "hidden_dims": (20,), "max_evidence": None}
    model = DBULL(random_state=0, kind="dense", **quick)
    model.fit(np.concatenate([ones, zeros]))
    model.partial_fit(np.concatenate([ones[:60], zeros]))
    for attack in (guesses_from_factors, guesses_from_moments):
        assert found(zeros, attack(model)) == 0
        assert found(ones, attack(model)) == 0
    assert min(imprint.n_rows for imprint in model.state_.imprints.values()) < FEWEST_ROWS


def test_the_attack_finds_rows_where_they_are_stored_as_they_are(digits):
    """The same attack on directions that are rows: it would notice."""
    zeros = digits.data[digits.target == 0][:8]
    model = DBULL(random_state=0, kind="dense", epochs=1, joint_epochs=0, hidden_dims=(20,)).fit(zeros)
    view = model.state_.view
    inputs = view.inputs(view.values(torch.from_numpy(zeros)))
    (key, imprint), *_ = model.state_.imprints.items()
    leaky = copy.copy(imprint)
    object.__setattr__(leaky, "n_rows", 8.0)
    object.__setattr__(leaky, "mean", inputs.mean(0))
    object.__setattr__(leaky, "factor", (inputs - inputs.mean(0)) / np.sqrt(8))
    model.state_.imprints = {key: leaky}
    assert found(zeros, guesses_from_factors(model)) == 8


@pytest.mark.parametrize("n_rows", [2, 3, 8, FEWEST_ROWS - 1])
def test_two_rows_are_not_their_moments(digits, n_rows):
    """Without networks codes are rows: a component of few rows keeps their mean alone."""
    rng = np.random.default_rng(0)
    crowd = digits.data[:200, 18:24] + rng.normal(size=(200, 6))
    few = crowd[:n_rows] + 500.0
    model = DBULL(random_state=0).fit(crowd)
    model.partial_fit(np.concatenate([crowd, few]))
    assert found(few, guesses_from_moments(model)) == 0


def subtracted(earlier, later):
    """Return the mean of what two generations' statistics differ by, for each component of both."""
    guesses = []
    a, b = earlier.state_.memory, later.state_.memory
    for component in set(a.ids) & set(b.ids):
        i, j = a.ids.index(component), b.ids.index(component)
        n = float(b.overall.counts[j] - a.overall.counts[i])
        if round(n) == 1:
            guesses.append(((b.overall.sum_z[j] - a.overall.sum_z[i]) / n).numpy())
    return later.inverse_transform(np.asarray(guesses)) if guesses else np.zeros((0, later.n_features_in_))


def test_generations_subtract_until_they_are_pruned(digits, tmp_path):
    """Arrivals of one row: two generations give it back, one alone does not. docs/privacy.md says so."""
    rng = np.random.default_rng(0)
    crowd = digits.data[:300, 18:24] + rng.normal(size=(300, 6))
    model = DBULL(random_state=0).fit(crowd[:290])
    model.save(tmp_path / "model")
    rows = crowd[290:]
    for row in rows:
        model.partial_fit(row[None]).save(tmp_path / "model")
    folder = ModelFolder(tmp_path / "model")
    models = [dbull.load(tmp_path / "model", number) for number in folder.generations()]
    pairs = itertools.pairwise(models)
    assert found(rows, np.concatenate([subtracted(a, b) for a, b in pairs])) > 0
    folder.prune(keep=1)
    left = []
    for number in folder.generations():
        try:
            left.append(dbull.load(tmp_path / "model", number))
        except dbull.errors.DbullError:
            continue
    newest = left[-1]
    everything = [subtracted(a, b) for a, b in itertools.permutations(left, 2)]
    assert found(rows, np.concatenate([guesses_from_moments(newest), *everything])) == 0
