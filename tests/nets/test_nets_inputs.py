"""Views of rows: what each kind of data becomes, and that it can be undone."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dbull.categories import categories_in
from dbull.errors import SettingsError
from dbull.nets.inputs import LARGEST_INPUT, SAME_UNIT, SMALLEST_SHARE, fit_inputs, guess_kind
from dbull.scaling import ALL_OR_NOTHING, FARTHEST
from dbull.tables import ColumnEncoder, propose_roles


def rows_of(kind, dtype=torch.float64, seed=0):
    rng = np.random.default_rng(seed)
    if kind == "images":
        rows = rng.uniform(20, 200, (50, 35))
    elif kind == "sparse":
        rows = (rng.random((50, 35)) < 0.1) * rng.uniform(0, 9, (50, 35))
    else:
        units = 10 ** rng.uniform(-2, 2, 35)  # so different that they are nobody's one unit
        rows = rng.normal(size=(50, 35)) * units + rng.normal(size=35) * 50
    return torch.tensor(rows, dtype=dtype)


SHAPES = {"images": (5, 7, 1), "sparse": None, "dense": None}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["float32", "float64"])
@pytest.mark.parametrize("kind", SHAPES)
def test_values_can_be_undone(kind, dtype):
    rows = rows_of(kind, dtype)
    view = fit_inputs(rows, kind, SHAPES[kind], True)
    values = view.values(rows)
    assert values.dtype == torch.float32
    torch.testing.assert_close(view.rows(values), rows, rtol=1e-5, atol=1e-4)


def test_dense_columns_are_standardised():
    rows = rows_of("dense")
    view = fit_inputs(rows, "dense", None, False)
    values = view.values(rows).double().numpy()
    np.testing.assert_allclose(values.mean(0), 0.0, atol=1e-5)
    np.testing.assert_allclose(values.std(0), 1.0, rtol=1e-5)
    np.testing.assert_allclose(view.shift, rows.numpy().mean(0), rtol=1e-9)
    np.testing.assert_allclose(view.scale, rows.numpy().std(0), rtol=1e-9)


def test_constant_columns_have_no_scale():
    rows = torch.tensor(np.column_stack([np.full(30, 0.1), np.full(30, 1e9), np.arange(30.0)]))
    view = fit_inputs(rows, "dense", None, False)
    assert view.scale[:2].tolist() == [1.0, 1.0]
    np.testing.assert_allclose(view.values(rows)[:, :2], 0.0, atol=1e-6)


@pytest.mark.parametrize("unit", [1e-6, 1.0, 1e6])
def test_columns_of_one_unit_are_scaled_by_half_their_common_deviation_at_least(unit):
    """So that what hardly varies now is not blown up when it does later."""
    deviations = np.array([0.0, 0.001, 0.3, 0.9, 1.0, 1.1, 1.2, 3.0])
    noise = np.random.default_rng(0).permuted(np.tile(np.linspace(-1, 1, 60)[:, None], 8), axis=0)
    rows = unit * (5 + deviations * noise / noise.std(0))
    view = fit_inputs(torch.tensor(rows), "dense", None, False)
    common = np.sqrt((deviations**2).mean())
    want = unit * np.maximum(deviations, SMALLEST_SHARE * common)
    np.testing.assert_allclose(view.scale, want, rtol=1e-6)
    values = view.values(torch.tensor(rows)).double()
    np.testing.assert_allclose(values.mean(0), 0.0, atol=1e-5)
    np.testing.assert_allclose(values.std(0, correction=0), unit * deviations / want, atol=1e-5)
    later = torch.tensor(rows[:, ::-1].copy())  # the columns that hardly varied now do
    assert float(view.values(later).abs().max()) < 10


@pytest.mark.parametrize("largest", [0.9, 1.1])
def test_columns_of_different_units_have_scales_of_their_own(largest):
    """One that varies more than ten times as much as most has another unit, and so may all."""
    deviations = np.array([0.01, 1.0, 1.0, 1.0, largest * SAME_UNIT])
    rows = torch.tensor(np.linspace(-1, 1, 50)[:, None] * deviations)
    view = fit_inputs(rows, "dense", None, False)
    own = rows.numpy().std(0)
    assert np.allclose(view.scale, own) == (largest > 1)
    assert float(view.scale[-1]) == pytest.approx(float(own[-1]))


def heavy(n_rows=400, seed=0):
    """A number over decades, one of two values, and two of another unit."""
    random = np.random.default_rng(seed)
    money = np.exp(3 * random.normal(size=n_rows))
    return torch.tensor(
        np.column_stack([money, random.random(n_rows) < 0.01, random.normal(0, 0.01, (n_rows, 2))])
    )


def with_categories(n_rows=400, seed=0):
    """A number, a flag, a category of twelve values of which three never come, one of two, and a flag."""
    random = np.random.default_rng(seed)
    often = np.where(np.arange(12) < 9, np.exp(-np.arange(12.0)), 0.0)
    values = random.choice(12, n_rows, p=often / often.sum())
    halves = random.integers(0, 2, n_rows)
    number, flag, other = random.normal(size=n_rows), random.random(n_rows) < 0.3, random.random(n_rows) < 0.2
    return np.column_stack([number, flag, np.eye(12)[values], np.eye(2)[halves], other])


def test_categories_are_the_runs_of_which_each_row_has_one():
    rows = with_categories()
    assert categories_in(rows) == [slice(2, 14), slice(14, 16)]
    assert categories_in(rows[:30]) == [slice(2, 14), slice(14, 16)]
    assert categories_in(rows[:10]) == []  # may be by chance
    twice = rows.copy()
    twice[7, 2:14] = np.eye(12)[0] + np.eye(12)[1]  # no category: one row has two values
    assert categories_in(twice) == [slice(14, 16)]
    none = rows.copy()
    none[7, 14:16] = 0
    assert categories_in(none) == [slice(2, 14)]
    assert categories_in(none[:, :16]) == [slice(2, 14)]
    counted = rows.copy()
    counted[7, 2:14] *= 3  # a count, not a sign
    assert categories_in(counted) == [slice(14, 16)]


def test_the_longest_of_overlapping_runs_is_the_category():
    day = np.random.default_rng(0).integers(0, 7, 300)
    weekend = (day >= 5).astype(float)
    assert categories_in(np.column_stack([weekend, np.eye(7)[day]])) == [slice(1, 8)]
    assert categories_in(np.column_stack([np.eye(7)[day], weekend])) == [slice(0, 7)]


@pytest.mark.parametrize("n_rows", [20, 30, 50, 100])
def test_flags_that_complement_each_other_by_chance_are_no_category(n_rows):
    random = np.random.default_rng(n_rows)
    for _ in range(20):
        often = random.permutation(1 / np.arange(1, 501.0))
        assert categories_in((random.random((n_rows, 500)) < often).astype(float)) == []


def test_means_of_groups_of_rows_have_the_categories_of_the_rows():
    random = np.random.default_rng(0)
    rows, counts = with_categories(), random.integers(1, 5, 150).astype(float)
    means = np.stack([rows[random.choice(400, int(n), replace=False)].mean(0) for n in counts])
    means[:, 3] -= 1e-9  # by rounding
    assert categories_in(means.astype(np.float32), counts) == [slice(2, 14), slice(14, 16)]
    shares = random.dirichlet(np.ones(4), 150)  # add up to one, but count nothing
    assert categories_in(shares, counts) == []


def test_many_columns_with_a_row_without_any_are_soon_looked_through():
    """In one pass: looking again from each column on would take a thousand times as many additions."""

    class Counted(np.ndarray):
        additions = 0

        def __array_ufunc__(self, ufunc, method, *inputs, **options):
            Counted.additions += ufunc in (np.add, np.subtract) and method == "__call__"
            return getattr(ufunc, method)(*(np.asarray(i) for i in inputs), **options)

    rows = np.eye(600)[np.random.default_rng(0).permutation(600)]
    rows[0] = 0
    assert categories_in(rows.view(Counted)) == []
    assert Counted.additions < 4 * 600


@pytest.mark.parametrize("columns", [[np.ones(50)], [np.ones(50), np.zeros(50)], [np.zeros(50)] * 3, []])
def test_columns_that_do_not_vary_are_no_category(columns):
    assert categories_in(np.column_stack([np.arange(50.0), *columns])) == []


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(2, 9), min_size=1, max_size=5), st.integers(0, 2**16))
def test_categories_side_by_side_are_told_apart(widths, seed):
    random = np.random.default_rng(seed)
    blocks = [np.eye(width)[np.r_[np.arange(width), random.integers(0, width, 60)]][:60] for width in widths]
    ends = np.cumsum(widths)
    want = [slice(int(end - width), int(end)) for end, width in zip(ends, widths, strict=True)]
    assert categories_in(np.column_stack(blocks)) == want


def test_a_category_has_one_vote_however_many_columns_it_has():
    """As a category of a table has: a tenth of that of a number."""
    rows = with_categories()
    view = fit_inputs(torch.tensor(rows), "dense", None, False)
    variance = view.values(torch.tensor(rows)).double().var(0, correction=0)
    assert float(variance[0]) == pytest.approx(1.0, rel=1e-3)
    for columns in categories_in(rows):
        assert float(variance[columns].sum()) == pytest.approx(ALL_OR_NOTHING, rel=1e-3)
        assert len(view.scale[columns].unique()) == 1  # each value is as far from each other
    mostly = torch.tensor(np.eye(20)[np.maximum(0, np.arange(4000) - 3980)])  # rare values stay within reach
    ends = fit_inputs(mostly, "dense", None, False).values(mostly).unique(dim=0)
    assert float(torch.pdist(ends).max()) == pytest.approx(FARTHEST, rel=1e-3)
    # The same as one column of a table.
    column = {"half": ["left" if left else "right" for left in rows[:, 14]]}
    encoded = ColumnEncoder.fit(column, propose_roles(column, {"half": "category"})).encode(column)
    apart = view.values(torch.tensor(rows))[:, 14:16].unique(dim=0)
    same = torch.tensor(encoded).unique(dim=0)
    assert float(torch.pdist(apart)) == pytest.approx(float(torch.pdist(same)), rel=1e-3)


@pytest.mark.parametrize("as_they_are", [False, True])
def test_heavy_tails_are_bent_and_can_be_undone(as_they_are):
    rows = heavy()
    view = fit_inputs(rows, "dense", None, False, as_they_are)
    assert (view.unit > 0).tolist() == [True, False, False, False]
    values = view.values(rows)
    assert float(values[:, 0].abs().max()) < 5  # of one variance it would lie 15 away
    assert float(values[:, 1].max() - values[:, 1].min()) < 2  # a rare flag 10
    torch.testing.assert_close(view.rows(values), rows, rtol=1e-4, atol=1e-6)
    assert [curve.rule for curve in view.curves] == ["robust", "linear", "linear", "linear"]
    torch.testing.assert_close(view.curves[0].bend(rows[:, 0].numpy()), view.bent(rows)[:, 0].numpy())


def test_the_volume_of_values_is_the_determinant_of_their_undoing():
    rows = heavy()
    view = fit_inputs(rows, "dense", None, False)
    for row in rows[:5]:
        value = view.values(row[None]).double()[0].requires_grad_()
        slopes = torch.autograd.functional.jacobian(lambda v: view.rows(v[None])[0], value)
        want = torch.linalg.slogdet(slopes).logabsdet
        got = view.log_volume(view.values(row[None]))
        torch.testing.assert_close(got[0], want, rtol=1e-5, atol=1e-5)


def test_images_fill_zero_to_one_as_a_whole():
    rows = rows_of("images")
    view = fit_inputs(rows, "images", (5, 7, 1), False)
    values = view.values(rows)
    assert (float(values.min()), float(values.max())) == (0.0, 1.0)
    want = (rows - rows.min()) / (rows.max() - rows.min())
    torch.testing.assert_close(values.double(), want, rtol=1e-6, atol=1e-7)
    assert view.n_inputs == 35
    blank = fit_inputs(torch.full((4, 35), 3.0), "images", (5, 7, 1), True)
    assert bool((blank.values(torch.full((4, 35), 3.0)) == 0).all())
    assert bool(torch.isfinite(blank.inputs(torch.zeros(4, 35))).all())


def test_sparse_rows_keep_their_zeros_and_show_their_direction():
    rows = rows_of("sparse")
    view = fit_inputs(rows, "sparse", None, False)
    values = view.values(rows)
    assert torch.equal(values == 0, rows == 0)
    assert float(values.square().mean()) == pytest.approx(1.0, rel=1e-5)
    torch.testing.assert_close(view.inputs(values), view.inputs(values * 7), rtol=1e-5, atol=1e-6)
    lengths = view.features(values).norm(dim=1)
    torch.testing.assert_close(lengths, (values.norm(dim=1) > 0).float())
    empty = view.inputs(torch.zeros(1, 35))
    assert bool(torch.isfinite(empty).all())


@pytest.mark.parametrize("kind", ["sparse", "dense"])
def test_columns_that_are_scaled_keep_their_proportions(kind):
    rows = rows_of("sparse") * torch.logspace(-2, 2, 35)
    view = fit_inputs(rows, kind, None, False, scaled=True)
    values = view.values(rows)
    torch.testing.assert_close(values / values.norm(), (rows / rows.norm()).float())
    plain = fit_inputs(rows, kind, None, False)
    assert plain.shift.shape == plain.scale.shape == (35,), "as models are stored"
    assert float(plain.scale.max()) > 3 * float(plain.scale.min())


@pytest.mark.parametrize("kind", SHAPES)
@pytest.mark.parametrize("front_end", [False, True])
def test_inputs_are_centred_and_of_spread_one(kind, front_end):
    rows = rows_of(kind)
    view = fit_inputs(rows, kind, SHAPES[kind], front_end)
    inputs = view.inputs(view.values(rows))
    assert inputs.dtype == torch.float32
    assert inputs.shape == (50, view.n_inputs)
    assert (view.front_end is not None) == (kind == "images" and front_end)
    np.testing.assert_allclose(inputs.mean(0), 0.0, atol=1e-4)
    features = view.features(view.values(rows))
    torch.testing.assert_close(inputs * view.input_scale + view.input_shift, features, rtol=1e-4, atol=1e-5)
    assert view.input_scale == pytest.approx(float(features.std()), rel=1e-5)


def test_as_they_are_inputs_are_the_values():
    for kind, shape in SHAPES.items():
        rows = rows_of(kind)
        view = fit_inputs(rows, kind, shape, True, as_they_are=True)
        assert torch.equal(view.inputs(view.values(rows)), view.values(rows))
        assert view.n_inputs == 35


def test_colour_images_are_not_straightened():
    view = fit_inputs(torch.rand(4, 48, dtype=torch.float64), "images", (4, 4, 3), True)
    assert not view.front_end.straighten
    assert fit_inputs(torch.rand(4, 16), "images", (4, 4, 1), True).front_end.straighten


def test_features_do_not_depend_on_the_rows_beside():
    rows = rows_of("images")
    view = fit_inputs(rows, "images", (5, 7, 1), True)
    values = view.values(rows)
    apart = torch.cat([view.features(part) for part in values.split(3)])
    assert torch.equal(apart, view.features(values))


def test_far_rows_stay_in_reach():
    view = fit_inputs(rows_of("dense"), "dense", None, False)
    far = view.values(torch.full((1, 35), 1e300, dtype=torch.float64))
    assert bool((far == LARGEST_INPUT).all())


@pytest.mark.parametrize(
    ("rows", "shape", "kind"),
    [
        (np.eye(6), None, "sparse"),  # too few to be a category
        (np.eye(10), (2, 5, 1), "images"),
        (-np.eye(10), None, "dense"),
        (np.eye(4), None, "dense"),  # a quarter is not zero
        (np.eye(5), None, "sparse"),  # just enough zeros
        (np.zeros((4, 4)), None, "sparse"),
        (np.random.default_rng(0).normal(size=(9, 4)), None, "dense"),
        (np.eye(10)[np.arange(60) % 10], None, "dense"),  # a category is a table
        (np.column_stack([np.eye(30) * 2, np.eye(2)[np.arange(30) % 2]]), None, "sparse"),  # words and a flag
        (np.eye(10)[np.arange(60) % 10] * 2, None, "sparse"),  # a count of words is none
        (np.eye(10)[np.arange(60) % 10], (2, 5, 1), "images"),
    ],
)
def test_guess_kind(rows, shape, kind):
    assert guess_kind(torch.tensor(rows), shape) == kind


def test_unknown_kind():
    with pytest.raises(SettingsError, match="did you mean 'dense'"):
        fit_inputs(torch.zeros(3, 3), "dens", None, False)
