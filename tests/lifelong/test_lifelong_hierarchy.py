"""The hierarchy over clusters: from the decision of a merge, at every resolution."""

import json

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from dbull import DBULL
from dbull.cli import app
from dbull.lifelong.groups import hierarchy, separation
from dbull.lifelong.settings import EVIDENCE_PER_CLUSTER
from dbull.mixture.posterior import log_evidence
from dbull.mixture.prior import adapted_prior
from dbull.mixture.updates import Points, summarize


def stats_at(centres, n_rows=300, seed=0):
    rng = np.random.default_rng(seed)
    which = np.repeat(np.arange(len(centres)), n_rows)
    rows = np.asarray(centres, dtype=float)[which] + rng.normal(size=(len(which), 2))
    log_resp = torch.from_numpy(np.eye(len(centres))[which]).log()
    return summarize(log_resp, Points.from_rows(torch.from_numpy(rows)))


def test_near_clusters_are_joined_first_and_levels_fall():
    joins = hierarchy((4, 7, 9, 12), stats_at([(0, 0), (3, 0), (40, 0), (44, 0)]))
    assert {(join.one, join.other) for join in joins[:2]} == {((4,), (7,)), ((9,), (12,))}
    assert set(joins[2].one + joins[2].other) == {4, 7, 9, 12}
    levels = [join.resolution for join in joins]
    assert levels == sorted(levels, reverse=True)


def test_at_its_resolution_a_pair_is_as_good_as_one():
    stats = stats_at([(0, 0), (4, 0)])
    one, other = stats.select(torch.tensor([0])), stats.select(torch.tensor([1]))
    prior = adapted_prior(stats)
    level = float(separation(prior, one, other))

    def gain(resolution):  # of describing both as one
        weight = 2 * EVIDENCE_PER_CLUSTER * resolution / 600
        evidence = [float(log_evidence(prior, part.scaled(weight))) for part in (one + other, one, other)]
        return evidence[0] - evidence[1] - evidence[2]

    assert gain(0.8 * level) > 0 > gain(1.25 * level)
    assert gain(level) == pytest.approx(0.0, abs=1e-3)


def test_one_cluster_has_no_hierarchy():
    assert hierarchy((3,), stats_at([(0, 0)])) == ()


def test_a_model_tells_its_tree(tmp_path):
    rng = np.random.default_rng(0)
    centres = np.array([(0.0, 0, 0), (8, 0, 0), (60, 60, 0)])
    rows = centres[np.repeat(np.arange(3), 150)] + rng.normal(size=(450, 3))
    model = DBULL(random_state=0).fit(rows)
    assert model.n_clusters_ == 3
    near = set(model.predict(centres[:2]).tolist())
    assert {*model.hierarchy_[0].one, *model.hierarchy_[0].other} == near
    model.save(tmp_path / "model")
    command = ["clusters", str(tmp_path / "model"), "--tree"]
    told = json.loads(CliRunner().invoke(app, [*command, "--json"]).stdout)
    assert set(told[0]["one"] + told[0]["other"]) == near
    text = CliRunner().invoke(app, command).stdout
    assert text.count("two from resolution") == 2
    assert text.count("(150 rows)") == 3
