"""Networks: shapes, mirrors, clamps, convolutions on images of any size."""

import math
from itertools import pairwise

import numpy as np
import pytest
import torch
from torch import nn

from dbull.errors import SettingsError
from dbull.nets.likelihood import LIKELIHOODS
from dbull.nets.vae import MAX_LOG_VAR, MIN_LOG_VAR, START_LOG_VAR, VAE, NetworkShape


def make(*args, seed=0, **kwargs):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return VAE(NetworkShape(*args, **kwargs))


def widths(module):
    return [(layer.in_features, layer.out_features) for layer in module if isinstance(layer, nn.Linear)]


@pytest.mark.parametrize("hidden", [(), (8,), (8, 5, 11)])
@pytest.mark.parametrize("likelihood", LIKELIHOODS)
def test_mlp_mirrors_itself(hidden, likelihood):
    vae = make(7, 4, 3, "mlp", hidden, likelihood)
    n_outputs = 8 if likelihood == "gaussian-learned" else 4
    sizes = [7, *hidden]
    assert widths(vae.trunk) == list(pairwise(sizes))
    back = [3, *reversed(hidden), n_outputs]
    assert widths(vae.decoder) == list(pairwise(back))
    mean, log_var = vae.encode(torch.randn(6, 7, generator=torch.Generator().manual_seed(0)))
    assert mean.shape == log_var.shape == (6, 3)
    assert vae.decode(mean).shape == (6, n_outputs)
    assert vae.learns


def test_encoder_by_hand():
    vae = make(4, 4, 2, "mlp", (5,), "gaussian")
    x = torch.randn(3, 4, generator=torch.Generator().manual_seed(0))
    first, mean = vae.trunk[0], vae.mean_head
    want = torch.relu(x @ first.weight.T + first.bias) @ mean.weight.T + mean.bias
    torch.testing.assert_close(vae.encode(x)[0], want)
    assert torch.equal(vae.encode_mean(x), vae.encode(x)[0])


def test_variance_starts_small_and_stays_in_bounds():
    vae = make(4, 4, 2, "mlp", (5,), "gaussian")
    x = torch.randn(50, 4, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(vae.encode(x)[1], torch.full((50, 2), START_LOG_VAR))
    nn.init.constant_(vae.log_var_head.bias, 1e3)
    assert bool((vae.encode(x)[1] == MAX_LOG_VAR).all())
    nn.init.constant_(vae.log_var_head.bias, -1e3)
    assert bool((vae.encode(x)[1] == MIN_LOG_VAR).all())


@pytest.mark.parametrize("shape", [(1, 1, 1), (1, 5, 2), (7, 3, 1), (8, 8, 1), (9, 13, 3), (28, 28, 1)])
@pytest.mark.parametrize("likelihood", ["bernoulli", "gaussian-learned"])
def test_convolutions_on_any_size(shape, likelihood):
    n = math.prod(shape)
    vae = make(n, n, 4, "conv", (), likelihood, shape)
    x = torch.rand(3, n, generator=torch.Generator().manual_seed(0))
    mean, log_var = vae.encode(x)
    assert mean.shape == log_var.shape == (3, 4)
    output = vae.decode(mean)
    assert output.shape == (3, n * vae.likelihood.n_outputs)
    assert vae.likelihood.mean(output).shape == x.shape
    vae.likelihood.log_prob(output, x).sum().backward()
    unused = [name for name, p in vae.named_parameters() if p.grad is None and not name.startswith("log_var")]
    assert unused == []


def test_convolutions_see_the_image_as_it_lies():
    """The layout of rows is height, width, channels, both on the way in and on the way out."""
    height, width, channels = 5, 6, 3
    vae = make(90, 90, 4, "conv", (), "gaussian", (height, width, channels))
    images = np.random.default_rng(0).normal(size=(2, height, width, channels))
    rows = torch.tensor(images.reshape(2, -1), dtype=torch.float32)
    seen = vae.trunk[0](rows)
    np.testing.assert_allclose(seen, images.transpose(0, 3, 1, 2), rtol=1e-6)
    back = vae.decoder[-1](nn.functional.pad(seen, (0, 2, 0, 3)))  # larger images are cropped
    torch.testing.assert_close(back, rows)


def test_two_outputs_per_value_lie_side_by_side():
    vae = make(90, 90, 4, "conv", (), "gaussian-learned", (5, 6, 3))
    rng = np.random.default_rng(1)
    means, log_vars = rng.normal(size=(2, 2, 5, 6, 3))
    images = torch.tensor(np.concatenate([means, log_vars], -1).transpose(0, 3, 1, 2), dtype=torch.float32)
    output = vae.decoder[-1](images)
    np.testing.assert_allclose(vae.likelihood.mean(output), means.reshape(2, -1), rtol=1e-6)
    np.testing.assert_allclose(output[:, 90:], log_vars.reshape(2, -1), rtol=1e-6)


def test_identity_keeps_rows():
    vae = make(3, 3, 3, "identity", (), "gaussian")
    x = torch.randn(5, 3, generator=torch.Generator().manual_seed(0))
    mean, log_var = vae.encode(x)
    assert torch.equal(mean, x)
    assert torch.equal(vae.decode(mean), x)
    assert torch.equal(vae.encode_mean(x), x)
    assert bool((log_var == MIN_LOG_VAR).all())
    assert not vae.learns


def test_shapes_that_cannot_be():
    with pytest.raises(SettingsError, match="needs image_shape"):
        NetworkShape(4, 4, 2, "conv")
    with pytest.raises(SettingsError, match="latent_dim is their width"):
        NetworkShape(4, 4, 2, "identity")
    with pytest.raises(SettingsError, match="did you mean 'conv'"):
        NetworkShape(4, 4, 2, "convs")
    with pytest.raises(SettingsError, match="unknown likelihood"):
        VAE(NetworkShape(4, 4, 2, likelihood="poisson"))


def test_a_shape_and_weights_make_the_same_networks():
    """What a checkpoint needs: the shape builds networks that take the weights."""
    for encoder, image_shape in (("mlp", None), ("conv", (3, 4, 1))):
        vae = make(12, 12, 2, encoder, (6,), "gaussian", image_shape)
        again = VAE(vae.shape)
        again.load_state_dict(vae.state_dict())
        x = torch.rand(4, 12, generator=torch.Generator().manual_seed(0))
        assert torch.equal(again.decode(again.encode(x)[0]), vae.decode(vae.encode(x)[0]))
