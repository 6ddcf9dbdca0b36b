"""Fixed features of images: shapes, what they do not see, and what straightening undoes."""

import math

import numpy as np
import pytest
import torch
from scipy import ndimage
from sklearn.datasets import load_digits

from dbull.nets.frontend import FrontEnd, blurred, gradients, pooling, straightened


@pytest.fixture(scope="module")
def digits():
    """Twenty figures of 28 x 28 on empty ground, smooth."""
    small = load_digits().images[:20] / 16
    return torch.tensor(np.stack([np.pad(ndimage.zoom(i, 2, order=1), 6) for i in small])).float()


def sheared(image, slant):
    """The image with row y moved by slant * (y - middle), by scipy."""
    middle = (image.shape[0] - 1) / 2
    return ndimage.affine_transform(image, [[1, 0], [slant, 1]], offset=[0, -slant * middle], order=1)


@pytest.mark.parametrize("shape", [(28, 28, 1), (7, 13, 1), (32, 32, 3), (5, 4, 2), (1, 9, 1), (9, 1, 1)])
@pytest.mark.parametrize("straighten", [False, True])
def test_shapes_and_length(shape, straighten):
    front_end = FrontEnd(*shape, straighten=straighten, n_cells=4)
    rows = torch.rand(6, math.prod(shape), generator=torch.Generator().manual_seed(0))
    features = front_end(rows)
    assert features.shape == (6, front_end.n_features) == (6, 8 * 16)
    assert torch.isfinite(features).all()
    assert (features >= 0).all()
    torch.testing.assert_close(features.pow(4).sum(1), torch.ones(6))  # roots of a vector of length 1


@pytest.mark.parametrize("straighten", [False, True])
def test_empty_images_have_no_features(straighten):
    features = FrontEnd(8, 8, straighten=straighten)(torch.zeros(3, 64))
    assert torch.isfinite(features).all()
    assert not features.any()


@pytest.mark.parametrize("factor", [0.01, 0.5, 3.0])
@pytest.mark.parametrize("straighten", [False, True])
def test_brightness_changes_nothing(digits, factor, straighten):
    front_end = FrontEnd(28, 28, straighten=straighten)
    rows = digits.flatten(1)
    torch.testing.assert_close(front_end(rows * factor), front_end(rows), rtol=1e-3, atol=1e-3)


def test_rows_stand_alone(digits):
    front_end = FrontEnd(28, 28, straighten=True)
    rows = digits.flatten(1)
    one_by_one = torch.cat([front_end(row[None]) for row in rows])
    assert torch.equal(one_by_one, front_end(rows))


def test_channels_are_averaged(digits):
    grey = digits.flatten(1)
    colour = torch.stack([0 * digits, digits, 2 * digits], dim=-1).flatten(1)
    torch.testing.assert_close(FrontEnd(28, 28, 3)(colour), FrontEnd(28, 28)(grey), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("slant", [-0.4, 0.3])
def test_straightening_undoes_a_shear(digits, slant):
    slanted = torch.tensor(np.stack([sheared(image.numpy(), slant) for image in digits]))
    before = (slanted - digits).flatten(1).norm(dim=1)
    after = (straightened(slanted) - straightened(digits)).flatten(1).norm(dim=1)
    assert (after < 0.5 * before).all()
    with_it, without = FrontEnd(28, 28, straighten=True), FrontEnd(28, 28)
    near = (with_it(slanted.flatten(1)) - with_it(digits.flatten(1))).norm(dim=1)
    far = (without(slanted.flatten(1)) - without(digits.flatten(1))).norm(dim=1)
    assert (near < 0.6 * far).all()


def test_straightening_undoes_a_shift(digits):
    shifted = torch.roll(digits, (2, -3), dims=(1, 2))
    torch.testing.assert_close(straightened(shifted), straightened(digits), rtol=1e-3, atol=1e-3)


def test_straightened_images_are_centred_and_upright(digits):
    y, x = torch.meshgrid(torch.arange(28.0), torch.arange(28.0), indexing="ij")
    for image in straightened(digits):
        mass = image.sum()
        mean_y, mean_x = (image * y).sum() / mass, (image * x).sum() / mass
        assert abs(mean_y - 13.5) < 0.4
        assert abs(mean_x - 13.5) < 0.4
        slant = (image * (y - mean_y) * (x - mean_x)).sum() / (image * (y - mean_y) ** 2).sum()
        assert abs(slant) < 0.12


def test_blur_is_scipys():
    """Away from the border, where the two continue the image differently; same reach."""
    image = torch.rand(1, 20, 20, generator=torch.Generator().manual_seed(1))
    by_scipy = ndimage.gaussian_filter(image[0].numpy(), 1.0, truncate=2.0)
    np.testing.assert_allclose(blurred(image, 1.0)[0, 3:-3, 3:-3], by_scipy[3:-3, 3:-3], rtol=1e-5)


def test_gradients_of_a_plane():
    y, x = torch.meshgrid(torch.arange(6.0), torch.arange(9.0), indexing="ij")
    horizontal, vertical = gradients((3 * x - 2 * y)[None])
    assert (horizontal[0, :, 1:-1] == 3).all()
    assert (vertical[0, 1:-1] == -2).all()
    assert (horizontal[0, :, [0, -1]] == 1.5).all()  # the border counts as continued


@pytest.mark.parametrize(("turn", "orientation"), [(0, 0), (1, 6), (2, 4), (3, 2)])
def test_an_edge_votes_for_its_orientation(turn, orientation):
    """Brightness that rises to the right is orientation 0 of 8, downwards 2, to the left 4, upwards 6."""
    ramp = torch.rot90(torch.arange(12.0).expand(12, 12), turn, dims=(0, 1)) / 11
    features = FrontEnd(12, 12, n_cells=3)(ramp.reshape(1, -1)).reshape(8, 3, 3)
    assert int(features[:, 1, 1].argmax()) == orientation


def test_a_direction_between_two_votes_for_both():
    angle = 2 * math.pi * 0.25 / 8
    y, x = torch.meshgrid(torch.arange(24.0), torch.arange(24.0), indexing="ij")
    ramp = (math.cos(angle) * x + math.sin(angle) * y) / 24
    votes = FrontEnd(24, 24, n_cells=3)(ramp.reshape(1, -1)).reshape(8, 3, 3)[:, 1, 1].square()
    share = votes / votes.sum()
    assert float(share[0]) == pytest.approx(0.75, abs=0.02)
    assert float(share[1]) == pytest.approx(0.25, abs=0.02)


def test_cells_cover_every_pixel_and_look_the_same_from_both_ends():
    weights = pooling(28, 9)
    assert weights.shape == (9, 28)
    torch.testing.assert_close(weights, weights.flip(0, 1))
    assert weights.sum(0).min() > 0.5
    assert (weights.argmax(1).diff() > 0).all()
