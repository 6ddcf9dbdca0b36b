"""Predict, score, then learn: what a method is shown, what is written, and what happens after a kill."""

import json

import numpy as np
import pytest
import toy_methods

from dbull.errors import FolderInUseError, MethodError, SettingsError
from dbull.experiments.results import RunFolder
from dbull.experiments.run import RunDone, StepDone, run, run_folder
from dbull.experiments.settings import MethodChoice


def toy(name, **parameters):
    return MethodChoice(path=f"toy_methods:{name}", parameters=parameters)


def finish(stream, choice, out):
    *steps, done = run(stream, choice, out)
    assert isinstance(done, RunDone)
    assert all(isinstance(step, StepDone) for step in steps)
    return steps, done


def steps_bytes(done):
    return (done.folder / "steps.jsonl").read_bytes()


def test_method_is_shown_rows_and_nothing_else(make_stream, tmp_path):
    stream = make_stream()
    toy_methods.Recording.calls = []
    finish(stream, toy("Recording"), tmp_path)
    for _, args, kwargs in toy_methods.Recording.calls:
        assert len(args) == 1, "one positional argument: the rows"
        assert kwargs == {}
        assert args[0].dtype == np.float32
        assert args[0].shape[1] == 3, "no column was added to the rows"
    learnt = [args[0] for verb, args, _ in toy_methods.Recording.calls if verb == "partial_fit"]
    for arrival, rows in zip(stream.arrivals, learnt, strict=True):
        np.testing.assert_array_equal(rows, arrival.x)


def test_labels_change_nothing_but_scores(make_stream, tmp_path):
    stream = make_stream()
    shuffled = make_stream()
    for part in (*shuffled.arrivals, *shuffled.held_out):
        part.y_true[:] = np.random.default_rng(0).permutation(part.y_true)
    calls = []
    for name, each in (("a", stream), ("b", shuffled)):
        toy_methods.Recording.calls = []
        _, done = finish(each, toy("Recording"), tmp_path / name)
        calls.append([(verb, args[0].tobytes()) for verb, args, _ in toy_methods.Recording.calls])
        calls.append(done.final["scores"]["ari"])
    assert calls[0] == calls[2]
    assert calls[1] == 1.0
    assert calls[3] < 0.5


def test_order_is_predict_then_learn_then_held_out(make_stream, tmp_path):
    toy_methods.Recording.calls = []
    finish(make_stream((0, 0, 1)), toy("Recording"), tmp_path)
    verbs = [(verb, len(args[0])) for verb, args, _ in toy_methods.Recording.calls]
    # 30 rows per arrival and per held-out task; nothing can be predicted before the first arrival.
    assert verbs == [
        ("partial_fit", 30),
        ("predict", 30),
        ("predict", 30),
        ("partial_fit", 30),
        ("predict", 30),
        ("predict", 30),
        ("partial_fit", 30),
        ("predict", 60),
    ]


def test_batch_is_fitted_once(make_stream, tmp_path):
    toy_methods.Recording.calls = []
    _, done = finish(make_stream((0,)), toy("Recording"), tmp_path)
    assert [verb for verb, _, _ in toy_methods.Recording.calls] == ["fit", "predict"]
    assert json.loads((done.folder / "settings.json").read_text())["learning"] == "fit"


def test_method_without_partial_fit_is_refitted_on_all_rows(make_stream, tmp_path):
    toy_methods.FitOnly.n_rows = []
    _, done = finish(make_stream((0, 0, 1)), toy("FitOnly"), tmp_path)
    assert toy_methods.FitOnly.n_rows == [30, 60, 90]
    assert json.loads((done.folder / "settings.json").read_text())["learning"] == "refit-on-all-rows"


def test_records_of_a_method_that_is_always_right(make_stream, tmp_path):
    steps, done = finish(make_stream((0, 0, 1, 1, 2)), toy("Knowing"), tmp_path)
    first, *_, last = (step.record for step in steps)
    assert first["before_learning"] is None
    assert first["id_stability"] is None
    assert last["before_learning"]["ari"] == 1.0
    assert last["id_stability"] == 1.0
    assert sorted(first["tasks"]) == ["0"]
    assert sorted(last["tasks"]) == ["0", "1", "2"]
    assert [step.record["n_classes"] for step in steps] == [2, 2, 4, 4, 6]
    assert [step.record["n_clusters"] for step in steps] == [2, 2, 4, 4, 6]
    final = done.final
    assert final["phases"] == [0, 1, 2]
    assert final["lifelong"]["ari"]["matrix"] == [[1.0, None, None], [1.0, 1.0, None], [1.0, 1.0, 1.0]]
    assert final["lifelong"]["ari"]["forgetting"] == 0.0
    assert final["n_clusters_error"] == 0
    assert final["rows"] == 150
    assert final["cost"]["seconds"] > 0
    assert final["cost"]["peak_memory_bytes"] > 2**20


def test_renamed_ids_count_as_broken_unless_the_method_tells(make_stream, tmp_path):
    _, silent = finish(make_stream(), toy("Renaming"), tmp_path / "silent")
    _, telling = finish(make_stream(), toy("Renaming", tells=True), tmp_path / "telling")
    assert silent.final["scores"]["ari"] == telling.final["scores"]["ari"] == 1.0
    assert silent.final["id_stability"] == 0.0
    assert telling.final["id_stability"] == 1.0


def test_true_k_goes_only_to_those_who_declare_it(make_stream, tmp_path):
    def told(done):
        return json.loads((done.folder / "settings.json").read_text())["told_true_k"]

    _, done = finish(make_stream((0, 1, 2)), toy("Told"), tmp_path / "a")
    assert told(done) == 6
    assert done.final["n_clusters"] == 6
    _, done = finish(make_stream((0, 1, 2)), toy("Told", k=4), tmp_path / "b")
    assert told(done) is None
    assert done.final["n_clusters"] == 4
    _, done = finish(make_stream((0, 1, 2)), toy("Knowing"), tmp_path / "c")
    assert told(done) is None


def test_seed_reaches_scenario_and_method(make_stream, tmp_path):
    _, done = finish(make_stream(seed=3), toy("Told"), tmp_path)
    settings = json.loads((done.folder / "settings.json").read_text())
    assert settings["seed"] == settings["parameters"]["random_state"] == 3
    assert done.folder == run_folder(tmp_path, "blobs", "Told", 3)


def test_who_listens_is_told_which_arrival_and_is_no_setting(make_stream, tmp_path):
    heard = []
    *_, done = run(make_stream((0, 0, 1)), toy("Watched"), tmp_path, watch=heard.append)
    assert [(event.arrival, event.n_arrivals, event.progress) for event in heard] == [
        (0, 3, 30),
        (1, 3, 30),
        (2, 3, 30),
    ]
    assert {(event.scenario, event.method, event.seed) for event in heard} == {("blobs", "Watched", 0)}
    assert json.loads((done.folder / "settings.json").read_text())["parameters"] == {}

    class Uncopyable:  # as a listener that holds a lock
        n_heard = 0

        def __call__(self, progress):
            self.n_heard += 1

        def __deepcopy__(self, memo):
            raise TypeError("cannot be copied")

    own = Uncopyable()
    *_, again = run(make_stream((0, 0, 1)), toy("Watched", listener=own), tmp_path, watch=heard.append)
    assert again.was_done, "the same run, whoever listens"
    finish(make_stream((0, 0, 1)), toy("Watched", listener=own), tmp_path / "own")
    assert own.n_heard == 3
    assert len(heard) == 3, "the user's own listener wins"


def test_two_runs_write_the_same_bytes(make_stream, tmp_path):
    _, one = finish(make_stream(), toy("Slow"), tmp_path / "one")
    _, two = finish(make_stream(), toy("Slow"), tmp_path / "two")
    assert steps_bytes(one) == steps_bytes(two)
    assert {**one.final, "cost": 0} == {**two.final, "cost": 0}
    assert 0 < one.final["scores"]["nmi_geometric"] < 1


def test_finished_run_is_left_alone(make_stream, tmp_path):
    _, done = finish(make_stream(), toy("Knowing"), tmp_path)
    before = {path.name: (path.read_bytes(), path.stat().st_mtime_ns) for path in done.folder.iterdir()}
    steps, again = finish(make_stream(), toy("Knowing"), tmp_path)
    after = {path.name: (path.read_bytes(), path.stat().st_mtime_ns) for path in done.folder.iterdir()}
    assert steps == []
    assert again.was_done
    assert after == before


def test_other_settings_in_the_same_folder_are_refused(make_stream, tmp_path):
    _, done = finish(make_stream(), toy("Knowing"), tmp_path)
    before = steps_bytes(done)
    with pytest.raises(SettingsError, match=r"parameter shift \(0 there, 5 asked\)\. .*--label"):
        finish(make_stream(), toy("Knowing", shift=5), tmp_path)
    with pytest.raises(SettingsError, match="scenario_fingerprint"):
        finish(make_stream(rows_per_class=16), toy("Knowing"), tmp_path)
    assert steps_bytes(done) == before


def test_wrong_parameter_is_a_setting_to_correct_not_a_result(make_stream, tmp_path):
    stream = make_stream((0,))
    wrong = MethodChoice(name="bgmm", parameters={"n_components": 0})
    with pytest.raises(SettingsError, match=r"bgmm: .*n_components"):
        finish(stream, wrong, tmp_path)
    right = MethodChoice(name="bgmm", parameters={"n_components": 3})
    _, done = finish(stream, right, tmp_path)
    assert json.loads((done.folder / "settings.json").read_text())["parameters"]["n_components"] == 3
    assert done.final["cost"]["starts"] == 1


def test_fault_that_names_no_setting_stays_a_fault(make_stream, tmp_path):
    tiny = make_stream((0,), rows_per_class=1)  # two rows for thirty components
    with pytest.raises(ValueError, match="n_samples") as caught:
        finish(tiny, MethodChoice(name="bgmm"), tmp_path)
    assert not isinstance(caught.value, SettingsError)


@pytest.mark.parametrize("share", [0.0, 0.1, 0.37, 0.5, 0.93, 1.0])
def test_run_cut_anywhere_ends_in_the_same_bytes(make_stream, tmp_path, share):
    _, whole = finish(make_stream(), toy("Slow"), tmp_path)
    steps, final = steps_bytes(whole), whole.final
    (whole.folder / "final.json").unlink()
    (whole.folder / "steps.jsonl").write_bytes(steps[: int(share * len(steps))])
    n_whole_lines = steps[: int(share * len(steps))].count(b"\n")
    replayed, resumed = finish(make_stream(), toy("Slow"), tmp_path)
    assert [step.replayed for step in replayed] == [i < n_whole_lines for i in range(5)]
    assert steps_bytes(resumed) == steps
    assert {**resumed.final, "cost": 0} == {**final, "cost": 0}
    assert len((whole.folder / "timings.jsonl").read_bytes().splitlines()) == 5
    assert resumed.final["cost"]["starts"] == (2 if n_whole_lines else 1)


def test_method_that_does_not_repeat_is_found_out(make_stream, tmp_path):
    _, done = finish(make_stream(), toy("Forgetful"), tmp_path)
    (done.folder / "final.json").unlink()
    before = steps_bytes(done)
    with pytest.raises(MethodError, match="not repeatable"):
        finish(make_stream(), toy("Forgetful"), tmp_path)
    assert steps_bytes(done) == before
    assert not (done.folder / "final.json").exists()


def test_two_writers_in_one_folder(make_stream, tmp_path):
    folder = run_folder(tmp_path, "blobs", "Knowing", 0)
    events = run(make_stream(), toy("Knowing"), tmp_path)
    next(events)  # the first writer is in the middle of its run
    with pytest.raises(FolderInUseError, match="another run"):
        finish(make_stream(), toy("Knowing"), tmp_path)
    assert not list(events)[-1].was_done
    assert (folder / "final.json").exists()


def test_warnings_are_kept_not_printed(make_stream, tmp_path):
    _, done = finish(make_stream((0, 1)), toy("Warning_"), tmp_path)
    assert done.warnings == ("UserWarning: did not converge",) * 2


def test_wrong_ids_are_named(make_stream, tmp_path):
    with pytest.raises(MethodError, match=r"WrongShape: predict .* \(30,\), got int64 of shape \(30, 1\)"):
        finish(make_stream(), toy("WrongShape"), tmp_path)


def test_method_cannot_change_the_scenario(make_stream, tmp_path):
    stream = make_stream()
    before = stream.arrivals[0].x.copy()
    with pytest.raises(ValueError, match="read-only"):
        finish(stream, toy("Writing"), tmp_path)
    np.testing.assert_array_equal(stream.arrivals[0].x, before)


def test_a_class_that_has_moved_is_the_same_class(tmp_path):
    with RunFolder.open(tmp_path, {"path": "dbull.methods.dec:DEC"}, {}) as folder:
        folder.add_step({"x": 1}, {"t": 1})
    with RunFolder.open(tmp_path, {"path": "dbull.methods.competitors.dec:DEC"}, {}) as folder:
        folder.finish({"y": 2})
    with (
        pytest.raises(ValueError, match="other settings"),
        RunFolder.open(tmp_path, {"path": "dbull.methods.competitors.vade:VaDE"}, {}),
    ):
        pass


def test_final_json_is_written_once(tmp_path):
    with RunFolder.open(tmp_path, {"a": 1}, {}) as folder:
        folder.add_step({"x": 1}, {"t": 1})
        folder.finish({"y": 2})
        with pytest.raises(ValueError, match="never overwritten"):
            folder.finish({"y": 3})
    assert json.loads((tmp_path / "final.json").read_text())["y"] == 2
