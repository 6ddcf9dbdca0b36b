"""The experiments that come with the project can be read and name things that exist."""

from pathlib import Path

import pytest

from dbull.data import scenario_names
from dbull.experiments.registry import METHODS
from dbull.experiments.settings import read_config

CONFIGS = sorted((Path(__file__).parents[2] / "experiments").glob("*.toml"))


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.name)
def test_config_names_what_exists(path):
    settings = read_config(path)
    assert settings.scenario in scenario_names()
    assert settings.scenario == path.stem
    assert all(method.name in METHODS for method in settings.methods)


def test_there_are_experiments():
    assert CONFIGS
