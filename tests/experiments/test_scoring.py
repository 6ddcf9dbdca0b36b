"""Score matrix and step records from hand-made ids."""

import numpy as np

from dbull.experiments.scoring import Scorer, final_record, score_matrix
from dbull.metrics import clustering_scores


def step(task, tasks, **more):
    scores = {str(t): dict.fromkeys(clustering_scores([0], [0]), value) for t, value in tasks.items()}
    record = {
        "task": task,
        "rows": 10,
        "tasks": scores,
        "cumulative": {},
        "per_class": [],
        "n_clusters": 3,
        "n_clusters_used": 3,
        "n_classes": 2,
        "id_stability": None,
    }
    return {**record, **more}


def test_rows_of_the_matrix_are_taken_at_the_end_of_each_phase():
    steps = [
        step(0, {0: 0.1}),
        step(0, {0: 0.9}),
        step(1, {0: 0.8, 1: 0.3}),
        step(1, {0: 0.7, 1: 0.6}),
    ]
    np.testing.assert_array_equal(score_matrix(steps, "ari"), [[0.9, np.nan], [0.7, 0.6]])
    final = final_record(steps)["lifelong"]["ari"]
    assert final["matrix"] == [[0.9, None], [0.7, 0.6]]
    assert np.isclose(final["forgetting"], 0.2)
    assert np.isclose(final["backward_transfer"], -0.2)
    assert np.isclose(final["average"], 0.65)


def test_task_that_comes_back_gets_a_row_for_each_visit():
    steps = [step(0, {0: 0.9}), step(1, {0: 0.5, 1: 0.8}), step(0, {0: 1.0, 1: 0.7})]
    assert final_record(steps)["phases"] == [0, 1, 0]
    assert score_matrix(steps, "ari").shape == (3, 2)


def test_stability_is_the_mean_over_steps_that_have_one():
    steps = [step(0, {0: 1.0}), step(0, {0: 1.0}, id_stability=0.5), step(0, {0: 1.0}, id_stability=1.0)]
    assert final_record(steps)["id_stability"] == 0.75
    assert final_record(steps[:1])["id_stability"] is None


def test_each_task_is_scored_on_its_own_rows(make_stream):
    stream = make_stream((0, 1))
    scorer = Scorer(stream)
    assert scorer.true_k == 4
    np.testing.assert_array_equal(
        scorer.held_out_rows(1), np.concatenate([stream.held_out[0].x, stream.held_out[1].x])
    )
    # Task 0 is answered right, task 1 is thrown into one cluster.
    ids = np.concatenate([stream.held_out[0].y_true, np.full(30, 9)])
    record = scorer.step_record(1, None, ids, None, None)
    assert record["tasks"]["0"]["ari"] == 1.0
    assert record["tasks"]["1"]["ari"] == 0.0
    assert record["cumulative"]["purity"] == 0.75
    assert (record["n_clusters"], record["n_classes"]) == (3, 4)
    recalls = {score["label"]: score["recall"] for score in record["per_class"]}
    assert recalls == {0: 1.0, 1: 1.0, 2: 1.0, 3: 0.0}


def test_stability_looks_only_at_rows_of_tasks_seen_before(make_stream):
    stream = make_stream((0, 1))
    scorer = Scorer(stream)
    after = np.concatenate([stream.held_out[0].y_true, np.full(30, 9)])
    before = stream.held_out[0].y_true.copy()
    before[:15] = 77  # 15 of 30 rows had another id
    assert scorer.step_record(1, None, after, before, None)["id_stability"] == 0.5


def test_task_that_came_after_a_later_one_is_matched_by_name(make_stream):
    # Tasks arrive as 1, then 0: held-out rows are kept in the order of tasks, not of arrival.
    stream = make_stream((1, 0))
    scorer = Scorer(stream)
    before = stream.held_out[1].y_true
    after = np.concatenate([part.y_true for part in stream.held_out])
    assert scorer.step_record(1, None, after, before, None)["id_stability"] == 1.0
