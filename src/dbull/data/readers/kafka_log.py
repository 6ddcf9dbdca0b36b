"""A log of messages, Kafka or what speaks its protocol (the `kafka` extra), read on from given offsets.

The broker is asked to remember nothing: no consumer group takes part, no offset is committed. Whoever reads
says where to begin and is told where to go on. If that is stored in the same step as what was made of the
messages, each message counts exactly once, whatever is killed in between.
"""

import importlib
import logging
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from dbull.errors import DataError, SettingsError, did_you_mean

# A path of Python has one slash where an address has two.
_ADDRESS = re.compile(r"kafka:/{1,2}([^/?#@\s]+)/([\w.,-]+)", re.ASCII)
ANSWER_SECONDS = 10.0  # that a broker may take
TICK_SECONDS = 0.2  # at most, until an interrupt or the end is noticed
_DEFAULTS = {"group.id": "dbull"}  # named by all clients; of no meaning here
_OWN = {
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "enable.partition.eof": True,
    "auto.offset.reset": "error",  # an offset that is not there is for people to decide on
}
_log = logging.getLogger(__name__)
Partition = tuple[str, int]  # topic and number


class Message(NamedTuple):
    """A message, and where it is; in the order in which messages are learned."""

    topic: str
    partition: int
    offset: int
    value: bytes | None

    @property
    def name(self) -> str:
        """Return where it is, in one word."""
        return f"{self.topic}:{self.partition}:{self.offset}"


def is_log(source: object) -> bool:
    """Tell the address of a log from a path."""
    return str(source).startswith("kafka:/")


def read_properties(path: Path) -> dict[str, str]:
    """Return the settings of a connection from a file with lines of name=value, as Kafka's own tools have."""
    try:
        lines = [line.strip() for line in path.read_text(encoding="utf-8").splitlines()]
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"{path}: cannot be read ({error})") from error
    found = {}
    for number, line in enumerate(lines, 1):
        name, equals, value = line.partition("=")
        if line and not line.startswith("#"):
            if not equals:  # the line itself may be half of a password
                raise SettingsError(f"{path}: line {number} is not of the form name=value")
            found[name.strip()] = value.strip()
    return found


class KafkaLog:
    """One or more topics of a cluster.

    Parameters
    ----------
    address
        ``kafka://host:port/topic``; several hosts or topics with commas between.
    settings
        Of librdkafka, such as ``security.protocol``; never stored.
    skip_lost
        Whether to go on at the earliest message where the broker has no longer what would be next.
    notice
        Is told of messages that are skipped or lost.
    """

    def __init__(
        self,
        address: object,
        settings: Mapping[str, Any] | None = None,
        *,
        skip_lost: bool = False,
        notice: Callable[[str], object] = _log.warning,
    ):
        found = _ADDRESS.fullmatch(str(address))
        if found is None:
            raise SettingsError(
                f"{str(address)!r:.200}: a log is named kafka://host:port/topic, with commas between several "
                "hosts or topics; settings of the connection, such as passwords, are not part of it"
            )
        hosts, topics = found.groups()
        self.address, self._topics = f"kafka://{hosts}/{topics}", tuple(dict.fromkeys(topics.split(",")))
        self.notice, self.n_skipped = notice, 0
        self._skip_lost = skip_lost
        self._kafka = _need_kafka(self.address)
        try:
            own = {**_DEFAULTS, **(settings or {}), "bootstrap.servers": hosts, **_OWN}
            self._consumer = self._kafka.Consumer(own)
            self._inquirer = self._kafka.Consumer(own)  # reads nothing: answers need not wait for messages
        except (self._kafka.KafkaException, TypeError, ValueError) as error:
            raise SettingsError(f"{self.address}: {_words(error)}") from error
        self._cluster = ""
        self._next: dict[Partition, int] = {}  # offset of the message after those that were given out
        self._ends: dict[Partition, int] = {}  # where partitions ended when they were looked at last

    def __enter__(self) -> "KafkaLog":
        return self

    def __exit__(self, *_: object) -> None:
        self._consumer.close()
        self._inquirer.close()

    @property
    def offsets(self) -> dict[str, list[int]]:
        """Where to go on: for each topic of this cluster the next offset of each partition."""
        return {
            self._name(topic): [self._next[part] for part in sorted(self._next) if part[0] == topic]
            for topic in self._topics
        }

    def seek(self, offsets: Mapping[str, Sequence[int]]) -> None:
        """Begin at these offsets, as `offsets` told them; at the earliest message where there are none."""
        with self._answering():
            found = self._partitions()
            stored = {topic: offsets.get(self._name(topic), ()) for topic in self._topics}
            self._next = {(topic, n): at for topic in self._topics for n, at in enumerate(stored[topic])}
            self._assign(found)

    def arrivals(self, n_messages: int, linger: float, once: bool) -> Iterator[list[Message]]:
        """Yield so many messages at a time, in their order, or those that have come in `linger` seconds.

        For ever, partitions that are added included; with `once` up to where the log ended at the `seek`.
        """
        while not (once and self._at_end()):
            if held := self._gather(n_messages, linger, once):
                yield sorted(held)
            try:
                if not once and not self._next.keys() >= set(found := self._partitions()):
                    self._assign(found)
            except self._kafka.KafkaException as error:  # when the broker is back it goes on by itself
                _log.warning("%s: %s", self.address, _words(error))

    def _gather(self, n_messages: int, linger: float, once: bool) -> list[Message]:
        held: list[Message] = []
        until = time.monotonic() + linger
        while True:
            for message in self._consumer.consume(n_messages - len(held), TICK_SECONDS):
                part, offset = (message.topic(), message.partition()), message.offset()
                error = message.error()
                if error is None:
                    if offset >= self._next[part]:
                        held.append(Message(*part, offset, message.value()))
                        self._next[part] = offset + 1
                elif error.code() == self._kafka.KafkaError._PARTITION_EOF:  # also past what is no message
                    self._next[part] = max(self._next[part], offset)
                elif error.code() == self._kafka.KafkaError._AUTO_OFFSET_RESET:
                    with self._answering():
                        self._assign(())
                elif once or not _may_pass(error, self._kafka.KafkaError):
                    raise DataError(f"{self.address}: {error.str()}")
                else:
                    _log.warning("%s: %s", self.address, error.str())
            if len(held) == n_messages or (self._at_end() if once else time.monotonic() >= until):
                return held

    def _at_end(self) -> bool:
        return all(self._next[part] >= end for part, end in self._ends.items())

    def _name(self, topic: str) -> str:
        """Return what a topic is called among all topics of all clusters."""
        return f"kafka:{self._cluster}/{topic}"

    def _partitions(self) -> list[Partition]:
        """Ask the broker which partitions there are."""
        found = self._inquirer.list_topics(timeout=ANSWER_SECONDS)
        self._cluster = found.cluster_id or ""
        for topic in self._topics:
            if topic not in found.topics or not found.topics[topic].partitions:
                there = [name for name in found.topics if not name.startswith("__")]
                raise DataError(
                    f"{self.address}: there is no topic {topic!r}; {did_you_mean(topic, there)}"
                    f"there are {', '.join(sorted(there)[:20]) or 'none'}"
                )
        return [
            (topic, number) for topic in self._topics for number in sorted(found.topics[topic].partitions)
        ]

    def _assign(self, found: Sequence[Partition]) -> None:
        """Have these partitions read too; refuse to go on where messages are missing."""
        following, ends = {}, {}
        for part in sorted({*self._next, *found}):
            where = self._kafka.TopicPartition(*part)
            answer = self._inquirer.get_watermark_offsets(where, timeout=ANSWER_SECONDS)
            if answer is None:
                raise self._kafka.KafkaException("the broker does not answer")
            low, ends[part] = answer
            at = self._next.get(part, low)
            following[part] = at if low <= at <= ends[part] else self._earliest(part, at, low, ends[part])
        self._next, self._ends = following, ends
        self._consumer.assign([self._kafka.TopicPartition(*part, at) for part, at in following.items()])

    def _earliest(self, part: Partition, at: int, low: int, high: int) -> int:
        """Return the earliest offset, if that is to be taken where the next message is not there."""
        name = f"{self.address}: partition {part[1]} of {part[0]}"
        if at < low:
            told = f"{name} now begins at offset {low}: {low - at} messages from {at} on are gone"
        else:
            told = f"{name} ends at offset {high}, but was learned up to {at}: it was cut, or made anew"
        if not self._skip_lost:
            raise DataError(f"{told}; give --skip-lost (skip_lost=True) to go on with offset {low}")
        self.notice(f"{told}; going on with offset {low}")
        return low

    @contextmanager
    def _answering(self) -> Iterator[None]:
        try:
            yield
        except self._kafka.KafkaException as error:
            raise DataError(f"{self.address}: {_words(error)}; is the broker there?") from error


def _may_pass(error: Any, codes: Any) -> bool:
    """Tell errors that end by themselves, when brokers are back, from those that do not."""
    passing = (codes._ALL_BROKERS_DOWN, codes._TRANSPORT, codes._TIMED_OUT, codes._RESOLVE)
    return error.retriable() or error.code() in passing


def _words(error: Exception) -> str:
    """Return what an error says; those of librdkafka are objects in the error of Python."""
    told = error.args[0] if error.args else error
    return str(told.str() if hasattr(told, "str") else told)[:300]


def _need_kafka(where: str) -> Any:
    try:
        return importlib.import_module("confluent_kafka")
    except ImportError as error:
        raise DataError(
            f"{where}: logs need confluent-kafka; install it with `pip install 'dbull[kafka]'`"
        ) from error
