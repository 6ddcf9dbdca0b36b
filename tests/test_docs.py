"""The tutorials and the README's examples run, links lead somewhere, and lines fit an editor."""

import csv
import doctest
import re
from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import load_digits

from pages import ROOT, run_page, text_of

WIDTH = 110
PAGES = sorted(str(path.relative_to(ROOT)) for path in (*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")))


def test_python_tutorial(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    page = doctest.DocTestParser().get_doctest(
        re.sub(r"```(python)?\n", "", text_of("docs/tutorials/python.md")), {}, "python.md", "python.md", 0
    )
    said: list[str] = []
    results = doctest.DocTestRunner(verbose=False).run(page, out=said.append)
    assert results.attempted > 30
    assert results.failed == 0, "".join(said)
    assert "Three days of digits" in (tmp_path / "digits.html").read_text(encoding="utf-8")


def test_files_tutorial(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run_page("docs/tutorials/files.md")
    with open("states.csv", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [row["key"] for row in rows[:2]] == ["hour-1/1", "hour-1/2"]
    idle, works = ({row["cluster"] for row in part} for part in (rows[:100], rows[100:]))
    assert idle.isdisjoint(works)
    assert "vibration" in Path("machine.html").read_text(encoding="utf-8")


def test_tables_tutorial(tmp_path, monkeypatch, capsys, quick_learning):
    pytest.importorskip("pandas")
    monkeypatch.chdir(tmp_path)
    run_page("docs/tutorials/tables.md")
    with open("orders.csv", encoding="utf-8") as file:
        assert len(list(csv.DictReader(file))) == 400
    assert "paid_after" in Path("shop.html").read_text(encoding="utf-8")


def test_text_tutorial(tmp_path, monkeypatch, capsys, quick_learning):
    monkeypatch.chdir(tmp_path)
    run_page("docs/tutorials/text.md")
    with open("groups.csv", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert (rows[0]["key"], len(rows)) == ("0000.txt", 400)
    assert "toner" in Path("tickets.html").read_text(encoding="utf-8")


def test_readme_python(tmp_path, monkeypatch, quick_learning):
    """Days are digits enlarged to the size that the example names; learned in a few epochs."""
    monkeypatch.chdir(tmp_path)
    digits = load_digits()
    images = np.pad(digits.images.repeat(3, axis=1).repeat(3, axis=2), ((0, 0), (2, 2), (2, 2)))
    rows = images.reshape(len(images), -1)

    def of(*kinds, n=200):
        return rows[np.isin(digits.target, kinds)][:n]

    days = {"monday": of(0, 1), "tuesday": of(4, 6), "wednesday": of(0, 1), "more": of(7, n=60)}
    names = dict(days)
    rng = np.random.default_rng(0)
    for day in ("monday", "tuesday", "wednesday"):
        lines = [f"{rng.normal(20):.1f},{'card' if i % 2 else ''},2024-05-0{1 + i % 9}" for i in range(60)]
        (tmp_path / f"{day}.csv").write_text("\n".join(["price,payment,date", *lines]))
    for block in re.findall(r"```python\n(.*?)```", text_of("README.md"), re.DOTALL):
        exec(block, names)
    assert (tmp_path / "model").is_dir()
    assert names["model"].n_data_sets_ == 2


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", text_of(page)):
        if not re.match(r"[a-z]+:", target):
            assert (ROOT / page).parent.joinpath(target).exists(), target


def prose_of(page):
    """Yield the number and text of each line of a page that is neither code nor a row of a table."""
    fenced = False
    for number, line in enumerate(text_of(page).splitlines(), 1):
        fence = line.lstrip().startswith("```")
        fenced ^= fence
        if not (fence or fenced or line.lstrip().startswith("|") or line.startswith("    ")):
            yield number, line


@pytest.mark.parametrize("page", PAGES)
def test_prose_fits_an_editor(page):
    assert [number for number, line in prose_of(page) if len(line) > WIDTH] == []


def test_readme_is_short():
    assert len(text_of("README.md").splitlines()) < 125
