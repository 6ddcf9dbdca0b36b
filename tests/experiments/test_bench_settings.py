"""Settings from the command line and from TOML: read right, or refused with a word that helps."""

from pathlib import Path

import pytest

from dbull.errors import SettingsError
from dbull.experiments.settings import (
    BenchSettings,
    MethodChoice,
    parse_assignments,
    parse_seeds,
    read_config,
)


@pytest.mark.parametrize(
    ("text", "seeds"),
    [("0..4", (0, 1, 2, 3, 4)), ("0,2,5", (0, 2, 5)), ("7", (7,)), ("3..3", (3,)), ("0..2, 9", (0, 1, 2, 9))],
)
def test_seeds(text, seeds):
    assert parse_seeds(text) == seeds


@pytest.mark.parametrize("text", ["", "a", "1..", "4..0", "-1", "1.5", "0,,2", "0..2,1"])
def test_bad_seeds(text):
    with pytest.raises(SettingsError, match="seeds"):
        parse_seeds(text)


def test_assignments_are_typed_as_in_toml():
    pairs = ["a=3", "b=0.5", "c=true", 'd="word"', "e=[1, 2]", "f = 1e-3"]
    values = parse_assignments(pairs)
    assert values == {"a": 3, "b": 0.5, "c": True, "d": "word", "e": [1, 2], "f": 1e-3}
    assert [type(value) for value in values.values()] == [int, float, bool, str, list, float]


def test_words_need_no_quotes_and_lists_no_brackets():
    pairs = ["device=cuda:1", "columns=a,b", "sizes = 28, 28", "mixed=a,1,true", "grey=True", "name=día"]
    assert parse_assignments(pairs) == {
        "device": "cuda:1",
        "columns": ["a", "b"],
        "sizes": [28, 28],
        "mixed": ["a", 1, True],
        "grey": True,
        "name": "día",
    }


@pytest.mark.parametrize(
    ("pairs", "words"),
    [
        (["a"], "key=value"),
        (["=3"], "key=value"),
        (["a=two words"], "need quotes"),
        (["a='open"], "need quotes"),
        (["a=[1,2"], "need quotes"),
        (["a=,two words"], "need quotes"),
        (["a="], "need quotes"),
        (["a=1", "a=2"], "twice"),
        (["a=1\nb=2"], "TOML|quotes"),
    ],
)
def test_bad_assignments(pairs, words):
    with pytest.raises(SettingsError, match=words):
        parse_assignments(pairs)


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "x.toml"
    path.write_text(text)
    return path


def test_config(tmp_path):
    path = write(
        tmp_path,
        """
        scenario = "split-digits"
        seeds = "0..2"
        out = "somewhere"
        [[methods]]
        name = "kmeans"
        [[methods]]
        name = "kmeans"
        label = "kmeans-20"
        settings = { n_clusters = 20 }
        [[methods]]
        path = "package.module:Class"
        """,
    )
    settings = read_config(path)
    assert settings == BenchSettings(
        scenario="split-digits",
        seeds=(0, 1, 2),
        out=Path("somewhere"),
        methods=(
            MethodChoice(name="kmeans"),
            MethodChoice(name="kmeans", label="kmeans-20", parameters={"n_clusters": 20}),
            MethodChoice(path="package.module:Class", label="Class"),
        ),
    )


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("scenaro = 'a'\nmethods = []", "unknown key 'scenaro': did you mean 'scenario'"),
        ("scenario = 'a'\n[[methods]]\nname = 'kmeans'\nlable = 'x'", "did you mean 'label'"),
        ("methods = []", "'scenario' is missing"),
        ("scenario = 'a'", "'methods' is missing"),
        ("scenario = 'a'\nmethods = []", "no method"),
        ("scenario = 3\nmethods = []", "'scenario' must be"),
        ("scenario = 'a'\nmethods = ['kmeans']", r"tables \[\[methods\]\]"),
        ("scenario = 'a'\n[[methods]]", "registered name or by"),
        ("scenario = 'a'\nseeds = [1, 1]\n[[methods]]\nname='kmeans'", "twice"),
        ("scenario = 'a'\nseeds = []\n[[methods]]\nname='kmeans'", "at least one"),
        ("scenario = 'a'\nseeds = [true]\n[[methods]]\nname='kmeans'", "seeds must be"),
        (
            "scenario = 'a'\n[[methods]]\nname='kmeans'\n[[methods]]\nname='kmeans'",
            "two methods are called 'kmeans'",
        ),
        ("scenario = 'a'\n[[methods]]\nname='kmeans'\nlabel='a/b'", "cannot name a folder"),
        ("scenario = ", "not valid TOML"),
    ],
)
def test_bad_config_names_file_and_fault(tmp_path, text, words):
    path = write(tmp_path, text)
    with pytest.raises(SettingsError, match=words) as caught:
        read_config(path)
    assert str(path) in str(caught.value)


def test_missing_config(tmp_path):
    with pytest.raises(SettingsError, match="cannot be read"):
        read_config(tmp_path / "none.toml")
