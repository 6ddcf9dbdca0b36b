"""Our Adam is PyTorch's, to the bit, and does without its compiler."""

import subprocess
import sys

import torch

from dbull.nets.adam import Adam


def weights():
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(*shape, generator=generator, requires_grad=True) for shape in ((7, 3), (3,), (5,))]


def test_same_steps_as_torch():
    ours, theirs = weights(), weights()
    mine, reference = Adam(ours, 0.1), torch.optim.Adam(theirs, lr=0.1, fused=True)
    x = torch.randn(20, 7, generator=torch.Generator().manual_seed(1))
    for step in range(30):
        mine.learning_rate = reference.param_groups[0]["lr"] = 0.1 / (1 + step)
        for parameters, optimiser in ((ours, mine), (theirs, reference)):
            loss = (x @ parameters[0] + parameters[1]).square().mean()
            if step % 3 == 0:  # a parameter without a gradient stays, and its step does not count
                loss = loss + parameters[2].pow(4).sum()
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
        assert all(torch.equal(a, b) for a, b in zip(ours, theirs, strict=True)), step


def test_no_gradient_no_step():
    parameters = weights()
    before = [parameter.clone() for parameter in parameters]
    Adam(parameters, 0.1).step()
    assert all(torch.equal(a, b) for a, b in zip(parameters, before, strict=True))


def test_learning_does_without_the_compiler():
    """It takes as long to import as a small arrival to learn."""
    script = """
import sys
import numpy as np
from dbull import DBULL
rows = np.random.default_rng(0).normal(size=(60, 3))
DBULL(random_state=0, epochs=1, joint_epochs=1).partial_fit(rows).partial_fit(rows + 20)
assert "torch._dynamo" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", script], check=True, timeout=600)
