"""The quick product is the usual one: values and gradients, whatever is asked for."""

import pytest
import torch
from torch.nn import functional as F

from dbull.nets import linear as quick
from dbull.nets.vae import VAE, NetworkShape


def drawn(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def gradients(product, wanted):
    x, weight, bias = (drawn(*shape, seed=i) for i, shape in enumerate([(37, 50), (23, 50), (23,)]))
    parts = [part.requires_grad_(name in wanted) for part, name in zip((x, weight, bias), "xwb", strict=True)]
    answer = product(*parts)
    (answer * drawn(37, 23, seed=9)).sum().backward()
    return answer, [part.grad for part in parts]


@pytest.mark.parametrize("wanted", ["xwb", "wb", "x"])
def test_values_and_gradients(wanted):
    ours, theirs = gradients(quick.linear, wanted), gradients(F.linear, wanted)
    torch.testing.assert_close(ours[0], theirs[0], rtol=1e-5, atol=1e-5)
    for our, their in zip(ours[1], theirs[1], strict=True):
        assert (our is None) == (their is None)
        if our is not None:
            torch.testing.assert_close(our, their, rtol=1e-5, atol=1e-4)


def test_part_of_a_larger_weight():
    """As CURL asks for the components in use: a slice has a gradient where it is, and none elsewhere."""
    weight = drawn(30, 8, seed=1).requires_grad_()
    quick.linear(drawn(5, 8), weight[:20], torch.zeros(20)).sum().backward()
    assert bool((weight.grad[:20] != 0).all())
    assert bool((weight.grad[20:] == 0).all())


def test_float64_and_no_rows_are_as_usual():
    x, weight, bias = drawn(4, 3).double(), drawn(2, 3).double(), drawn(2).double()
    assert torch.equal(quick.linear(x, weight, bias), F.linear(x, weight, bias))
    assert quick.linear(drawn(0, 3), drawn(2, 3), drawn(2)).shape == (0, 2)


@pytest.mark.parametrize("encoder", ["mlp", "conv"])
def test_networks_as_a_whole(encoder):
    torch.manual_seed(0)
    vae = VAE(NetworkShape(64, 64, 3, encoder=encoder, hidden_dims=(20, 10), image_shape=(8, 8, 1)))
    x = drawn(7, 64)
    torch.testing.assert_close(quick.through(vae.trunk, x), vae.trunk(x), rtol=1e-5, atol=1e-5)


def test_it_is_used_where_pytorch_has_it():
    if not quick.HAS_ONEDNN:
        pytest.skip("this PyTorch has no oneDNN")
    answer, _ = gradients(quick.linear, "xwb")
    assert type(answer.grad_fn).__name__ == "_LinearBackward"
