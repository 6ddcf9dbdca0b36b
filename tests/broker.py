"""A broker for tests: the one inside librdkafka, or a real one.

`DBULL_TEST_BROKER=host:port` names a real one, which must make topics of four partitions when they are asked
for; `DBULL_KAFKA_CONFIG` may name a file with the settings of the connection.
"""

import json
import os
from pathlib import Path
from uuid import uuid4

import numpy as np
import pytest

from dbull.data.readers.kafka_log import KafkaLog, read_properties

N_PARTITIONS = 4
REAL = os.environ.get("DBULL_TEST_BROKER")


def rows(n, centre=0.0, seed=0):
    values = np.random.default_rng(seed).normal(size=(n, 3)) + centre
    return [dict(zip("abc", row, strict=True)) for row in values.tolist()]


class Broker:
    """Has topics that no other test has, and takes messages for them."""

    def __init__(self):
        kafka = pytest.importorskip("confluent_kafka", reason="needs the extra kafka")
        config = os.environ.get("DBULL_KAFKA_CONFIG") if REAL else None
        self.settings = {} if config is None else read_properties(Path(config))
        here = {"bootstrap.servers": REAL} if REAL else {"test.mock.num.brokers": 1}
        self._producer = kafka.Producer({"log_level": 2, **self.settings, **here})
        (broker,) = self._producer.list_topics(timeout=10).brokers.values()
        self.host = f"{broker.host}:{broker.port}"

    def topic(self):
        """Return the name of a new topic of four partitions."""
        name = f"clicks-{uuid4().hex[:8]}"
        while len(self._producer.list_topics(name, timeout=10).topics[name].partitions) < N_PARTITIONS:
            pass  # is made when it is asked for, sooner or later
        return name

    def send(self, topic, values, partition=0):
        """Put messages, objects as JSON or bytes as they are, behind the others of a partition."""
        failed = []
        for value in values:
            data = value if value is None or isinstance(value, bytes) else json.dumps(value)
            self._producer.produce(
                topic, data, partition=partition, on_delivery=lambda error, _: error and failed.append(error)
            )
            self._producer.poll(0)
        assert self._producer.flush(60) == 0
        assert failed == []

    def log(self, topic, **words):
        """Return the log of a topic; it is closed with the test."""
        return KafkaLog(self.address(topic), self.settings, **words)

    def address(self, topic):
        return f"kafka://{self.host}/{topic}"
