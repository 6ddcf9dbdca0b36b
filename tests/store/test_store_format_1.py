"""A model folder of format 1 as it was written once; it must load for ever.

Never write it anew. A new format gets a folder and a test of its own.
"""

from pathlib import Path

import torch

from dbull.store import ModelFolder

FOLDER = ModelFolder(Path(__file__).parents[1] / "reference" / "store-format-1")


def test_format_1_loads():
    loaded = FOLDER.load(2)
    checkpoint = loaded.checkpoint
    assert loaded.manifest.note == "second"
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
    assert checkpoint.tensors["mixture"]["counts"].dtype == torch.float64
    assert [(r.name, r.rows, r.generation) for r in FOLDER.learned(2).values()] == [("monday.csv", 7, 1)]


def test_format_1_is_sound_to_its_history():
    report = FOLDER.check()
    assert report.ok
    assert report.notes == ()
    assert report.sound == (1, 2, 3)
    assert FOLDER.manifest().restores == 1
    assert FOLDER.diff(1, 3).equal
    assert [event["kind"] for event in FOLDER.events()] == ["birth"]
