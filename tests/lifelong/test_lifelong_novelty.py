"""Strangeness: a scale that adds up, scores of mixtures, rows that are scored by what has not seen them."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from scipy.special import logsumexp

from dbull.lifelong.novelty import (
    FEWEST_CROSS_FITTED,
    MOST_ROWS,
    Calibration,
    cluster_peak,
    cluster_scores,
    copies_beyond,
    cross_scores,
    novel_share,
)
from dbull.lifelong.past import imprint_of, log_densities

NUMBERS = st.lists(st.floats(-1e4, 1e4), min_size=1, max_size=30)


def scores_of(numbers):
    return torch.tensor(numbers, dtype=torch.float64)


def rows_at(centre, n_rows, seed=0, n_columns=6):
    rng = np.random.default_rng(seed)
    return torch.tensor(centre + rng.normal(size=(n_rows, n_columns)), dtype=torch.float32)


def calibration_of(numbers, peak=1e4):
    scores = scores_of(numbers)
    return Calibration.of(scores, peak - scores)


# The scale.


@given(NUMBERS, NUMBERS)
def test_calibrations_add_up_to_that_of_all_scores(a, b):
    got, want = calibration_of(a) + calibration_of(b), calibration_of(a + b)
    assert dict(got.depths) == dict(want.depths)
    assert got.n_rows == want.n_rows == len(a) + len(b)
    assert got.total == pytest.approx(want.total, rel=1e-9, abs=1e-6)
    assert got.total_squares == pytest.approx(want.total_squares, rel=1e-9, abs=1e-6)


@given(NUMBERS, st.floats(0, 10))
def test_the_threshold_is_standard_deviations_below_the_mean(numbers, n_std):
    want = np.mean(numbers) - n_std * np.std(numbers)
    assert calibration_of(numbers).threshold(n_std) == pytest.approx(want, rel=1e-6, abs=0.01)


def test_without_scores_nothing_is_strange():
    assert Calibration().threshold(3.0) == -math.inf
    assert calibration_of([]) == Calibration()
    some = calibration_of([1.0, 2.0])
    assert Calibration() + some == some


def test_equal_scores_have_no_spread():
    """Rounding must not make the variance negative."""
    assert calibration_of([0.1] * 3).threshold(3.0) == pytest.approx(0.1)


def test_without_a_limit_nothing_is_strange():
    assert calibration_of([1.0, 2.0, 3.0]).threshold(math.inf) == -math.inf


@pytest.mark.parametrize("n_dims", [1, 2, 5, 10, 40])
@pytest.mark.parametrize("n_std", [2.0, 3.0])
def test_with_the_peak_as_many_rows_are_strange_whatever_the_dimensions(n_dims, n_std):
    """Depths of a Gaussian are gamma distributed, with half its dimensions as the shape."""
    depths = stats.gamma(n_dims / 2).ppf((np.arange(20_000) + 0.5) / 20_000)
    found = -Calibration.of(torch.tensor(-depths), torch.tensor(depths)).threshold(n_std, peak=0.0)
    assert stats.gamma(n_dims / 2).sf(found) == pytest.approx(stats.norm.sf(n_std), rel=0.2)


def test_without_a_peak_above_it_the_threshold_is_as_ever():
    scores = calibration_of([1.0, 2.0, 3.0])
    assert scores.threshold(3.0, peak=1.5) == scores.threshold(3.0)
    assert scores.threshold(math.inf, peak=9.0) == -math.inf


# Scores.


def test_a_cluster_is_the_mixture_of_its_imprints():
    """By scipy, weighted by the rows that the imprints have seen."""
    imprints = [imprint_of(rows_at(0.0, 30, 1), 2), imprint_of(rows_at(4.0, 90, 2), 3)]
    asked = rows_at(1.0, 15, 3)
    parts = []
    for imprint, share in zip(imprints, (0.25, 0.75), strict=True):
        factor = imprint.factor.double().numpy()
        cov = factor.T @ factor + np.diag(imprint.leftover.double().numpy())
        gaussian = stats.multivariate_normal(imprint.mean.double().numpy(), cov)
        parts.append(gaussian.logpdf(asked.double().numpy()) + np.log(share))
    np.testing.assert_allclose(
        cluster_scores(asked, imprints).numpy(), logsumexp(parts, axis=0), rtol=1e-6, atol=1e-6
    )
    torch.testing.assert_close(cluster_scores(asked, imprints[:1]), log_densities(imprints[0], asked))


def test_cross_scores_are_usual_for_rows_that_come_later():
    """Their mean and spread are those of fresh rows; what an imprint has seen scores far too well."""
    rows, later = rows_at(0.0, 600, 4, 40), rows_at(0.0, 2000, 5, 40)
    labels = torch.zeros(600, dtype=torch.int64)
    crossed, depths = cross_scores(rows, labels, 20, torch.Generator().manual_seed(0))
    assert len(crossed) == len(depths) == 600
    assert bool((depths > 0).all())
    fresh = log_densities(imprint_of(rows[:300], 20), later)
    seen = log_densities(imprint_of(rows[:300], 20), rows[:300])
    error = float(fresh.std()) / math.sqrt(600)
    assert float(crossed.mean()) == pytest.approx(float(fresh.mean()), abs=4 * error)
    assert float(crossed.std()) == pytest.approx(float(fresh.std()), rel=0.15)
    assert float(seen.mean()) > float(fresh.mean()) + 8 * error


def test_cross_scores_take_each_row_by_the_other_half():
    """One row far away from all others: no imprint that it is scored by has seen it."""
    rows = rows_at(0.0, 80, 6)
    rows[17] = 1000.0
    scores, _ = cross_scores(rows, torch.zeros(80, dtype=torch.int64), 3, torch.Generator().manual_seed(1))
    assert len(scores) == 80
    strangest = scores.sort().values
    assert float(strangest[0]) < -1e5
    # The half that has seen it is made broad by it, but not as strange as the row itself.
    assert float(strangest[1]) > 0.01 * float(strangest[0])


def test_cross_scores_know_the_components():
    """Two components far apart: one imprint each, not one in the middle of both."""
    rows = torch.cat([rows_at(0.0, 50, 7), rows_at(50.0, 50, 8)])
    labels = torch.arange(2).repeat_interleave(50)
    apart, _ = cross_scores(rows, labels, 3, torch.Generator().manual_seed(0))
    alone, _ = cross_scores(rows[:50], labels[:50], 3, torch.Generator().manual_seed(0))
    # Each row loses the log of its component's share, and nothing else.
    assert float(apart.mean()) == pytest.approx(float(alone.mean()) - math.log(2), abs=2.0)


@pytest.mark.parametrize("n_rows", [0, 1, FEWEST_CROSS_FITTED - 1])
def test_too_few_rows_to_say(n_rows):
    rows = rows_at(0.0, n_rows)
    labels = torch.zeros(n_rows, dtype=torch.int64)
    assert len(cross_scores(rows, labels, 3, torch.Generator().manual_seed(0))[0]) == 0


# The share of rows that are as strange or stranger.


def test_shares_are_those_of_the_rows_themselves():
    """Of many rows the histogram tells what counting would, to the width of a bin; beyond the last row 0."""
    rng = np.random.default_rng(0)
    scores = scores_of(-rng.gamma(3.0, 2.0, 5000))
    record = Calibration.of(scores, -scores)
    asked = scores_of([-0.5, -3.0, -6.0, -12.0, -20.0])
    counted = (scores[None] <= asked[:, None]).double().mean(1)
    torch.testing.assert_close(record.share_beyond(asked, 0.0), counted, rtol=0, atol=0.02)
    assert float(record.share_beyond(scores_of([-1e9]), 0.0)) == 0.0
    assert float(record.share_beyond(scores_of([0.0]), 0.0)) == 1.0
    # Measured from the peak, so that a cluster that became denser keeps its scale.
    torch.testing.assert_close(record.share_beyond(asked + 7.0, 7.0), record.share_beyond(asked, 0.0))


def test_records_without_a_histogram_are_taken_as_normal():
    record = Calibration(4.0, -40.0, 416.0)  # mean -10, standard deviation 2
    got = record.share_beyond(scores_of([-10.0, -12.0, -100.0]), 0.0)
    np.testing.assert_allclose(got.numpy(), stats.norm.cdf([0.0, -1.0, -45.0]), atol=1e-12)
    assert float(Calibration().share_beyond(scores_of([-1e9]), 0.0)) == 1.0


def test_the_peak_of_a_cluster_is_where_it_is_densest():
    imprints = [imprint_of(rows_at(c, 60, 3), 3) for c in (0.0, 5.0)]
    peak = cluster_peak(imprints)
    assert float(cluster_scores(rows_at(0.0, 500, 4), imprints).max()) <= peak
    assert peak == float(cluster_scores(torch.stack([i.mean for i in imprints]), imprints).max())


def test_between_imprints_that_overlap_a_cluster_is_denser_than_its_peak():
    imprints = [imprint_of(rows_at(c, 60, 3), 3) for c in (-0.2, 0.2)]
    between = torch.stack([imprint.mean for imprint in imprints]).mean(0, keepdim=True)
    scores, peak = cluster_scores(between, imprints), cluster_peak(imprints)
    assert float(scores) > peak
    record = Calibration.of(scores, peak - scores)
    assert record.depths == {0: 1}
    assert float(record.share_beyond(scores, peak)) == 1.0


def test_some_of_many_rows():
    rows = rows_at(0.0, MOST_ROWS + 500, n_columns=2)
    labels = torch.zeros(len(rows), dtype=torch.int64)
    assert len(cross_scores(rows, labels, 3, torch.Generator().manual_seed(0))[0]) == MOST_ROWS


# The share of strangers.


def test_share_that_even_the_best_cluster_finds_strange():
    """The best cluster's threshold decides, not the other's."""
    scores = scores_of([[-1.0, -9.0], [-9.0, -4.0], [-6.0, -7.0], [-30.0, -5.0]])
    assert novel_share(scores, scores_of([-5.0, -4.5])) == 0.5  # rows 2 and 3
    assert novel_share(scores, scores_of([-math.inf, -math.inf])) == 0.0
    assert novel_share(scores, scores_of([math.inf, math.inf])) == 1.0


def test_the_threshold_itself_is_not_strange():
    assert novel_share(scores_of([[-5.0]]), scores_of([-5.0])) == 0.0


# Copies.


@given(
    st.lists(st.integers(0, 4), max_size=40).map(lambda kinds: torch.tensor(kinds).reshape(-1, 1).float()),
    st.integers(1, 5),
)
def test_copies_beyond_the_first_few_are_told_apart(values, most):
    kept, copies, of = copies_beyond(values, most)
    assert sorted([*kept.tolist(), *copies.tolist()]) == list(range(len(values)))
    assert torch.equal(values[copies], values[kept][of])
    for value in values.unique():
        n_kept = int((values[kept] == value).sum())
        assert n_kept == min(most, int((values == value).sum()))
    assert kept.tolist() == sorted(kept.tolist())
