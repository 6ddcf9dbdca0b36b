"""A model folder of format 2 as it was written once; it must load for ever.

Never write it anew. Generation 2 shares tensors with 1, 3 brings 1 back, 5 has pruned all before 4.
"""

from pathlib import Path

import pytest
import torch

from dbull.errors import SettingsError
from dbull.store import ModelFolder

FOLDER = ModelFolder(Path(__file__).parents[1] / "reference" / "store-format-2")


def test_format_2_loads():
    loaded = FOLDER.load(4)
    checkpoint = loaded.checkpoint
    assert loaded.manifest.note == "third"
    assert checkpoint.documents == {"clusters": {"names": ["shoes", "Stöcke"], "rows": [3, 4], "share": 0.25}}
    assert checkpoint.settings == {"latent_dim": 10, "objective": "paper"}
    assert checkpoint.data_schema == {"columns": ["x", "y"]}
    assert checkpoint.encoder_fingerprint == "f00d"
    assert checkpoint.ids_given == 2
    assert checkpoint.events == [{"kind": "birth", "clusters": [1]}]
    weights = checkpoint.tensors["networks"]["weights"]
    assert weights.dtype == torch.float32
    assert weights.tolist() == [[0.0, 0.5], [1.0, 1.5], [2.0, 2.5]]
    assert checkpoint.tensors["mixture"]["counts"].tolist() == [0.1, 0.2]
    assert FOLDER.diff(4, 5).equal
    told = [(r.name, r.rows, r.generation, r.bytes) for r in FOLDER.learned().values()]
    assert told == [("monday.csv", 7, 1, 70), ("friday.csv", 9, 4, 90)]
    assert [r.name for r in FOLDER.learned(2).values()] == ["monday.csv", "tuesday.csv"]


def test_format_2_is_sound_to_its_history():
    report = FOLDER.check()
    assert report.ok
    assert report.notes == ()
    assert report.sound == (4, 5)
    assert [entry.manifest.restores for entry in FOLDER.history()] == [None, None, 1, None, None]
    assert [(event["generation"], event["kind"]) for event in FOLDER.events()] == [(1, "birth"), (4, "birth")]
    with pytest.raises(SettingsError, match="was pruned"):
        FOLDER.load(2)
