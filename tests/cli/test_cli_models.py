"""The commands on models as a user gives them: each file once, columns by name, results on stdout."""

import csv
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import dbull
from dbull.cli import app
from dbull.ingest import Learner
from dbull.store import ModelFolder

CENTRES = np.array([[0, 0, 0], [20, 0, 0], [0, 20, 0], [0, 0, 20]])


def rows(clusters, n, seed=0):
    random = np.random.default_rng(seed)
    return np.concatenate([random.normal(size=(n, 3)) + CENTRES[c] for c in clusters]).round(4)


def write(path, values, names="abc"):
    with open(path, "w", newline="") as handle:
        writer = csv.writer(handle)
        writer.writerows([names, *values.tolist()])
    return path


def run(*arguments, code=0):
    result = CliRunner().invoke(app, list(map(str, arguments)))
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == code, (arguments, result.stdout, result.stderr)
    return result


def answer(*arguments, code=0):
    return json.loads(run(*arguments, "--json", code=code).stdout)


def make(place, *flags):
    """Put a model of two clusters there, and files beside it."""
    write(place / "monday.csv", rows((0, 1), 60))
    write(place / "tuesday.csv", rows((1, 2), 50, seed=1)[:, [2, 0, 1]], "cab")
    run("learn", place / "model", place / "monday.csv", "--quiet", *flags)
    return place


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    return make(tmp_path_factory.mktemp("cli"))


@pytest.fixture
def place(made, tmp_path):
    shutil.copytree(made, tmp_path / "here")
    return tmp_path / "here"


def test_learning_tells_what_it_did_and_keeps_it(place):
    result = run("learn", place / "model", place / "tuesday.csv", "--name", "day 2", "--json", "--quiet")
    told = json.loads(result.stdout)
    assert result.stderr == ""
    assert (told["generation"], told["rows"], told["n_clusters"], told["born"]) == (2, 100, 3, [2])
    assert told["rows_per_cluster"] == {"1": 50, "2": 50}, "columns were found by name"
    history = answer("history", place / "model")
    assert [row["note"] for row in history] == ["monday.csv", "day 2: tuesday.csv"]
    assert [row["rows"] for row in history] == [120, 100]
    table = answer("clusters", place / "model")
    assert [(row["id"], row["rows"], row["first_seen"]) for row in table] == [
        (0, 60, 1),
        (1, 110, 1),
        (2, 50, 2),
    ]
    kinds = [event["kind"] for event in answer("events", place / "model", "--since", 1)]
    assert kinds == ["arrival", "birth"]


def test_the_same_content_is_learned_once_whatever_its_name(place):
    shutil.copy(place / "monday.csv", place / "renamed.csv")
    result = run("learn", place / "model", place / "renamed.csv", "-q", code=3)
    assert "learned in generation 1 as 'monday.csv'" in result.stderr
    assert ModelFolder(place / "model").generations() == [1]
    assert json.loads(run("learn", place / "model", place / "renamed.csv", "-q", "--force", "--json").stdout)
    assert answer("clusters", place / "model")[0]["rows"] == 120
    run("learn", place / "model", place / "monday.csv", "-q", code=3)


def folder_content(path):
    return {str(p.relative_to(path)): p.read_bytes() for p in sorted(path.rglob("*")) if p.is_file()}


@pytest.mark.parametrize("stop_after", [1, 2])
@pytest.mark.parametrize("force", [False, True])
def test_an_interrupted_file_goes_on_where_it_was(place, monkeypatch, stop_after, force):
    """Three arrivals; a stop after some; the same command again gives the bytes of the straight run."""
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
    write(place / "long.csv", rows((0, 1, 2, 3), 25, seed=2))
    flags = ("--arrival-rows", 30, "-q")
    if force:
        run("learn", place / "model", place / "long.csv", *flags)
    shutil.copytree(place / "model", place / "straight")
    more = (*flags, *(["--force"] if force else []))
    lines = run("learn", place / "straight", place / "long.csv", *more).stdout.splitlines()
    assert len(lines) == 3

    real, calls = Learner._learn, []

    def stopping(self, *arguments):
        if len(calls) == stop_after:
            raise KeyboardInterrupt
        calls.append(1)
        return real(self, *arguments)

    monkeypatch.setattr(Learner, "_learn", stopping)
    run("learn", place / "model", place / "long.csv", *more, code=130)
    monkeypatch.setattr(Learner, "_learn", real)
    lines = run("learn", place / "model", place / "long.csv", *more).stdout.splitlines()
    assert len(lines) == 3 - stop_after
    assert folder_content(place / "model") == folder_content(place / "straight")
    run("learn", place / "model", place / "long.csv", *flags, code=3)


def test_arrivals_do_not_depend_on_the_pieces_that_are_read(place):
    values = rows((0, 1, 2), 50, seed=3)
    write(place / "x.csv", values)
    np.save(place / "x.npy", values)
    for suffix in ("csv", "npy"):
        run("learn", place / suffix, place / f"x.{suffix}", "--arrival-rows", 40, "-q")
    a, b = (dbull.load(place / suffix) for suffix in ("csv", "npy"))
    assert [e.rows for e in a.events_ if e.kind == "arrival"] == [40, 40, 40, 30]
    told = [[e.to_json() | {"time": 0} for e in model.events_] for model in (a, b)]
    reasons = [[e["evidence"].pop("because", "").split()[:1] for e in events] for events in told]
    assert ["a"] in reasons[0]
    assert ["column"] in reasons[1]  # of an array they have no names
    assert told[0] == told[1]


def test_fail_on_new_cluster(place):
    write(place / "known.csv", rows((0, 1), 30, seed=5))
    run("learn", place / "model", place / "known.csv", "--fail-on", "new-cluster", "-q")
    run("learn", place / "model", place / "tuesday.csv", "--fail-on", "new-cluster", "-q", code=6)
    assert ModelFolder(place / "model").generations() == [1, 2, 3], "what was learned is kept"
    run("learn", place / "new", place / "monday.csv", "--fail-on", "new-cluster", "-q")
    assert (
        "did you mean"
        in run("learn", place / "model", place / "known.csv", "--fail-on", "new-clusters", code=2).stderr
    )


def test_a_dry_run_writes_nothing(place):
    before = folder_content(place / "model")
    told = json.loads(
        run("learn", place / "model", place / "tuesday.csv", "--dry-run", "--json", "-q").stdout
    )
    assert (told["generation"], told["born"]) == (None, [2])
    plan = answer("preview", place / "model", place / "tuesday.csv")
    assert (plan[0]["born"], plan[0]["rows_per_cluster"]) == ([2], told["rows_per_cluster"])
    assert folder_content(place / "model") == before
    run("learn", place / "nowhere", place / "tuesday.csv", "--dry-run", "-q")
    assert not (place / "nowhere").exists()


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_predict_writes_a_table(place, suffix):
    run("rename", place / "model", 1, "ones")
    out = place / f"out.{suffix}"
    run("predict", place / "model", place / "monday.csv", "-o", out)
    if suffix == "csv":
        table = list(csv.DictReader(out.open()))
    else:
        table = pytest.importorskip("pyarrow.parquet").read_table(out).to_pylist()
    expected = dbull.load(place / "model").predict(rows((0, 1), 60).astype(np.float32)).tolist()
    assert [int(row["cluster"]) for row in table] == expected
    assert {(int(row["cluster"]), row["name"]) for row in table} == {(0, ""), (1, "ones")}
    assert [int(row["row"]) for row in table] == list(range(1, 121))
    assert not list(place.glob(".out*"))


def test_predict_streams_keys_and_several_files_to_standard_output(place):
    keyed = [
        ["name", "c", "a", "b"],
        *[[f"k{i}", *r] for i, r in enumerate(rows((0,), 3)[:, [2, 0, 1]].tolist())],
    ]
    with open(place / "keyed.csv", "w", newline="") as handle:
        csv.writer(handle).writerows(keyed)
    result = run("predict", place / "model", place / "keyed.csv", place / "keyed.csv", "--key", "name", "-q")
    table = list(csv.DictReader(result.stdout.splitlines()))
    assert [row["key"] for row in table] == ["k0", "k1", "k2"] * 2
    assert {row["cluster"] for row in table} == {"0"}
    assert {row["file"] for row in table} == {str(place / "keyed.csv")}


@pytest.mark.parametrize(
    ("values", "names", "words"),
    [
        (rows((0,), 4)[:, :2], "ab", "no column 'c'"),
        (rows((0,), 4), "abx", "no column 'c'"),
        (np.array([[1.0, 2.0, np.nan]]), "abc", "row 1, column 'c'"),
        (np.zeros((0, 3)), "abc", ""),
    ],
)
def test_data_that_do_not_fit_are_refused(place, values, names, words):
    path = write(place / "bad.csv", values, names)
    for command in ("learn", "predict", "preview"):
        assert words in run(command, place / "model", path, code=3).stderr
    np.save(place / "narrow.npy", np.zeros((5, 2)))
    assert (
        "2 columns, the model takes 3" in run("predict", place / "model", place / "narrow.npy", code=3).stderr
    )


def test_columns_that_the_model_does_not_want_may_hold_text(place):
    table = [["b", "remark", "c", "a"], *[[b, "text", c, a] for a, b, c in rows((1,), 3).tolist()]]
    with open(place / "more.csv", "w", newline="") as handle:
        csv.writer(handle).writerows(table)
    result = run("predict", place / "model", place / "more.csv", "-q")
    assert [row["cluster"] for row in csv.DictReader(result.stdout.splitlines())] == ["1"] * 3


def test_columns_of_lists(place):
    pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    values = rows((0, 1), 30)
    table = pyarrow.table({"emb": values[:, :2].tolist(), "c": values[:, 2].tolist(), "note": ["x"] * 60})
    parquet.write_table(table.drop_columns("note"), place / "x.parquet")
    parquet.write_table(table.select(["note", "c", "emb"]), place / "y.parquet")
    run("learn", place / "lists", place / "x.parquet", "-q")
    out = [run("predict", place / "lists", place / f"{name}.parquet", "-q").stdout for name in "xy"]
    assert out[0] == out[1]


def test_changes_by_hand(place):
    run("learn", place / "model", place / "tuesday.csv", "-q")
    run("rename", place / "model", 2, "twos")
    run("merge", place / "model", 2, 0)
    run("retire", place / "model", 1)
    table = answer("clusters", place / "model", "--all")
    assert [(r["id"], r["name"], r["status"], r["merged_into"]) for r in table] == [
        (0, "twos", "active", None),
        (1, None, "retired", None),
        (2, "twos", "merged", 0),
    ]
    assert [event["kind"] for event in answer("clusters", place / "model", 0)["events"]] == ["birth", "merge"]
    assert "oldest id stays" not in run("merge", place / "model", 1, 1, code=2).stderr
    run("rename", place / "model", 9, "x", code=2)
    run("retire", place / "model", 1, code=2)
    run("clusters", place / "model", 9, code=2)
    # Settings of the files outlive changes by hand.
    assert ModelFolder(place / "model").manifest().settings["reading"]["header"] is None


def test_settings_need_neither_quotes_nor_brackets(place):
    words = ("--set", "columns=c,a", "--set", "device=cpu", "-q")
    run("learn", place / "new", place / "monday.csv", *words)
    assert dbull.load(place / "new").feature_names_in_.tolist() == ["c", "a"]
    run("learn", place / "other", place / "monday.csv", "--set", "columns=b", "-q")
    assert dbull.load(place / "other").feature_names_in_.tolist() == ["b"]


def test_rollback_diff_and_check(place):
    run("learn", place / "model", place / "tuesday.csv", "-q")
    difference = answer("diff", place / "model", 1, 2)
    assert (difference["learned"], difference["equal"]) == (["tuesday.csv"], False)
    assert [(one["id"], one["before"] is None, one["after"]["rows"]) for one in difference["clusters"]] == [
        (1, False, 110),
        (2, True, 50),
    ]
    said = run("diff", place / "model", 1, 2).stdout.splitlines()
    assert said == ["+ learned tuesday.csv", "  cluster 1: 60 -> 110 rows", "+ cluster 2, 50 rows"]
    assert "mixture/sum_zz" in run("diff", place / "model", 1, 2, "--internals").stdout
    run("rollback", place / "model", 1, "--note", "bad day")
    assert len(answer("clusters", place / "model")) == 2
    assert answer("diff", place / "model", 1, 3)["equal"]
    assert "- cluster 2, 50 rows" in run("diff", place / "model", 2, 3).stdout
    run("learn", place / "model", place / "tuesday.csv", "-q")
    assert [row["id"] for row in answer("clusters", place / "model")] == [0, 1, 3], "id 2 was given once"
    assert answer("check", place / "model")["ok"]
    assert [e["kind"] for e in answer("events", place / "model", "--all", "--kind", "rollback")] == [
        "rollback"
    ]


def test_damage_is_named(place):
    path = place / "model" / "gen-00000001" / "mixture.safetensors"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    for command in (
        ["clusters"],
        ["predict", place / "monday.csv"],
        ["learn", place / "tuesday.csv"],
        ["check"],
    ):
        result = run(command[0], place / "model", *command[1:], code=4)
        assert str(path) in result.stderr + result.stdout
    for command in (["history"], ["events"], ["check"], ["rename", "0", "x"], ["rollback", "1"]):
        run(command[0], place / "nothing", *command[1:], code=4)


def test_another_writer(place, monkeypatch):
    real = Learner._learn

    def beaten(self, *arguments):
        run("rename", place / "model", 0, "first")
        return real(self, *arguments)

    monkeypatch.setattr(Learner, "_learn", beaten)
    assert "another process" in run("learn", place / "model", place / "tuesday.csv", "-q", code=5).stderr
    assert ModelFolder(place / "model").generations() == [1, 2]
    assert answer("check", place / "model")["ok"]


def test_watch_learns_each_file_once(place):
    inbox = place / "inbox"
    inbox.mkdir()
    write(inbox / "1.csv", rows((0, 2), 40, seed=7))
    write(inbox / "2.csv", rows((2, 3), 40, seed=8))
    write(inbox / "3.csv", np.array([[1.0, 2.0, np.nan]]))
    write(inbox / ".hidden.csv", rows((0,), 5))
    shutil.copy(inbox / "1.csv", inbox / "4.csv")
    (inbox / "readme.txt").write_text("not data")
    result = run("watch", place / "model", inbox, "--once", "--json", code=3)
    assert [json.loads(line)["name"] for line in result.stdout.splitlines()] == ["1.csv", "2.csv"]
    assert "3.csv" in result.stderr
    assert "4.csv" not in result.stderr
    assert run("watch", place / "model", inbox, "--once", "-q", code=3).stdout == ""
    run("watch", place / "model", place / "no-such", "--once", code=2)
    assert ModelFolder(place / "model").generations() == [1, 2, 3]


def test_settings_flag_beats_environment_beats_file(place, monkeypatch):
    config = place / "dbull.toml"

    def kept(*flags):
        shutil.rmtree(place / "new", ignore_errors=True)
        run("learn", place / "new", place / "monday.csv", "--config", config, "-q", *flags)
        manifest = ModelFolder(place / "new").manifest()
        return manifest.settings["parameters"]["max_clusters"], manifest.generation

    config.write_text("max_clusters = 5\narrival_rows = 60\n")  # of 120 rows
    assert kept() == (5, 2)
    monkeypatch.setenv("DBULL_MAX_CLUSTERS", "6")
    assert kept() == (6, 2)
    assert kept("--set", "max_clusters=7", "--arrival-rows", "600") == (7, 1)
    monkeypatch.setenv("DBULL_ENCODER", "identity")
    kept()
    assert ModelFolder(place / "new").manifest().settings["parameters"]["encoder"] == "identity"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("max_cluster = 5", "did you mean 'max_clusters'"),
        ("max_clusters = 0", "max_clusters"),
        ("max_clusters = ", "TOML"),
        ("arrival_rows = 1", "arrival_rows"),
        ('columns = "a"', "columns"),
    ],
)
def test_wrong_settings_are_refused_before_anything_is_read(place, text, words):
    (place / "dbull.toml").write_text(text)
    result = run("learn", place / "new", place / "monday.csv", "--config", place / "dbull.toml", code=2)
    assert words in result.stderr
    assert not (place / "new").exists()


def test_what_the_first_data_decided_stays(place):
    result = run("learn", place / "model", place / "tuesday.csv", "--set", "latent_dim=2", code=2)
    assert "decided by its first data set" in result.stderr
    run("learn", place / "model", place / "tuesday.csv", "--set", "max_clusters=50", "-q")


def test_init_writes_settings_that_learn_takes(place):
    guessed = run("init", "--from", place / "monday.csv").stdout
    assert 'kind = "dense"' in guessed
    (place / "dbull.toml").write_text(guessed)
    run("learn", place / "new", place / "monday.csv", "--config", place / "dbull.toml", "-q")
    np.save(place / "images.npy", np.zeros((4, 6, 5)))
    assert "image_shape = [6, 5]" in run("init", "--from", place / "images.npy").stdout
    assert "#kind" in run("init").stdout
    (place / "dbull.toml").write_text(run("init").stdout.replace("\n#", "\n").replace("28, 28", "1, 3"))
    with open(place / "named.csv", "w", newline="") as handle:
        csv.writer(handle).writerows([["id", "x"], ["first", 1.5]])
    assert 'key = "id"' in run("init", "--from", place / "named.csv").stdout


def test_doctor():
    found = answer("doctor")
    assert found["ok"]
    extras = {"pyarrow", "matplotlib", "umap", "faiss", "PIL", "fsspec", "anndata", "confluent_kafka"}
    assert set(found["extras"]) == extras


def test_image_files_become_images(tmp_path):
    digits = pytest.importorskip("sklearn.datasets").load_digits()
    np.save(tmp_path / "x.npy", digits.images[:40])
    flags = ["--set", "epochs=1", "--set", "joint_epochs=1", "--set", "hidden_dims=[4]"]
    run("learn", tmp_path / "m", tmp_path / "x.npy", *flags, "-q")
    assert dbull.load(tmp_path / "m").image_shape == (8, 8)
    assert Path(tmp_path / "m" / "events.jsonl").exists()


# What a walk through the commands found.


def test_the_same_command_with_several_files_goes_on_after_an_interruption(place):
    files = [place / "monday.csv", place / "tuesday.csv"]  # the first was learned before the interruption
    result = run("learn", place / "model", *files)
    assert "left out" in result.stderr
    assert "monday.csv" in result.stderr
    assert [row["note"] for row in answer("history", place / "model")] == ["monday.csv", "tuesday.csv"]
    run("learn", place / "model", *files, code=3)
    assert len(answer("history", place / "model")) == 2


def test_a_first_file_of_one_row_is_refused_and_watch_goes_on(tmp_path):
    (tmp_path / "inbox").mkdir()
    write(tmp_path / "inbox" / "a.csv", rows((0,), 1))
    write(tmp_path / "inbox" / "b.csv", rows((0, 1), 40))
    assert "at least two" in run("learn", tmp_path / "other", tmp_path / "inbox" / "a.csv", code=3).stderr
    result = run("watch", tmp_path / "model", tmp_path / "inbox", "--once", "-q", code=3)
    assert "left alone: a.csv" in result.stderr
    assert "b.csv, 80 rows" in result.stdout


def test_answers_never_take_the_place_of_the_data(place):
    before = (place / "monday.csv").read_bytes()
    run("predict", place / "model", place / "monday.csv", "-o", place / "monday.csv", code=2)
    assert (place / "monday.csv").read_bytes() == before


def test_columns_are_decided_by_the_first_file(place):
    result = run("learn", place / "model", place / "tuesday.csv", "--columns", "a", code=2)
    assert "a, b, c" in result.stderr
    run("learn", place / "model", place / "tuesday.csv", "--columns", "b,c,a", "-q")


@pytest.mark.parametrize(
    "setting",
    [
        "header='no'",
        "grey=1",
        "key=3",
        "random_state=1.5",
        "random_state=-1",
        "image_shape=3",
        "image_shape='8,8'",
        "device='cuda:99'",
        "device='nonsense'",
    ],
)
def test_settings_of_the_wrong_kind_are_refused(place, setting):
    result = run("learn", place / "new", place / "monday.csv", "--set", setting, code=2)
    assert setting.partition("=")[0] in result.stderr
    assert not (place / "new").exists()


def test_wrong_words_in_the_environment_are_refused(place, monkeypatch):
    monkeypatch.setenv("DBULL_HEADER", "no")
    assert "header must be true or false" in run("learn", place / "new", place / "monday.csv", code=2).stderr


def test_init_of_a_file_that_is_not_there(tmp_path):
    assert "nothing.csv" in run("init", "--from", tmp_path / "nothing.csv", code=3).stderr


def test_answers_that_cannot_be_written(place):
    (place / "file").write_text("")
    result = run("predict", place / "model", place / "monday.csv", "-o", place / "file" / "p.csv", code=2)
    assert "cannot be written" in result.stderr


def test_why_a_model_was_rolled_back_is_in_the_history(place):
    run("learn", place / "model", place / "tuesday.csv", "-q")
    run("rollback", place / "model", 1, "--note", "a test")
    assert answer("history", place / "model")[-1]["note"] == "back to 1: a test"


def test_check_names_the_sound_generations(place):
    run("learn", place / "model", place / "tuesday.csv", "-q")
    path = next((place / "model" / "gen-00000002").glob("*.safetensors"))
    path.write_bytes(path.read_bytes()[:-1])
    assert "sound: 1\n" in run("check", place / "model", code=4).stdout


def test_the_nearest_cluster_of_a_newborn_without_contact(tmp_path):
    """On a line: 0, 20, then 60; 20 is nearer, though it has more rows by then."""
    random = np.random.default_rng(0)
    for name, centres in (("a", (0, 20)), ("b", (20, 60))):
        values = np.concatenate([random.normal(size=(60, 3)) + centre for centre in centres])
        run("learn", tmp_path / "model", write(tmp_path / f"{name}.csv", values), "-q")
    *_, born = answer("events", tmp_path / "model", "--kind", "birth")
    model = dbull.load(tmp_path / "model")
    assert born["evidence"]["nearest"] == int(model.predict(np.full((1, 3), 20.0))[0])


def test_watch_takes_files_from_a_clock_that_is_ahead(place):
    import os
    import time

    (place / "inbox").mkdir()
    shutil.copy(place / "tuesday.csv", place / "inbox" / "tuesday.csv")
    os.utime(place / "inbox" / "tuesday.csv", (time.time() + 86400,) * 2)
    assert "tuesday.csv" in run("watch", place / "model", place / "inbox", "--once", "-q").stdout


def test_what_init_writes_fits_a_model_that_was_made_without_it(place):
    (place / "week.toml").write_text(run("init", "--from", place / "monday.csv").stdout)
    run("learn", place / "model", place / "tuesday.csv", "--config", place / "week.toml", "-q")
    assert (
        "cannot become"
        in run("learn", place / "model", place / "monday.csv", "--set", "kind='sparse'", code=2).stderr
    )
