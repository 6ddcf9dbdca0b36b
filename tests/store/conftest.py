"""A small model folder with three generations, and the checkpoints it was made of."""

import hashlib
from collections.abc import Callable

import pytest
import torch

from dbull.store import Checkpoint, LearnedInput, ModelFolder


def make_checkpoint(number: int, **changes) -> Checkpoint:
    draws = torch.Generator().manual_seed(number)
    fields = {
        "tensors": {
            "networks": {"weight": torch.randn(4, 3, generator=draws), "bias": torch.zeros(3)},
            "mixture": {"counts": torch.rand(number, dtype=torch.float64, generator=draws)},
        },
        "documents": {"clusters": {"clusters": [{"id": i, "rows": 10 * i} for i in range(number)]}},
        "events": [{"kind": "birth", "clusters": [number]}, {"kind": "arrival", "number": number}],
        "settings": {"latent_dim": 10, "rate": 0.1 * number},
        "data_schema": {"columns": ["x", "y"]},
        "encoder_fingerprint": f"encoder-{number}",
        "learned_inputs": [LearnedInput(hashlib.sha256(b"%d" % number).hexdigest(), f"day-{number}.csv", 10)],
        "ids_given": number,
        "note": f"day {number}",
        "time": None,
    }
    return Checkpoint(**(fields | changes))


@pytest.fixture
def checkpoint() -> Callable[..., Checkpoint]:
    return make_checkpoint


@pytest.fixture
def three(tmp_path) -> ModelFolder:
    folder = ModelFolder(tmp_path / "model")
    for number in (1, 2, 3):
        folder.commit(make_checkpoint(number), parent=number - 1 or None)
    return folder


@pytest.fixture
def same() -> Callable[[Checkpoint, Checkpoint], None]:
    """Assert that two checkpoints hold the same, tensors to the bit."""

    def check(a: Checkpoint, b: Checkpoint) -> None:
        assert a.tensors.keys() == b.tensors.keys()
        for group in a.tensors:
            assert a.tensors[group].keys() == b.tensors[group].keys()
            for name, tensor in a.tensors[group].items():
                other = b.tensors[group][name]
                assert tensor.dtype == other.dtype
                assert tensor.shape == other.shape
                assert torch.equal(
                    tensor.contiguous().view(-1).view(torch.uint8),
                    other.contiguous().view(-1).view(torch.uint8),
                )
        for field in (
            "documents",
            "settings",
            "data_schema",
            "encoder_fingerprint",
            "ids_given",
            "note",
            "time",
        ):
            assert getattr(a, field) == getattr(b, field), field
        assert list(a.events) == list(b.events)
        assert list(a.learned_inputs) == list(b.learned_inputs)

    return check
