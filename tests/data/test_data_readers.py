"""Readers of users' own files: the same table in every format, and whatever may be wrong with it."""

import gzip
import io

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from dbull.data import ReadSettings, read_chunks, read_table
from dbull.data.readers import csv_files
from dbull.errors import DataError

pa = pytest.importorskip("pyarrow")
import pyarrow.feather  # noqa: E402
import pyarrow.parquet  # noqa: E402

NAMES = ("height", "width", "depth")
VALUES = np.round(np.random.default_rng(0).normal(size=(25, 3)), 3)
KEYS = [f"row-{i}" for i in range(25)]
FORMATS = [".csv", ".csv.gz", ".parquet", ".arrow", ".feather", "stream.arrow", ".npy"]


@pytest.fixture(params=["pyarrow", "numpy"])
def parser(request, monkeypatch):
    """Both CSV parsers."""
    if request.param == "numpy":
        monkeypatch.setattr(csv_files, "optional_pyarrow", lambda: None)
    return request.param


def csv_text() -> str:
    rows = [",".join([key, *map(str, row)]) for key, row in zip(KEYS, VALUES.tolist(), strict=True)]
    return "\n".join(["id," + ",".join(NAMES), *rows]) + "\n"


def write(folder, kind: str):
    """Write the table with its key column; return the path."""
    path = folder / f"table{kind}"
    columns = {"id": KEYS} | {name: VALUES[:, i] for i, name in enumerate(NAMES)}
    table = pa.table(columns)
    if kind == ".csv":
        path.write_text(csv_text())
    elif kind == ".csv.gz":
        path.write_bytes(gzip.compress(csv_text().encode(), mtime=0))
    elif kind == ".parquet":
        pyarrow.parquet.write_table(table, path, row_group_size=4)
    elif kind == ".feather":
        pyarrow.feather.write_feather(table, path, chunksize=9)
    elif kind == ".npy":
        dtype = [("id", "U10")] + [(name, "f8") for name in NAMES]
        np.save(path, np.array([(key, *row) for key, row in zip(KEYS, VALUES, strict=True)], dtype=dtype))
    else:
        opener = pa.ipc.new_stream if kind.startswith("stream") else pa.ipc.new_file
        with opener(str(path), table.schema) as writer:
            writer.write_table(table, max_chunksize=6)
    return path


@pytest.mark.parametrize("kind", FORMATS)
class TestEveryFormat:
    def test_values_names_and_keys(self, tmp_path, kind, parser):
        chunk = read_table(write(tmp_path, kind), ReadSettings(key="id"))
        assert chunk.x.dtype == np.float32
        np.testing.assert_array_equal(chunk.x, VALUES.astype(np.float32))
        assert chunk.columns == NAMES
        assert chunk.keys.tolist() == KEYS
        assert (chunk.unused, chunk.sample_shape) == ((), (3,))

    def test_chunks_join_to_the_whole(self, tmp_path, kind, parser):
        chunks = list(read_chunks(write(tmp_path, kind), ReadSettings(key="id", chunk_rows=4)))
        assert max(len(chunk.x) for chunk in chunks) == 4
        firsts = np.cumsum([0, *(len(chunk.x) for chunk in chunks)])
        assert [chunk.first_row for chunk in chunks] == firsts[:-1].tolist()
        np.testing.assert_array_equal(
            np.concatenate([chunk.x for chunk in chunks]), VALUES.astype(np.float32)
        )
        assert [key for chunk in chunks for key in chunk.keys] == KEYS

    def test_columns_come_in_the_order_asked_for(self, tmp_path, kind, parser):
        chunk = read_table(write(tmp_path, kind), ReadSettings(columns=("depth", "height")))
        np.testing.assert_array_equal(chunk.x, VALUES[:, [2, 0]].astype(np.float32))
        assert chunk.columns == ("depth", "height")
        assert chunk.keys is None
        assert chunk.unused == ("id", "width")

    def test_missing_column_is_named_with_the_nearest(self, tmp_path, kind):
        path = write(tmp_path, kind)
        with pytest.raises(
            DataError, match=r"no column 'heigth'; did you mean 'height'\? the file has id, height"
        ):
            read_table(path, ReadSettings(columns=("heigth",)))
        with pytest.raises(DataError, match="no column 'key'"):
            read_table(path, ReadSettings(key="key"))

    def test_text_column_among_the_values_is_named(self, tmp_path, kind, parser):
        path = write(tmp_path, kind)
        with pytest.raises(DataError, match="column 'id'") as caught:
            read_table(path)
        assert str(path) in str(caught.value)


def test_all_formats_without_pyarrow_say_what_to_install(tmp_path, monkeypatch):
    for kind in (".parquet", ".arrow", ".feather"):
        path = write(tmp_path, kind)
        with monkeypatch.context() as patch:
            patch.setattr("dbull.data.readers.chunk.optional_pyarrow", lambda: None)
            with pytest.raises(DataError, match=r"pip install 'dbull\[io\]'"):
                read_table(path)


class TestCsv:
    def read(self, tmp_path, text, **kwargs):
        path = tmp_path / "a.csv"
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        return read_table(path, ReadSettings(**kwargs))

    def test_first_line_of_numbers_is_no_header_unless_said_so(self, tmp_path, parser):
        chunk = self.read(tmp_path, "1,2\n3,4\n")
        assert (chunk.x.tolist(), chunk.columns) == ([[1, 2], [3, 4]], ("0", "1"))
        chunk = self.read(tmp_path, "1,2\n3,4\n", header=True)
        assert (chunk.x.tolist(), chunk.columns) == ([[3, 4]], ("1", "2"))
        assert self.read(tmp_path, "1,2\n3,4\n", columns=("1",)).x.tolist() == [[2], [4]]

    def test_blanks_windows_line_ends_and_byte_order_mark(self, tmp_path, parser):
        chunk = self.read(tmp_path, b"\xef\xbb\xbfa, b\r\n 1 ,2e3\r\n\r\n-3,+4.5\r\n")
        assert chunk.columns == ("a", "b")
        assert chunk.x.tolist() == [[1, 2000], [-3, 4.5]]

    def test_quotes_commas_and_line_ends_within_quotes(self, tmp_path, parser):
        text = 'name,"a, b",c\nplain,1,2\n"with ""quotes"", and\nline",3,"4"\nlast,5,6\n'
        for chunk_rows in (1, 2, 100):
            chunk = self.read(tmp_path, text, key="name", chunk_rows=chunk_rows)
            assert chunk.columns == ("a, b", "c")
            assert chunk.x.tolist() == [[1, 2], [3, 4], [5, 6]]
            assert chunk.keys.tolist() == ["plain", 'with "quotes", and\nline', "last"]

    @pytest.mark.parametrize("quote", ["", '"'])
    @pytest.mark.parametrize(
        ("row", "message"),
        [
            ("7,oops", "row 7, column 'b': 'oops' is not a number"),
            ("7,", "row 7, column 'b': the cell is empty"),
            ("7,NA", "row 7, column 'b': 'NA' is not a number"),
            ("7,nan", "row 7, column 'b': the value is missing or not a number"),
            ("-inf,7", "row 7, column 'a': the value is infinite"),
            ("7,1e39", "row 7, column 'b': the value is infinite or too large for float32"),
            ("7", "row 7 has 1 columns, expected 2"),
            ("7,8,9", "row 7 has 3 columns, expected 2"),
        ],
    )
    def test_errors_name_file_row_and_column(self, tmp_path, parser, row, message, quote):
        rows = [f"{quote}{i}{quote},{i}" for i in range(6)]
        text = "\n".join(["a,b", *rows, row, "9,9"])
        for chunk_rows in (3, 100):
            with pytest.raises(DataError, match=message) as caught:
                self.read(tmp_path, text, chunk_rows=chunk_rows)
            assert str(tmp_path / "a.csv") in str(caught.value)

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("", "the file is empty"),
            ("\n\n", "the file is empty"),
            ("a,b\n", "a header but no rows"),
            ("a,a\n1,2\n", "'a' occurs more than once"),
            (b"a,b\n1,\xff\n", "not UTF-8 text"),
        ],
    )
    def test_files_without_a_table_are_refused(self, tmp_path, text, message):
        with pytest.raises(DataError, match=message):
            self.read(tmp_path, text)

    def test_bad_cells_outside_the_chosen_columns_do_no_harm(self, tmp_path, parser):
        assert self.read(tmp_path, "a,b\n1,oops\n2,\n", columns=("a",)).x.tolist() == [[1], [2]]

    def test_truncated_gzip_is_named(self, tmp_path):
        path = tmp_path / "a.csv.gz"
        path.write_bytes(gzip.compress(csv_text().encode(), mtime=0)[:-30])
        with pytest.raises(DataError, match=r"a\.csv\.gz: truncated or damaged"):
            read_table(path, ReadSettings(key="id"))

    @given(
        x=hnp.arrays(
            np.float32,
            hnp.array_shapes(min_dims=2, max_dims=2),
            elements=st.floats(-(2.0**90), 2.0**90, width=32),
        ),
        chunk_rows=st.integers(1, 5),
    )
    @settings(max_examples=40)
    def test_what_is_written_is_read_by_both_parsers(self, x, chunk_rows):
        text = "\n".join(",".join(map(repr, row)) for row in x.astype(float).tolist())
        for optional in (csv_files.optional_pyarrow, lambda: None):
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(csv_files, "optional_pyarrow", optional)
                read = read_table("-", ReadSettings(chunk_rows=chunk_rows), io.BytesIO(text.encode()))
            np.testing.assert_array_equal(read.x, x)


class TestNumpy:
    @pytest.mark.parametrize("dtype", ["u1", "i8", "f2", ">f4", "f8", "?"])
    @pytest.mark.parametrize("order", ["C", "F"])
    def test_npy_of_any_number_keeps_its_sample_shape(self, tmp_path, dtype, order):
        x = np.asarray(np.arange(24).reshape(4, 2, 3) % 7, dtype=dtype, order=order)
        np.save(tmp_path / "a.npy", x)
        chunk = read_table(tmp_path / "a.npy", ReadSettings(chunk_rows=3))
        np.testing.assert_array_equal(chunk.x, x.reshape(4, 6).astype(np.float32))
        assert chunk.sample_shape == (2, 3)

    def test_nameless_columns_are_numbered(self, tmp_path):
        np.save(tmp_path / "a.npy", VALUES)
        chunk = read_table(tmp_path / "a.npy", ReadSettings(columns=("2", "0"), key="1"))
        np.testing.assert_array_equal(chunk.x, VALUES[:, [2, 0]].astype(np.float32))
        np.testing.assert_array_equal(chunk.keys, VALUES[:, 1])

    def test_vector_is_one_column(self, tmp_path):
        np.save(tmp_path / "a.npy", np.arange(3))
        assert read_table(tmp_path / "a.npy").x.tolist() == [[0], [1], [2]]

    @pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
    def test_npz(self, tmp_path, save):
        path = tmp_path / "a.npz"
        save(path, x=VALUES, y=np.arange(25))
        np.testing.assert_array_equal(
            read_table(path, ReadSettings(chunk_rows=7)).x, VALUES.astype(np.float32)
        )
        assert read_table(path, ReadSettings(array="y")).x.shape == (25, 1)
        with pytest.raises(DataError, match="no array 'z'; the file has x, y"):
            read_table(path, ReadSettings(array="z"))
        save(path, a=VALUES, b=VALUES)
        with pytest.raises(DataError, match=r"which array\? It has a, b"):
            read_table(path)

    def test_bad_values_are_found_by_row_and_column(self, tmp_path):
        x = VALUES.copy()
        x[17, 2] = np.nan
        np.save(tmp_path / "a.npy", x)
        with pytest.raises(
            DataError, match=r"a\.npy: row 18, column '2': the value is missing or not a number"
        ):
            read_table(tmp_path / "a.npy", ReadSettings(chunk_rows=5))

    def test_pickles_are_never_opened(self, tmp_path):
        class Bomb:
            def __reduce__(self):
                return (exec, ("raise SystemExit('unpickled')",))

        bomb = np.array([Bomb()], dtype=object)
        np.save(tmp_path / "a.npy", bomb, allow_pickle=True)
        np.savez(tmp_path / "a.npz", x=bomb)
        for name in ("a.npy", "a.npz"):
            with pytest.raises(DataError, match=name):
                read_table(tmp_path / name)

    @pytest.mark.parametrize(
        ("array", "message"),
        [
            (np.float64(3), "a single number is not a table"),
            (np.zeros((0, 3)), "the array is empty"),
            (np.array(["a"]), "expected numbers"),
            (np.array([1j]), "expected numbers"),
        ],
    )
    def test_arrays_that_are_no_tables(self, tmp_path, array, message):
        np.save(tmp_path / "a.npy", array)
        with pytest.raises(DataError, match=message):
            read_table(tmp_path / "a.npy")

    def test_cut_files_are_named(self, tmp_path):
        stream = io.BytesIO()
        np.save(stream, VALUES)
        (tmp_path / "a.npy").write_bytes(stream.getvalue()[:-10])
        with pytest.raises(DataError, match=r"a\.npy"):
            read_table(tmp_path / "a.npy")
        with pytest.raises(DataError, match="cut off after 24 of 25 rows"):
            read_table("-", stream=io.BytesIO(stream.getvalue()[:-10]))
        np.savez(tmp_path / "b.npz", x=VALUES)
        (tmp_path / "b.npz").write_bytes((tmp_path / "b.npz").read_bytes()[:200])
        with pytest.raises(DataError, match=r"b\.npz: not a readable \.npz file"):
            read_table(tmp_path / "b.npz")


class TestArrow:
    def test_a_column_of_vectors_becomes_many_columns(self, tmp_path):
        for column in (
            pa.array(VALUES.tolist()),
            pa.FixedSizeListArray.from_arrays(pa.array(VALUES.ravel()), 3),
        ):
            pyarrow.parquet.write_table(pa.table({"emb": column, "n": range(25)}), tmp_path / "a.parquet")
            chunk = read_table(tmp_path / "a.parquet", ReadSettings(chunk_rows=4))
            assert chunk.columns == ("emb[0]", "emb[1]", "emb[2]", "n")
            np.testing.assert_array_equal(chunk.x[:, :3], VALUES.astype(np.float32))
            np.testing.assert_array_equal(chunk.x[:, 3], np.arange(25))

    def test_lists_of_different_length_are_refused(self, tmp_path):
        pyarrow.parquet.write_table(pa.table({"emb": [[1.0, 2.0], [1.0]]}), tmp_path / "a.parquet")
        with pytest.raises(DataError, match="column 'emb': its lists must all be of one length"):
            read_table(tmp_path / "a.parquet")

    @pytest.mark.parametrize("kind", ["parquet", "arrow"])
    def test_missing_values_are_found_by_row_and_column(self, tmp_path, kind):
        table = pa.table({"a": [1.0] * 9 + [None], "b": [2] * 10})
        path = tmp_path / f"a.{kind}"
        if kind == "parquet":
            pyarrow.parquet.write_table(table, path)
        else:
            pyarrow.feather.write_feather(table, path)
        with pytest.raises(DataError, match="row 10, column 'a': the value is missing"):
            read_table(path, ReadSettings(chunk_rows=4))

    def test_booleans_and_integers_are_numbers(self, tmp_path):
        pyarrow.parquet.write_table(
            pa.table({"a": [True, False], "b": pa.array([1, 2], pa.uint8())}), tmp_path / "a.parquet"
        )
        assert read_table(tmp_path / "a.parquet").x.tolist() == [[1, 1], [0, 2]]

    @pytest.mark.parametrize("name", ["a.parquet", "a.arrow", "a.feather"])
    def test_other_content_and_empty_tables_are_refused(self, tmp_path, name):
        (tmp_path / name).write_bytes(b"<html>not a table</html>" * 20)
        with pytest.raises(DataError, match=f"{name}: not a readable"):
            read_table(tmp_path / name)
        empty = pa.table({"a": pa.array([], pa.float64())})
        if name.endswith("parquet"):
            pyarrow.parquet.write_table(empty, tmp_path / name)
        else:
            pyarrow.feather.write_feather(empty, tmp_path / name)
        with pytest.raises(DataError, match="there are columns but no rows"):
            read_table(tmp_path / name)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("a,b\n" + '"1,2\n' + "3,4\n" * 50_000, "is a quote left open"),
        ("a" * 200_000 + "\n1\n", "not readable as CSV"),
        ("a,b\n1_000,2\n", "row 1, column 'a': '1_000' is not a number"),
    ],
)
def test_what_is_not_our_csv(tmp_path, parser, content, words):
    path = tmp_path / "a.csv"
    path.write_text(content)
    with pytest.raises(DataError, match=words):
        read_table(path)


def test_a_hundred_thousand_columns_are_read(tmp_path, parser):
    """A search through all names for each name would take minutes, a row is longer than pyarrow's block."""
    rows = np.arange(2 * 100_000).reshape(2, -1) + 123_456_789
    path = tmp_path / "wide.csv"
    path.write_text("\n".join(",".join(map(str, row)) for row in rows))
    table = read_table(path, ReadSettings(key="7"))
    assert table.x.shape == (2, 99_999)
    assert table.keys.tolist() == ["123456796", "123556796"]
