"""A broker for tests: the one inside librdkafka, or a real one.

`DBULL_TEST_BROKER=host:port` names a real one, which must make topics of four partitions when they are
written to; `DBULL_KAFKA_CONFIG` may name a file with the settings of the connection.
"""

import json
import os
from pathlib import Path
from uuid import uuid4

from dbull.data.readers.kafka_log import KafkaLog, read_properties

N_PARTITIONS = 4
REAL = os.environ.get("DBULL_TEST_BROKER")


class Broker:
    """Takes messages for topics that no other test has."""

    def __init__(self):
        from confluent_kafka import Producer

        settings = {"log_level": 2, "linger.ms": 0}
        if REAL:
            config = os.environ.get("DBULL_KAFKA_CONFIG")
            self.settings = {} if config is None else read_properties(Path(config))
            self._producer = Producer({**settings, **self.settings, "bootstrap.servers": REAL})
            self.host = REAL
        else:
            self.settings = {}
            self._producer = Producer({**settings, "test.mock.num.brokers": 1, "bootstrap.servers": "here"})
            (broker,) = self._producer.list_topics(timeout=10).brokers.values()
            self.host = f"{broker.host}:{broker.port}"

    def topic(self, name="clicks"):
        """Return the name of a new topic, which is there."""
        name = f"{name}-{uuid4().hex[:8]}"
        while name not in (found := self._producer.list_topics(name, timeout=10).topics) or found[name].error:
            self._producer.produce(name, partition=N_PARTITIONS - 1) if False else None
        return name
