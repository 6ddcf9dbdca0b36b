"""Rows that belong nowhere, and columns in other units, on the command line."""

import csv
import json
import warnings

import numpy as np
import pytest
from typer.testing import CliRunner

from dbull.cli import app

CENTRES = np.array([[0.0, 0.0, 0.0], [20.0, 0.0, 0.0], [0.0, 20.0, 0.0]])


def write(path, values):
    with open(path, "w", newline="") as handle:
        csv.writer(handle).writerows([["width", "weight", "age"], *values.tolist()])
    return path


def run(*arguments, code=0):
    result = CliRunner().invoke(app, list(map(str, arguments)))
    assert result.exit_code == code, (arguments, result.stdout, result.stderr, result.exception)
    return result


@pytest.fixture
def place(tmp_path):
    rng = np.random.default_rng(0)
    rows = CENTRES[rng.integers(3, size=300)] + rng.normal(size=(300, 3))
    write(tmp_path / "monday.csv", rows[:200])
    run("learn", tmp_path / "model", tmp_path / "monday.csv", "--quiet")
    np.save(tmp_path / "later.npy", rows[200:])
    return tmp_path


def table(result):
    return list(csv.DictReader(result.stdout.splitlines()))


def test_predict_tells_how_novel_rows_are_and_flags_outliers_on_request(place):
    rows = np.load(place / "later.npy")[:20]
    rows[3] += 1e5
    write(place / "asked.csv", rows)
    plain = table(run("predict", place / "model", place / "asked.csv", "--quiet"))
    novelty = [float(row["novelty"]) for row in plain]
    assert novelty[3] == 0.0
    assert np.median(novelty) > 0.2
    assert all(int(row["cluster"]) >= 0 for row in plain)
    flagged = table(run("predict", place / "model", place / "asked.csv", "--quiet", "--flag-outliers"))
    assert (flagged[3]["cluster"], flagged[3]["status"], flagged[3]["name"]) == ("-1", "outlier", "")
    same = [i for i, row in enumerate(flagged) if int(row["cluster"]) >= 0]
    assert len(same) >= 17
    assert all(flagged[i]["cluster"] == plain[i]["cluster"] for i in same)


def test_learning_counts_outliers_and_names_columns_in_other_units(place):
    rows = np.load(place / "later.npy")
    outlier = rows[:60].copy()
    outlier[7, 1] = 1e7
    told = json.loads(
        run("learn", place / "model", write(place / "b.csv", outlier), "--json", "--quiet").stdout
    )
    assert told["outliers"] >= 1
    assert told["changed_columns"] == []
    grams = rows[:60].copy()
    grams[:, 1] = 1e4 * (grams[:, 1] + 3)
    file = write(place / "grams.csv", grams)
    refused = run("learn", place / "model", file, "--quiet", "--strict-scale", code=3)
    assert "weight" in refused.stderr
    assert "strict_scale" in refused.stderr
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # told in the line, not by Python
        line = run("learn", place / "model", file, "--quiet").stdout
    assert "other scale (units?): weight" in line
    events = json.loads(run("events", place / "model", "--json").stdout)
    assert any(e["kind"] == "scale" and e["evidence"]["columns"] == ["weight"] for e in events)
