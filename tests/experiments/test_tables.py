"""Tables from hand-made results: the mean and the error are those of a pocket calculator."""

import json
from pathlib import Path

import pytest

from dbull.errors import ResultsError, SettingsError
from dbull.experiments.results import Result, find_results
from dbull.experiments.summary import score_matrices, summarise
from dbull.experiments.tables import render
from dbull.metrics import SCORE_NAMES


def result(
    method="a", seed=0, ari=0.5, forgetting=0.1, scenario="s", told=None, fingerprint=None, **parameters
):
    scores = {**dict.fromkeys(SCORE_NAMES, 0.25), "ari": ari}
    lifelong = {
        name: {"matrix": [[1.0]], "average": 0.5, "forgetting": forgetting, "backward_transfer": None}
        for name in SCORE_NAMES
    }
    return Result(
        Path(f"{scenario}/{method}/seed-{seed}"),
        {
            "scenario": scenario,
            "method": method,
            "seed": seed,
            "scenario_fingerprint": fingerprint or f"{scenario}-{seed}",
            "told_true_k": told,
            "parameters": {"random_state": seed, **parameters},
        },
        {
            "scores": scores,
            "lifelong": lifelong,
            "id_stability": None,
            "n_clusters": 12 + seed,
            "n_clusters_used": 12,
            "n_classes": 10,
            "tasks": [0],
            "phases": [0],
            "steps_sha256": "",
            "cost": {"seconds": 2.0, "learn_seconds": 1.0, "peak_memory_bytes": 3 * 2**20},
        },
    )


def test_mean_and_standard_error_by_hand():
    rows = summarise(
        [result(seed=s, ari=value) for s, value in enumerate([0.2, 0.4, 0.9])], ["ari", "n_clusters"]
    )
    (row,) = rows
    assert row.seeds == (0, 1, 2)
    # mean .5; deviations -.3 -.1 .4: squares sum .26; sqrt(.26 / 2) / sqrt(3) = .208167
    assert row.columns["ari"].mean == pytest.approx(0.5)
    assert row.columns["ari"].standard_error == pytest.approx(0.2081666)
    assert row.columns["n_clusters"].mean == 13
    text = render(rows, "text").splitlines()
    assert text[-1].split() == ["a", "3", "50.00", "(20.82)", "13.0", "(0.6)"]


def test_one_seed_has_no_error_and_a_missing_number_is_a_dash():
    rows = summarise([result(forgetting=None)], ["ari", "forgetting.ari", "peak_memory_mib"])
    assert rows[0].columns["ari"].standard_error is None
    assert rows[0].columns["forgetting.ari"] is None
    assert render(rows, "text").splitlines()[-1].split() == ["a", "1", "50.00", "-", "3.0"]


def test_a_wide_table_goes_on_below():
    rows = summarise([result("a"), result("long-name", told=10)])
    wide = render(rows, "text").splitlines()
    narrow = render(rows, "text", width=60).splitlines()
    assert max(map(len, narrow)) <= 60 < max(map(len, wide))
    parts = "\n".join(narrow[1:]).split("\n\n")
    assert len(parts) > 1
    told = " ".join(part.splitlines()[-1].removeprefix("long-name (told K)") for part in parts)
    assert told.split() == wide[-1].removeprefix("long-name (told K)").split()
    assert all(part.startswith("method ") for part in parts)
    assert render(rows, "text", width=1).count("method") > len(parts), "a column a part at the least"


def test_methods_and_scenarios_have_rows_of_their_own():
    rows = summarise([result("b", told=10), result("a"), result("a", scenario="r"), result("a", seed=1)])
    assert [(row.scenario, row.method, len(row.seeds)) for row in rows] == [
        ("r", "a", 1),
        ("s", "a", 2),
        ("s", "b", 1),
    ]
    assert "b (told K)" in render(rows, "text")
    assert "a (told K)" not in render(rows, "text")


def test_markdown_latex_json():
    rows = summarise([result("my_method", ari=0.5)], ["ari", "forgetting.ari"])
    assert render(rows, "markdown").splitlines() == [
        "| scenario | method | seeds | ARI | forgetting ARI |",
        "| --- | --- | ---: | ---: | ---: |",
        "| s | my_method | 1 | 50.00 | 10.00 |",
    ]
    latex = render(rows, "latex")
    assert r"s & my\_method & 1 & 50.00 & 10.00 \\" in latex
    assert latex.startswith(r"\begin{tabular}{llrrr}")
    (record,) = json.loads(render(rows, "json"))
    assert record["columns"]["ari"] == {"mean": 0.5, "standard_error": None, "n": 1}


def with_matrix(matrix, phases, **more):
    made = result(**more)
    made.final["lifelong"]["ari"]["matrix"] = matrix
    made.final.update(tasks=list(range(len(matrix[0]))), phases=phases)
    return made


def test_score_matrix_is_averaged_cell_by_cell():
    results = [
        with_matrix([[0.9, None], [0.7, 0.5]], [0, 1], seed=0),
        with_matrix([[0.7, None], [0.5, 0.5]], [0, 1], seed=1),
    ]
    rows = score_matrices(results, "ari")
    assert [row.after for row in rows] == ["task 1", "task 2"]
    assert rows[0].columns["task 1"].mean == pytest.approx(0.8)
    assert rows[0].columns["task 2"] is None
    lines = render(rows, "text").splitlines()
    assert lines[1].split() == ["method", "after", "seeds", "task", "1", "task", "2"]
    assert lines[-2].split() == ["a", "task", "1", "2", "80.00", "(10.00)", "-"]
    assert lines[-1].split() == ["a", "task", "2", "2", "60.00", "(10.00)", "50.00", "(0.00)"]


def test_matrices_of_different_width_share_a_markdown_table():
    results = [with_matrix([[0.9, None], [0.7, 0.5]], [0, 1]), with_matrix([[0.3]], [0], scenario="r")]
    lines = render(score_matrices(results, "ari"), "markdown").splitlines()
    assert lines[0] == "| scenario | method | after | seeds | task 1 | task 2 |"
    assert lines[2] == "| r | a | task 1 | 1 | 30.00 |  |"


def test_what_cannot_be_compared_is_refused():
    with pytest.raises(ResultsError, match="same method label but other settings"):
        summarise([result(seed=0, k=1), result(seed=1, k=2)])
    with pytest.raises(ResultsError, match="saw different data"):
        summarise([result("a", fingerprint="x"), result("b", fingerprint="y")])
    with pytest.raises(ResultsError, match="hold the same run"):
        summarise([result(), result()])


def test_unknown_names_are_refused_with_the_nearest():
    with pytest.raises(SettingsError, match=r"did you mean 'forgetting\.ari'"):
        summarise([result()], ["forgeting.ari"])
    with pytest.raises(SettingsError, match="did you mean 'latex'"):
        render([], "latx")


def write_run(folder: Path, finished: bool) -> None:
    folder.mkdir(parents=True)
    made = result()
    (folder / "settings.json").write_text(json.dumps(made.settings))
    if finished:
        (folder / "final.json").write_text(json.dumps(made.final))


def test_results_are_found_at_any_depth_once(tmp_path):
    write_run(tmp_path / "s" / "a" / "seed-0", finished=True)
    write_run(tmp_path / "s" / "b" / "seed-0", finished=False)
    results, unfinished = find_results([tmp_path, tmp_path / "s" / "a" / "seed-0"])
    assert [found.folder for found in results] == [tmp_path / "s" / "a" / "seed-0"]
    assert unfinished == [tmp_path / "s" / "b" / "seed-0"]


def test_folders_without_results_are_named(tmp_path):
    with pytest.raises(SettingsError, match="holds no results"):
        find_results([tmp_path])
    with pytest.raises(SettingsError, match="no such folder"):
        find_results([tmp_path / "none"])


@pytest.mark.parametrize("content", ["", "{", "[]", "\xff"])
def test_damaged_results_are_named(tmp_path, content):
    write_run(tmp_path / "run", finished=True)
    (tmp_path / "run" / "final.json").write_bytes(content.encode("latin-1"))
    with pytest.raises(ResultsError, match=r"final\.json"):
        find_results([tmp_path])
