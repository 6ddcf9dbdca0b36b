"""`dbull map`, and tables of answers: rows in the same place in each generation, columns as they were."""

import csv

import numpy as np
import pyarrow.parquet
import pytest
from test_cli_models import make, rows, run, write

NASTY = "<script>alert('key')</script>"


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return make(tmp_path_factory.mktemp("map"))


def points_of(path):
    with open(path, newline="") as handle:
        told = list(csv.DictReader(handle))
    return np.array([[float(one["x"]), float(one["y"])] for one in told]), [one["cluster"] for one in told]


def test_tables_have_a_place_for_each_row(place):
    monday = place / "monday.csv"
    run("map", place / "model", monday, "-o", place / "map.csv")
    points, clusters = points_of(place / "map.csv")
    assert points.shape == (120, 2)
    middles = points[:60].mean(0), points[60:].mean(0)
    assert np.linalg.norm(middles[0] - middles[1]) > 5 * points[:60].std(0).min()
    run("predict", place / "model", monday, "-o", place / "predicted.csv", "-q")
    with open(place / "predicted.csv", newline="") as handle:
        assert clusters == [one["cluster"] for one in csv.DictReader(handle)]
    run("map", place / "model", monday, "-o", place / "map.parquet")
    table = pyarrow.parquet.read_table(place / "map.parquet")
    np.testing.assert_array_equal(np.column_stack([table["x"], table["y"]]), points)


def test_a_later_generation_has_rows_where_they_were(place):
    run("learn", place / "model", place / "tuesday.csv", "-q")
    maps = []
    for generation in (1, 2):
        run("map", place / "model", place / "monday.csv", "-o", place / "map.csv", "-g", generation)
        maps.append(points_of(place / "map.csv")[0])
    moved = np.linalg.norm(maps[0] - maps[1], axis=1).max()
    assert moved < 0.05 * np.ptp(maps[0], axis=0).max()


def test_the_page_shows_keys_and_runs_none(place):
    named = [[*row, f"k{i}" if i else NASTY] for i, row in enumerate(rows((0, 1), 20).tolist())]
    with open(place / "named.csv", "w", newline="") as handle:
        csv.writer(handle).writerows([[*"abc", "id"], *named])
    told = run("map", place / "model", place / "named.csv", "-o", place / "map.html", "--key", "id")
    assert told.stdout.strip() == str(place / "map.html")
    page = (place / "map.html").read_text()
    assert page.count("<circle") == 40
    assert "<title>k7</title>" in page
    assert NASTY not in page
    assert "Cluster 1" in page


def test_refusals(place):
    assert "must end in" in run("map", place / "model", place / "monday.csv", "-o", "map.png", code=2).stderr
    write(place / "other.csv", rows((0,), 5)[:, :2], "ab")
    run("map", place / "model", place / "other.csv", "-o", place / "none.html", code=3)
    assert not (place / "none.html").exists()


def test_answers_without_scores_are_the_same(place):
    for flags in ((), ("--no-scores",)):
        run(
            "predict", place / "model", place / "monday.csv", "-o", place / f"p{len(flags)}.csv", "-q", *flags
        )
    (first, *full), (short, *fast) = (
        list(csv.reader((place / f"p{i}.csv").read_text().splitlines())) for i in (0, 1)
    )
    assert short == first[:4] == ["row", "cluster", "name", "status"]
    assert fast == [row[:4] for row in full]


def test_append_keeps_the_columns_as_they_are(place):
    lines = ["id,note,c,b,a,cluster", '7,"x, y",0.10,0,20,q', "8,,0,-0.0,0,=1+1"]
    (place / "full.csv").write_text("\n".join(lines))
    run("predict", place / "model", place / "full.csv", "-o", place / "out.csv", "--append", "-q")
    (names, *found) = csv.reader((place / "out.csv").read_text().splitlines())
    assert names[:6] == ["id", "note", "c", "b", "a", "cluster"]
    assert names[6:9] == ["dbull_cluster", "name", "status"]
    assert [row[:6] for row in found] == list(csv.reader(lines[1:]))
    assert [row[6] for row in found] == ["1", "0"]
    flags = "--append", "--no-scores", "--safe-csv", "-q", "--key", "id"
    run("predict", place / "model", place / "full.csv", "-o", place / "out.csv", *flags)
    (names, *found) = csv.reader((place / "out.csv").read_text().splitlines())
    assert names == ["id", "note", "c", "b", "a", "cluster", "dbull_cluster", "name", "status"]
    assert [row[5] for row in found] == ["q", "'=1+1"]


def test_append_of_many_pieces_and_other_formats(place, monkeypatch):
    monkeypatch.setattr("dbull.ingest.inputs.ARRIVAL_ROWS", 7)
    run("predict", place / "model", place / "monday.csv", "-o", place / "out.parquet", "--append", "-q")
    table = pyarrow.parquet.read_table(place / "out.parquet")
    with open(place / "monday.csv", newline="") as handle:
        assert table["a"].to_pylist() == [row["a"] for row in csv.DictReader(handle)]
    np.save(place / "x.npy", rows((0, 1), 10))
    run("predict", place / "model", place / "x.npy", "-o", place / "out.parquet", "--append", "-q")
    table = pyarrow.parquet.read_table(place / "out.parquet")
    np.testing.assert_allclose(np.column_stack([table[i] for i in "012"]), rows((0, 1), 10), rtol=1e-6)
    assert table["cluster"].to_pylist() == [0] * 10 + [1] * 10


def test_append_refuses_what_has_no_columns_or_others(place):
    write(place / "wide.csv", np.column_stack([rows((0,), 5), np.ones(5)]), "abcd")
    both = place / "monday.csv", place / "wide.csv"
    told = run("predict", place / "model", *both, "-o", place / "none.csv", "--append", "-q", code=3)
    assert "other columns" in told.stderr
    assert not (place / "none.csv").exists()
