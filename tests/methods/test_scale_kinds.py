"""Tables, texts and sparse matrices in blocks: read by what the sample fixed, words counted in all rows."""

import numpy as np
import pytest
from sklearn.metrics import adjusted_rand_score

from dbull import DBULL, Source

WORDS = {"printer": "toner page jam paper tray", "login": "password account locked reset user"}


def texts(n_rows, seed=0):
    rng = np.random.default_rng(seed)
    topics = rng.choice(list(WORDS), n_rows)
    return [" ".join([topic, *rng.choice(WORDS[topic].split(), 3)]) for topic in topics], topics


def test_words_of_all_texts_are_counted(quick_learning):
    given, topics = texts(1200)
    parts = (given[i : i + 100] for i in range(0, 1200, 100))
    model = DBULL(kind="text", random_state=0, epochs=2).fit(Source(parts, sample_rows=200))
    for cluster in model.clusters_:
        (topic,) = set(topics[model.predict(given) == cluster["id"]])
        counts = model.column_counts_.counts(cluster["id"])
        assert counts[topic] == model.report_.rows[cluster["id"]]


def test_a_mixed_table_in_blocks(quick_learning):
    pandas = pytest.importorskip("pandas")
    rng = np.random.default_rng(0)
    kinds = rng.integers(2, size=1500)
    frame = pandas.DataFrame(
        {
            "amount": rng.normal(size=1500) + 30 * kinds,
            "shop": np.where(kinds, "north", "south"),
            "note": np.where(kinds, "please ring the bell at noon", "leave it with the porter today"),
        }
    )
    model = DBULL(random_state=0, epochs=2, columns={"note": "text"}).fit(
        Source(frame, block_rows=200, sample_rows=300)
    )
    assert adjusted_rand_score(kinds, model.predict(frame)) == 1
    assert model.report_.n_rows == 1500
    assert {word for cluster in model.clusters_ for word in cluster["words"]} >= {"bell", "porter"}
    total = model.vocabulary_.counts
    assert sum(total.counts(cluster)["porter"] for cluster in total.clusters) == (kinds == 0).sum()


def test_a_sparse_matrix_in_blocks(quick_learning):
    from scipy.sparse import csr_matrix, random

    rng = np.random.default_rng(0)
    kinds = rng.integers(2, size=900)
    noise = random(900, 400, density=0.01, random_state=0, format="csr").toarray()
    noise[np.arange(900), kinds * 200] = 5.0
    noise[np.arange(900), kinds * 200 + 1] = 5.0
    rows = csr_matrix(noise)
    model = DBULL(random_state=0, epochs=2).fit(Source(rows, block_rows=100, sample_rows=200))
    assert adjusted_rand_score(kinds, model.predict(rows)) == 1
    counts = model.column_counts_
    assert sorted(max(counts.counts(c)["0"], counts.counts(c)["200"]) for c in counts.clusters) == sorted(
        np.bincount(kinds).tolist()
    )


def test_images_of_a_folder_in_blocks(tmp_path, quick_learning):
    pillow = pytest.importorskip("PIL.Image")
    rng = np.random.default_rng(0)
    for i in range(240):
        pixels = rng.integers(0, 60, size=(6, 6, 3), dtype=np.uint8)
        pixels[:3, :, i % 2] += 180  # red above, or green
        pillow.fromarray(pixels).save(tmp_path / f"{i:03}.png")
    model = DBULL(random_state=0, image_shape=(6, 6, 3), epochs=2).fit(
        Source(tmp_path, block_rows=50, sample_rows=100)
    )
    assert model.report_.n_rows == 240
    assert all(key.endswith(".png") for cluster in model.clusters_ for key in cluster["exemplars"])
