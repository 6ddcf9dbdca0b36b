"""Statistics that follow a moving encoder, and the fingerprint that tells one encoder from another."""

import copy

import numpy as np
import pytest
import torch

from dbull.lifelong import past as drift
from dbull.lifelong.inference import encode_rows
from dbull.lifelong.past import carried, encoder_fingerprint
from dbull.mixture.stats import SufficientStats
from dbull.mixture.updates import Points, summarize
from dbull.nets.vae import VAE, NetworkShape

FIELDS = ("counts", "sum_z", "sum_zz", "entropy")


def some_codes(n_rows, seed=0, n_dims=3):
    rng = np.random.default_rng(seed)
    return torch.tensor(rng.normal(size=(n_rows, n_dims)) @ rng.normal(size=(n_dims, n_dims)) + 5.0)


def some_weights(n_rows, n_components, seed=0):
    return torch.tensor(np.random.default_rng(seed).dirichlet(np.ones(n_components), n_rows))


def alone(n_rows):
    """Log responsibilities of a single component."""
    return torch.zeros(n_rows, 1, dtype=torch.float64)


def assert_close(a, b, tolerance=1e-9):
    for name in FIELDS:
        torch.testing.assert_close(getattr(a, name), getattr(b, name), rtol=tolerance, atol=tolerance)


@pytest.fixture
def _no_ridge(monkeypatch):
    """The map as it is, not drawn towards the identity."""
    monkeypatch.setattr(drift, "RIDGE", 0.0)


# Carrying.


@pytest.mark.usefixtures("_no_ridge")
def test_an_affine_move_is_followed_exactly():
    """The statistics become those of the moved rows; other rows than these showed the move."""
    rng = np.random.default_rng(1)
    codes, weights = some_codes(80), some_weights(80, 2)
    moves = [(torch.tensor(rng.normal(size=(3, 3))), torch.tensor(rng.normal(size=3) * 10)) for _ in range(2)]
    probes = [some_codes(40, seed) for seed in (7, 8)]
    seen = [probe @ a.T + b for probe, (a, b) in zip(probes, moves, strict=True)]
    got = carried(summarize(weights.log(), Points.from_rows(codes)), probes, seen)
    for k, (a, b) in enumerate(moves):
        moved = summarize(weights.log(), Points.from_rows(codes @ a.T + b))
        assert_close(got.select(torch.tensor([k])), moved.select(torch.tensor([k])), 1e-7)


def test_a_shift_is_followed_exactly_whatever_the_ridge():
    codes, weights = some_codes(80), some_weights(80, 3)
    shifts = [torch.tensor([100.0, -3.0, 0.5]) * k for k in range(3)]
    probes = [some_codes(5, seed) for seed in (1, 2, 3)]
    seen = [probe + shift for probe, shift in zip(probes, shifts, strict=True)]
    got = carried(summarize(weights.log(), Points.from_rows(codes)), probes, seen)
    for k, shift in enumerate(shifts):
        moved = summarize(weights.log(), Points.from_rows(codes + shift))
        assert_close(got.select(torch.tensor([k])), moved.select(torch.tensor([k])), 1e-8)


def test_an_encoder_that_stands_still_leaves_them():
    stats = summarize(some_weights(80, 4).log(), Points.from_rows(some_codes(80)))
    probes = [some_codes(30, seed) for seed in range(4)]
    assert_close(carried(stats, probes, [probe.clone() for probe in probes]), stats)


@pytest.mark.parametrize("n_probes", [1, 2])
def test_few_probes_show_a_shift_and_keep_the_spread(n_probes):
    """One or two rows cannot show how a spread has turned."""
    stats = summarize(alone(80), Points.from_rows(some_codes(80)))
    probe = some_codes(n_probes, 3)
    got = carried(stats, [probe], [probe + 2.0])
    assert_close(got, summarize(alone(80), Points.from_rows(some_codes(80) + 2.0)), 1e-8)


def test_probes_on_one_point():
    """Degenerate draws: the mean goes where they go, the spread stays."""
    stats = summarize(alone(80), Points.from_rows(some_codes(80)))
    probe = torch.ones(20, 3, dtype=torch.float64)
    got = carried(stats, [probe], [probe + 2.0])
    assert_close(got, summarize(alone(80), Points.from_rows(some_codes(80) + 2.0)), 1e-8)


@pytest.mark.usefixtures("_no_ridge")
def test_what_no_map_explains_widens_the_component():
    """Noise of the new codes adds to the spread, and the mean follows its mean."""
    rng = np.random.default_rng(2)
    codes = some_codes(4000)
    stats = summarize(alone(4000), Points.from_rows(codes))
    noise = torch.tensor(rng.normal(size=(4000, 3)) * [0.0, 0.0, 3.0])
    got = carried(stats, [codes], [codes + noise])
    moved = summarize(alone(4000), Points.from_rows(codes + noise))
    torch.testing.assert_close(got.sum_z, moved.sum_z)
    torch.testing.assert_close(got.sum_zz, moved.sum_zz, rtol=1e-9, atol=1e-6)  # exact on the rows shown


def test_counts_and_entropy_stay():
    """Which rows belong where is not a matter of coordinates."""
    stats = summarize(some_weights(50, 2).log(), Points.from_rows(some_codes(50)))
    probes = [some_codes(30, seed) for seed in range(2)]
    got = carried(stats, probes, [probe * 3 + 1 for probe in probes])
    assert torch.equal(got.counts, stats.counts)
    assert torch.equal(got.entropy, stats.entropy)


def test_real_and_replayed_rows_keep_their_difference():
    """Probes that lie beside the rows: the component goes along with them, it does not jump onto them."""
    stats = summarize(alone(60), Points.from_rows(some_codes(60)))
    probe = some_codes(60) + 1.0  # replay is biased by one in every direction
    got = carried(stats, [probe], [probe + 4.0])
    torch.testing.assert_close(got.sum_z / 60, stats.sum_z / 60 + 4.0)


def test_spread_stays_positive():
    """A component of a few rows, wild probes: the covariance has no negative direction."""
    for seed in range(20):
        rng = np.random.default_rng(seed)
        stats = summarize(alone(2), Points.from_rows(some_codes(2, seed)))
        probe = some_codes(10, seed + 100)
        got = carried(stats, [probe], [torch.tensor(rng.normal(size=(10, 3)) * 5)])
        mean = got.sum_z[0] / 2
        covariance = got.sum_zz[0] / 2 - torch.outer(mean, mean)
        assert float(torch.linalg.eigvalsh(covariance).min()) > -1e-9
        torch.testing.assert_close(got.sum_zz, got.sum_zz.mT)


def test_an_empty_component_stays_empty():
    """Its rows may have been strangers, all of them; nothing is divided by nothing."""
    stats = summarize(alone(30), Points.from_rows(some_codes(30))).with_empty(1)
    probes = [some_codes(30, seed) for seed in range(2)]
    got = carried(stats, probes, [probe + 1 for probe in probes])
    assert_close(got.select(torch.tensor([1])), SufficientStats.zeros(1, 3))
    assert bool(torch.isfinite(got.sum_zz).all())


# The fingerprint.


def make_vae(encoder="mlp", likelihood="gaussian", image_shape=None, n_columns=6):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        width = n_columns if encoder == "identity" else 2
        return VAE(NetworkShape(n_columns, n_columns, width, encoder, (5,), likelihood, image_shape))


@pytest.mark.parametrize(
    "vae",
    [make_vae(), make_vae(likelihood="gaussian-learned"), make_vae("conv", "bernoulli", (2, 3, 1))],
    ids=["mlp", "variance per value", "conv"],
)
def test_the_fingerprint_changes_with_what_decides_a_code_and_with_nothing_else(vae):
    """Each weight is moved in turn: the fingerprint changes exactly if a code or its variance can."""
    before = encoder_fingerprint(vae)
    assert encoder_fingerprint(copy.deepcopy(vae)) == before
    inputs = torch.randn(50, 6, generator=torch.Generator().manual_seed(0))
    codes = encode_rows(vae, inputs)
    n_changed = 0
    for name in vae.state_dict():
        other = copy.deepcopy(vae)
        with torch.no_grad():
            other.state_dict()[name].add_(1e-3)
        moved = not all(torch.equal(a, b) for a, b in zip(encode_rows(other, inputs), codes, strict=True))
        assert (encoder_fingerprint(other) != before) == moved, name
        n_changed += moved
    assert 0 < n_changed < len(vae.state_dict())


def test_the_fingerprint_sees_the_last_bit():
    vae = make_vae()
    before = encoder_fingerprint(vae)
    with torch.no_grad():
        weight = vae.mean_head.weight
        weight[0, 0] = torch.nextafter(weight[0, 0], torch.tensor(10.0))
    assert encoder_fingerprint(vae) != before


def test_encoders_of_other_shapes_have_other_fingerprints():
    assert encoder_fingerprint(make_vae("identity")) != encoder_fingerprint(make_vae("identity", n_columns=7))
