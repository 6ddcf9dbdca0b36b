"""Two processes that train one set of networks, started as a user starts them: torchrun, here on the CPU."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest
import torch

from dbull import DBULL
from dbull.errors import SettingsError
from dbull.lifelong.processes import Processes, processes_here, trained_together

SCRIPT = """
import json, sys
import numpy as np
import dbull

rows = np.random.default_rng(0).normal(size=(203, 12))
with dbull.trained_together() as processes:
    plain = dbull.DBULL(objective="paper", augment=None, epochs=3, random_state=0).pretrain(rows)
    model = dbull.DBULL(epochs=3, random_state=0).fit(rows + 4 * (np.arange(203) % 2)[:, None])
    model.partial_fit(rows + 30)
    try:
        dbull.DBULL(epochs=1, random_state=processes.rank).fit(rows)
    except ValueError as error:
        refused = str(error)
    told = {
        "size": processes.size,
        "plain": [float(p.detach().double().sum()) for p in plain.state_.vae.parameters()],
        "fingerprint": model.state_.fingerprint,
        "labels": model.labels_.tolist(),
        "refused": refused,
    }
    with open(f"{sys.argv[1]}/{processes.rank}.json", "w") as file:
        json.dump(told, file)
"""


@pytest.mark.skipif(not torch.distributed.is_available(), reason="this PyTorch has no torch.distributed")
def test_two_processes_have_the_same_networks(tmp_path):
    script = tmp_path / "learn.py"
    script.write_text(SCRIPT)
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    done = subprocess.run(
        [*command, str(script), str(tmp_path)],
        capture_output=True,
        text=True,
        env={**os.environ},
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    one, other = (json.loads((tmp_path / f"{rank}.json").read_text()) for rank in (0, 1))
    assert one["size"] == 2
    assert one["fingerprint"] == other["fingerprint"]
    assert one["labels"] == other["labels"]
    assert "same random_state" in one["refused"]
    assert "same random_state" in other["refused"]
    # Where nothing is drawn in a step, the mean gradient of both parts is that of the whole batch.
    rows = np.random.default_rng(0).normal(size=(203, 12))
    alone = DBULL(objective="paper", augment=None, epochs=3, random_state=0)
    alone = _with_the_order_of_several(alone, rows)
    assert one["plain"] == pytest.approx(alone, rel=1e-3, abs=1e-3)
    assert one["plain"] == other["plain"]


def _with_the_order_of_several(model, rows):
    """Sums of the weights after training in one process, in the order in which several visit the rows."""
    from dbull.lifelong import training

    made = training.Trainer.__init__

    def several(self, *given):
        made(self, *given)
        seed = int(torch.randint(training.MOST_SEED, (1,), generator=self.generator))
        self.order = training.generator_on(self.place, seed)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(training.Trainer, "__init__", several)
        model.pretrain(rows)
    return [float(p.detach().double().sum()) for p in model.state_.vae.parameters()]


@pytest.mark.parametrize("n_rows", [1, 2, 3, 4, 10, 11])
def test_parts_are_the_batch_and_count_as_much(n_rows):
    rows = torch.arange(n_rows)
    n_first = n_rows // 2
    parts = [Processes(rank, 3).part(rows, n_first) for rank in range(3)]
    assert all(mine[:n].tolist() == mine[mine < n_first].tolist() for mine, n, _ in parts)
    if n_rows < 3:
        assert all(torch.equal(mine, rows) and share == 1.0 for mine, _, share in parts)
        return
    assert torch.cat([mine for mine, _, _ in parts]).sort().values.tolist() == rows.tolist()
    # Means of parts, weighted, have the mean of the batch as their mean.
    values = torch.randn(n_rows, generator=torch.Generator().manual_seed(0))
    mean = sum(share * float(values[mine].mean()) for mine, _, share in parts) / 3
    assert mean == pytest.approx(float(values.mean()), abs=1e-6)


def test_one_process_is_alone():
    assert processes_here() == Processes(0, 1)
    mine, n_first, share = processes_here().part(torch.arange(5), 2)
    assert (mine.tolist(), n_first, share) == ([0, 1, 2, 3, 4], 2, 1.0)


def test_without_torchrun(monkeypatch):
    for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(SettingsError, match="torchrun"), trained_together("gloo"):
        pass
    assert processes_here() == Processes()
