"""Files that grow, change and are exchanged: each row once, in every format; what was read is what counts."""

import gzip
import json
import os
import shutil
from contextlib import suppress

import numpy as np
import pytest
from test_cli_details import learned
from test_cli_models import answer, make, place, rows, run, write

from dbull.cli.options import read_config
from dbull.errors import AlreadyLearnedError, DataError
from dbull.ingest import Input, Learner, contents
from dbull.ingest.sources import open_source
from dbull.store import ModelFolder

__all__ = ["place"]  # a fixture
pytestmark = pytest.mark.usefixtures("quick_module")
TABLES = ("csv", "csv.gz", "npy", "npz", "parquet", "arrow")


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Without room for a third cluster: which rows are learned is the question, and not to what they lead."""
    return make(tmp_path_factory.mktemp("cli"), "--set", "max_clusters=2")


def put(path, values, group=1000):
    """Write a table in the format that its name says; `group` rows lie together where there are groups."""
    kind = path.name.partition(".")[2]
    if kind == "csv":
        write(path, values)
    elif kind == "csv.gz":
        write(path.with_name("plain.csv"), values)
        path.write_bytes(gzip.compress(path.with_name("plain.csv").read_bytes()))
    elif kind == "npy":
        np.save(path, values)
    elif kind == "npz":
        np.savez_compressed(path, x=values)
    else:
        pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
        table = pyarrow.table(dict(zip("abc", values.T, strict=True)))
        if kind == "parquet":
            parquet.write_table(table, path, row_group_size=group)
        else:
            with pyarrow.ipc.new_file(path, table.schema) as writer:
                writer.write_table(table, max_chunksize=group)
    return path


def learner(folder, arrival_rows=10_000, **more):
    return Learner(folder, read_config(None, [], {"arrival_rows": arrival_rows}), **more)


# Tables


@pytest.mark.parametrize("kind", TABLES)
def test_of_a_table_that_grew_only_the_new_rows_are_learned(place, kind):
    values = rows((0, 1, 2), 30, seed=4)
    path = put(place / f"t.{kind}", values[:50], group=20)
    run("learn", place / "model", path, "-q")
    put(path, values[:70], group=64)
    assert f"t.{kind} rows 51-70, 20 rows" in run("learn", place / "model", path, "-q").stdout
    put(place / f"renamed.{kind}", values, group=7)
    run("learn", place / "model", place / f"renamed.{kind}", "-q")
    run("learn", place / "model", place / f"renamed.{kind}", "-q", code=3)
    assert learned(place / "model") == [120, 50, 20, 20]


@pytest.mark.parametrize("kind", TABLES)
def test_a_table_that_grew_after_a_stop_goes_on_where_it_was(tmp_path, kind):
    values = rows((0, 1), 60, seed=4)
    path = put(tmp_path / f"t.{kind}", values[:100])
    arrivals = learner(tmp_path / "model", 30).learn(path)
    next(arrivals)
    next(arrivals)  # and then the machine is switched off
    put(path, values)
    run("learn", tmp_path / "model", path, "-q")
    assert learned(tmp_path / "model") == [30, 30, 60]


def test_a_table_is_the_same_whatever_file_it_lies_in(place):
    values = rows((0, 1), 20, seed=4)
    run("learn", place / "model", put(place / "t.parquet", values), "-q")
    for name in ("t.npy", "u.arrow"):
        put(place / name, values)
        assert "as 't.parquet'" in run("learn", place / "model", place / name, "-q", code=3).stderr
    run("learn", place / "model", put(place / "t.csv", values + 1), "-q")
    assert (
        "as 't.csv'"
        in run("learn", place / "model", put(place / "t.csv.gz", values + 1), "-q", code=3).stderr
    )


@pytest.mark.parametrize("kind", TABLES)
@pytest.mark.parametrize(
    "change",
    [
        lambda old, new: np.concatenate([old[1:], new]),  # a window that slides
        lambda old, new: np.concatenate([new, old]),  # the newest first
        lambda old, new: np.concatenate([old[:20], old[20:21] + 0.5, old[21:], new]),  # one row mended
        lambda old, new: old[: len(old) // 2],  # cut
        lambda old, new: np.concatenate([old[::-1], new]),  # sorted in another way
    ],
)
def test_a_file_with_some_of_the_rows_that_were_learned_is_refused(place, kind, change):
    old, new = rows((0, 1), 30, seed=4), rows((1, 2), 10, seed=5)
    path = put(place / f"t.{kind}", old)
    run("learn", place / "model", path, "-q")
    changed = change(old, new)
    message = run("learn", place / "model", put(path, changed), "-q", code=3).stderr
    assert str(path) in message
    assert "--force" in message
    run("learn", place / "model", path, "--force", "-q")
    assert learned(place / "model") == [120, 60, len(changed)]
    run("learn", place / "model", path, "-q", code=3)


@pytest.mark.parametrize("kind", TABLES)
def test_a_file_that_is_exchanged_every_day_is_learned_every_day(place, kind):
    for day in range(3):
        run("learn", place / "model", put(place / f"today.{kind}", rows((0, 1), 30, seed=10 + day)), "-q")
    assert learned(place / "model") == [120, 60, 60, 60]


def test_rows_that_are_common_do_not_make_files_alike(place):
    """Rows of zeros are in every file of a name; they tell nothing."""
    for day in range(3):
        values = np.concatenate([np.zeros((5, 3)), rows((0, 1), 10, seed=10 + day), np.zeros((5, 3))])
        run("learn", place / "model", put(place / "today.npy", values), "-q")
    assert learned(place / "model") == [120, 30, 30, 30]


def test_keys_tell_rows_apart(tmp_path):
    """The same numbers under other keys are other rows."""
    pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    values = rows((0, 1), 10)
    for day in range(2):
        keys = [f"{day}-{i}" for i in range(len(values))]
        parquet.write_table(
            pyarrow.table({"id": keys, **dict(zip("abc", values.T, strict=True))}), tmp_path / "today.parquet"
        )
        run("learn", tmp_path / "model", tmp_path / "today.parquet", "--key", "id", "-q")
    assert learned(tmp_path / "model") == [20, 20]


def test_inputs_remembered_by_all_their_bytes_are_known(place):
    """As models have them that were made before rows were compared."""
    path = put(place / "t.npy", rows((0, 1), 20, seed=4))
    known = {contents.hash_on_disk(path): ModelFolder(place / "model").learned().popitem()[1]}
    given = Input(path, None, learner(place / "model").reading)
    with pytest.raises(AlreadyLearnedError):
        open_source(given, known, False)


# Files that are written while they are read


@pytest.mark.parametrize("kind", TABLES)
def test_a_file_that_is_rewritten_between_two_looks_is_not_learned(place, kind, monkeypatch):
    path = put(place / f"t.{kind}", rows((0, 1), 20, seed=4))
    real = contents.survey_table

    def survey_then_rewrite(*arguments):
        found = real(*arguments)
        put(path, rows((0, 1), 20, seed=5))
        return found

    monkeypatch.setattr("dbull.ingest.sources.survey_table", survey_then_rewrite)
    assert "has changed while it was read" in run("learn", place / "model", path, "-q", code=3).stderr
    monkeypatch.undo()
    assert learned(place / "model") == [120]
    run("learn", place / "model", path, "-q")
    assert learned(place / "model") == [120, 40]


@pytest.mark.parametrize("kind", TABLES)
def test_a_file_that_is_rewritten_between_two_arrivals_counts_no_row_twice(tmp_path, kind):
    """It is learned as it was, as far as it was read by then, or stopped at; never a mixture."""
    values, others = rows((0, 1), 60, seed=4), rows((0, 1), 60, seed=5)
    path = put(tmp_path / f"t.{kind}", values)
    arrivals = learner(tmp_path / "model", 30).learn(path)
    assert next(arrivals).report.n_rows == 30
    put(path, np.concatenate([values[:30], others[30:]]))
    with suppress(DataError):
        list(arrivals)
    assert "--force" in run("learn", tmp_path / "model", path, "-q", code=3).stderr
    whole = sum(learned(tmp_path / "model")) == 120
    run("learn", tmp_path / "model", put(path, values), "-q", code=3 if whole else 0)
    assert sum(learned(tmp_path / "model")) == 120


# Images


def draw(folder, numbers):
    pillow = pytest.importorskip("PIL.Image")
    folder.mkdir(exist_ok=True)
    for number in numbers:
        pixels = np.random.default_rng(number).integers(0, 255, size=(4, 4), dtype=np.uint8)
        pillow.fromarray(pixels).save(folder / f"{number % 10}-{number}.png")


FLAGS = ("--set", "grey=true", "--set", "encoder='identity'", "-q")


def test_of_a_folder_only_the_new_images_are_learned(tmp_path):
    shots = tmp_path / "shots"
    draw(shots, range(20))
    run("learn", tmp_path / "model", shots, *FLAGS)
    run("learn", tmp_path / "model", shots, "-q", code=3)
    draw(shots, range(20, 27))  # their names lie between the others
    (shots / "readme.txt").write_text("no image")
    assert "shots images 21-27, 7 rows" in run("learn", tmp_path / "model", shots, "-q").stdout
    shutil.move(shots, tmp_path / "moved")
    (tmp_path / "moved" / "0-0.png").rename(tmp_path / "moved" / "another name.png")
    run("learn", tmp_path / "model", tmp_path / "moved", "-q", code=3)
    assert learned(tmp_path / "model") == [20, 7]
    run("learn", tmp_path / "model", tmp_path / "moved", "--force", "-q")
    assert learned(tmp_path / "model") == [20, 7, 27]


def test_a_folder_goes_on_after_a_stop(tmp_path):
    shots = tmp_path / "shots"
    draw(shots, range(20))
    shutil.copy(shots / "0-0.png", shots / "a copy.png")  # learned as often as it is there
    config = read_config(None, ["grey=true", "encoder='identity'"], {"arrival_rows": 6})
    arrivals = Learner(tmp_path / "model", config).learn(shots)
    assert [next(arrivals).report.n_rows, next(arrivals).report.n_rows] == [6, 6]
    run("learn", tmp_path / "model", shots, "-q")
    assert learned(tmp_path / "model") == [6, 6, 9]
    run("learn", tmp_path / "model", shots, "-q", code=3)


def test_an_image_that_is_rewritten_while_its_folder_is_read_is_not_learned(tmp_path, monkeypatch):
    shots = tmp_path / "shots"
    draw(shots, range(20))
    real = contents.survey_folder

    def survey_then_rewrite(folder):
        found = real(folder)
        shutil.copy(shots / "1-1.png", shots / "0-0.png")
        return found

    monkeypatch.setattr("dbull.ingest.sources.survey_folder", survey_then_rewrite)
    assert "0-0.png: has changed" in run("learn", tmp_path / "model", shots, *FLAGS, code=3).stderr


# Watching


def test_watch_goes_past_a_file_on_which_learning_fails(place, monkeypatch):
    from dbull.errors import NumericalError
    from dbull.methods.dbull import DBULL

    (place / "inbox").mkdir()
    for name, seed in (("1.csv", 3), ("2.csv", 4), ("3.csv", 5)):
        write(place / "inbox" / name, rows((0, 1), 20, seed=seed))
    real, fails = (
        DBULL.partial_fit,
        iter([NumericalError("left the range"), None, DataError("cannot be learned")]),
    )

    def failing(self, *arguments, **keys):
        error = next(fails, None)
        if error is not None:
            raise error
        return real(self, *arguments, **keys)

    monkeypatch.setattr(DBULL, "partial_fit", failing)
    result = run("watch", place / "model", place / "inbox", "--once", "-q", code=3)
    assert "1.csv: left the range" in result.stderr
    assert "3.csv: cannot be learned" in result.stderr
    assert [row["note"] for row in answer("history", place / "model")] == ["monday.csv", "2.csv"]
    monkeypatch.undo()
    run("watch", place / "model", place / "inbox", "--once", "-q")
    assert learned(place / "model") == [120, 40, 40, 40]


def test_watch_leaves_a_bad_file_alone_until_it_changes(place, monkeypatch):
    """Looks again and again; the file is read twice, once as it was and once as it became."""
    import dbull.cli.learn as module

    inbox = place / "inbox"
    inbox.mkdir()
    write(inbox / "bad.csv", np.array([[1.0, 2.0, np.nan]]))
    looks, read = iter(range(5)), []
    real = Learner.learn

    def sleep(seconds):
        look = next(looks)
        if look == 2:
            write(inbox / "bad.csv", rows((0, 1), 20, seed=3))
        if look == 4:
            raise KeyboardInterrupt

    def counting(self, path, tell=None):
        read.append(path.name)
        return real(self, path, tell)

    monkeypatch.setattr(module.time, "sleep", sleep)
    monkeypatch.setattr(Learner, "learn", counting)
    result = run("watch", place / "model", inbox, "--settle", 0, "-q", code=130)
    assert result.stderr.count("left alone: ") == 1
    assert read == ["bad.csv", "bad.csv"]
    assert learned(place / "model") == [120, 40]


def test_watch_goes_on_beside_somebody_who_renames_clusters(place, monkeypatch):
    """A name is given while a file is being learned; both are kept, and the file is learned once."""
    (place / "inbox").mkdir()
    for name, seed in (("1.csv", 3), ("2.csv", 4)):
        write(place / "inbox" / name, rows((0, 1), 30, seed=seed))
    real, names = Learner._learn, iter(["zeros", None, None, "nulls"])

    def disturbed(self, *arguments):
        name = next(names, None)
        if name is not None:
            run("rename", place / "model", 0, name)
        return real(self, *arguments)

    monkeypatch.setattr(Learner, "_learn", disturbed)
    result = run("watch", place / "model", place / "inbox", "--once", "--arrival-rows", 30, "--json", "-q")
    assert [json.loads(line)["rows"] for line in result.stdout.splitlines()] == [30, 30, 30, 30]
    notes = [row["note"] for row in answer("history", place / "model")]
    assert notes[1:] == [
        "rename 0 'zeros'",
        "1.csv rows 1-30",
        "1.csv rows 31-60",
        "rename 0 'nulls'",
        "2.csv rows 1-30",
        "2.csv rows 31-60",
    ]
    assert answer("clusters", place / "model")[0]["name"] == "nulls"
    assert answer("check", place / "model")["ok"]


# Paths


def test_paths_that_are_no_files(place):
    (place / "dangling.csv").symlink_to(place / "nowhere.csv")
    (place / "folder.csv").mkdir()
    (place / "folder.npy").mkdir()
    (place / "a.txt").write_text("1,2\n")
    (place / "imgs").mkdir()
    (place / "imgs" / "text.png").write_text("no image")
    os.mkfifo(place / "pipe.csv")
    for command in ("learn", "predict", "preview"):
        for name in ("dangling.csv", "folder.csv", "folder.npy", "a.txt", "pipe.csv", "none.npz"):
            assert name in run(command, place / "model", place / name, "-q", code=3).stderr
        for path in (place / "monday.csv" / "below.csv", "~nobody-of-this-name/x.csv", "x" * 300 + ".csv"):
            run(command, place / "model", path, "-q", code=3)
            run("init", "--from", path, code=3)
        assert "device" in run(command, place / "model", "/dev/zero", "-q", code=3).stderr
    assert "no known kind" in run("learn", place / "new", place / "imgs", "-q", code=3).stderr
    run("learn", place / "monday.csv", place / "tuesday.csv", "-q", code=4)
    run("learn", place / "model", place / "tuesday.csv", "--config", place / "folder.csv", code=2)
    (place / "inbox").mkdir()
    (place / "inbox" / "dangling.csv").symlink_to(place / "nowhere.csv")
    os.mkfifo(place / "inbox" / "pipe.csv")
    assert run("watch", place / "model", place / "inbox", "--once").stdout == ""
