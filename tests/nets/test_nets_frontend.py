"""Fixed features of images: shapes, what they do not see, and what straightening undoes."""

import math

import numpy as np
import pytest
import torch
from scipy import ndimage
from sklearn.datasets import load_digits

from dbull.nets.frontend import FrontEnd, blurred, central_difference, pooling, straightened


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


def test_the_place_of_an_image_changes_no_bit():
    """Beyond one chunk, and for every place in it."""
    front_end = FrontEnd(28, 28, straighten=True)
    rows = torch.rand(600, 784, generator=torch.Generator().manual_seed(2))
    order = torch.randperm(600, generator=torch.Generator().manual_seed(3))
    assert torch.equal(front_end(rows)[order], front_end(rows[order]))


def by_the_book(image, n_orientations, n_cells):
    """Features of one image (28, 28), pixel by pixel in float64."""
    smooth = blurred(image.double()[:, :, None], 0.5)[:, :, 0].numpy()
    padded = np.pad(smooth, 1, mode="edge")
    right, down = (padded[1:-1, 2:] - padded[1:-1, :-2]) / 2, (padded[2:, 1:-1] - padded[:-2, 1:-1]) / 2
    centres = (np.arange(n_cells) + 0.5) * 28 / n_cells - 0.5
    features = np.zeros((n_orientations, n_cells, n_cells))
    for i in range(28):
        for j in range(28):
            place = np.arctan2(down[i, j], right[i, j]) * n_orientations / (2 * np.pi)
            near = np.exp(-0.5 * ((np.array([i, j])[:, None] - centres) / (14 / n_cells)) ** 2)
            for orientation in range(n_orientations):
                away = abs((place - orientation + n_orientations / 2) % n_orientations - n_orientations / 2)
                vote = max(0.0, 1 - away) * np.hypot(right[i, j], down[i, j])
                features[orientation] += vote * np.outer(*near)
    return np.sqrt(features.ravel() / np.linalg.norm(features))


@pytest.mark.parametrize("n_orientations", [3, 8])
def test_features_by_the_book(digits, n_orientations):
    ours = FrontEnd(28, 28, n_orientations=n_orientations, n_cells=4)(digits[:2].flatten(1))
    for image, features in zip(digits, ours, strict=False):
        # Roots of votes, so that a vote of 1e-8 more shows as 1e-4.
        np.testing.assert_allclose(features, by_the_book(image, n_orientations, 4), atol=2e-5)


@pytest.mark.parametrize("shape", [(28, 28), (5, 9), (9, 5), (2, 2)])
def test_straightening_is_one_affine_map(shape):
    """The same by torch's own resampling, with moments in float64."""
    images = torch.rand(50, *shape, generator=torch.Generator().manual_seed(4)) ** 8
    y = torch.linspace(-1, 1, shape[0]).double()[:, None]
    x = torch.linspace(-1, 1, shape[1]).double()
    weights = images.double() / images.double().sum((1, 2), keepdim=True)
    mean_y, mean_x = (weights * y).sum((1, 2), keepdim=True), (weights * x).sum((1, 2), keepdim=True)
    spread = (weights * (y - mean_y) ** 2).sum((1, 2)).clamp(min=1e-4)
    slant = ((weights * (y - mean_y) * (x - mean_x)).sum((1, 2)) / spread).clamp(-1, 1)
    affine = torch.zeros(50, 2, 3, dtype=torch.float64)
    affine[:, 0, 0] = affine[:, 1, 1] = 1
    affine[:, 0, 1], affine[:, 0, 2], affine[:, 1, 2] = slant, mean_x.flatten(), mean_y.flatten()
    grid = torch.nn.functional.affine_grid(affine, [50, 1, *shape], align_corners=True)
    sampled = torch.nn.functional.grid_sample(images.double()[:, None], grid, align_corners=True)[:, 0]
    torch.testing.assert_close(straightened(images), sampled.float(), rtol=0, atol=2e-6)


@pytest.mark.parametrize("level", [-1.0, 1e-12, 1e9])
def test_images_with_odd_brightness_stay_in_reach(level):
    """Moments of negative brightness may lie anywhere; such an image may become empty, but nothing else."""
    rows = torch.rand(5, 64, generator=torch.Generator().manual_seed(5)) - 0.5
    rows[0] = level
    assert torch.isfinite(FrontEnd(8, 8, straighten=True)(rows)).all()
    assert torch.isfinite(FrontEnd(8, 8, straighten=True)(rows * level)).all()


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
    ours = blurred(image.permute(1, 2, 0), 1.0)[:, :, 0]
    np.testing.assert_allclose(ours[3:-3, 3:-3], by_scipy[3:-3, 3:-3], rtol=1e-5)


def test_gradients_of_a_plane():
    y, x = torch.meshgrid(torch.arange(6.0), torch.arange(9.0), indexing="ij")
    plane = (3 * x - 2 * y)[:, :, None]
    horizontal, vertical = central_difference(plane, 1), central_difference(plane, 0)
    assert (horizontal[:, 1:-1] == 3).all()
    assert (vertical[1:-1] == -2).all()
    assert (horizontal[:, [0, -1]] == 1.5).all()  # the border counts as continued


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
