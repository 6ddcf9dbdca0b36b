"""The map: distances as the plane allows, places that stay."""

import numpy as np
import pytest
import torch

from dbull import DBULL, load
from dbull.errors import ModelFileError
from dbull.lifelong.plane import Plane, _settled


def blobs(centres, seed, n_rows=60):
    rng = np.random.default_rng(seed)
    return np.concatenate([rng.normal(size=(n_rows, 4)) + centre for centre in centres])


CENTRES = np.array([[0, 0, 0, 0], [20, 0, 0, 0], [0, 20, 0, 0], [20, 25, 0, 0], [10, 10, 30, 0]], dtype=float)


@pytest.fixture(scope="module")
def model():
    return DBULL(random_state=0).fit(blobs(CENTRES[:3], 0))


def test_what_lies_in_a_plane_keeps_its_distances(model):
    rows = blobs(CENTRES[:3], 0)
    middles = model.map_points(rows).reshape(3, 60, 2).mean(1)
    real = rows.reshape(3, 60, 4).mean(1) / model.state_.view.scale.numpy()
    for i, j in ((0, 1), (0, 2), (1, 2)):
        expected = float(model.map_.shortened(torch.tensor(np.linalg.norm(real[i] - real[j]))))
        assert np.linalg.norm(middles[i] - middles[j]) == pytest.approx(expected, rel=0.05)


def test_places_stay_and_new_clusters_find_theirs(model, tmp_path):
    rows = blobs(CENTRES[:3], 0)
    later = DBULL(random_state=0).fit(rows)
    before, places = later.map_points(rows), dict(later.map_.places)
    later.save(tmp_path / "model")
    later = load(tmp_path / "model").partial_fit(blobs(CENTRES[2:], 1))
    after = later.map_points(rows)
    assert all(later.map_.places[i] == place for i, place in places.items())
    size = np.ptp(before, axis=0).max()
    assert np.linalg.norm(after - before, axis=1).max() < 0.1 * size
    new = later.map_points(blobs(CENTRES[3:], 2)).reshape(2, 60, 2)
    middles = np.concatenate([after.reshape(3, 60, 2).mean(1), new.mean(1)])
    gaps = np.linalg.norm(middles[:, None] - middles[None], axis=2) + np.eye(5) * 1e9
    widths = np.linalg.norm(new - new.mean(1, keepdims=True), axis=2).mean()
    assert gaps.min() > 3 * widths  # none lies upon another


def test_merging_moves_no_row(model):
    rows = blobs(CENTRES[:3], 0)
    merged = DBULL(random_state=0).fit(rows)
    before = merged.map_points(rows)
    np.testing.assert_array_equal(merged.merge_clusters([0, 1]).map_points(rows), before)


def test_a_row_lies_in_the_same_place_whatever_is_beside_it(model):
    rows = blobs(CENTRES[:3], 0)
    np.testing.assert_array_equal(model.map_points(rows)[7:9], model.map_points(rows[7:9]))


def test_one_cluster_and_one_column(tmp_path):
    rows = np.random.default_rng(0).normal(size=(50, 1))
    points = DBULL(random_state=0).fit(rows).map_points(rows)
    assert np.ptp(points[:, 0]) > 0
    assert np.ptp(points[:, 1]) == 0


def test_rows_of_another_scale_leave_the_others_apart(model):
    rows = blobs(CENTRES[:3], 0)
    with pytest.warns(UserWarning, match="other units"):
        later = DBULL(random_state=0).fit(rows).partial_fit(blobs(CENTRES[:1] + 1e5, 3))
    both = later.map_points(np.concatenate([rows, blobs(CENTRES[:1] + 1e5, 4)]))
    assert np.isfinite(both).all()
    assert np.ptp(both[:, :], axis=0).max() < 100 * np.ptp(both[:180], axis=0).max()


def test_stress_never_rises():
    generator = torch.Generator().manual_seed(0)
    points = torch.randn(12, 5, generator=generator, dtype=torch.float64)
    distances = torch.cdist(points, points)

    def stress(places):
        off = ~torch.eye(12, dtype=torch.bool)
        return float(((torch.cdist(places, places) - distances)[off] / distances[off]).square().sum())

    start = points[:, :2]
    moved = _settled(start, distances, list(range(4, 12)))
    assert stress(moved) < 0.7 * stress(start)
    torch.testing.assert_close(moved[:4], start[:4])


def test_a_stored_map_is_read_back_or_refused(model, tmp_path):
    model.save(tmp_path / "model")
    kept = load(tmp_path / "model")
    rows = blobs(CENTRES[:3], 5)
    np.testing.assert_array_equal(kept.map_points(rows), model.map_points(rows))
    assert isinstance(kept.map_, Plane)
    document = next((tmp_path / "model").rglob("map.json"))
    document.write_text(document.read_text().replace('"component": 0', '"component": 99'))
    with pytest.raises(ModelFileError):
        load(tmp_path / "model")
