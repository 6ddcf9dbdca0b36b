"""Other people's text: nothing in a name, a note, a key or a path commands a terminal; no byte is a fault."""

import csv
import gzip
import json
import os
import pty
import re
import shutil
import subprocess

import numpy as np
import pytest
from forked import forked_command
from test_cli_models import answer, made, place, rows, run, write

from dbull.cli.table_files import harmless
from dbull.documents import as_text
from dbull.experiments import settings as settings_module
from dbull.store import ModelFolder

__all__ = ["made", "place"]  # fixtures
pytestmark = pytest.mark.usefixtures("quick_module")
# A title, a colour, its C1 form, DEL, every control of direction, a line that says something else.
TURNS = "\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\u200e\u200f\u061c"
HOSTILE = f"\x1b]0;owned\x07\x1b[31m\x9b31m\x7f{TURNS}"
FORGED = "x\nerror: forged"
NO_UTF8 = os.fsdecode(b"caf\xe9\xff")
COMMANDS_TERMINALS = re.compile(
    "[\x00-\x09\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)


def quiet(*arguments, code=0):
    """Run a command and see that nothing of what it prints commands a terminal."""
    result = run(*arguments, code=code)
    for text in (result.stdout, result.stderr):
        assert not COMMANDS_TERMINALS.search(text), (arguments, text)
        assert "\nerror: forged" not in text
    return result


@pytest.fixture(scope="module")
def hostile(tmp_path_factory):
    """A model whose names, notes, columns, keys and files are all hostile."""
    place = tmp_path_factory.mktemp("hostile") / f"{HOSTILE}{NO_UTF8}"
    place.mkdir()
    names = [f"id{HOSTILE}", f"a{HOSTILE}", "b\u202e", "c"]
    for number, name in enumerate(("one", "two")):
        with open(
            place / f"{name}{HOSTILE}{FORGED}{NO_UTF8}.csv", "w", newline="", encoding="utf-8"
        ) as handle:
            writer = csv.writer(handle)
            writer.writerow(names)
            values = rows((number, number + 1), 30, seed=number).tolist()
            writer.writerows([f"k{i}{HOSTILE}", *row] for i, row in enumerate(values))
    one, two = sorted(place.glob("*.csv"))
    model = place / f"model{HOSTILE}"
    quiet("init", "--from", one)
    quiet("learn", model, one, "--key", names[0], "--name", f"{HOSTILE}{FORGED}", "-q")
    quiet("rename", model, 0, f"{HOSTILE}{FORGED}")
    quiet("learn", model, two, "--json")
    return model, one, two


@pytest.fixture
def model(hostile, tmp_path):
    model, one, two = hostile
    shutil.copytree(model, tmp_path / f"model{HOSTILE}")
    return tmp_path / f"model{HOSTILE}", one, two


def test_no_command_lets_names_reach_the_terminal(model, tmp_path):
    model, one, two = model
    for arguments in (
        *(
            ("clusters", model),
            ("clusters", model, 0),
            ("events", model),
            ("history", model),
            ("check", model),
        ),
        *(
            ("diff", model, 1, 2),
            ("diff", model, 2, 3),
            ("preview", model, one),
            ("preview", model, two, "-q"),
        ),
        ("rollback", model, 2, "--note", f"{HOSTILE}{FORGED}"),
        *(("events", model, "--all"), ("history", model), ("retire", model, 0), ("merge", model, 0, 1)),
        ("report", model, "-o", tmp_path / f"page{HOSTILE}.html", "--title", HOSTILE),
        ("predict", model, one, two, "-o", tmp_path / f"out{HOSTILE}.csv"),
        *(("doctor",), ("bench", "--list"), ("data", "list", "--data", tmp_path / HOSTILE)),
    ):
        quiet(*arguments)
        if arguments[0] in ("clusters", "events", "history", "check", "diff", "preview", "doctor", "data"):
            json.loads(quiet(*arguments, "--json").stdout)


def test_no_error_lets_names_reach_the_terminal(model, tmp_path):
    model, one, _ = model
    wrong = f"{HOSTILE}{FORGED}{NO_UTF8}"
    for code, *arguments in (
        (3, "learn", model, one),
        (3, "learn", model, tmp_path / f"{wrong}.csv"),
        (3, "learn", model, one, "--force", "--key", wrong),
        (2, "learn", model, one, "--set", f"{wrong}=1"),
        (2, "learn", model, one, "--set", f"epochs={wrong}"),
        (2, "learn", model, one, "--columns", wrong),
        (2, "learn", model, one, "--fail-on", wrong),
        (2, "learn", model, one, "--config", tmp_path / wrong),
        (2, "learn", model, one, "--name", NO_UTF8),
        (2, "rename", model, 0, NO_UTF8),
        (2, "rollback", model, 1, "--note", NO_UTF8),
        (3, "predict", model, tmp_path / f"{wrong}.npy"),
        (2, "predict", model, one, "-o", tmp_path / f"{wrong}.txt"),
        (2, "predict", model, one, "-o", tmp_path / wrong / "x.csv"),
        (4, "clusters", tmp_path / wrong),
        (4, "check", tmp_path / wrong),
        (2, "events", model, "--kind", wrong),
        (2, "watch", model, tmp_path / wrong),
        (2, "report", model, "-o", one.parent),
        (2, "bench", wrong, "dbull"),
        (2, "bench", "split-digits", wrong),
        (2, "bench", "split-digits", "dp-mixture", "--label", wrong, "--out", tmp_path / wrong),
        (2, "bench", "--table", "--score", wrong),
        (2, "bench", "--table", tmp_path / wrong),
        (2, "data", "get", wrong),
        (2, wrong),
        (2, "learn", model, one, f"--{wrong}"),
        (2, "clusters", model, wrong),
    ):
        quiet(*arguments, code=code)
    damaged = next((model / "gen-00000003").glob("*.safetensors"))
    damaged.write_bytes(b"")
    for command in ("check", "clusters", "history"):
        quiet(command, model, code=0 if command == "history" else 4)


def in_a_terminal(*arguments):
    """Run a command with a terminal for all its streams; return what the terminal got."""
    main, other = pty.openpty()
    command = [*forked_command(), *map(str, arguments)]
    with subprocess.Popen(command, stdin=other, stdout=other, stderr=other, close_fds=True) as process:
        os.close(other)
        told = b""
        try:
            while part := os.read(main, 1 << 16):
                told += part
        except OSError:  # the other end is closed
            pass
    os.close(main)
    assert process.returncode == 0, told
    return told.decode("utf-8", "strict")


def test_on_a_terminal_neither_answers_nor_progress_are_commanded(model):
    """Colours and movements of our own are there; titles, bells and turned text of others are not."""
    model, one, two = model
    for arguments in (("predict", model, one), ("learn", model, two, "--force")):
        told = in_a_terminal(*arguments)
        assert not re.search("[\x07\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]", told), arguments
        assert "\x1b]" not in told
        assert "\x1b[31m" not in told


def test_a_pipe_gets_keys_as_they_are(model):
    model, one, _ = model
    keys = [row["key"] for row in csv.DictReader(run("predict", model, one, "-q").stdout.split("\n"))]
    assert keys == [f"k{i}{HOSTILE}" for i in range(60)]


def test_json_is_plain_ascii_and_tells_the_whole_name(model):
    model, *_ = model
    result = run("clusters", model, "--json")
    assert result.stdout.isascii()
    assert json.loads(result.stdout)[0]["name"] == f"{HOSTILE}{FORGED}"


def test_settings_with_hostile_names_can_be_read_back(hostile):
    _, one, _ = hostile
    found = settings_module.tomllib.loads(run("init", "--from", one).stdout.replace("#columns", "columns"))
    assert found["key"] == f"id{HOSTILE}"
    assert list(found["columns"]) == [f"id{HOSTILE}", f"a{HOSTILE}", "b\u202e", "c"]


# Bytes that are no UTF-8


def test_names_of_files_that_are_no_utf8_are_learned_and_told(place):
    path = place / f"{NO_UTF8}.csv"
    shutil.copy(place / "tuesday.csv", path)
    (told,) = [
        json.loads(line) for line in run("learn", place / "model", path, "--json", "-q").stdout.splitlines()
    ]
    assert told["name"] == "caf\\xe9\\xff.csv"
    assert "caf\\xe9\\xff.csv" in {record.name for record in ModelFolder(place / "model").learned().values()}
    assert answer("history", place / "model")[-1]["note"] == "caf\\xe9\\xff.csv"
    for out in ("o.csv", "o.parquet"):
        run("predict", place / "model", path, path, "-o", place / out)
    with (place / "o.csv").open(encoding="utf-8") as handle:
        assert next(csv.DictReader(handle))["file"].endswith("caf\\xe9\\xff.csv")
    (place / "inbox").mkdir()
    write(place / "inbox" / f"{NO_UTF8}2.csv", rows((0, 1), 20, seed=9))
    assert "caf\\xe9\\xff2.csv" in run("watch", place / "model", place / "inbox", "--once", "-q").stdout
    command = [*forked_command(), "predict", os.fsencode(place / "model"), os.fsencode(path)]
    for encoding in ("utf-8", "ascii"):
        ended = subprocess.run(command, capture_output=True, env={**os.environ, "PYTHONIOENCODING": encoding})
        assert ended.returncode == 0, ended.stderr


def test_images_whose_names_are_no_utf8(tmp_path):
    pillow = pytest.importorskip("PIL.Image")
    (tmp_path / NO_UTF8).mkdir()
    for number in range(6):
        pixels = np.random.default_rng(number).integers(0, 255, size=(4, 4), dtype=np.uint8)
        pillow.fromarray(pixels).save(tmp_path / NO_UTF8 / f"{NO_UTF8}{number}.png")
    flags = ("--set", "grey=true", "--set", "encoder='identity'", "-q")
    run("learn", tmp_path / "m", tmp_path / NO_UTF8, *flags)
    run("learn", tmp_path / "m", tmp_path / NO_UTF8, "-q", code=3)
    for out in ("o.csv", "o.parquet"):
        run("predict", tmp_path / "m", tmp_path / NO_UTF8, "-o", tmp_path / out)
    assert "caf\\xe9\\xff0.png" in (tmp_path / "o.csv").read_text()


def test_names_that_are_unicode_stay_as_they_are():
    assert as_text("naïve-名前-\U0001f600.csv") == "naïve-名前-\U0001f600.csv"


# Formulas in spreadsheets


@pytest.mark.parametrize("cell", ["=1+1", "+x", "-x", "@x", "\tx", "\rx", "=", "-", "+1-1"])
def test_texts_that_begin_a_formula_get_a_quote(cell):
    assert harmless(cell) == "'" + cell


@pytest.mark.parametrize("cell", ["", "x", "-5", "+5", "-1.5e-3", "x=1", " =1", "5-3"])
def test_numbers_and_other_texts_stay(cell):
    assert harmless(cell) == cell


def test_answers_for_spreadsheets(place):
    keys = ["=HYPERLINK(1)", "-7", "@sum", "plain"]
    path = place / "=cmd.csv"
    path.write_text("id,a,b,c\n" + "".join(f"{key},1,2,3\n" for key in keys))
    run("rename", place / "model", 0, "+plus")
    run("rename", place / "model", 1, "@at")
    for more, quote in (((), ""), (("--safe-csv",), "'")):
        run("predict", place / "model", path, "--key", "id", "-o", place / "o.csv", "-q", *more)
        printed = run("predict", place / "model", path, "--key", "id", "-q", *more).stdout
        assert printed == (place / "o.csv").read_text()
        table = list(csv.DictReader((place / "o.csv").open()))
        assert [row["key"] for row in table] == [f"{quote}=HYPERLINK(1)", "-7", f"{quote}@sum", "plain"]
        assert {row["name"] for row in table} <= {f"{quote}+plus", f"{quote}@at"}
        assert all(float(row["log_density"]) < 0 for row in table), "numbers stay numbers"


# Files that are no tables


@pytest.mark.parametrize(
    "array",
    [
        np.array([{"a": 1}, None], dtype=object),
        np.zeros(3, dtype=[]),
        np.zeros(3, dtype="V0"),
        np.zeros(3, dtype="S0"),
        np.zeros(3, dtype=[("a", "O"), ("b", "f8")]),
        np.zeros(3, dtype=[("a", "V0"), ("b", "V0")]),
        np.zeros(3, dtype=[("a", "f8", (2,)), ("b", "f8")]),
        np.zeros(3, dtype=[("a", [("c", "f8")])]),
        np.zeros((3, 0)),
        np.zeros((3, 2), dtype=complex),
        np.array(["2026-01-01"], dtype="M8[D]"),
        np.array([("2026-01-01", 1.0)], dtype=[("when", "M8[D]"), ("b", "f8")]),
    ],
    ids=lambda array: str(array.dtype),
)
@pytest.mark.parametrize("suffix", ["npy", "npz"])
def test_arrays_that_are_no_numbers_are_refused_by_name(place, array, suffix):
    path = place / f"x.{suffix}"
    (np.save if suffix == "npy" else np.savez)(path, array)
    for command in ("learn", "predict", "init"):
        given = ("init", "--from", path) if command == "init" else (command, place / "model", path)
        message = run(*given, code=3).stderr
        assert path.name in message
    if array.dtype.names and "when" in array.dtype.names:
        assert "column 'when'" in message
        assert "seconds since" in message


def test_a_column_of_times_is_refused_by_a_model_of_numbers(place):
    pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    when = np.array(["2026-01-01", "2026-01-02"], dtype="M8[ns]")
    for i, values in enumerate((when, when - when[0])):
        parquet.write_table(pyarrow.table({"when": values, "b": [1.0, 2.0]}), place / "t.parquet")
        run("learn", place / f"new-{i}", place / "t.parquet", "-q")  # as a table of mixed columns
        parquet.write_table(pyarrow.table({"when": [1.0, 2.0], "b": [1.0, 2.0]}), place / "n.parquet")
        run("learn", place / f"numbers-{i}", place / "n.parquet", "-q")
        message = run("learn", place / f"numbers-{i}", place / "t.parquet", code=3).stderr
        assert "column 'when'" in message
        assert "seconds since" in message


def test_lists_are_no_keys(place):
    pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    parquet.write_table(pyarrow.table({"id": [[1], [1, 2]], "b": [1.0, 2.0]}), place / "t.parquet")
    assert "column 'id'" in run("learn", place / "new", place / "t.parquet", "--key", "id", code=3).stderr
    assert "lists of different lengths" in run("init", "--from", place / "t.parquet").stdout


def test_a_compressed_table_of_one_line_without_end_is_refused(place):
    path = place / "bomb.csv.gz"
    path.write_bytes(gzip.compress(b"1," * (1 << 24)))
    for command in ("learn", "predict", "init"):
        given = ("init", "--from", path) if command == "init" else (command, place / "model", path)
        assert "characters" in run(*given, code=3).stderr
