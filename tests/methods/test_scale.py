"""Arrivals of any length: the same as arrays where they fit, the right statistics where they do not."""

import json
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import joblib
import numpy as np
import pytest
import torch
from sklearn.metrics import adjusted_rand_score

from dbull import DBULL, DataError, Source
from dbull.errors import SettingsError, WorkersLostError
from dbull.lifelong.past import imprint_of
from dbull.methods.engine import over_blocks
from dbull.store import ModelFolder
from learning import fingerprint
from synthetic import gaussian_clusters

X, Y = gaussian_clusters(np.random.default_rng(3), (3000, 2500, 2000, 1500), 4, distance=14.0)
X = X.astype(np.float32)
RARE = (60.0 + 0.5 * np.random.default_rng(4).normal(size=(25, 4))).astype(np.float32)
WITH_RARE = np.concatenate([X, RARE])[np.random.default_rng(5).permutation(len(X) + len(RARE))]
WITH_NAN = np.where(np.arange(len(X))[:, None] == 6100, np.nan, X)


def in_blocks(rows, **sizes):
    return Source(rows, **{"block_rows": 1000, "sample_rows": 400, **sizes})


@pytest.fixture(scope="module")
def learned():
    return DBULL(random_state=0).fit(in_blocks(WITH_RARE))


def as_files(folder, rows, kind):
    path = str(folder / f"rows.{kind}")
    if kind == "npy":
        np.save(path, rows)
    elif kind == "csv":
        np.savetxt(path, rows, delimiter=",", header="a,b,c,d", comments="", fmt="%.9g")
    else:
        pandas = pytest.importorskip("pandas")
        pytest.importorskip("pyarrow")
        pandas.DataFrame(rows, columns=list("abcd")).to_parquet(path, row_group_size=250)
    return path


@pytest.mark.parametrize("kind", ["npy", "csv", "parquet"])
def test_files_that_fit_into_the_sample_are_learned_as_arrays_are(tmp_path, kind):
    source = Source(as_files(tmp_path, X, kind), block_rows=300)
    model, as_array = DBULL(random_state=0).fit(source), DBULL(random_state=0).fit(X)
    assert fingerprint(model) == fingerprint(as_array)
    assert model.labels_.tolist() == as_array.labels_.tolist()


def dask_frame(rows):
    dask, pandas = pytest.importorskip("dask.dataframe"), pytest.importorskip("pandas")
    return dask.from_pandas(pandas.DataFrame(rows, columns=list("abcd")), npartitions=5)


def lazy_frame(rows):
    return pytest.importorskip("polars").DataFrame(rows, schema=list("abcd")).lazy()


def chunks(rows):
    return (rows[i : i + 717] for i in range(0, len(rows), 717))


def frames(rows):
    pandas = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    return (pandas.DataFrame(part, columns=list("abcd")) for part in chunks(rows))


def arrow_dataset(rows):
    pyarrow, dataset = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.dataset")
    return dataset.dataset(pyarrow.table(dict(zip("abcd", rows.T, strict=True))))


@pytest.mark.parametrize("given", [dask_frame, arrow_dataset, lazy_frame, chunks, frames])
def test_what_others_hold_is_learned_as_an_array_or_in_blocks(given, learned):
    # Libraries differ in whether float32 stays what it is.
    eager = {lazy_frame: lambda: lazy_frame(X).collect(), arrow_dataset: lambda: arrow_dataset(X).to_table()}
    whole = DBULL(random_state=0).fit(eager.get(given, lambda: X)())
    assert fingerprint(DBULL(random_state=0).fit(given(X))) == fingerprint(whole)
    model = DBULL(random_state=0).fit(in_blocks(given(WITH_RARE)))
    assert sorted(model.report_.rows.values()) == [25, 1500, 2000, 2500, 3000]
    assert adjusted_rand_score(model.predict(WITH_RARE), learned.predict(WITH_RARE)) == 1


def test_a_partition_may_be_empty():
    frame = dask_frame(WITH_RARE).map_partitions(lambda part: part[(part.index < 1000) | (part.index > 6000)])
    model = DBULL(random_state=0).fit(in_blocks(frame))
    assert model.report_.n_rows == model.state_.n_rows == 1000 + len(WITH_RARE) - 6001


def test_an_array_of_dask_must_have_whole_rows():
    array = pytest.importorskip("dask.array").from_array(WITH_RARE, chunks=(1500, 4))
    assert DBULL(random_state=0).fit(in_blocks(array)).n_clusters_ == 5
    with pytest.raises(DataError, match="all columns in one chunk"):
        DBULL().fit(array.rechunk((1500, 2)))


def test_statistics_are_those_of_all_rows(learned):
    """Clusters so far apart that each row is wholly of one; the reference is numpy on the labels."""
    labels, state = learned.predict(WITH_RARE), learned.state_
    assert learned.n_clusters_ == 5
    codes = learned.transform(WITH_RARE)
    total = state.memory.overall
    assert float(total.counts.sum()) == pytest.approx(len(WITH_RARE))
    for cluster, n_rows in learned.report_.rows.items():
        mine = codes[labels == cluster]
        assert len(mine) == n_rows
        members = (state.cluster_of == cluster).numpy()
        np.testing.assert_allclose(total.sum_z.numpy()[members].sum(0), mine.sum(0), rtol=1e-6)
        np.testing.assert_allclose(total.sum_zz.numpy()[members].sum(0), mine.T @ mine, rtol=1e-6)
    np.testing.assert_allclose(state.column_rms.numpy(), np.sqrt((codes**2).mean(0)), rtol=1e-6)
    assert learned.state_.n_rows == learned.report_.n_rows == len(WITH_RARE)
    assert learned.n_data_sets_ == 1
    assert [event.kind for event in learned.events_] == ["arrival", *["birth"] * 5]


def test_the_rare_are_found_and_single_rows_found_nothing(learned):
    rare = learned.predict(RARE)
    assert len(set(rare.tolist())) == 1
    assert learned.report_.rows[int(rare[0])] == len(RARE)
    scattered = np.random.default_rng(6).uniform(-200, 200, size=(20, 4)).astype(np.float32)
    model = DBULL(random_state=0).fit(in_blocks(np.concatenate([X, scattered])))
    assert model.n_clusters_ == 4


@pytest.mark.slow
def test_a_hundred_rows_of_a_kind_among_a_million_are_found():
    rng = np.random.default_rng(0)
    centres = 6 * rng.normal(size=(8, 10))
    rows = (rng.normal(size=(1_000_000, 10)) + centres[rng.integers(8, size=1_000_000)]).astype(np.float32)
    rows[::10_000] = 0.5 * rng.normal(size=(100, 10)) + 15
    model = DBULL(random_state=0).fit(Source(rows))
    assert model.n_clusters_ == 9
    (rare,) = set(model.predict(rows[::10_000]).tolist())
    assert model.report_.rows[rare] == 100


def test_exemplars_and_progress_tell_of_all_rows(learned):
    told = [one.key for ones in learned.exemplars_.values() for one in ones]
    assert len(told) == len(set(told)) == 5 * 5
    for cluster in learned.clusters_:
        rows = WITH_RARE[[int(key.partition(":")[2]) - 1 for key in cluster["exemplars"]]]
        assert set(learned.predict(rows).tolist()) == {cluster["id"]}
    stages = list(dict.fromkeys(step.stage for step in learned.history_ if step.rows_per_second))
    assert stages == ["sample", "lap 1", "lap 2", "answers"]
    assert learned.history_[-1].seconds_left == 0
    assert not hasattr(learned, "labels_")


def test_imprints_of_networks_are_those_of_all_rows(quick_learning):
    rng = np.random.default_rng(0)
    rows = np.concatenate([rng.normal(size=(700, 16)) + c for c in (0, 12, 24)])
    model = DBULL(random_state=0).fit(in_blocks(rows[rng.permutation(2100)], sample_rows=600))
    view, state = model.state_.view, model.state_
    inputs = view.inputs(view.values(torch.from_numpy(rows)))
    labels = torch.from_numpy(model.predict(rows))
    for cluster in state.cluster_ids:
        imprints = state.imprints_of(cluster)
        assert sum(imprint.n_rows for imprint in imprints) == pytest.approx(int((labels == cluster).sum()))
        if len(imprints) == 1:
            whole = imprint_of(inputs[labels == cluster], 20)
            torch.testing.assert_close(imprints[0].mean, whole.mean, rtol=1e-4, atol=1e-4)
            torch.testing.assert_close(imprints[0].variance, whole.variance, rtol=1e-2, atol=1e-2)


@pytest.mark.parametrize("encoder", ["identity", "mlp"])
def test_a_later_arrival_in_blocks_keeps_what_was_known(quick_learning, encoder):
    model = DBULL(random_state=0, encoder=encoder, latent_dim=3).fit(X[Y < 3])
    known = model.predict(X[Y < 3])
    model.partial_fit(in_blocks(WITH_RARE))
    assert model.n_data_sets_ == 2
    assert model.report_.n_rows == len(WITH_RARE)
    assert float(model.state_.memory.overall.counts.sum()) == pytest.approx(
        int((Y < 3).sum()) + len(WITH_RARE) - model.report_.n_outliers
    )
    assert (model.predict(X[Y < 3]) == known).mean() > 0.98
    assert len(set(model.predict(RARE).tolist())) == 1
    assert set(model.predict(X[Y == 3]).tolist()).isdisjoint(known.tolist())
    assert model.report_.novel_share > 0.05
    model.partial_fit(X[Y == 0])  # and it goes on
    assert model.n_data_sets_ == 3


def bits(rows, backend, n_jobs):
    with joblib.parallel_config(backend=backend, n_jobs=n_jobs):
        model = DBULL(random_state=0, encoder="mlp", latent_dim=3, epochs=2).fit(in_blocks(rows))
    return fingerprint(model), model.report_.rows, model.elbo_


def test_workers_change_no_bit(tmp_path):
    source = as_files(tmp_path, WITH_RARE, "npy")
    alone = bits(source, "sequential", 1)
    assert bits(source, "loky", 2) == alone
    assert bits(source, "loky", 4) == alone
    assert bits(as_files(tmp_path, WITH_RARE, "csv"), "loky", 2) == alone  # in the same blocks


def test_a_cluster_of_dask_and_a_worker_that_is_killed_change_no_bit(tmp_path):
    distributed = pytest.importorskip("dask.distributed")
    source = as_files(tmp_path, WITH_RARE, "npy")
    settings = {"random_state": 0, "encoder": "mlp", "latent_dim": 3, "epochs": 2}
    alone = DBULL(**settings).fit(in_blocks(source))
    killed = []
    with (
        distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster,
        distributed.Client(cluster) as client,
        joblib.parallel_config(backend="dask"),
    ):

        def kill(step):
            """Kill a worker at the beginning of a lap, while the blocks of the others are worked on."""
            if step.stage == "lap 1" and step.epoch == 1 and not killed:
                killed.append(next(iter(client.run(os.getpid).values())))
                os.kill(killed[0], signal.SIGKILL)

        model = DBULL(**settings, callback=kill).fit(in_blocks(source, block_rows=500))
    assert killed
    assert fingerprint(model) == fingerprint(DBULL(**settings).fit(in_blocks(source, block_rows=500)))
    assert (model.predict(X) == alone.predict(X)).all()


def test_a_process_that_is_lost_is_told():
    with (
        joblib.parallel_config(backend="loky", n_jobs=2),
        pytest.raises(WorkersLostError, match="run the same again"),
    ):
        list(over_blocks(_die, [0, 1]))


def _die(number, block, told):
    os.kill(os.getpid(), signal.SIGKILL)


INTERRUPTED = """
    import json, os, signal, sys
    import numpy as np
    sys.path.insert(0, sys.argv[3])
    from learning import fingerprint
    from dbull import DBULL, Source

    def watch(step):
        if step.stage == sys.argv[2]:
            os.kill(os.getpid(), signal.SIGKILL)

    model = DBULL(random_state=0, encoder="mlp", latent_dim=3, epochs=2, callback=watch)
    model.fit(Source("rows.npy", block_rows=1000, sample_rows=400, checkpoint=sys.argv[1] or None))
    print(json.dumps([fingerprint(model), list(dict.fromkeys(step.stage for step in model.history_))]))
"""


def test_a_kill_goes_on_with_the_last_finished_lap(tmp_path):
    as_files(tmp_path, WITH_RARE, "npy")

    def run(*told):
        call = [sys.executable, "-c", textwrap.dedent(INTERRUPTED), *told, str(Path(__file__).parent.parent)]
        return subprocess.run(call, cwd=tmp_path, capture_output=True, text=True, check=False)

    whole, stages = json.loads(run("", "never").stdout)
    assert "represent" in stages
    assert "lap 2" in stages
    for stage, left in (
        ("lap 1", ["sample", "lap 1", "lap 2", "answers"]),
        ("lap 2", ["sample", "lap 2", "answers"]),
        ("answers", ["sample", "answers"]),
    ):
        assert run("laps", stage).returncode == -signal.SIGKILL
        again, stages = json.loads(run("laps", "never").stdout)
        assert again == whole
        assert [name for name in stages if name in ("sample", "lap 1", "lap 2", "answers")] == left
        assert stages[:2] == left[:2]  # nothing is trained in between
        subprocess.run(["rm", "-r", tmp_path / "laps"], check=True)


def test_laps_of_another_arrival_are_not_gone_on_from(tmp_path, learned):
    rows = in_blocks(X, checkpoint=tmp_path / "laps")
    DBULL(random_state=0).fit(rows)
    assert ModelFolder(tmp_path / "laps").latest() is not None
    model = DBULL(random_state=0).fit(in_blocks(WITH_RARE, checkpoint=tmp_path / "laps"))
    assert fingerprint(model) == fingerprint(learned)
    model.save(tmp_path / "model")
    with pytest.raises(SettingsError, match="holds a model"):
        DBULL(random_state=0).fit(in_blocks(X, checkpoint=tmp_path / "model"))
    assert ModelFolder(tmp_path / "model").latest() == 1


@pytest.mark.parametrize(
    ("model", "given", "error", "words"),
    [
        ({}, "nowhere.npy", DataError, "no such file"),
        ({}, iter([]), DataError, "no rows"),
        ({"objective": "paper"}, in_blocks(X), SettingsError, "replay='imprints' alone"),
        ({}, iter([np.array(["a"], dtype=object)]), DataError, "no array of numbers and no table"),
        (
            {},
            in_blocks(iter([X[:500], X[500:900, :3]])),
            DataError,
            "block 2: has 3 columns, .* before it has 4",
        ),
        (
            {},
            in_blocks(WITH_NAN),
            DataError,
            r"block 7: row 101 of it has NaN or infinity \(1 of the 1000 rows",
        ),
    ],
)
def test_what_cannot_be_learned_in_blocks_is_told(model, given, error, words):
    with pytest.raises(error, match=words):
        DBULL(**model).fit(given)


def test_missing_values_of_frames_name_their_block():
    given = in_blocks(frames(WITH_NAN))
    with pytest.raises(DataError, match=r"block 9, rows from 1 on: .* row 364, column 0 \('a'\)"):
        DBULL(random_state=0).fit(given)


def test_files_of_one_source_are_matched_by_names(tmp_path):
    names = [tmp_path / f"{i}.csv" for i in range(4)]
    np.savetxt(names[0], X[:3000], delimiter=",", header="a,b,c,d", comments="", fmt="%.9g")
    np.savetxt(names[1], X[3000:6000, ::-1], delimiter=",", header="d,c,b,a", comments="", fmt="%.9g")
    np.savetxt(names[2], X[6000:], delimiter=",", fmt="%.9g")  # without names, as `split` leaves them
    model, whole = DBULL(random_state=0).fit(in_blocks(names[:3])), DBULL(random_state=0).fit(in_blocks(X))
    assert fingerprint(model) == fingerprint(whole)
    assert model.feature_names_in_.tolist() == list("abcd")
    np.savetxt(names[3], X, delimiter=",", header="a,b,c,e", comments="", fmt="%.9g")
    with pytest.raises(DataError, match=r"3\.csv: no column 'd'"):
        DBULL(random_state=0).fit(in_blocks(names))


def test_sizes_that_cannot_be_are_refused():
    with pytest.raises(SettingsError, match="block_rows must be a whole number"):
        Source(X, block_rows=0)
    with pytest.raises(SettingsError, match="sample_rows"):
        Source(X, sample_rows=True)
    with pytest.raises(ValueError, match="keys cannot be given"):
        DBULL().fit(in_blocks(X), keys=range(len(X)))


def test_a_file_that_changes_between_laps_is_refused(tmp_path):
    path = as_files(tmp_path, X, "csv")

    def write(step):
        if step.stage == "sample":
            with open(path, "a") as file:
                file.write("1,2,3,4\n")

    model = DBULL(random_state=0, callback=write)
    with pytest.raises(DataError, match="now that it is read again"):
        model.fit(in_blocks(path))
    assert not hasattr(model, "state_")
