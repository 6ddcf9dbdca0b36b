"""The page about data names every data set and scenario, and its example runs."""

import re
from pathlib import Path

import pytest

from dbull import data

PAGE = (Path(__file__).parents[2] / "docs" / "data.md").read_text()


@pytest.mark.parametrize(
    ("heading", "names"), [("Data sets", data.dataset_names()), ("Scenarios", data.scenario_names())]
)
def test_tables_are_complete(heading, names):
    section = PAGE.split(f"## {heading}\n")[1].split("\n## ")[0]
    first_cells = [line.split("|")[1] for line in section.splitlines() if line.startswith("| `")]
    assert {name for cell in first_cells for name in re.findall(r"`([^`]+)`", cell)} == set(names)


def test_example_runs(tmp_path, monkeypatch):
    pytest.importorskip("pyarrow")
    import pyarrow as pa
    import pyarrow.parquet

    monkeypatch.chdir(tmp_path)
    pyarrow.parquet.write_table(pa.table({"id": ["a", "b"], "v": [1.0, 2.0]}), "mine.parquet")
    names: dict = {}
    exec(PAGE.split("```python\n")[1].split("```")[0], names)
    assert len(names["stream"].arrivals) == 15
    assert names["chunk"].keys.tolist() == ["a", "b"]
