"""What a report says, against the model and against hand-made references."""

import numpy as np
import pytest
from sklearn.decomposition import PCA

from dbull import DBULL
from dbull.ledger import Event
from dbull.report import build_report
from dbull.report.build import MAX_MAP_POINTS
from dbull.report.data import sentence
from dbull.report.images import as_picture, drawable_shape, png_bytes, tiled


def by_id(data):
    return {cluster.id: cluster for cluster in data.clusters}


def test_clusters_are_those_of_the_model(model, data):
    table = {record["id"]: record for record in model.clusters_}
    living = {i for i, record in table.items() if record["status"] in ("active", "retired")}
    assert set(by_id(data)) == living == set(model.cluster_ids_.tolist())
    for cluster in data.clusters:
        record = table[cluster.id]
        assert (cluster.rows, cluster.name, cluster.status) == (
            record["rows"],
            record["name"],
            record["status"],
        )
        assert (cluster.first_seen, cluster.last_seen) == (record["first_seen"], record["last_seen"])
        assert cluster.weight == record["weight"]
        assert cluster.spread == record["spread"]
    assert [c.rows for c in data.clusters] == sorted((c.rows for c in data.clusters), reverse=True)
    assert data.n_clusters == len(living)


def test_rows_add_up_over_arrivals_and_clusters(data, frames):
    assert [a.rows for a in data.arrivals] == [len(frame) for frame in frames]
    per_arrival = np.array([cluster.rows_per_arrival for cluster in data.clusters])
    assert per_arrival.sum(0).tolist() == [len(frame) for frame in frames]
    assert per_arrival.sum(1).tolist() == [cluster.rows for cluster in data.clusters]
    assert data.n_rows == sum(len(frame) for frame in frames)


def test_merged_cluster_lives_on_in_the_older(model, data):
    former = {f.id: f for f in data.former}
    assert set(former) == {3}
    assert former[3].successor == 1
    assert by_id(data)[1].absorbed == (3,)
    # Arrival 3 brought 100 rows of the blob that was merged, and 40 of the one that it was merged into.
    assert by_id(data)[1].rows_per_arrival == (90, 0, 140)
    lanes = {lane.id: lane for lane in data.lanes}
    assert (lanes[3].end, lanes[3].into, dict(lanes[3].rows)) == (3, 1, {3: 100})
    assert (lanes[1].end, lanes[1].into, dict(lanes[1].rows)) == (None, None, {1: 90, 3: 40})


def test_every_event_but_arrivals_is_told(model, data):
    told = [(h.kind, h.arrival, h.clusters) for h in data.happenings]
    assert told == [(e.kind, e.arrival, e.clusters) for e in model.events_ if e.kind != "arrival"]
    kinds = {h.kind: sentence(h) for h in data.happenings}
    assert "Cluster 3 with 100 rows becomes part of cluster 1" in kinds["merge"]
    assert "Cluster 2 is retired" in kinds["retirement"]
    assert "is called “<script>" in kinds["rename"]
    first = next(h for h in data.happenings if h.kind == "birth")
    assert sentence(first).startswith("Cluster 0 is born with 120 rows.")


def test_course_is_what_the_events_say(model, data):
    events = [e for e in model.events_ if e.kind == "arrival"]
    for point, event in zip(data.arrivals, events, strict=True):
        assert point.n_clusters == event.evidence["n_clusters"]
        assert point.elbo_per_row == pytest.approx(event.evidence["elbo"] / event.rows)
    assert data.arrivals[0].novel_share is None  # there was nothing to compare with
    assert data.arrivals[1].novel_share == events[1].evidence["novel_share"]


def test_traits_are_those_of_the_model(data, model):
    for cluster in data.clusters:
        assert cluster.traits == model.explain(cluster.id).traits
    assert by_id(data)[0].traits[0].column == "height"  # 20 below two of three blobs, which have more rows


def test_neighbours_are_the_nearest_centres(model, data):
    state = model.state_
    total, owner = state.memory.total, state.cluster_of.numpy()
    centre, spread = {}, {}
    for i in model.cluster_ids_.tolist():
        mine = owner == i
        centre[i] = total.sum_z.numpy()[mine].sum(0) / total.counts.numpy()[mine].sum()
        spread[i] = state.spread(i)
    for cluster in data.clusters:
        gaps = {
            j: np.linalg.norm(centre[cluster.id] - centre[j]) / (spread[cluster.id] + spread[j])
            for j in centre
            if j != cluster.id
        }
        assert [j for j, _ in cluster.neighbours] == sorted(gaps, key=gaps.get)[:3]
        for j, gap in cluster.neighbours:
            assert gap == pytest.approx(gaps[j], rel=0.15)


def test_map_is_the_plane_of_most_variance(image_model, image_data):
    codes = {
        i: image_model.sample_codes(120, i, random_state=i)[0][: MAX_MAP_POINTS // image_data.n_clusters]
        for i in image_model.cluster_ids_.tolist()
    }
    together = np.concatenate([codes[i] for i in image_data.code_map.points])
    reference = PCA(2).fit(together)
    drawn = np.concatenate(list(image_data.code_map.points.values()))
    assert image_data.code_map.shown_share == pytest.approx(reference.explained_variance_ratio_.sum())
    np.testing.assert_allclose(np.abs(drawn), np.abs(reference.transform(together)), atol=1e-9)


def test_one_column_and_one_cluster_are_enough():
    rows = np.random.default_rng(0).normal(size=(60, 1))
    report = build_report(DBULL(random_state=0).fit(rows))
    assert report.n_clusters == 1
    assert report.clusters[0].neighbours == ()
    assert report.clusters[0].traits == ()  # there are no others
    assert report.code_map.shown_share == pytest.approx(1.0)


def test_prototypes_are_the_decoded_centres(image_model, image_data):
    view = image_model.state_.view
    low, high = float(view.shift), float(view.shift + view.scale)
    for cluster in image_data.clusters:
        expected = (image_model.prototype(cluster.id) - low) / (high - low) * 255
        np.testing.assert_allclose(cluster.prototype, expected.clip(0, 255).reshape(8, 8), atol=0.51)
        codes = image_model.sample_codes(120, cluster.id, random_state=cluster.id)[0]
        sample = (image_model.inverse_transform(codes[:1])[0] - low) / (high - low) * 255
        np.testing.assert_allclose(cluster.samples[0], sample.clip(0, 255).reshape(8, 8), atol=0.51)
        assert cluster.traits == ()


def test_report_takes_nothing_from_the_random_state_of_the_model(frames):
    state = np.random.RandomState(3)
    model = DBULL(random_state=state).fit(frames[0])
    before = state.get_state()[1].copy()
    build_report(model)
    np.testing.assert_array_equal(state.get_state()[1], before)


def test_given_settings_stand_apart_from_defaults(data):
    assert dict(data.settings) == {"concentration": "2.0", "random_state": "0"}
    assert data.defaults["latent_dim"] == "auto"
    assert "callback" not in data.defaults


def test_very_many_clusters_are_cut_to_the_largest(model, monkeypatch):
    monkeypatch.setattr("dbull.report.build.MAX_CARDS", 2)
    report = build_report(model)
    assert len(report.clusters) == 2
    assert report.n_clusters == 3
    assert min(c.rows for c in report.clusters) >= min(
        r["rows"] for r in model.clusters_ if r["status"] != "merged"
    )


@pytest.mark.parametrize("shape", [(5, 7), (4, 3, 3)])
def test_png_gives_the_pixels_back(shape):
    import io

    from PIL import Image

    pixels = np.random.default_rng(1).integers(0, 256, size=shape, dtype=np.uint8)
    image = Image.open(io.BytesIO(png_bytes(pixels)))
    assert image.mode == ("L" if len(shape) == 2 else "RGB")
    np.testing.assert_array_equal(np.asarray(image), pixels)


def test_png_refuses_what_it_cannot_hold():
    with pytest.raises(ValueError, match="pixels must be bytes"):
        png_bytes(np.zeros((3, 3, 4), dtype=np.uint8))


def test_tiles_lie_in_rows():
    pictures = [np.full((2, 2), i + 1, dtype=np.uint8) for i in range(3)]
    assert tiled(pictures, 2).tolist() == [
        [1, 1, 0, 2, 2],
        [1, 1, 0, 2, 2],
        [0, 0, 0, 0, 0],
        [3, 3, 0, 0, 0],
        [3, 3, 0, 0, 0],
    ]


def test_pictures_are_black_at_the_lowest_and_white_at_the_highest():
    row = np.array([-2.0, 0.0, 5.0, 99.0])
    assert as_picture(row, (2, 2), 0.0, 10.0).tolist() == [[0, 0], [128, 255]]
    assert as_picture(row, (2, 2), 3.0, 3.0).dtype == np.uint8  # a constant image has no range


@pytest.mark.parametrize(
    ("given", "drawn"),
    [(None, None), ((8, 8), (8, 8)), ((8, 9, 1), (8, 9)), ((8, 9, 3), (8, 9, 3)), ((8, 9, 2), None)],
)
def test_which_images_can_be_drawn(given, drawn):
    assert drawable_shape(given) == drawn


def test_a_change_of_scale_is_told_in_words():
    event = Event("scale", 3, None, (), 20, {"columns": ["price", "weight"]})
    assert sentence(event).endswith("a hundredfold, in 20 rows: price, weight.")
