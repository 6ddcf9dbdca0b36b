"""What sets clusters apart: against the rows themselves, which the model has not kept."""

import numpy as np
import pandas as pd
import pytest
import torch

from dbull import DBULL, load
from dbull.lifelong.profiles import Profile, together
from dbull.methods.traits import Columns, Trait, shown
from dbull.tables import ColumnEncoder


@pytest.fixture(scope="module")
def flights():
    """Two arrivals of flights: punctual ones of two kinds, and later late ones."""
    rng = np.random.default_rng(0)

    def some(n, delay, distance):
        columns = rng.normal(delay, 5, n), rng.normal(distance, 50, n), rng.normal(3, 1, n)
        return pd.DataFrame(dict(zip(("delay", "distance", "seats"), columns, strict=True)))

    first = pd.concat([some(200, 12, 500), some(150, 10, 2000)], ignore_index=True)
    return [first, some(100, 180, 510)]


@pytest.fixture(scope="module")
def model(flights):
    learner = DBULL(random_state=0)
    for frame in flights:
        learner.partial_fit(frame)
    assert learner.n_clusters_ == 3
    return learner


def cliffs_delta(ours, theirs):
    return np.sign(np.subtract.outer(np.asarray(ours), np.asarray(theirs))).mean()


def test_traits_are_those_of_the_rows(model, flights):
    rows = pd.concat(flights, ignore_index=True)
    ids = model.predict(rows)
    for cluster in model.cluster_ids_.tolist():
        explanation = model.explain(cluster)
        assert explanation.traits
        for others, told in (
            (ids != cluster, explanation.traits),
            (ids == explanation.nearest, explanation.from_nearest),
        ):
            for trait in told:
                ours, theirs = rows.loc[ids == cluster, trait.column], rows.loc[others, trait.column]
                assert trait.here == pytest.approx(ours.mean(), rel=0.02)
                assert trait.others == pytest.approx(theirs.mean(), rel=0.02)
                assert trait.effect == pytest.approx(cliffs_delta(ours, theirs), abs=0.05)
            assert "seats" not in [trait.column for trait in told]  # the same in all
            effects = [abs(trait.effect) for trait in told]
            assert effects == sorted(effects, reverse=True)


def test_a_newborn_is_told_in_words(model, tmp_path):
    born = model.report_.born
    assert list(born) == [2]
    assert born[2].because.startswith("delay 180, others 11")
    event = [event for event in model.events_ if event.kind == "birth"][-1]
    assert event.evidence["because"] == born[2].because
    model.save(tmp_path / "model")
    kept = load(tmp_path / "model")
    assert kept.events_[-1].evidence == event.evidence
    assert kept.explain(2) == model.explain(2)


def test_newborns_are_told_apart_from_what_was_known_and_not_from_each_other(flights):
    """Of two kinds of late flights both are late, though half of the others are late too."""
    late = flights[1]
    both = pd.concat([late, late.assign(distance=late.distance + 3000)], ignore_index=True)
    learner = DBULL(random_state=0).fit(flights[0]).partial_fit(both)
    assert len(learner.report_.born) == 2
    for newborn in learner.report_.born.values():
        assert "delay 180, others 11" in newborn.because


def test_preview_tells_why_and_changes_nothing(flights):
    learner = DBULL(random_state=0).fit(flights[0])
    before = learner.events_
    assert learner.preview(flights[1]).born[2].because.startswith("delay 180, others 11")
    assert learner.events_ == before
    assert learner.n_clusters_ == 2


def test_as_text(model):
    text = str(model.explain(2))
    assert text.startswith("cluster 2 is set apart by\n  delay 180, others 11")
    assert "the nearest, by" in text
    assert str(Trait("late", "", "share", 0.62, 0.004, 0.6)) == "late 62 %, others 0.4 %"
    assert [shown(share, "share") for share in (0.0951, 0.094, 0.0004, 1.0)] == [
        "10 %",
        "9 %",
        "0 %",
        "100 %",
    ]
    assert shown(5.1 / 7, "day of week") == "Saturday"
    assert shown(31 / 365, "day of year") == "02-01"
    assert [shown(x, "value") for x in (1980.4, 12345.6, 1234567.0, 3e13)] == [
        "1980",
        "12,350",
        "1,235,000",
        "3.00e+13",
    ]


def test_one_cluster_has_nothing_to_be_set_apart_from():
    rows = np.random.default_rng(0).normal(size=(60, 2))
    learner = DBULL(random_state=0).fit(rows)
    assert learner.n_clusters_ == 1
    assert learner.explain(0).traits == ()
    with pytest.raises(ValueError, match="no cluster 7"):
        learner.explain(7)


def test_profiles_add_up():
    rows = torch.randn(50, 4, dtype=torch.float64)
    parts = together([Profile.of_rows(rows[:13]), Profile.of_rows(rows[13:])])
    whole = Profile.of_rows(rows)
    assert parts.n_rows == 50
    torch.testing.assert_close(parts.mean, whole.mean)
    torch.testing.assert_close(parts.variance, whole.variance)


def test_mixed_columns_are_told_in_their_own_words():
    rng = np.random.default_rng(1)
    n = 300
    here = np.arange(n) < 100
    delay = np.where(here, rng.normal(180, 9, n), rng.normal(12, 9, n))
    delay[(rng.random(n) < 0.3)] = np.nan  # what is missing does not count as the mean
    frame = pd.DataFrame(
        {
            "delay": delay,
            "carrier": np.where(rng.random(n) < np.where(here, 0.9, 0.1), "EV", "UA"),
            "arrived": np.where(here, None, rng.normal(5, 1, n)),
            "time": pd.to_datetime("2024-01-01")
            + pd.to_timedelta(np.arange(n) + np.where(here, 0.75, 0.35), "D"),
        }
    )
    encoder = ColumnEncoder.fit(frame)
    rows = torch.from_numpy(encoder.encode(frame))
    profiles = Profile.of_rows(rows[here]), Profile.of_rows(rows[~here])
    told = {trait.column: trait for trait in Columns(encoder.features).traits(profiles[:1], profiles[1:], 9)}
    assert told["delay"].here == pytest.approx(frame.delay[here].mean(), rel=0.02)
    assert told["delay"].others == pytest.approx(frame.delay[~here].mean(), rel=0.02)
    carrier = told["carrier"]
    assert carrier.part == "EV"
    assert carrier.here == pytest.approx((frame.carrier[here] == "EV").mean(), abs=1e-3)
    assert carrier.effect == pytest.approx(carrier.here - carrier.others)
    assert str(told["arrived"]) == "arrived missing 100 %, others 0 %"
    assert str(told["time"]) == "time hour of day 18:00, others 08:24"


def test_images_are_told_by_their_parts():
    rng = np.random.default_rng(0)
    images = rng.random((160, 6, 6)) * 0.2
    images[:80, :2, :2] += 1.0
    images[80:, 4:, 4:] += 1.0
    learner = DBULL(random_state=0, image_shape=(6, 6), epochs=30, joint_epochs=3).fit(
        images.reshape(160, -1)
    )
    ours = int(learner.labels_[0])
    told = {trait.column: trait.effect for trait in learner.explain(ours).traits}
    assert told["brightness top left"] > 0.3
    assert told["brightness bottom right"] < -0.3
