"""Tables of any column types from files: the same cells from every format, separator and packing."""

import bz2
import gzip
import io
import json
import tracemalloc

import numpy as np
import pytest

from dbull.data.readers import ReadSettings, expand_sources, read_chunks, read_table, table_names
from dbull.data.readers.chunk import Table, joined
from dbull.errors import DataError

MIXED = ReadSettings(mixed=True)
ROWS = [
    {"name": "Ann, of York", "n": "1.5", "ok": "true"},
    {"name": 'say "hi"\nthen', "n": "", "ok": "false"},
    {"name": "Zoë", "n": "-3", "ok": ""},
]


def separated(separator):
    def cell(text):
        return '"' + text.replace('"', '""') + '"' if set(text) & set(separator + '"\n') else text

    lines = [separator.join(ROWS[0]), *(separator.join(map(cell, row.values())) for row in ROWS)]
    return ("\n".join(lines) + "\n").encode()


def zstd(data):
    return pytest.importorskip("pyarrow").compress(data, codec="zstd", asbytes=True)


@pytest.mark.parametrize("separator", [",", ";", "\t", "|"])
@pytest.mark.parametrize(
    "pack", [("", bytes), (".gz", gzip.compress), (".bz2", bz2.compress), (".zst", zstd)]
)
def test_every_separator_and_packing(tmp_path, separator, pack):
    suffix, compress = pack
    path = tmp_path / f"t.csv{suffix}"
    path.write_bytes(compress(separated(separator)))
    for source, stream in ((path, None), ("-", io.BytesIO(path.read_bytes()))):
        found = read_table(source, MIXED, stream).x
        assert len(found) == 3
        assert {name: list(column) for name, column in found.columns.items()} == {
            name: [row[name] for row in ROWS] for name in ROWS[0]
        }
    assert table_names(path) == ("name", "n", "ok")
    keyed = read_table(path, ReadSettings(mixed=True, key="name"))
    assert (list(keyed.keys), list(keyed.x.columns)) == ([row["name"] for row in ROWS], ["n", "ok"])


@pytest.mark.parametrize("suffix", [".jsonl", ".ndjson.gz"])
def test_json_lines(tmp_path, suffix):
    rows = [{"a": 1, "b": "x"}, {"b": None, "c": [1.0, 2.0]}, {"a": 2.5}]
    data = "\n\n".join(map(json.dumps, rows)).encode()
    path = tmp_path / f"t{suffix}"
    path.write_bytes(gzip.compress(data) if suffix.endswith("gz") else data)
    for source, stream in ((path, None), ("-", io.BytesIO(data))):
        found = read_table(source, ReadSettings(mixed=True, chunk_rows=1), stream).x
        assert {name: list(cells) for name, cells in found.columns.items()} == {
            "a": [1, None, 2.5],
            "b": ["x", None, None],
            "c": [None, [1.0, 2.0], None],
        }
    assert table_names(path) == ("a", "b")
    with pytest.raises(DataError, match="row 2, column 'a': None is not a number"):
        read_table(path)
    (tmp_path / "numbers.jsonl").write_text('{"a": 1, "b": 2}\n{"b": 4, "a": 3}\n')
    np.testing.assert_array_equal(read_table(tmp_path / "numbers.jsonl").x, [[1, 2], [3, 4]])


def test_lists_of_objects(tmp_path):
    (tmp_path / "t.json").write_text('[{"a": 1, "b": "x"}, {"a": null}]')
    assert list(read_table(tmp_path / "t.json", MIXED).x.columns["a"]) == [1, None]
    for text, message in (
        ('{"a": 1}', "a list of objects"),
        ("[[1]]", "a list of objects"),
        ("[", "not JSON"),
    ):
        (tmp_path / "t.json").write_text(text)
        with pytest.raises(DataError, match=message):
            read_table(tmp_path / "t.json")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[1]\n", "row 1 must be an object"),
        ('{"a": 1}\n{"a": \n', "row 2 is not JSON"),
        ("[" * 100_000 + "\n", "row 1 is not JSON"),
        ("\n\n", "no rows"),
        ('{"a": 1' + "0" * 400 + "}\n", "too large"),
    ],
)
def test_json_lines_that_are_none(tmp_path, text, message):
    (tmp_path / "t.jsonl").write_text(text)
    with pytest.raises(DataError, match=message):
        read_table(tmp_path / "t.jsonl")


def test_arrow_columns_of_every_type(tmp_path):
    pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    when = np.array(["2026-01-01T10:00", "NaT"], dtype="M8[ns]")
    columns = {
        "n": pyarrow.array([1, None]),
        "s": pyarrow.array(["x", None]).dictionary_encode(),
        "b": pyarrow.array([True, None]),
        "t": pyarrow.array(when),
        "z": pyarrow.array(when, pyarrow.timestamp("us", "America/New_York")),
        "v": pyarrow.array([[1.0, 2.0], None]),
    }
    parquet.write_table(pyarrow.table(columns), tmp_path / "t.parquet")
    found = read_table(tmp_path / "t.parquet", MIXED).x.columns
    assert found["n"][0] == 1
    assert np.isnan(found["n"][1])
    assert list(found["s"]) == ["x", None]
    assert list(found["b"]) == [True, None]
    assert found["t"][0] == when[0]
    assert found["z"][0] == when[0] - np.timedelta64(5, "h")  # the clock on the wall
    assert np.isnat(found["t"][1])
    assert list(found["v"]) == [[1.0, 2.0], None]


def test_numbers_with_a_comma_for_a_point(tmp_path):
    (tmp_path / "t.csv").write_text('a;b\n1,5;2\n"-2,25";1,0\n3;4\n5,5;6\n')
    np.testing.assert_array_equal(read_table(tmp_path / "t.csv").x, [[1.5, 2], [-2.25, 1], [3, 4], [5.5, 6]])
    (tmp_path / "t.csv").write_text("a;b\n1,5;2\n-2,25;1,0\n3;4\n")
    np.testing.assert_array_equal(read_table(tmp_path / "t.csv").x, [[1.5, 2], [-2.25, 1], [3, 4]])
    mixed = read_table(tmp_path / "t.csv", MIXED).x.columns
    assert list(mixed["a"]) == ["1.5", "-2.25", "3"]


def test_tables_join_as_they_are():
    one = Table({"a": np.array([1, 2]), "b": np.array([True, False])}, 2)
    other = Table({"a": np.array(["x"], dtype=object), "c": np.array([1.5])}, 1)
    both = joined([one, other])
    assert [list(column) for column in both.columns.values()] == [
        [1, 2, "x"],
        [True, False, None],
        [None, None, 1.5],
    ]
    assert list(both[1:].columns["a"]) == [2, "x"]
    assert (len(both), len(both[1:]), len(both[5:])) == (3, 2, 0)


def test_long_texts_take_as_much_memory_as_they_are_long(tmp_path):
    """One of them is very long: an array of numpy's own would be as wide for all."""
    path = tmp_path / "t.csv"
    with path.open("w") as file:
        file.write("id,text\n")
        for i in range(2000):
            file.write(f'{i},"{"some words, " * (12_000 if i == 1000 else 20)}"\n')
    size = path.stat().st_size
    for settings in (MIXED, ReadSettings(columns=("id",), key="text", mixed=True)):
        tracemalloc.start()
        n_rows = sum(len(chunk.x) for chunk in read_chunks(path, settings))
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert n_rows == 2000
        assert peak < 10 * size + (1 << 23)


def test_patterns_and_folders(tmp_path):
    for name in ("b.csv", "a.jsonl", ".hidden.csv", "note.md"):
        (tmp_path / name).write_text("x\n1\n")
    listed = [tmp_path / "a.jsonl", tmp_path / "b.csv"]
    assert expand_sources([tmp_path]) == listed
    assert expand_sources([f"{tmp_path}/*.csv", "-"]) == [tmp_path / "b.csv", *expand_sources(["-"])]
    (tmp_path / "picture.png").touch()
    assert expand_sources([tmp_path]) == [tmp_path]
    (tmp_path / "[x].csv").touch()
    assert expand_sources([tmp_path / "[x].csv"]) == [tmp_path / "[x].csv"]
