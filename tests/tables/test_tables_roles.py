"""Roles that a person would give, on columns made to be mistaken."""

import datetime
import uuid

import numpy as np
import pytest
from made_tables import ROLES, table

from dbull.errors import SettingsError
from dbull.tables import propose_roles
from dbull.tables.cells import MOST_COUNTED

N = 400
RANDOM = np.random.default_rng(0)
PLACES = ["north", "south", "east"]
WORDS = ["disk", "server", "failed", "login", "password", "reset", "invoice", "paid", "late", "refund"]


def digits(low, high):
    return RANDOM.integers(low, high, N)


def some(values, missing=0.0):
    return [None if RANDOM.random() < missing else values[i % len(values)] for i in range(N)]


# name, values, role
COLUMNS = [
    ("id", digits(0, 10**9), "key"),
    ("orderId", [str(i) for i in digits(0, 10**9)], "key"),
    ("Unnamed: 0", np.arange(N), "key"),
    ("token", [str(uuid.UUID(int=int(i))) for i in digits(0, 2**60)], "key"),
    ("mail", [f"user{i}@example.org" for i in range(N)], "key"),
    ("surname", [f"N{hex(i)[2:]}" for i in digits(0, 10**9)], "key"),
    ("store_id", digits(1, 9), "category"),
    ("customer_id", digits(0, 10**4) // 10 * 10, "ignore"),
    ("zip", [f"{i:05d}" for i in digits(0, 4)], "category"),
    ("zip_code", RANDOM.choice([10001, 94110], N), "category"),
    ("paid", RANDOM.normal(size=N), "number"),  # ends on "id"
    ("visits", RANDOM.poisson(3, N), "number"),
    ("rating", digits(1, 6), "number"),
    ("year", digits(1990, 2020), "number"),
    ("season", np.arange(1600, 1600 + N), "number"),
    ("number", digits(0, 10**9), "number"),
    ("amount", [f"{x:,.2f}" for x in RANDOM.lognormal(7, 1, N)], "number"),
    ("price", [f"${x:.2f}" for x in RANDOM.random(N)], "number"),
    ("mostly", ["n.k." if i % 50 == 0 else x for i, x in enumerate(RANDOM.normal(size=N))], "number"),
    ("duration", digits(0, 500).astype("m8[s]"), "number"),
    ("elapsed", [datetime.timedelta(seconds=int(i)) for i in digits(0, 500)], "number"),
    ("open", some([True, False]), "flag"),
    ("answer", some(["Yes", "no"], missing=0.2), "flag"),
    ("bit", digits(0, 2), "flag"),
    ("half", digits(0, 2).astype(float), "flag"),
    ("place", some(PLACES, missing=0.2), "category"),
    ("letters", some(["a", "b", 1, 2.5]), "category"),
    ("level", [f"L{i}" for i in digits(0, 150)], "category"),
    ("area", [f"{i:03d}" for i in digits(0, 5)], "category"),
    ("mark", some(["x"], missing=0.5), "category"),
    ("day", [f"20{10 + i % 9}-0{1 + i % 9}-1{i % 10}" for i in range(N)], "date"),
    ("born", [datetime.date(1900 + i % 100, 1, 2) for i in range(N)], "date"),
    ("at", np.arange(N).astype("M8[h]"), "date"),
    ("created_timestamp", digits(15 * 10**8, 16 * 10**8), "date"),
    ("createdEpochMs", digits(15 * 10**8, 16 * 10**8) * 1000, "date"),
    ("count", digits(15 * 10**8, 16 * 10**8), "number"),
    ("european", [f"{1 + i % 28}.{1 + i % 12}.2020" for i in range(N)], "ignore"),
    ("remark", [" ".join(RANDOM.choice(WORDS, 6)) + f" {i}" for i in range(N)], "text"),
    ("title", [" ".join(RANDOM.choice(WORDS, 2)) + f" {i}" for i in range(N)], "text"),
    ("prose", [" ".join(hex(i)[2:] for i in digits(0, 10**9)[:9]) for _ in range(N)], "text"),
    ("vector", [list(RANDOM.normal(size=4)) for _ in range(N)], "vector"),
    ("matrix", RANDOM.normal(size=(N, 4)), "vector"),
    ("ragged", [[1.0] * (1 + i % 5) for i in range(N)], "ignore"),
    ("nested", [{"a": 1}, {"a": 2}] * (N // 2), "ignore"),
    ("constant", ["x"] * N, "ignore"),
    ("empty", [None, ""] * (N // 2), "ignore"),
]


@pytest.mark.parametrize(("name", "values", "role"), COLUMNS, ids=[column[0] for column in COLUMNS])
def test_role_of(name, values, role):
    (found,) = propose_roles({name: values})
    assert found.role == role, found
    assert bool(found.becomes) == (role not in ("key", "ignore"))
    assert found.reason or found.becomes
    assert found.name in str(found)


def test_roles_of_one_table_do_not_depend_on_its_order():
    columns = table()
    forward = {role.name: role for role in propose_roles(columns)}
    backward = {role.name: role for role in propose_roles(dict(reversed(columns.items())))}
    assert forward == backward
    assert {name: role.role for name, role in forward.items()} == ROLES


def test_what_was_seen_is_told():
    columns = {"price": [None, "1.5", "n.k.", *map(str, range(197))], "one": ["a", "b"] * 100}
    price, one = propose_roles(columns)
    assert (price.role, price.seen, price.n_distinct) == ("number", "numbers as text", 199)
    assert price.missing_share == pytest.approx(2 / 200)
    assert price.becomes == "a number, and whether it is missing"
    assert (one.missing_share, one.n_distinct, one.more_distinct) == (0, 2, False)
    assert one.becomes == "which of 2 values (a, b) or another"


def test_the_user_is_right():
    columns = {"month": list(range(1, 13)) * 5, "name": ["x"] * 60}
    month, name = propose_roles(columns, {"month": "category", "name": "text"})
    assert (month.role, name.role, month.reason) == ("category", "text", "as asked for")
    assert month.becomes.startswith("which of 12 values")
    with pytest.raises(SettingsError, match="did you mean 'category'"):
        propose_roles(columns, {"month": "categories"})
    with pytest.raises(SettingsError, match="did you mean 'month'"):
        propose_roles(columns, {"moth": "category"})


def test_more_values_than_are_counted():
    codes = [f"c{i}" for i in range(MOST_COUNTED + 5)]
    text, number = propose_roles({"code": codes, "number": np.arange(MOST_COUNTED + 5) / 7})
    assert (text.role, number.role) == ("key", "number")
    assert (text.more_distinct, number.more_distinct) == (True, True)
    assert max(text.n_distinct, number.n_distinct) <= MOST_COUNTED


def test_tables_without_rows_or_columns():
    assert propose_roles({}) == ()
    (empty,) = propose_roles({"a": []})
    assert (empty.role, empty.missing_share) == ("ignore", 0)
