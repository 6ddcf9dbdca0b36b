"""Layer-wise pretraining: it lowers the error of each layer, and says what it cannot do."""

import numpy as np
import pytest
import torch

from dbull.errors import NumericalError, SettingsError
from dbull.nets.augment import MaskingNoise
from dbull.nets.pretrain import layer_pairs, stacked_denoising
from dbull.nets.vae import VAE, NetworkShape


def make(*args, **kwargs):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return VAE(NetworkShape(*args, **kwargs))


@pytest.fixture
def inputs():
    """Ten columns that are mixtures of three."""
    rng = np.random.default_rng(0)
    return torch.tensor(rng.normal(size=(300, 3)) @ rng.normal(size=(3, 10)), dtype=torch.float32)


def pretrain(vae, inputs, n_epochs=15, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return list(stacked_denoising(vae, inputs, n_epochs, generator, 3e-3, 50))


def test_every_layer_learns(inputs):
    vae = make(10, 10, 3, "mlp", (16, 8), "gaussian")
    steps = pretrain(vae, inputs)
    assert [(layer, epoch) for layer, epoch, _ in steps] == [(i, e) for i in range(3) for e in range(15)]
    errors = np.array([error for *_, error in steps]).reshape(3, 15)
    assert (errors[:, -1] < 0.8 * errors[:, 0]).all()


def test_the_whole_network_reconstructs_better(inputs):
    vae = make(10, 10, 3, "mlp", (16, 8), "gaussian")

    def error():
        with torch.no_grad():
            return float((vae.decode(vae.encode_mean(inputs)) - inputs).square().mean())

    before = error()
    pretrain(vae, inputs, 40)
    assert error() < 0.7 * before


def test_reported_error_is_that_of_the_first_layer(inputs, monkeypatch):
    """At rate 0 and without holes: the error of the outermost pair, by hand."""
    vae = make(10, 10, 3, "mlp", (16,), "gaussian")
    encode, decode = layer_pairs(vae)[0]
    with torch.no_grad():
        want = float((decode(torch.relu(encode(inputs))) - inputs).square().mean())
        hidden = torch.relu(encode(inputs))
        inner, outer = layer_pairs(vae)[1]
        second = float((torch.relu(outer(inner(hidden))) - hidden).square().mean())
    generator = torch.Generator().manual_seed(0)
    monkeypatch.setattr("dbull.nets.pretrain.NOISE", MaskingNoise(0.0))
    steps = list(stacked_denoising(vae, inputs, 1, generator, 0.0, 50))
    assert steps[0][2] == pytest.approx(want, rel=1e-5)
    assert steps[1][2] == pytest.approx(second, rel=1e-5)


def test_pairs_meet_in_the_middle():
    vae = make(10, 10, 3, "mlp", (16, 8), "gaussian")
    sizes = [(a.in_features, a.out_features, b.in_features, b.out_features) for a, b in layer_pairs(vae)]
    assert sizes == [(10, 16, 16, 10), (16, 8, 8, 16), (8, 3, 3, 8)]
    assert layer_pairs(vae)[-1][0] is vae.mean_head


def test_variance_head_is_left_alone(inputs):
    vae = make(10, 10, 3, "mlp", (16,), "gaussian")
    before = vae.log_var_head.weight.clone()
    pretrain(vae, inputs, 2)
    assert torch.equal(vae.log_var_head.weight, before)


def test_same_generator_same_weights(inputs):
    weights = []
    for seed in (0, 0, 1):
        vae = make(10, 10, 3, "mlp", (16,), "gaussian")
        pretrain(vae, inputs, 2, seed)
        weights.append(vae.mean_head.weight.detach())
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])


def test_without_hidden_layers(inputs):
    steps = pretrain(make(10, 10, 3, "mlp", (), "gaussian"), inputs, 5)
    assert len(steps) == 5
    assert steps[-1][2] < steps[0][2]


def test_what_cannot_be_pretrained(inputs):
    with pytest.raises(SettingsError, match="for encoder='mlp', not 'conv'"):
        pretrain(make(10, 10, 3, "conv", (), "gaussian", (2, 5, 1)), inputs)
    with pytest.raises(SettingsError, match="front_end=False"):
        pretrain(make(10, 12, 3, "mlp", (8,), "gaussian"), inputs)
    with pytest.raises(SettingsError, match="one output per value"):
        pretrain(make(10, 10, 3, "mlp", (8,), "gaussian-learned"), inputs)


def test_not_finite_names_the_layer(inputs):
    vae = make(10, 10, 3, "mlp", (16,), "gaussian")
    bad = inputs.clone()
    bad[7] = 1e30
    with pytest.raises(NumericalError, match="layer 1 left the range"):
        pretrain(vae, bad, 2)
