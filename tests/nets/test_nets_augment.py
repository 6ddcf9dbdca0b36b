"""Random changes of samples: against scipy, per sample, and by the generator alone."""

import math

import numpy as np
import pytest
import torch
from scipy import ndimage, stats

from dbull.nets import augment as module
from dbull.nets.augment import ImageShifts, MaskingNoise, uniform


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def pictures(n, height, width, n_channels=1):
    """Smooth blobs away from the border."""
    rng = np.random.default_rng(0)
    raw = rng.random((n, height, width, n_channels))
    raw[:, : height // 4] = raw[:, -height // 4 :] = raw[:, :, : width // 4] = raw[:, :, -width // 4 :] = 0
    return torch.tensor(ndimage.gaussian_filter(raw, (0, 2, 2, 0))).float()


@pytest.fixture
def largest(monkeypatch):
    """Every draw is the largest that it can be."""
    monkeypatch.setattr(module, "uniform", lambda shape, reach, generator: torch.full(shape, float(reach)))


@pytest.mark.parametrize("shape", [(28, 28, 1), (9, 14, 3)])
def test_no_strength_no_change(shape):
    rows = torch.rand(5, math.prod(shape), generator=seeded())
    still = ImageShifts(*shape, rotation=0, shift=0)
    torch.testing.assert_close(still(rows, seeded()), rows, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("shape", [(30, 30), (40, 24), (24, 40)])
@pytest.mark.parametrize("degrees", [10.0, -25.0])
@pytest.mark.usefixtures("largest")
def test_rotation_is_scipys(shape, degrees):
    """Of oblong images too: a turn keeps lengths."""
    images = pictures(3, *shape)
    turned = ImageShifts(*shape, rotation=degrees, shift=0)(images.flatten(1), seeded())
    for image, found in zip(images, turned.reshape(-1, *shape), strict=True):
        expected = ndimage.rotate(image[:, :, 0].numpy(), degrees, reshape=False, order=1)
        np.testing.assert_allclose(found.numpy(), expected, atol=2e-3)
        assert np.abs(image[:, :, 0].numpy() - expected).max() > 0.02  # the turn is seen


@pytest.mark.usefixtures("largest")
def test_shift_is_a_share_of_the_side():
    images = pictures(2, 20, 40)
    moved = ImageShifts(20, 40, rotation=0, shift=0.1)(images.flatten(1), seeded()).reshape(2, 20, 40)
    expected = torch.zeros(2, 20, 40)
    expected[:, :-2, :-4] = images[:, 2:, 4:, 0]
    torch.testing.assert_close(moved, expected, rtol=1e-3, atol=1e-4)


@pytest.mark.usefixtures("largest")
def test_scale_is_scipys():
    image = pictures(1, 31, 31)
    found = ImageShifts(31, 31, rotation=0, shift=0, scale=0.2)(image.flatten(1), seeded()).reshape(31, 31)
    middle = 15.0
    expected = ndimage.affine_transform(image[0, :, :, 0].numpy(), [1.2, 1.2], middle - 1.2 * middle, order=1)
    np.testing.assert_allclose(found.numpy(), expected, atol=2e-3)


@pytest.mark.usefixtures("largest")
def test_shear_is_scipys():
    image = pictures(1, 31, 31)
    found = ImageShifts(31, 31, rotation=0, shift=0, shear=0.3)(image.flatten(1), seeded()).reshape(31, 31)
    plain = image[0, :, :, 0].numpy()
    expected = ndimage.affine_transform(plain, [[1, 0], [0.3, 1]], [0, -0.3 * 15], order=1)
    np.testing.assert_allclose(found.numpy(), expected, atol=2e-3)


def test_each_sample_has_its_own_change_and_the_generator_decides():
    images = pictures(1, 28, 28).flatten(1).expand(6, -1)
    change = ImageShifts(28, 28)
    once = change(images, seeded(3))
    assert torch.equal(once, change(images, seeded(3)))
    assert not torch.equal(once, change(images, seeded(4)))
    assert (torch.pdist(once) > 1e-3).all()


def test_channels_move_together():
    grey = pictures(4, 20, 20)
    colour = torch.cat([grey, 0.5 * grey, 0 * grey], dim=3)
    found = ImageShifts(20, 20, 3)(colour.flatten(1), seeded()).reshape(4, 20, 20, 3)
    alone = ImageShifts(20, 20)(grey.flatten(1), seeded()).reshape(4, 20, 20)
    torch.testing.assert_close(found[..., 0], alone)
    torch.testing.assert_close(found[..., 1], 0.5 * alone)
    assert not found[..., 2].any()


def test_changes_leave_the_samples_given_and_the_global_stream_alone():
    rows = pictures(4, 20, 20).flatten(1)
    before, state = rows.clone(), torch.get_rng_state()
    ImageShifts(20, 20)(rows, seeded())
    MaskingNoise(0.5)(rows, seeded())
    assert torch.equal(rows, before)
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize("share", [0.0, 0.2, 0.7, 1.0])
def test_masking_takes_the_share_it_says_and_leaves_the_rest(share):
    rows = torch.rand(200, 50, generator=seeded()) + 1
    found = MaskingNoise(share)(rows, seeded(1))
    gone = found == 0
    assert torch.equal(found[~gone], rows[~gone])
    assert gone.double().mean() == pytest.approx(share, abs=5 * math.sqrt(share * (1 - share) / 10_000))


def test_uniform_is_on_both_sides():
    draws = uniform((4000,), 3.0, seeded()).numpy()
    assert stats.kstest(draws, stats.uniform(-3, 6).cdf).pvalue > 1e-3
