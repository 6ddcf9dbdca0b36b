"""Files of mixed columns into a model folder: formats, roles, ids, new and absent columns, each row once."""

import gzip
import io
import json

import numpy as np
import pytest

import dbull
from dbull.errors import AlreadyLearnedError, DataError, SettingsError
from dbull.ingest import Input, Learner, open_model

pytestmark = pytest.mark.usefixtures("quick_module")
HEADER = ["order_id", "amount", "shop", "paid", "note"]


def orders(n, seed=0):
    rng = np.random.default_rng(seed)
    return [
        [
            str(7000 + 1000 * seed + i),
            "" if rng.random() < 0.1 else f"{rng.normal(40 * (i % 2), 1):.3f}",
            "north" if i % 2 else "south",
            "yes" if rng.random() < 0.5 else "no",
            "late, again" if rng.random() < 0.3 else "",
        ]
        for i in range(n)
    ]


def write_csv(path, rows, header=HEADER, separator=","):
    lines = [
        separator.join(f'"{cell}"' if separator in cell else cell for cell in row) for row in (header, *rows)
    ]
    text = ("\n".join(lines) + "\n").encode()
    path.write_bytes(gzip.compress(text) if path.suffix == ".gz" else text)
    return path


@pytest.fixture
def begun(tmp_path):
    learner = Learner(tmp_path / "m", {"epochs": 1, "joint_epochs": 0})
    (first,) = learner.learn(write_csv(tmp_path / "monday.csv", orders(120)))
    return learner, first


def test_the_first_table_decides_and_is_told_in_one_line(begun, tmp_path):
    learner, first = begun
    assert first.notices == ("columns left out: 'order_id' (a different number in each row, named as an id)",)
    assert list(learner.model.feature_names_in_) == HEADER[1:]
    model, _ = open_model(tmp_path / "m")
    assert model.column_encoder_.features == learner.model.column_encoder_.features


def test_later_files_in_every_format(begun, tmp_path):
    learner, _ = begun
    rows = orders(60, seed=1)
    as_dicts = [
        {**dict(zip(HEADER, row, strict=True)), "amount": float(row[1]) if row[1] else None} for row in rows
    ]
    files = [write_csv(tmp_path / "tuesday.tsv.gz", rows[:20], separator="\t")]
    (tmp_path / "wednesday.jsonl").write_text("\n".join(map(json.dumps, as_dicts[20:40])))
    files.append(tmp_path / "wednesday.jsonl")
    files.append(
        write_csv(tmp_path / "all.csv", [row[::-1] for row in rows], header=HEADER[::-1], separator=";")
    )
    labels = []
    for path in files[:2]:
        assert [one.notices for one in learner.learn(path)] == [()]
        labels += learner.model.labels_.tolist()
    chunks = [chunk.x.columns for chunk in Input(files[2], learner.model, learner.reading).chunks()]
    np.testing.assert_array_equal(
        learner.model.predict(chunks[0]), dbull.load(tmp_path / "m").predict(chunks[0])
    )
    for path in files[:2]:
        with pytest.raises(AlreadyLearnedError):
            list(Learner(tmp_path / "m").learn(path))


def test_new_columns_are_named_once_and_absent_ones_follow_the_rule(begun, tmp_path):
    learner, _ = begun
    more = [[*row, "red"] for row in orders(30, seed=2)]
    (one,) = learner.learn(write_csv(tmp_path / "a.csv", more, header=[*HEADER, "colour"]))
    assert one.notices == ("new columns are ignored: 'colour'",)
    more = [[*row, "red", "3"] for row in orders(30, seed=3)]
    path = write_csv(tmp_path / "b.csv", more, header=[*HEADER, "colour", "size"])
    (one,) = Learner(tmp_path / "m").learn(path)  # another day
    assert one.notices == ("new columns are ignored: 'size'",)
    less = [row[:1] + row[2:] for row in orders(30, seed=4)]
    (one,) = Learner(tmp_path / "m").learn(
        write_csv(tmp_path / "c.csv", less, header=[HEADER[0], *HEADER[2:]])
    )
    assert one.notices == ("column 'amount' is not there: all of its values count as missing",)
    path = write_csv(tmp_path / "d.csv", [row[:2] for row in orders(30, seed=5)], header=HEADER[:2])
    with pytest.raises(DataError, match="no column 'shop'"):
        list(Learner(tmp_path / "m").learn(path))


def test_a_file_that_grows_and_one_in_several_arrivals(tmp_path):
    rows = orders(100)
    path = write_csv(tmp_path / "log.csv", rows[:70])
    learner = Learner(tmp_path / "m", {"arrival_rows": 30, "epochs": 1, "joint_epochs": 0})
    assert [one.report.n_rows for one in learner.learn(path)] == [30, 40]
    write_csv(path, rows)
    (more,) = Learner(tmp_path / "m").learn(path)
    assert (more.name, more.report.n_rows) == ("log.csv rows 71-100", 30)
    write_csv(path, rows[50:])
    with pytest.raises(DataError, match="has rows that were learned"):
        list(Learner(tmp_path / "m").learn(path))


def test_roles_are_settings(tmp_path):
    path = write_csv(tmp_path / "t.csv", orders(60))
    asked = {"columns": {"note": "ignore", "order_id": "key"}, "epochs": 1, "joint_epochs": 0}
    (one,) = Learner(tmp_path / "m", asked).learn(path)
    assert one.notices == ()
    assert list(open_model(tmp_path / "m")[0].feature_names_in_) == ["amount", "shop", "paid"]
    Learner(tmp_path / "m", asked)
    with pytest.raises(SettingsError, match=r"columns is .* decided by its first data set"):
        Learner(tmp_path / "m", {"columns": {"note": "text"}})
    with pytest.raises(SettingsError, match="unknown role"):
        list(Learner(tmp_path / "n", {"columns": {"note": "txt"}}).learn(path))
    (one,) = Learner(tmp_path / "o", {"columns": ["shop", "paid"], "epochs": 1, "joint_epochs": 0}).learn(
        path
    )
    assert list(open_model(tmp_path / "o")[0].feature_names_in_) == ["shop", "paid"]


def test_ids_of_a_table_of_numbers_are_left_out(tmp_path):
    rng = np.random.default_rng(0)
    table = np.column_stack([np.arange(50) + 900, rng.normal(size=(50, 3))])
    np.savetxt(tmp_path / "t.csv", table, delimiter=",", header="id,a,b,c", comments="", fmt="%g")
    learner = Learner(tmp_path / "m", {"epochs": 1})
    (one,) = learner.learn(tmp_path / "t.csv")
    assert one.notices == ("columns left out: 'id' (they name rows, each another)",)
    assert list(learner.model.feature_names_in_) == ["a", "b", "c"]
    assert not hasattr(learner.model, "column_encoder_")
    (one,) = Learner(tmp_path / "n", {"columns": ["id", "a"], "epochs": 1}).learn(tmp_path / "t.csv")
    assert one.notices == ()  # as asked for


def test_a_cell_that_is_no_number_far_down_makes_a_mixed_table(tmp_path):
    lines = ["a,b", *(f"{i % 7},{i % 5}" for i in range(200)), "3,?", "4,"]
    (tmp_path / "t.csv").write_text("\n".join(lines))
    learner = Learner(tmp_path / "m", {"arrival_rows": 50, "epochs": 1})
    notices = [one.notices for one in learner.learn(tmp_path / "t.csv")]
    assert [bool(n) for n in notices] == [False, False, False, True]
    assert "'b': 1 of 52 values cannot be read as number, such as '?'" in notices[-1][0]


def as_json(rows):
    return "".join(json.dumps(dict(zip(HEADER, row, strict=True))) + "\n" for row in rows).encode()


@pytest.mark.parametrize("packed", [bytes, gzip.compress])
def test_standard_input_is_learned_once_and_goes_on(tmp_path, monkeypatch, packed):
    def learned(data):
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(packed(data))))
        return [one.report.n_rows for one in Learner(tmp_path / "m", {"arrival_rows": 60}).learn("-")]

    rows = orders(60)
    csv = write_csv(tmp_path / "a.csv", rows).read_bytes()
    assert learned(csv) == [60]
    with pytest.raises(AlreadyLearnedError, match="as 'standard-input"):
        learned(csv)
    with pytest.raises(AlreadyLearnedError):  # a file of the same content is the same too
        list(Learner(tmp_path / "m").learn(tmp_path / "a.csv"))
    assert learned(csv + b"9999,40.5,north,yes,\n") == [1]
    # What else comes has the same name, and may have rows that came before.
    assert learned(as_json([*orders(50, seed=1), rows[0]])) == [51]
    assert learned(as_json(orders(80, seed=2))) == [80]
    assert learned(as_json(orders(150, seed=3)[:80])) == [80]
