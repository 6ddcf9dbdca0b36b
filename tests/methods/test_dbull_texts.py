"""Texts in `DBULL`: lists, columns, files; words that set clusters apart; stored to the bit."""

import json

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone

import dbull
from dbull import DBULL
from dbull.errors import DataError, ModelFileError
from dbull.ingest import Learner
from dbull.methods.texts import N_BUCKETS
from dbull.tables.sparse import N_HASHED
from dbull.tables.words import WordHasher, bucket_of
from forgery import forge

pytestmark = pytest.mark.usefixtures("quick_module")
TOPICS = {
    "disk": ["disk", "drive", "controller", "failed", "sector", "cable", "replaced", "spinning"],
    "login": ["password", "login", "account", "locked", "reset", "user", "email", "token"],
    "invoice": ["invoice", "payment", "due", "amount", "bank", "transfer", "refund", "tax"],
}


def tickets(n=150, seed=0, topics=tuple(TOPICS)):
    """Return texts about some topics, and which is about which."""
    rng = np.random.default_rng(seed)
    which = rng.integers(0, len(topics), n)
    filler = ["the", "and", "of", "please", "help", "with", "our", "system", "today", "again"]
    texts = [
        " ".join([*rng.choice(TOPICS[topics[k]], 6), *rng.choice(filler, 4), "the"]) for k in which.tolist()
    ]
    return texts, which


TEXTS, WHICH = tickets()


@pytest.fixture(scope="module")
def model():
    return DBULL(kind="text", random_state=0).fit(TEXTS)


def same_texts():
    return {
        "list": TEXTS,
        "array": np.array(TEXTS),
        "series": pd.Series(TEXTS),
        "column": {"anything": TEXTS},
        "frame": pd.DataFrame({"note": TEXTS}),
    }


@pytest.mark.parametrize("kind", list(same_texts()))
def test_texts_in_every_form(model, kind):
    np.testing.assert_array_equal(model.predict(same_texts()[kind]), model.labels_)


def test_words_that_set_clusters_apart(model):
    told = {row["id"]: row["words"] for row in model.clusters_}
    for cluster, words in told.items():
        topic = list(TOPICS)[np.bincount(WHICH[model.labels_ == cluster]).argmax()]
        assert set(words[:3]) <= set(TOPICS[topic])
        assert words == [trait.column for trait in model.explain(cluster, 8).traits]
        trait = model.explain(cluster).traits[0]
        mine = [trait.column in text.split() for text in np.array(TEXTS)[model.labels_ == cluster]]
        assert trait.here == pytest.approx(np.mean(mine))
    merged = clone(model).fit(TEXTS).merge_clusters(model.cluster_ids_[:2])
    words = next(row["words"] for row in merged.clusters_ if row["id"] == 0)
    assert set(words[:5]) & set(told[0])
    assert set(words[:8]) & set(told[1])


def test_a_stored_model_answers_and_goes_on_the_same(tmp_path):
    model = DBULL(kind="text", random_state=0).fit(TEXTS)
    model.save(tmp_path / "m")
    loaded = dbull.load(tmp_path / "m")
    more = tickets(60, seed=1)[0]
    for one in (model, loaded):
        one.partial_fit(more)
    np.testing.assert_array_equal(loaded.score_samples(more), model.score_samples(more))
    assert loaded.clusters_ == model.clusters_


def test_weights_follow_the_counts_of_all_texts_until_a_word_is_known_well(tmp_path):
    model = DBULL(kind="text", random_state=0).fit(TEXTS)
    first = model.text_reader_
    settled = first.hasher.text_counts >= 16
    assert settled.sum() > 20
    np.testing.assert_array_equal(first.weights, first.hasher.weights)
    more = [f"{text} zebra{' yak' if i < 9 else ''}" for i, text in enumerate(tickets(60, seed=1)[0])]
    before = first.rows(TEXTS[:9])
    model.partial_fit(more)
    reader, every = model.text_reader_, WordHasher(N_BUCKETS).learned([*TEXTS, *more])
    np.testing.assert_array_equal(reader.hasher.text_counts, every.text_counts)  # they add up
    assert reader.hasher.n_texts == 210
    np.testing.assert_array_equal(reader.weights[settled], first.weights[settled])
    np.testing.assert_array_equal(reader.weights[~settled], every.weights[~settled])
    assert not (reader.rows(TEXTS[:9]) != before).nnz  # these texts mean what they meant
    zebra, yak = (bucket_of(word, N_BUCKETS) for word in ("zebra", "yak"))
    assert reader.weights[zebra] == reader.settled[zebra] == pytest.approx(1 + np.log(211 / 61))
    assert reader.settled[yak] == -1
    model.save(tmp_path / "m")
    loaded = dbull.load(tmp_path / "m")
    for one in (model, loaded):
        one.partial_fit([f"{text} yak" for text in TEXTS[:40]])
        assert one.text_reader_.weights[zebra] == reader.weights[zebra]
        assert one.text_reader_.weights[yak] == pytest.approx(1 + np.log(251 / 50))
    with pytest.raises(TypeError):
        model.partial_fit([3, 4])
    assert model.text_reader_.hasher.n_texts == 250


def test_words_of_no_text_before_count_once_enough_texts_have_them():
    model = DBULL(kind="text", random_state=0).fit(TEXTS)
    counts = model.text_reader_.hasher.text_counts
    odd = [word for word in (f"odd{i}" for i in range(999)) if not counts[bucket_of(word, N_BUCKETS)]]
    strange = [f"{text} {' '.join(odd[5 * i : 5 * i + 5])}" for i, text in enumerate(TEXTS)]
    np.testing.assert_array_equal(model.encoded(strange).rows, model.encoded(TEXTS).rows)
    assert not model.encoded(TEXTS).rows[:, -N_HASHED:].any()
    model.partial_fit([f"{text} zebra" for text in TEXTS[:16]])
    seen, without = model.encoded(["a zebra and a disk", "a yak and a disk"]).rows
    assert seen[-N_HASHED:].any()
    assert not without[-N_HASHED:].any()


def test_weights_of_older_models_stay_as_they_are(model, tmp_path):
    model.save(tmp_path / "m")
    del model.origin_
    forge(tmp_path / "m", "words", lambda tensors: tensors.pop("settled"))
    loaded = dbull.load(tmp_path / "m")
    np.testing.assert_array_equal(loaded.predict(TEXTS), model.labels_)
    loaded.partial_fit(["unheard words"] * 40)
    np.testing.assert_array_equal(loaded.text_reader_.weights, model.text_reader_.weights)


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("texts", lambda d: d["words"].update(n_buckets=5), "text_counts"),
        ("texts", lambda d: d.pop("columns"), "columns"),
        ("words", lambda t: t.update(text_counts=t["text_counts"][:8]), "text_counts"),
        ("words", lambda t: t.clear(), "text_counts"),
        ("words", lambda t: t.update(settled=t["settled"][:8]), "settled"),
        ("words", lambda t: t.update(settled=t["settled"] - 0.5), "settled"),
    ],
)
def test_forged_readers_of_texts_are_refused(model, tmp_path, name, change, message):
    model.save(tmp_path / "m")
    del model.origin_
    forge(tmp_path / "m", name, change)
    with pytest.raises(ModelFileError, match=message):
        dbull.load(tmp_path / "m")


def test_a_table_of_texts_is_one_without_being_told():
    table = pd.DataFrame({"ticket_id": range(9000, 9150), "note": TEXTS})
    with pytest.warns(UserWarning, match=r"left out: 'ticket_id' \(the texts are in note\)"):
        model = DBULL(random_state=0).fit(table)
    assert model.text_reader_.columns == ("note",)
    np.testing.assert_array_equal(model.predict(TEXTS), model.labels_)
    with pytest.raises(DataError, match="a column 'note'"):
        model.predict(pd.DataFrame({"other": TEXTS}))


@pytest.mark.parametrize("given", ["one text", [["a", "b"]], np.zeros((3, 2)), [1, 2]])
def test_what_is_no_text_is_refused_with_help(model, given):
    for use in (model.predict, DBULL(kind="text").fit):
        with pytest.raises(TypeError, match="kind='text' takes a list of texts"):
            use(given)


def test_tables_without_texts_and_texts_without_words():
    with pytest.raises(DataError, match="no column of a, b looks like texts"):
        DBULL(kind="text").fit({"a": [1, 2, 3], "b": [1, 2, 3]})
    with pytest.raises(DataError, match="no value but 0"):
        DBULL(kind="text").fit(["", "7 1", "?"])
    answers = DBULL(kind="text", random_state=0).fit([*TEXTS, None, ""]).predict([None, "", "unheard of"])
    assert len(answers) == 3


def test_files_of_texts(tmp_path):
    for i, text in enumerate(TEXTS):
        path = tmp_path / "tickets" / str(i % 3) / f"{i}.txt"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode("latin-1" if i % 2 else "utf-8"))
    learner = Learner(tmp_path / "m", {"arrival_rows": 70})
    arrivals = list(learner.learn(tmp_path / "tickets"))
    assert [one.report.n_rows for one in arrivals] == [70, 80]
    assert learner.model.kind == "text"
    (tmp_path / "tickets" / "new.txt").write_text("password reset for my account, please")
    (more,) = Learner(tmp_path / "m").learn(tmp_path / "tickets")
    assert more.report.n_rows == 1
    lines = "\n".join(json.dumps({"text": text}) for text in tickets(40, seed=3)[0])
    (tmp_path / "more.jsonl").write_text(lines)
    (more,) = Learner(tmp_path / "m").learn(tmp_path / "more.jsonl")
    assert more.report.n_rows == 40
    pd.DataFrame({"note": TEXTS}).to_csv(tmp_path / "notes.csv", index=False)
    learner = Learner(tmp_path / "n")
    assert len(list(learner.learn(tmp_path / "notes.csv"))) == 1
    assert learner.model.text_reader_.columns == ("note",)
