"""Messages of a log, each learned once: offsets go with what was learned, whatever happens in between."""

import json
import sys

import pytest

from broker import N_PARTITIONS, REAL, Broker, rows
from dbull.data.readers import kafka_log
from dbull.data.readers.kafka_log import KafkaLog, Message, read_properties
from dbull.errors import DataError, SettingsError
from dbull.ingest import Learner
from dbull.store import ModelFolder

SETTINGS = {"epochs": 2, "joint_epochs": 1, "arrival_rows": 40}
pytestmark = pytest.mark.usefixtures("quick_module")


def learn(model, log, **settings):
    """Learn all that is there, and return the arrivals."""
    with log:
        return list(Learner(model, {**SETTINGS, **settings}).learn_log(log, once=True))


def padded(some):
    """Make rows so long that the broker, which keeps 5 MiB, does not keep more than about fifty of them."""
    return [{**row, "padding": "x" * 100_000} for row in some]


def offsets(model, generation=None):
    """Return the next offset of each partition, as a generation has them."""
    (found,) = ModelFolder(model).manifest(generation).offsets.values()
    return found


def each_once(model, expected):
    """Check that the ranges of the generations lie behind each other, with as many rows as were learned."""
    folder, before, n_rows = ModelFolder(model), [0] * len(expected), 0
    for manifest in reversed(list(folder.lineage())):
        if manifest.rows:
            now = offsets(model, manifest.generation)
            now += [0] * (len(expected) - len(now))  # partitions that were added later
            assert sum(now) - sum(before) == manifest.rows
            assert all(a <= b for a, b in zip(before, now, strict=True))
            before, n_rows = now, n_rows + manifest.rows
    assert before == expected
    arrivals = [event["rows"] for event in folder.events() if event["kind"] == "arrival"]
    assert sum(arrivals) == n_rows == sum(expected)


def test_a_log_is_learned_as_a_file_of_the_same_lines(broker, topic, tmp_path):
    data = [*rows(30), *rows(30, 20.0, 1)]
    broker.send(topic, data)
    (arrival,) = learn(tmp_path / "log", broker.log(topic), arrival_rows=60)
    lines = tmp_path / "lines.jsonl"
    lines.write_text("".join(f"{json.dumps(row)}\n" for row in data))
    list(Learner(tmp_path / "file", {**SETTINGS, "arrival_rows": 60}).learn(lines))
    assert arrival.name == f"{topic}:0:0-59"
    stored = [ModelFolder(tmp_path / name).load().checkpoint for name in ("log", "file")]
    for group, tensors in stored[1].tensors.items():
        for name, tensor in tensors.items():
            if group != "exemplars":
                assert tensor.equal(stored[0].tensors[group][name]), (group, name)
    assert stored[0].settings == stored[1].settings


def test_messages_are_learned_once_from_where_the_model_is(broker, topic, tmp_path):
    model = tmp_path / "model"
    broker.send(topic, rows(50))
    broker.send(topic, rows(35, 20.0, 1), partition=2)
    arrivals = learn(model, broker.log(topic))
    assert [arrival.report.n_rows for arrival in arrivals] == [40, 40, 5]
    assert offsets(model) == [50, 0, 35, 0]
    assert learn(model, broker.log(topic)) == []
    broker.send(topic, rows(7, 20.0, 2), partition=3)
    (arrival,) = learn(model, broker.log(topic))
    assert arrival.name == f"{topic}:3:0-6"
    each_once(model, [50, 0, 35, 7])


def test_rows_are_named_by_where_they_are_or_by_their_key(broker, topic, tmp_path):
    data = [{**row, "id": f"row {n}"} for n, row in enumerate(rows(40))]
    broker.send(topic, data)
    learn(tmp_path / "named", broker.log(topic), key="id")
    learn(tmp_path / "plain", broker.log(topic), columns=["a", "b", "c"])
    for model, begin in (("named", "row "), ("plain", f"{topic}:0:")):
        kept = ModelFolder(tmp_path / model).load().checkpoint.documents["exemplars"]
        assert f'"{begin}' in json.dumps(kept)


def test_what_cannot_be_read_is_skipped_told_and_counted(broker, topic, tmp_path):
    told = []
    broker.send(topic, rows(40))
    learn(tmp_path / "model", broker.log(topic))
    bad = [
        b"no JSON",
        {"a": 1.0, "b": "x", "c": 2.0},
        {"a": 1.0},
        [1.0],
        None,
        b'{"a": 1e999, "b": 1, "c": 1}',
    ]
    good = rows(5, seed=1)
    broker.send(topic, [value for pair in zip(good, bad, strict=False) for value in pair])
    log = broker.log(topic, notice=told.append)
    (arrival,) = learn(tmp_path / "model", log)
    assert arrival.report.n_rows == 5
    assert log.n_skipped == 5
    assert [line.split(":")[2] for line in told] == ["41", "43", "45", "47", "49"]
    for line, words in zip(told, ["not JSON", "'b'", "'b'", "object", "empty"], strict=True):
        assert words in line
    assert offsets(tmp_path / "model")[0] == 50, "they are behind us"


def test_a_flood_of_bad_messages_is_told_in_few_lines(broker, topic, tmp_path):
    told = []
    broker.send(topic, [*rows(20), *([b"?"] * 20)])
    log = broker.log(topic, notice=told.append)
    learn(tmp_path / "model", log)
    assert (len(told), log.n_skipped) == (11, 20)
    assert told[-1] == f"skipped 10 more, up to {topic}:0:39"


def test_messages_of_a_table_may_lack_fields(broker, topic, tmp_path):
    told = []
    mixed = [{**row, "colour": ["red", "blue"][n % 2]} for n, row in enumerate(rows(40))]
    broker.send(topic, mixed)
    learn(tmp_path / "model", broker.log(topic))
    broker.send(topic, [{"a": 1.0}, {"weight": 3.0}, {"colour": "red", "b": 2.0}])
    log = broker.log(topic, notice=told.append)
    (arrival,) = learn(tmp_path / "model", log)
    assert arrival.report.n_rows == 2
    assert told == [f"skipped {topic}:0:41: it has none of the columns a, b, c, colour"]


def test_the_first_arrival_waits_for_a_second_row(broker, topic, tmp_path):
    broker.send(topic, rows(1))
    broker.send(topic, [b"?"], partition=1)
    with pytest.raises(DataError, match="needs at least two"):
        learn(tmp_path / "model", broker.log(topic))
    with broker.log(topic) as log:
        arrivals = Learner(tmp_path / "model", SETTINGS).learn_log(log, linger=0.0)
        given = log.arrivals

        def and_more(*words):
            for number, messages in enumerate(given(*words)):
                yield messages
                if number == 0:
                    broker.send(topic, rows(1, seed=1))

        log.arrivals = and_more
        first = next(arrivals)
    assert first.report.n_rows == 2
    assert log.n_skipped == 1
    assert offsets(tmp_path / "model")[0] == 2


def test_a_rollback_learns_again_from_its_offsets(broker, topic, tmp_path):
    model = tmp_path / "model"
    broker.send(topic, rows(120))
    learn(model, broker.log(topic))
    ModelFolder(model).rollback(1)
    assert offsets(model) == [40, 0, 0, 0]
    arrivals = learn(model, broker.log(topic))
    assert [arrival.name for arrival in arrivals] == [f"{topic}:0:40-79", f"{topic}:0:80-119"]
    each_once(model, [120, 0, 0, 0])


def test_a_rollback_beside_a_watcher_sets_it_back(broker, topic, tmp_path):
    model = tmp_path / "model"
    broker.send(topic, rows(160))
    with broker.log(topic) as log:
        arrivals = Learner(model, SETTINGS).learn_log(log, once=True)
        assert [next(arrivals).generation for _ in range(3)] == [1, 2, 3]
        ModelFolder(model).rollback(1)
        names = [arrival.name for arrival in arrivals]
    assert names == [f"{topic}:0:{first}-{first + 39}" for first in (40, 80, 120)]
    each_once(model, [160, 0, 0, 0])


def test_of_two_writers_none_learns_what_the_other_has(broker, topic, tmp_path):
    model = tmp_path / "model"
    broker.send(topic, rows(160))
    with broker.log(topic) as one, broker.log(topic) as two:
        first = Learner(model, SETTINGS).learn_log(one, once=True)
        assert next(first).name.endswith(":0-39")
        second = Learner(model, SETTINGS).learn_log(two, once=True)
        assert next(second).name.endswith(":40-79")
        assert next(first).name.endswith(":80-119"), "what the other has learned is not learned again"
        assert next(second).name.endswith(":120-159")
        assert list(first) == list(second) == []
    each_once(model, [160, 0, 0, 0])


def test_changes_by_hand_and_files_keep_the_offsets(broker, topic, tmp_path):
    model = tmp_path / "model"
    broker.send(topic, rows(40))
    learn(model, broker.log(topic))
    lines = tmp_path / "more.jsonl"
    lines.write_text("".join(f"{json.dumps(row)}\n" for row in rows(20, seed=3)))
    list(Learner(model, SETTINGS).learn(lines))
    Learner(model).model.rename(0, "first").save(model)
    ModelFolder(model).prune(keep=1)
    assert offsets(model) == [40, 0, 0, 0]
    assert learn(model, broker.log(topic)) == []


def test_partitions_that_are_added_are_read_from_their_beginning(broker, topic, tmp_path, monkeypatch):
    whole, asked = KafkaLog._partitions, []

    def growing(log):
        asked.append(1)
        return whole(log)[: 2 if len(asked) == 1 else N_PARTITIONS]

    monkeypatch.setattr(KafkaLog, "_partitions", growing)
    broker.send(topic, rows(40))
    broker.send(topic, rows(40, seed=1), partition=3)
    with broker.log(topic) as log:
        arrivals = Learner(tmp_path / "model", SETTINGS).learn_log(log)
        assert next(arrivals).name == f"{topic}:0:0-39"
        assert offsets(tmp_path / "model") == [40, 0]
        assert next(arrivals).name == f"{topic}:3:0-39"
    each_once(tmp_path / "model", [40, 0, 0, 40])


@pytest.mark.skipif(REAL is not None, reason="a real broker keeps what was sent for longer")
def test_messages_that_the_broker_no_longer_has(broker, topic, tmp_path):
    model, told = tmp_path / "model", []
    broker.send(topic, rows(40))
    learn(model, broker.log(topic))
    broker.send(topic, padded(rows(70, seed=1)))
    with pytest.raises(
        DataError, match=r"now begins at offset \d+: \d+ messages from 40 on are gone; give --skip-lost"
    ):
        learn(model, broker.log(topic))
    (arrival,) = learn(model, broker.log(topic, skip_lost=True, notice=told.append), arrival_rows=100)
    assert 0 < arrival.report.n_rows < 70
    lost = int(told[0].split(": ")[2].split()[0])
    assert arrival.report.n_rows + lost == 70
    assert len(told) == 1


@pytest.mark.skipif(REAL is not None, reason="a real broker keeps what was sent for longer")
def test_messages_that_go_while_it_watches(broker, topic, tmp_path):
    broker.send(topic, rows(40))
    with broker.log(topic) as log:
        arrivals = Learner(tmp_path / "model", SETTINGS).learn_log(log)
        next(arrivals)
        log._consumer.unassign()  # who reads is slow
        broker.send(topic, padded(rows(90, seed=1)))
        log._consumer.assign([log._kafka.TopicPartition(topic, 0, 40)])
        with pytest.raises(DataError, match=r"messages from 40 on are gone"):
            next(arrivals)


def test_a_log_that_is_shorter_than_what_was_learned(broker, topic, tmp_path):
    broker.send(topic, rows(40))
    learn(tmp_path / "model", broker.log(topic))
    with broker.log(topic) as log:
        log.seek({})
        (name,) = log.offsets
        with pytest.raises(DataError, match="ends at offset 40, but was learned up to 41"):
            log.seek({name: [41, 0, 0, 0]})


def test_a_reader_whose_offset_the_broker_refuses_looks_where_it_was(broker, topic, tmp_path):
    broker.send(topic, rows(80))
    with broker.log(topic) as log:
        arrivals = Learner(tmp_path / "model", SETTINGS).learn_log(log, once=True)
        next(arrivals)
        log._consumer.assign([log._kafka.TopicPartition(topic, 0, 10_000)])
        assert [arrival.name for arrival in arrivals] == [f"{topic}:0:40-79"]


def test_a_topic_that_was_made_anew(broker, topic, tmp_path, monkeypatch):
    monkeypatch.setattr(KafkaLog, "_name", lambda log, name: "the same")
    told, anew = [], broker.topic()
    broker.send(topic, rows(80))
    learn(tmp_path / "model", broker.log(topic))
    broker.send(anew, rows(40, seed=1))
    with pytest.raises(DataError, match="made anew"):
        learn(tmp_path / "model", broker.log(anew))
    log = broker.log(anew, skip_lost=True, notice=told.append)
    assert [arrival.report.n_rows for arrival in learn(tmp_path / "model", log)] == [40]
    assert len(told) == 1


def test_offsets_of_another_cluster_are_not_ours(broker, topic, tmp_path):
    if REAL:
        pytest.skip("there is one real broker")
    model, other = tmp_path / "model", Broker()
    broker.send(topic, rows(40))
    learn(model, broker.log(topic))
    other.send(topic, rows(45, seed=1))
    assert [arrival.report.n_rows for arrival in learn(model, other.log(topic))] == [40, 5]
    assert sorted(map(sum, ModelFolder(model).manifest().offsets.values())) == [40, 45]


def test_several_topics(broker, tmp_path):
    one, two = sorted([broker.topic(), broker.topic()])
    broker.send(one, rows(30))
    broker.send(two, rows(30, seed=1), partition=1)
    (arrival,) = learn(tmp_path / "model", broker.log(f"{one},{two}"), arrival_rows=60)
    assert arrival.name == f"{one}:0:0-29 {two}:1:0-29"
    found = ModelFolder(tmp_path / "model").manifest().offsets
    assert {name.rpartition("/")[2]: sum(at) for name, at in found.items()} == {one: 30, two: 30}


def test_a_topic_that_is_not_there(broker, topic, tmp_path):
    with pytest.raises(DataError, match=f"no topic '{topic}x'; did you mean '{topic}'"):
        learn(tmp_path / "model", broker.log(f"{topic}x"))


def test_nobody_answers(tmp_path, monkeypatch):
    pytest.importorskip("confluent_kafka", reason="needs the extra kafka")
    monkeypatch.setattr(kafka_log, "ANSWER_SECONDS", 0.5)
    with pytest.raises(DataError, match=r"127.0.0.1:1/clicks: .*is the broker there"):
        learn(tmp_path / "model", KafkaLog("kafka://127.0.0.1:1/clicks", {"log_level": 0}))


@pytest.mark.parametrize(
    "address",
    [
        "kafka://host",
        "kafka://host/",
        "kafka://me:secret@host/topic",
        "kafka://host/a?b=c",
        "kafka://host/a/b",
    ],
)
def test_addresses_that_are_none(address):
    with pytest.raises(SettingsError, match="kafka://host:port/topic"):
        KafkaLog(address)


def test_settings_of_the_connection(tmp_path):
    path = tmp_path / "client.properties"
    path.write_text("# whose\nsasl.username = me\nsasl.password=a=b\n\n")
    assert read_properties(path) == {"sasl.username": "me", "sasl.password": "a=b"}
    path.write_text("sasl.password\n")
    with pytest.raises(SettingsError, match="line 1") as raised:
        read_properties(path)
    assert "password" not in str(raised.value)
    pytest.importorskip("confluent_kafka", reason="needs the extra kafka")
    with pytest.raises(SettingsError, match=r"sasl\.pasword"):
        KafkaLog("kafka://host/clicks", {"sasl.pasword": "x"})


def test_without_the_package(monkeypatch):
    monkeypatch.setitem(sys.modules, "confluent_kafka", None)
    with pytest.raises(DataError, match=r"pip install 'dbull\[kafka\]'"):
        KafkaLog("kafka://host/clicks")


def test_messages_in_their_order():
    some = [
        Message("b", 0, 1, None),
        Message("a", 1, 0, b""),
        Message("a", 0, 10, None),
        Message("a", 0, 9, b""),
    ]
    assert [message.name for message in sorted(some)] == ["a:0:9", "a:0:10", "a:1:0", "b:0:1"]
