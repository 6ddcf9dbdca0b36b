"""Seconds per epoch of DEC and VaDE beside those of ClustPy, with the same networks, rows and batch size.

    python -m venv elsewhere && elsewhere/bin/pip install --constraint constraints.txt clustpy
    python benchmarks/beside_clustpy.py elsewhere/bin/python

ClustPy never becomes a dependency: it runs in its own environment, in a process of its own, in turn with
ours, so that a busy machine slows both; a ratio is of one round, and the median over rounds is printed with
the least and the largest. Augmentation is off on both sides; ClustPy has none of its own. The
third column is a loop of plain PyTorch that does the arithmetic of the stage and nothing else.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from itertools import pairwise
from time import perf_counter
from typing import Any

import numpy as np

HIDDEN, LATENT, BATCH_ROWS, N_CLUSTERS = (500, 500, 2000), 10, 256, 10
SHORT, LONG = 1, 4  # epochs; an epoch takes the difference over three, so that all else cancels
STAGES = {"autoencoder": ("pretrain", "cluster"), "clusters": ("cluster", "pretrain")}


def rows(n_rows: int) -> np.ndarray:
    """Return rows of ten overlapping clusters in [0, 1]; time does not depend on what is in them."""
    draw = np.random.default_rng(0)
    centres = draw.uniform(size=(N_CLUSTERS, 784))
    noise = 0.3 * draw.normal(size=(n_rows, 784))
    return np.clip(centres[draw.integers(N_CLUSTERS, size=n_rows)] + noise, 0, 1).astype(np.float32)


def our_fit(name: str, x: np.ndarray, pretrain: int, cluster: int) -> None:
    """Train ours."""
    from dbull.methods.competitors.dec import DEC
    from dbull.methods.competitors.vade import VaDE

    shared: dict[str, Any] = {
        "hidden_dims": HIDDEN,
        "latent_dim": LATENT,
        "batch_size": BATCH_ROWS,
        "augment": None,
        "image_shape": (28, 28),  # for the Bernoulli likelihood; augmentation is what else it would switch on
        "epochs": pretrain,
        "joint_epochs": cluster,
        "n_init": 1,
        "random_state": 0,
    }
    model = DEC(N_CLUSTERS, tolerance=0, **shared) if name == "DEC" else VaDE(N_CLUSTERS, **shared)
    model.fit(x)


def their_fit(name: str, x: np.ndarray, pretrain: int, cluster: int) -> None:
    """Train ClustPy's."""
    from clustpy.deep import DEC, VaDE
    from clustpy.deep.neural_networks import FeedforwardAutoencoder, VariationalAutoencoder

    layers = {"layers": [x.shape[1], *HIDDEN, LATENT]}
    method, network = (DEC, FeedforwardAutoencoder) if name == "DEC" else (VaDE, VariationalAutoencoder)
    method(
        N_CLUSTERS,
        batch_size=BATCH_ROWS,
        pretrain_epochs=pretrain,
        clustering_epochs=cluster,
        neural_network=(network, layers),
        initial_clustering_params={"n_init": 1, **({} if name == "DEC" else {"covariance_type": "diag"})},
        random_state=0,
    ).fit(x)


def bare_fit(name: str, x: np.ndarray, pretrain: int, cluster: int) -> None:
    """Train the same networks by the shortest loop there is: no target is renewed, nothing is checked."""
    import torch
    from torch import nn
    from torch.nn import functional as F

    def chain(*widths: int) -> nn.Sequential:
        layers = [layer for a, b in pairwise(widths) for layer in (nn.Linear(a, b), nn.ReLU())]
        return nn.Sequential(*layers)

    trunk, mean_head, log_var_head = chain(784, *HIDDEN), nn.Linear(2000, LATENT), nn.Linear(2000, LATENT)
    decoder = nn.Sequential(*chain(LATENT, *HIDDEN[::-1]), nn.Linear(HIDDEN[0], 784))
    centres = torch.randn(N_CLUSTERS, LATENT, requires_grad=True)
    log_vars = torch.zeros(N_CLUSTERS, LATENT, requires_grad=True)
    values = torch.from_numpy(x)
    target = torch.softmax(torch.randn(len(x), N_CLUSTERS), 1)

    def autoencoder(rows: torch.Tensor) -> torch.Tensor:
        out = decoder(mean_head(trunk(values[rows])))
        return F.binary_cross_entropy_with_logits(out, values[rows], reduction="sum") / len(rows)

    def dec(rows: torch.Tensor) -> torch.Tensor:
        squared = (mean_head(trunk(values[rows]))[:, None] - centres).square().sum(2)
        return F.kl_div(torch.log_softmax(-torch.log1p(squared), 1), target[rows], reduction="batchmean")

    def vade(rows: torch.Tensor) -> torch.Tensor:
        hidden = trunk(values[rows])
        mean, log_var = mean_head(hidden), log_var_head(hidden)
        z = mean + torch.exp(0.5 * log_var) * torch.randn_like(mean)
        near = -0.5 * ((z[:, None] - centres).square() / log_vars.exp() + log_vars).sum(2)
        spread = log_var.exp()[:, None]
        expected = -0.5 * (((mean[:, None] - centres).square() + spread) / log_vars.exp() + log_vars).sum(2)
        log_g = torch.log_softmax(near, 1)
        prior = (log_g.exp() * (expected - log_g)).sum(1) + 0.5 * log_var.sum(1)
        out = F.binary_cross_entropy_with_logits(decoder(z), values[rows], reduction="sum") / len(rows)
        return out - prior.mean()

    every = [*trunk.parameters(), *mean_head.parameters(), *log_var_head.parameters(), *decoder.parameters()]
    adam = torch.optim.Adam([*every, centres, log_vars], 1e-4, fused=True)
    encoder = [*trunk.parameters(), *mean_head.parameters(), centres]
    sgd = torch.optim.SGD(encoder, 1e-4, momentum=0.9)
    second = (dec, sgd) if name == "DEC" else (vade, adam)
    for n_epochs, (loss, optimiser) in ((pretrain, (autoencoder, adam)), (cluster, second)):
        for _ in range(n_epochs):
            for rows in torch.randperm(len(values)).split(BATCH_ROWS):
                optimiser.zero_grad()
                loss(rows).backward()
                optimiser.step()


def seconds_per_epoch(fit: Any, name: str, x: np.ndarray) -> dict[str, float]:
    """Return seconds of one epoch of each stage."""
    times = {}
    for stage, (varied, fixed) in STAGES.items():
        took = []
        for n_epochs in (SHORT, LONG):
            started = perf_counter()
            fit(name, x, **{varied: n_epochs, fixed: SHORT})
            took.append(perf_counter() - started)
        times[stage] = (took[1] - took[0]) / (LONG - SHORT)
    return times


def without_torchvision() -> None:
    """Let ClustPy import where torchvision is absent or does not fit PyTorch; nothing here uses it."""
    import importlib.abc
    import importlib.machinery
    import types
    from unittest.mock import MagicMock

    class Stub(importlib.abc.MetaPathFinder, importlib.abc.Loader):
        def find_spec(self, name: str, path: Any, target: Any = None) -> Any:
            if name.split(".")[0] == "torchvision":
                return importlib.machinery.ModuleSpec(name, self, is_package=True)
            return None

        def create_module(self, spec: Any) -> types.ModuleType:
            return types.ModuleType(spec.name)

        def exec_module(self, module: types.ModuleType) -> None:
            def attribute(name: str) -> MagicMock:
                if name.startswith("__"):
                    raise AttributeError(name)
                return MagicMock(name=name)

            module.__getattr__ = attribute  # type: ignore[method-assign]

    sys.meta_path.insert(0, Stub())


def measure(side: str, name: str, n_rows: int) -> None:
    """Measure one side in this process and print the times."""
    if side == "theirs":
        without_torchvision()
    fit = {"ours": our_fit, "theirs": their_fit, "bare": bare_fit}[side]
    fit(name, rows(2 * BATCH_ROWS), 1, 1)  # imports and first calls
    print(json.dumps(seconds_per_epoch(fit, name, rows(n_rows))))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("python", help="Python of an environment with ClustPy")
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--measure", nargs=2, help=argparse.SUPPRESS)  # how this script calls itself
    options = parser.parse_args()
    if options.measure:
        measure(*options.measure, options.rows)
        return
    sides = {"ours": sys.executable, "theirs": options.python, "bare": sys.executable}
    for name in ("DEC", "VaDE"):
        took: dict[str, list[dict[str, float]]] = {side: [] for side in sides}  # round by round
        for _ in range(options.rounds):
            for side, python in sides.items():
                command = [python, __file__, python, "--rows", str(options.rows), "--measure", side, name]
                said = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
                took[side].append(json.loads(said.splitlines()[-1]))
        for stage in STAGES:
            ours, theirs, bare = (np.array([one[stage] for one in took[side]]) for side in sides)
            print(
                f"{name:<6}{stage:<13}{np.median(ours):6.2f} s an epoch, ClustPy {np.median(theirs):6.2f} s "
                f"({spread(theirs / ours)}), bare PyTorch {np.median(bare):6.2f} s ({spread(bare / ours)})",
                flush=True,
            )


def spread(ratios: np.ndarray) -> str:
    """Return the median of a ratio over the rounds, then its smallest and largest."""
    return f"{np.median(ratios):.2f} x, {ratios.min():.2f}-{ratios.max():.2f}"


if __name__ == "__main__":
    main()
