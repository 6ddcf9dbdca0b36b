"""Words of clusters beside what is clustered: columns of a mixed table, and texts beside embeddings."""

import numpy as np
import pytest
from test_dbull_texts import TOPICS, tickets

import dbull
from dbull import DBULL
from dbull.errors import AlreadyLearnedError, DataError, ModelFileError
from dbull.ingest import Learner
from dbull.methods.listing import list_clusters
from dbull.report import build_report
from dbull.store import ModelFolder
from forgery import forge

pytestmark = pytest.mark.usefixtures("quick_module")
CENTRES = 5 * np.random.default_rng(7).normal(size=(3, 12))


def some_notes(n=90, seed=0):
    """Return texts, embeddings that say the same, and a table of one text and one number."""
    texts, which = tickets(n, seed)
    rng = np.random.default_rng(seed)
    vectors = CENTRES[which] + rng.normal(size=(n, 12))
    amounts = [None if i == 3 else x for i, x in enumerate((9 * which + rng.normal(size=n)).tolist())]
    return texts, vectors.astype(np.float32), {"amount": amounts, "note": texts}, which


TEXTS, VECTORS, TABLE, WHICH = some_notes()


def check_words(model, which):
    for row in model.clusters_:
        topic = list(TOPICS)[np.bincount(which[model.labels_ == row["id"]]).argmax()]
        assert set(row["words"][:3]) <= set(TOPICS[topic])


def check_stored(model, folder, more):
    """Compare with a model that was stored: words, what is listed without torch, and how it goes on."""
    model.save(folder)
    loaded = dbull.load(folder)
    assert loaded.clusters_ == model.clusters_
    listed = [row["words"] for row in list_clusters(ModelFolder(folder))]
    assert listed == [row["words"] for row in model.clusters_]
    assert loaded.partial_fit(more).clusters_ == model.partial_fit(more).clusters_


def test_words_of_a_column_of_a_mixed_table(tmp_path):
    model = DBULL(random_state=0).fit(TABLE)
    check_words(model, WHICH)
    cluster = int(model.labels_[0])
    told = model.explain(cluster).traits
    words = {trait.part.strip('"'): trait for trait in told if trait.column == "note"}
    assert 0 < len(words) <= 3
    assert "amount" in {trait.column for trait in told}
    for word, trait in words.items():
        has = np.array([word in text.split() for text in TEXTS])
        assert trait.here == pytest.approx(has[model.labels_ == cluster].mean())
        assert trait.others == pytest.approx(has[model.labels_ != cluster].mean())
        assert trait.effect == pytest.approx(trait.here - trait.others)
    assert 'note "' in model.report_.born[cluster].because
    told = {row["id"]: row["words"] for row in model.clusters_}
    assert {one.id: one.words for one in build_report(model).clusters} == told
    check_stored(model, tmp_path / "m", some_notes(60, seed=1)[2])


def test_embeddings_are_clustered_and_texts_give_words(tmp_path):
    table = {"v": VECTORS, "note": TEXTS, "amount": TABLE["amount"]}
    with pytest.warns(UserWarning, match="left out: 'amount'"):
        model = DBULL(embeddings="v", random_state=0).fit(table)
    np.testing.assert_array_equal(model.labels_, DBULL(random_state=0).fit(VECTORS).labels_)
    check_words(model, WHICH)
    assert [t.column for t in model.explain(0).traits] == model.clusters_[0]["words"][:6]
    for rows in (VECTORS, table, {"v": list(VECTORS)}, model.encoded(table)):
        np.testing.assert_array_equal(model.predict(rows), model.labels_)
    with pytest.raises(DataError, match="no column 'v' with embeddings"):
        model.predict({"note": TEXTS})
    texts, vectors, *_ = some_notes(60, seed=1)
    check_stored(model, tmp_path / "m", {"note": texts, "v": vectors})
    before = model.clusters_[0]["words"]
    assert model.partial_fit(vectors).clusters_[0]["words"] == before  # of which no texts are known


def test_columns_of_embeddings_by_pattern_and_in_any_order():
    columns = {f"e{i}": VECTORS[:, i] for i in range(12)}
    model = DBULL(embeddings=["e*"], random_state=0).fit({**columns, "note": TEXTS})
    np.testing.assert_array_equal(model.predict(dict(reversed(columns.items()))), model.labels_)
    np.testing.assert_array_equal(model.predict(VECTORS), model.labels_)
    with pytest.raises(DataError, match="embeddings='f': there is no such column"):
        DBULL(embeddings="f").fit(columns)
    with pytest.raises(ValueError, match="embeddings must be"):
        DBULL(embeddings=3).fit(columns)


@pytest.fixture
def files(tmp_path):
    for day, seed in (("monday", 0), ("tuesday", 1)):
        texts, vectors, *_ = some_notes(seed=seed)
        (tmp_path / f"{day}.csv").write_text("\n".join(["note", *texts]) + "\n")
        np.save(tmp_path / f"{day}.npy", vectors)
    (tmp_path / "folder").mkdir()
    for i, text in enumerate(TEXTS):
        (tmp_path / "folder" / f"{i:02d}.txt").write_text(text)
    np.save(tmp_path / "folder.npy", VECTORS)
    return tmp_path


def test_an_array_beside_each_file(files):
    learner = Learner(files / "m", {"embeddings": "*.npy"})
    assert [len(list(learner.learn(files / f"{day}.csv"))) for day in ("monday", "tuesday")] == [1, 1]
    _, vectors, _, which = some_notes(seed=1)
    plain = DBULL(random_state=0).partial_fit(VECTORS).partial_fit(vectors)
    np.testing.assert_array_equal(learner.model.labels_, plain.labels_)
    check_words(learner.model, which)
    with pytest.raises(AlreadyLearnedError, match="learned with the files beside"):
        list(learner.learn(files / "monday.npy"))
    np.save(files / "tuesday.npy", vectors[:50])
    with pytest.raises(DataError, match="has 50 rows"):
        list(Learner(files / "n", {"embeddings": "*.npy"}).learn(files / "tuesday.csv"))
    (files / "tuesday.npy").unlink()
    with pytest.raises(DataError, match=r"the embeddings of .*tuesday.csv cannot be read"):
        list(Learner(files / "n", {"embeddings": "*.npy"}).learn(files / "tuesday.csv"))


def test_texts_of_a_folder_keep_their_embeddings_when_more_come(files):
    learner = Learner(files / "m", {"embeddings": str(files / "folder.npy")})
    list(learner.learn(files / "folder"))
    np.testing.assert_array_equal(learner.model.labels_, DBULL(random_state=0).fit(VECTORS).labels_)
    (files / "folder" / "00a.txt").write_text(TEXTS[4])  # among the others
    np.save(files / "folder.npy", np.insert(VECTORS, 1, VECTORS[4], axis=0))
    (more,) = Learner(files / "m").learn(files / "folder")
    assert {cluster for cluster, n in more.report.rows.items() if n} == {int(learner.model.labels_[4])}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d: d.pop("counts"), "counts"),
        (lambda d: d.update(columns=7), "columns"),
        (lambda d: d["counts"]["clusters"][0].update(cluster=99), "cluster 99"),
    ],
)
def test_forged_words_are_refused(tmp_path, change, message):
    DBULL(random_state=0).fit(TABLE).save(tmp_path / "m")
    forge(tmp_path / "m", "vocabulary", change)
    with pytest.raises(ModelFileError, match=message):
        dbull.load(tmp_path / "m")
