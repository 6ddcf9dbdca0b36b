"""Files in blocks: whoever reads which of them, the rows are those of the whole file, in its order."""

import codecs
import csv
import io
import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from dbull.data.blocks import FileBlock, Source, file_blocks
from dbull.data.readers import ReadSettings
from dbull.errors import DataError

MIXED = ReadSettings(mixed=True)


def rows_of(blocks):
    """Return rows as lists of cells by their number, or the error that came first; check the numbers."""
    found, names = [], None
    try:
        for block in blocks:
            for piece in block.pieces():
                if isinstance(piece.rows, dict):
                    names = tuple(piece.rows)
                    cells = list(zip(*(map(str, column) for column in piece.rows.values()), strict=True))
                else:
                    names, cells = piece.names, list(map(tuple, piece.rows.tolist()))
                assert piece.first_row == len(found)
                keys = piece.keys or [None] * len(cells)
                found += zip(keys, cells, strict=True)
    except DataError:
        return "refused"
    return names, found


def same_in_blocks(path, reading, n_rows):
    """Compare all blocks with the whole; return how many there were."""
    whole, blocks = FileBlock(str(path), reading), file_blocks(str(path), path.name, reading, n_rows)
    assert rows_of(blocks) == rows_of([whole])
    return len(blocks)


CELLS = st.text(st.sampled_from("ab1é☃\",;\n\r '\t"), max_size=6)


@given(
    st.integers(1, 3).flatmap(
        lambda width: st.lists(st.lists(CELLS, min_size=width, max_size=width), min_size=1, max_size=12)
    ),
    st.sampled_from(["\n", "\r\n", "\r"]),
    st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_ALL]),
    st.sampled_from(",;\t|"),
    st.booleans(),
    st.booleans(),
    st.sets(st.integers(0, 12)),
    st.integers(1, 5),
)
def test_tables_as_they_are_written(tmp_path_factory, rows, end, quoting, separator, mark, header, blank, n):
    """By Python's own writer: quotes, line ends within cells, empty lines, with and without names."""
    text = io.StringIO()
    if header:
        text.write(separator.join(f"c{i}" for i in range(len(rows[0]))) + end)
    writer = csv.writer(text, delimiter=separator, quoting=quoting, lineterminator=end)
    for number, row in enumerate(rows):
        text.write(end * (number in blank))
        writer.writerow(row)
    path = tmp_path_factory.getbasetemp() / "written.csv"
    path.write_bytes(codecs.BOM_UTF8 * mark + text.getvalue().encode())
    for reading in (MIXED, replace(MIXED, header=header), replace(MIXED, header=header, chunk_rows=2)):
        same_in_blocks(path, reading, n)


LINES = (
    "1,2\n",
    "3,4\r\n",
    "é,5\r",
    '"6",7\n',
    '"x\n',
    'y",8\n',
    '5" a,b\n',
    'a,"""\n",\r"\n',
    "\n",
    " \n",
    '"',
)


@settings(max_examples=300)
@example('a,b\n1," x\n\n""y"\n\n \n2,z\n3,"\r\n"\r\n', True, True, 1)
@example('5" a,"b\nc"\n1,2\n3,4\n', False, True, 1)
@example("\n \n1,2\n3,4\n\n5,6", None, False, 1)
@example('1,2\n3,4\n"5",6\n\n7,8\n', None, False, 2)
@given(
    st.one_of(
        st.text(st.sampled_from('a1",\n\r é'), max_size=40),
        st.lists(st.sampled_from(LINES), max_size=12).map("".join),
    ),
    st.sampled_from([None, True, False]),
    st.booleans(),
    st.integers(1, 4),
)
def test_any_text(tmp_path_factory, text, header, mixed, n):
    """Quotes that mean nothing, or are never closed: what the whole reader makes of it, parts make too."""
    path = tmp_path_factory.getbasetemp() / "any.csv"
    path.write_bytes(text.encode())
    whole = FileBlock(str(path), ReadSettings(mixed=mixed, header=header, chunk_rows=3))
    if text and rows_of([whole]) != "refused":
        same_in_blocks(path, whole.settings, n)


NUMBERS = st.floats(-1e6, 1e6, width=32)


@given(
    st.lists(st.tuples(NUMBERS, NUMBERS, st.booleans()), min_size=1, max_size=30),
    st.booleans(),
    st.integers(1, 9),
)
def test_numbers_with_quotes_here_and_there(tmp_path_factory, rows, header, n):
    path = tmp_path_factory.getbasetemp() / "numbers.csv"
    lines = [f'"{a!r}",{b!r}' if quoted else f"{a!r},{b!r}" for a, b, quoted in rows]
    path.write_text("\n".join(["x,y"] * header + lines))
    reading = ReadSettings(chunk_rows=4, header=header, key="x" if header else None)
    assert same_in_blocks(path, reading, n) == -(-len(rows) // n)


@given(
    st.lists(
        st.dictionaries(st.sampled_from("ab"), st.text(max_size=3), min_size=1), min_size=1, max_size=12
    ),
    st.sampled_from(["\n", "\r\n", "\n\n"]),
    st.booleans(),
    st.integers(1, 5),
)
def test_json_lines(tmp_path_factory, rows, end, mark, n):
    path = tmp_path_factory.getbasetemp() / "rows.jsonl"
    text = end.join(json.dumps({"a": None, "b": 1} | row, ensure_ascii=False) for row in rows)
    path.write_bytes(codecs.BOM_UTF8 * mark + text.encode())
    assert same_in_blocks(path, MIXED, n) == -(-len(rows) // n)


def test_what_cannot_be_cut_is_one_block_and_tells_what_is_wrong(tmp_path):
    packed, latin = tmp_path / "a.csv.gz", tmp_path / "latin.csv"
    packed.write_bytes(b"")
    latin.write_bytes(b"a\n" + "é\n".encode("latin-1") * 9)
    broken = tmp_path / "broken.csv"
    broken.write_text("a,b\n" + "1,2\n" * 5 + '"' + "x" * 200_000 + '",1\n')
    for path in (packed, latin, broken):
        (block,) = file_blocks(str(path), path.name, ReadSettings(), 2)
        with pytest.raises(DataError, match=path.name):
            list(block.pieces())


def test_errors_in_a_block_name_the_row_of_the_file(tmp_path):
    table, lines = tmp_path / "a.csv", tmp_path / "a.jsonl"
    table.write_text("x,y\n" + "1,2\n" * 68 + "1,nan\n" + "1,2\n" * 30)
    lines.write_text('{"x": 1}\n' * 68 + '{"x": \n' + '{"x": 1}\n' * 30)
    for path, words in ((table, "row 69, column 'y'"), (lines, "row 69 is not JSON")):
        blocks = file_blocks(str(path), path.name, ReadSettings(), 10)
        assert len(blocks) == 10
        with pytest.raises(DataError, match=words):
            list(blocks[6].pieces())


def test_a_file_that_has_changed_is_refused(tmp_path):
    path = tmp_path / "a.npy"
    np.save(path, np.zeros((40, 2)))
    first, second = Source(path, block_rows=20).blocks()
    assert [len(piece.rows) for piece in second.pieces()] == [20]
    np.save(path, np.zeros((50, 2)))
    with pytest.raises(DataError, match="had 768 bytes, and has 928 now"):
        list(first.pieces())
    path.unlink()
    with pytest.raises(DataError, match=r"was there, and cannot be read again \(No such file"):
        list(second.pieces())
