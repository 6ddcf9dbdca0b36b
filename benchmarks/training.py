"""Training throughput of DBULL beside a bare PyTorch loop of the same networks; prediction speed.

    python benchmarks/training.py            # 60,000 images of 28 x 28 (MNIST's training images if found)

Each line is a ratio of two times measured in turn in one run, so that a busy machine slows both.
"""

from __future__ import annotations

import argparse
from time import perf_counter

import numpy as np
import torch
from torch.nn import functional as F

from dbull import DBULL
from dbull.data import load
from dbull.errors import DataError
from dbull.lifelong.codes import CodeMixture, CodeSearch
from dbull.lifelong.settings import PAPER
from dbull.lifelong.training import Trainer, TrainingRows
from dbull.mixture.memory import StatsMemory
from dbull.mixture.prior import paper_prior
from dbull.mixture.updates import Points
from dbull.nets.inputs import fit_inputs
from dbull.nets.vae import VAE, NetworkShape


def images(n_rows: int) -> torch.Tensor:
    """Return MNIST's training images, or random ones where it is not at hand."""
    try:
        return torch.from_numpy(np.array(load("mnist").x[:n_rows]))
    except DataError:
        return torch.rand(n_rows, 784, generator=torch.Generator().manual_seed(0))


def bare_epoch(vae: VAE, x: torch.Tensor, batch_rows: int) -> float:
    """Train a plain variational autoencoder for one epoch; return the seconds."""
    optimiser = torch.optim.Adam(vae.parameters(), fused=True)
    started = perf_counter()
    for rows in torch.randperm(len(x)).split(batch_rows):
        batch = x[rows]
        mean, log_var = vae.encode(batch)
        z = mean + torch.exp(0.5 * log_var) * torch.randn_like(mean)
        divergence = 0.5 * (mean.square() + log_var.exp() - 1 - log_var).sum()
        loss = (F.binary_cross_entropy_with_logits(vae.decode(z), batch, reduction="sum") + divergence) / len(
            rows
        )
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
        optimiser.step()
    return perf_counter() - started


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=60_000)
    parser.add_argument("--rounds", type=int, default=2)
    options = parser.parse_args()
    x = images(options.rows)
    generator = torch.Generator().manual_seed(0)
    view = fit_inputs(x, "images", (28, 28, 1), use_front_end=False)
    values = view.values(x)
    inputs = view.inputs(values)
    vae = VAE(NetworkShape(784, 784, 10, hidden_dims=PAPER.hidden_dims))
    twin = VAE(NetworkShape(784, 784, 10, hidden_dims=PAPER.hidden_dims))
    data = TrainingRows.of(values, inputs, None, 10)
    trainer = Trainer(view, vae, data, None, PAPER.settings.training, generator)
    search = CodeSearch(PAPER.settings.mixture, generator)
    mixture = CodeMixture.of_past(StatsMemory.empty(10), paper_prior(10))
    bare = [bare_epoch(twin, x, 256)]
    alone, searches = [], []
    trainer.epoch(lambda _: 1e-3)
    mixture = search(mixture, Points.from_rows(trainer.encode()[0]))
    for _ in range(options.rounds):
        bare.append(bare_epoch(twin, x, 256))
        started = perf_counter()
        trainer.epoch(lambda _: 3e-4, mixture.frozen("cpu"))
        alone.append(perf_counter() - started)
        started = perf_counter()
        mixture = search(mixture, Points.from_rows(trainer.encode()[0]))
        searches.append(perf_counter() - started)
    epoch, ours, between = np.median(bare), np.median(alone), np.median(searches)
    n_pretraining, n_joint = PAPER.epoch_range[0], PAPER.settings.training.joint_epochs
    whole = (n_pretraining + n_joint) * ours + n_joint * between
    print(f"{len(x):,} rows, networks {PAPER.hidden_dims}, batches of 256, {torch.get_num_threads()} threads")
    print(f"bare PyTorch epoch             {epoch:7.1f} s   {len(x) / epoch:9,.0f} rows/s")
    print(f"our epoch under the mixture    {ours:7.1f} s   {ours / epoch:9.2f} x bare")
    print(f"encoding and mixture search    {between:7.1f} s   {between / epoch:9.2f} x bare epoch")
    n_epochs = n_pretraining + n_joint
    print(
        f"a whole fit of {n_epochs} epochs        {whole:7.0f} s   {whole / (n_epochs * epoch):9.2f} x bare"
    )

    model = DBULL(image_shape=(28, 28), epochs=1, joint_epochs=0, random_state=0).fit(x[:5000])
    paper = DBULL(objective="paper", image_shape=(28, 28), epochs=1, joint_epochs=0, random_state=0).fit(
        x[:5000]
    )
    rows = x[:20_000].numpy()
    for name, fitted in (("default", model), ("paper", paper)):
        started = perf_counter()
        fitted.predict(rows)
        print(f"predict, {name:8s}              {len(rows) / (perf_counter() - started):9,.0f} rows/s")


if __name__ == "__main__":
    main()
