"""Imprints: exact moments however rows arrive, densities of the explicit Gaussian, draws like the rows."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from dbull.lifelong.past import (
    FEWEST_ROWS,
    SMALLEST_LEFTOVER,
    Imprint,
    draw_rows,
    imprint_of,
    log_densities,
    pooled,
    pooled_shape,
    private_imprint_of,
)


def some_rows(n_rows, n_columns, seed=0, spread=1.0):
    """Rows with a few strong directions and a noise well above the smallest leftover."""
    rng = np.random.default_rng(seed)
    strong = rng.normal(size=(n_rows, 3)) @ rng.normal(size=(3, n_columns))
    return 2.0 + strong + spread * rng.normal(size=(n_rows, n_columns))


def as_inputs(rows):
    return torch.tensor(rows, dtype=torch.float32)


def covariance(imprint):
    factor = imprint.factor.double().numpy()
    return factor.T @ factor + np.diag(imprint.leftover.double().numpy())


def in_parts(rows, cuts, rank):
    parts = [part for part in np.split(rows, sorted(cuts)) if len(part)]
    imprint = imprint_of(as_inputs(parts[0]), rank)
    for part in parts[1:]:
        imprint = pooled(imprint, imprint_of(as_inputs(part), rank), rank)
    return imprint


# Moments.


@settings(max_examples=40)
@given(st.integers(0, 2**32 - 1), st.lists(st.integers(20, 180), max_size=5), st.integers(1, 6))
def test_mean_and_variance_are_those_of_all_rows_however_they_arrive(seed, cuts, rank):
    """Parts of 20 rows and more in 12 dimensions: the leftover is above its smallest in each of them."""
    rows = some_rows(200, 12, seed)
    cuts = [c for i, c in enumerate(sorted(set(cuts))) if i == 0 or c - sorted(set(cuts))[i - 1] >= 20]
    imprint = in_parts(rows, cuts, rank)
    assert imprint.n_rows == 200
    np.testing.assert_allclose(imprint.mean.numpy(), rows.mean(0), rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(imprint.variance.numpy(), rows.var(0), rtol=1e-3)
    assert imprint.factor.shape == (rank, 12)


@pytest.mark.parametrize("n_rows", [40, 400])
@pytest.mark.parametrize("n_columns", [12, 60])
def test_the_directions_are_the_leading_principal_ones(n_rows, n_columns):
    """By numpy's own decomposition, with fewer rows than columns and with more."""
    rows = some_rows(n_rows, n_columns)
    imprint = imprint_of(as_inputs(rows), 5)
    _, values, vectors = np.linalg.svd((rows - rows.mean(0)) / np.sqrt(n_rows), full_matrices=False)
    leading = vectors[:5].T * values[:5] ** 2 @ vectors[:5]
    factor = imprint.factor.double().numpy()
    np.testing.assert_allclose(factor.T @ factor, leading, atol=1e-3 * np.abs(leading).max())
    # Directions are orthogonal, each as long as the standard deviation along it.
    np.testing.assert_allclose(factor @ factor.T, np.diag(values[:5][::-1] ** 2), atol=1e-3 * values[0] ** 2)
    np.testing.assert_allclose(
        imprint.leftover.numpy(), np.maximum(rows.var(0) - np.diag(leading), SMALLEST_LEFTOVER), rtol=1e-3
    )


def test_at_full_rank_pooling_loses_nothing_but_the_smallest_leftover():
    """With as many directions as there are, the whole covariance is that of all rows."""
    rows = some_rows(90, 5)
    imprint = in_parts(rows, [25, 60], 5)
    got = covariance(imprint)
    want = np.cov(rows.T, bias=True)
    np.testing.assert_allclose(got - np.diag(np.diag(got)), want - np.diag(np.diag(want)), atol=1e-3)
    assert (np.diag(got) >= np.diag(want) - 1e-4).all()
    assert (np.diag(got) <= np.diag(want) + SMALLEST_LEFTOVER + 1e-4).all()


def test_the_smallest_leftover_does_not_build_up():
    """However often a tight cluster is seen, it stays as tight as one look made it."""
    rng = np.random.default_rng(0)
    tight = [as_inputs(1e-4 * rng.normal(size=(30, 10))) for _ in range(20)]
    imprint = imprint_of(tight[0], 3)
    for rows in tight[1:]:
        imprint = pooled(imprint, imprint_of(rows, 3), 3)
    torch.testing.assert_close(imprint.leftover, torch.full((10,), SMALLEST_LEFTOVER), rtol=1e-3, atol=0)
    assert imprint.n_rows == 600


def test_size_does_not_depend_on_the_rows_seen():
    imprint = in_parts(some_rows(300, 12), range(25, 300, 25), 4)
    assert imprint.factor.shape == (4, 12)
    assert imprint.mean.shape == imprint.leftover.shape == (12,)
    assert imprint.mean.dtype == imprint.factor.dtype == imprint.leftover.dtype == torch.float32


def test_pooling_has_no_order():
    a, b = (imprint_of(as_inputs(some_rows(n, 8, seed)), 3) for n, seed in ((50, 1), (70, 2)))
    np.testing.assert_allclose(covariance(pooled(a, b, 3)), covariance(pooled(b, a, 3)), rtol=1e-4, atol=1e-4)
    assert pooled(a, b, 3).n_rows == 120


def test_far_apart_means_become_a_direction():
    """Of two tight sets the line between them is the leading direction."""
    a, b = (imprint_of(as_inputs(0.01 * some_rows(40, 6, seed)), 1) for seed in (1, 2))
    apart = Imprint(b.n_rows, b.mean + torch.tensor([0.0, 30.0, 0, 0, 0, 0]), b.factor, b.leftover)
    both = pooled(a, apart, 1)
    assert float(both.factor[0, 1].abs()) == pytest.approx(15.0, rel=1e-2)  # half of the distance
    assert float(both.factor[0].square().sum()) == pytest.approx(225.0, rel=1e-2)


@pytest.mark.parametrize("n_columns", [1, 7])
def test_one_row(n_columns):
    row = torch.arange(n_columns, dtype=torch.float32)[None]
    imprint = imprint_of(row, 4)
    assert imprint.n_rows == 1.0
    assert torch.equal(imprint.mean, row[0])
    torch.testing.assert_close(imprint.variance, torch.full((n_columns,), SMALLEST_LEFTOVER))
    want = stats.norm(0, np.sqrt(SMALLEST_LEFTOVER)).logpdf(0) * n_columns
    assert float(log_densities(imprint, row)[0]) == pytest.approx(want, rel=1e-6)
    assert draw_rows(imprint, 3, torch.Generator().manual_seed(0)).shape == (3, n_columns)


def test_constant_rows():
    imprint = imprint_of(torch.full((30, 4), 2.5), 2)
    assert torch.equal(imprint.mean, torch.full((4,), 2.5))
    torch.testing.assert_close(imprint.variance, torch.full((4,), SMALLEST_LEFTOVER))


# Densities and draws.


@pytest.mark.parametrize("rank", [1, 4, 20])
@pytest.mark.parametrize("n_rows", [3, 100])
def test_density_is_that_of_the_explicit_covariance(rank, n_rows):
    imprint = imprint_of(as_inputs(some_rows(n_rows, 9)), rank)
    asked = some_rows(20, 9, 5)
    got = log_densities(imprint, as_inputs(asked))
    assert got.dtype == torch.float64
    want = stats.multivariate_normal(imprint.mean.double().numpy(), covariance(imprint))
    np.testing.assert_allclose(got.numpy(), want.logpdf(as_inputs(asked).double().numpy()), rtol=1e-6)


def test_draws_have_the_moments_of_the_imprint():
    """To four standard errors of means, and five of covariances."""
    imprint = imprint_of(as_inputs(some_rows(60, 5)), 2)
    n_draws = 40_000
    drawn = draw_rows(imprint, n_draws, torch.Generator().manual_seed(0)).double().numpy()
    want = covariance(imprint)
    error = np.sqrt(np.diag(want) / n_draws)
    assert (np.abs(drawn.mean(0) - imprint.mean.double().numpy()) < 4 * error).all()
    scale = np.sqrt((want**2 + np.outer(np.diag(want), np.diag(want))) / n_draws)
    assert (np.abs(np.cov(drawn.T) - want) < 5 * scale).all()


def test_draws_follow_the_generator():
    imprint = imprint_of(as_inputs(some_rows(60, 5)), 2)
    a, b, c = (draw_rows(imprint, 4, torch.Generator().manual_seed(seed)) for seed in (0, 0, 1))
    assert torch.equal(a, b)
    assert not torch.equal(a, c)


@pytest.mark.parametrize("size", [1e3, 1e6])
def test_inputs_as_far_out_as_they_can_be(size):
    """Inputs end at a million standard deviations; the small matrix must still have its root."""
    rows = as_inputs(some_rows(30, 200))
    rows[0] = size
    rows[1] = -size * torch.arange(200) / 200
    imprint = imprint_of(rows, 20)
    assert bool(torch.isfinite(log_densities(imprint, rows)).all())
    few = imprint_of(rows[:2], 20)
    assert bool(torch.isfinite(log_densities(few, rows)).all())


@pytest.mark.parametrize("n_rows", [1, 2, FEWEST_ROWS - 1])
def test_few_rows_keep_a_mean_and_lend_a_shape(n_rows):
    """The one direction of two rows leads from their mean to both: neither it nor their variance is kept."""
    generator = torch.Generator().manual_seed(n_rows)
    crowd = torch.randn(60, 5, generator=generator)
    shape = pooled_shape(crowd, torch.arange(60) % 2, 3)
    few = 4.0 + 0.1 * torch.randn(n_rows, 5, generator=generator)
    for rows in (few, few.repeat(30, 1)):  # copies are no more rows
        kept = private_imprint_of(rows, 3, lambda: shape)
        assert torch.equal(kept.mean, rows.mean(0))
        assert torch.equal(kept.factor, shape.factor)
        assert torch.equal(kept.leftover, shape.leftover)
    many = private_imprint_of(crowd, 3, lambda: shape)
    assert not torch.equal(many.factor, shape.factor)
    # What few rows add to others is their number and their mean.
    both = pooled(many, private_imprint_of(few, 3, lambda: shape), 3)
    assert torch.equal(both.factor, many.factor)
    assert torch.equal(both.leftover, many.leftover)
    torch.testing.assert_close(both.mean, torch.cat([crowd, few]).mean(0))


def test_the_shape_of_few_rows_is_that_of_rows_around_their_means():
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(90) % 3
    rows = torch.randn(90, 4, generator=generator) + 10.0 * labels[:, None]
    shape = pooled_shape(rows, labels, 2)
    beside = torch.cat([rows[labels == k] - rows[labels == k].mean(0) for k in range(3)])
    torch.testing.assert_close(shape.variance, beside.square().mean(0), rtol=1e-3, atol=1e-3)
    assert torch.equal(pooled_shape(rows[:5], labels[:5], 4).variance, torch.ones(4))
