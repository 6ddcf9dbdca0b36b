"""Steps on a device wait for nothing and fetch nothing; there is no GPU here, so "meta" stands for one.

Tensors of the device "meta" have shapes and no numbers: whatever would look at one, or bring one back, fails.
"""

from dataclasses import replace

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from dbull.lifelong import training as module
from dbull.lifelong import training_rows
from dbull.lifelong.neighbourhood import build_graph
from dbull.lifelong.objective import FrozenMixture
from dbull.lifelong.past import Replay
from dbull.lifelong.settings import GraphSettings, TrainingSettings
from dbull.lifelong.training import EpochTerms, Trainer, TrainingRows
from dbull.nets import pretrain
from dbull.nets.augment import ImageShifts, MaskingNoise
from dbull.nets.inputs import fit_inputs
from dbull.nets.vae import VAE, NetworkShape

DEVICE = torch.device("meta")
N_ROWS, N_REPLAYED, N_COLUMNS, N_DIMS = 60, 20, 16, 2


class NoTraffic(TorchDispatchMode):
    """Fails at an operation on tensors of two places; numbers of no dimension may come along."""

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        leaves = [*tree_leaves((args, kwargs)), *tree_leaves(result)]
        places = {one.device.type for one in leaves if isinstance(one, torch.Tensor) and one.dim()}
        assert len(places) < 2, f"{function} has tensors on {places}"
        return result


@pytest.fixture
def on_meta(monkeypatch):
    """Do without generators and the end of an epoch, since "meta" has neither seeds nor numbers to read."""

    class Unseeded:
        device = DEVICE

    def unseeded(function):
        def draw(*shape, generator=None, **named):
            return function(*shape, generator=generator if generator.device.type == "cpu" else None, **named)

        return draw

    monkeypatch.setattr(module, "generator_on", lambda place, seed: Unseeded())
    for name in ("rand", "randn", "randint", "randperm"):
        monkeypatch.setattr(torch, name, unseeded(getattr(torch, name)))
    read = []
    monkeypatch.setattr(
        Trainer, "_read", lambda self, told, sizes: read.append((told, sizes)) or EpochTerms(0.0)
    )
    return read


def make_trainer(places, augment, device, replayed=N_REPLAYED):
    numbers = torch.Generator().manual_seed(0)
    rows = torch.randn(N_ROWS, N_COLUMNS, generator=numbers)
    view = fit_inputs(rows, "dense", None, False)
    values = view.values(rows)
    past = Replay(
        torch.randn(replayed, N_COLUMNS, generator=numbers),
        torch.randn(replayed, N_COLUMNS, generator=numbers),
        torch.randn(replayed, N_DIMS, generator=numbers),
        torch.zeros(replayed, dtype=torch.int64),
        False,
    )
    data = TrainingRows.of(values, view.inputs(values), past, N_DIMS)
    if places:
        graph = build_graph(data.inputs, GraphSettings(n_neighbors=5), numbers)
        data = replace(data, graph=graph, places=torch.randn(len(data.values), N_DIMS, generator=numbers))
        data = replace(data, redraw=lambda: past)
    torch.manual_seed(0)
    vae = VAE(NetworkShape(N_COLUMNS, N_COLUMNS, N_DIMS, hidden_dims=(8,), likelihood="gaussian")).to(device)
    settings = TrainingSettings(batch_size=25, neighbourhood=1.0, consistency=1.0)
    return Trainer(view, vae, data, augment, settings, numbers)


def mixture_on(device):
    frozen = FrozenMixture(torch.eye(2), torch.zeros(1, 2), torch.ones(1, 2), torch.zeros(1))
    return FrozenMixture(*(part.to(device) for part in vars(frozen).values()))


@pytest.mark.parametrize("augment", [None, MaskingNoise(), ImageShifts(4, 4)])
@pytest.mark.parametrize("places", [False, True])
@pytest.mark.parametrize("joint", [False, True])
def test_a_step_neither_waits_nor_fetches(places, joint, augment, on_meta, monkeypatch):
    trainer = make_trainer(places, augment, DEVICE)
    mixture = mixture_on(DEVICE) if joint else None
    shares = torch.ones(N_ROWS + N_REPLAYED, 1) if joint and augment is not None else None
    before, terms_of = [], trainer._terms

    def watched(*given):
        before.append(NoTraffic())
        before[-1].__enter__()  # from here to the end of the step
        return terms_of(*given)

    def moved(step=trainer.optimiser.step):
        step()
        before[-1].__exit__(None, None, None)

    monkeypatch.setattr(trainer, "_terms", watched)
    monkeypatch.setattr(trainer.optimiser, "step", moved)
    trainer.epoch(lambda part: 1e-3, mixture, shares)
    (told, sizes), *more = on_meta
    assert not more
    assert len(before) == len(told) == 4
    assert sizes == [20, 20, 20, 20]
    assert {one.device.type for one in told} == {"meta"}


def test_stacked_pretraining_reads_losses_once_an_epoch(on_meta, monkeypatch):
    trainer = make_trainer(False, MaskingNoise(), DEVICE)
    trainer.settings = replace(trainer.settings, stacked_epochs=2)
    read, watching = [], NoTraffic()

    def mean(losses, sizes, depth):
        watching.__exit__(None, None, None)
        read.append((depth, sizes, {loss.device.type for loss in losses}))
        watching.__enter__()  # from here to the end of the next epoch
        return 0.0

    monkeypatch.setattr(pretrain, "_mean", mean)
    with watching:
        steps = list(module.layer_by_layer(trainer, module.Clock()))
    assert [step.stage for step in steps] == ["pretrain"] * 4
    assert read == [(depth, [25, 25, 25, 5], {"meta"}) for depth in (0, 0, 1, 1)]


def test_layers_that_do_not_fit_are_trained_from_the_cpu(on_meta, monkeypatch):
    trainer = make_trainer(False, None, DEVICE)
    trainer.settings = replace(trainer.settings, stacked_epochs=1)
    monkeypatch.setattr(training_rows, "free_memory", lambda device: 1000.0)
    monkeypatch.setattr(pretrain, "_mean", lambda losses, sizes, depth: 0.0)
    with pytest.raises(AssertionError, match="_to_copy"), NoTraffic():
        list(module.layer_by_layer(trainer, module.Clock()))


def test_traffic_is_noticed():
    with NoTraffic(), pytest.raises(AssertionError, match="_to_copy"):
        torch.zeros(3).to(DEVICE)


def test_rows_that_do_not_fit_stay_on_the_cpu(monkeypatch):
    monkeypatch.setattr(training_rows, "free_memory", lambda device: 1000.0)
    trainer = make_trainer(True, None, torch.device("cpu"))
    assert trainer.rows.place_for(DEVICE).type == "cpu"
    monkeypatch.setattr(training_rows, "free_memory", lambda device: 1e9)
    assert trainer.rows.place_for(DEVICE) == DEVICE
    moved = trainer.rows.to(DEVICE)
    assert {part.device.type for part in moved.tensors} == {"meta"}
    assert [part.shape for part in moved.tensors] == [part.shape for part in trainer.rows.tensors]


def test_an_augmentation_of_the_callers_own_gets_rows_on_the_cpu(on_meta):
    assert make_trainer(False, lambda rows, generator: rows, DEVICE).place.type == "cpu"
    assert make_trainer(False, MaskingNoise(), DEVICE).place == DEVICE


def test_without_replayed_rows(on_meta):
    trainer = make_trainer(True, None, DEVICE, replayed=0)
    trainer.rows = replace(trainer.rows, redraw=None)
    trainer.epoch(lambda part: 1e-3)
    assert len(on_meta) == 1


def test_rows_that_are_asked_for_on_the_cpu_are_shown_there(on_meta):
    """As competing systems ask for them."""
    trainer = make_trainer(False, MaskingNoise(), DEVICE)
    for batch in trainer.batches():
        values, inputs = trainer.shown(batch)
        assert values.device == inputs.device == torch.device("cpu")
