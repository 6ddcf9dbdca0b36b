"""Kill `dbull watch MODEL kafka://...` with SIGKILL at random moments: each message is learned exactly once.

    python benchmarks/log_kills.py                                   # 60 kills, librdkafka's own broker
    python benchmarks/log_kills.py --broker localhost:9092 [--config client.properties]

A real broker must make the topic when it is written to; one with several partitions tells more. Processes are
forked from one that has imported everything and has no connection, so that kills fall into reading, learning
and writing. More messages are sent as they go on. At the end the offsets of the generations must lie behind
each other without a gap, with as many rows as offsets, up to the end of the log; and a run without kills must
have learned as many.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from time import perf_counter, sleep
from uuid import uuid4

import numpy as np

import dbull.ingest
import dbull.methods.dbull  # noqa: F401
from dbull.data.readers.kafka_log import read_properties
from dbull.store import ModelFolder
from learn_kills import NETWORKS, finish, start
from writers import findings

MESSAGES, ARRIVAL_ROWS, N_PARTITIONS = 100, 30, 4


class Sender:
    """A process that sends messages, and is the broker if there is no other."""

    def __init__(self, broker: str | None, settings: dict[str, str], topic: str):
        asked, self._ask = os.pipe()
        self._told, tell = os.pipe()
        if os.fork() == 0:
            os.close(self._ask)
            self._serve(broker, settings, topic, (asked, tell))
        self.host = os.read(self._told, 1000).decode()

    def send(self, number: int) -> None:
        """Send so many messages more, drawn from this seed."""
        os.write(self._ask, b"%9d" % number)
        assert os.read(self._told, 4) == b"sent"

    def _serve(
        self, broker: str | None, settings: dict[str, str], topic: str, pipes: tuple[int, int]
    ) -> None:
        from confluent_kafka import Producer

        here = {"bootstrap.servers": broker} if broker else {"test.mock.num.brokers": 1}
        producer = Producer({"log_level": 2, **settings, **here})
        (found,) = producer.list_topics(timeout=10).brokers.values()
        while len(producer.list_topics(topic, timeout=10).topics[topic].partitions) < N_PARTITIONS:
            sleep(0.1)
        os.write(pipes[1], f"{found.host}:{found.port}".encode())
        while number := os.read(pipes[0], 9):
            draw = np.random.default_rng(int(number))
            for _ in range(MESSAGES):
                centre = 15.0 * np.eye(5)[draw.integers(1 + int(number) % 5)]
                cells = dict(zip("abcde", (centre + draw.normal(size=5)).tolist(), strict=True))
                producer.produce(topic, json.dumps(cells), partition=int(draw.integers(N_PARTITIONS)))
            assert producer.flush(60) == 0
            os.write(pipes[1], b"sent")
        os._exit(0)


def run(kills: int, seed: int, place: Path, sender: Sender, watch: Callable[..., list[str]]) -> list[str]:
    """Kill many processes, look at the folder after each, and return what was wrong."""
    model, wrong = place / "model", list[str]()
    draw, done, sent, during = random.Random(seed), 0, 1, 0
    sender.send(0)
    started = perf_counter()
    finish(watch(model, "--once"), wrong)
    spread = 2.0 * (perf_counter() - started)
    while done < kills:
        sender.send(sent)
        sent += 1
        before = ModelFolder(model).latest() or 0
        child = start(watch(model, *(["--once"] if draw.random() < 0.3 else [])))
        sleep(draw.uniform(0, spread))
        os.kill(child, signal.SIGKILL)
        done += os.WIFSIGNALED(os.waitpid(child, 0)[1])
        latest = ModelFolder(model).latest() or 0
        during += latest > before
        for number in range(before + 1, latest + 1):
            ModelFolder(model).load(number)
    finish(watch(model, "--once"), wrong)
    finish(watch(place / "straight", "--once"), wrong)
    n_rows = [learned_once(ModelFolder(place / name), wrong) for name in ("model", "straight")]
    if n_rows != [sent * MESSAGES] * 2:
        wrong.append(f"{n_rows} rows, with kills and without, of {sent * MESSAGES} messages")
    print(f"{done} kills, {during} after a generation of their own")
    print(f"{n_rows[0]} rows, {ModelFolder(model).latest()} generations")
    return wrong + findings(ModelFolder(model))


def learned_once(folder: ModelFolder, wrong: list[str]) -> int:
    """Return how many rows a model has learned; tell where they are not as many as offsets went by."""
    before = np.zeros(N_PARTITIONS, dtype=int)
    for manifest in reversed(list(folder.lineage())):
        (now,) = map(np.array, manifest.offsets.values())
        if (now < before).any() or (now - before).sum() != manifest.rows:
            wrong.append(f"generation {manifest.generation}: {manifest.rows} rows for {before} to {now}")
        before = now
    arrivals = sum(event["rows"] for event in folder.events() if event["kind"] == "arrival")
    if arrivals != before.sum():
        wrong.append(f"{folder.path}: {arrivals} rows learned, offsets {before}")
    return arrivals


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=60)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--broker")
    parser.add_argument("--config", type=Path)
    given = parser.parse_args()
    topic = f"kills-{uuid4().hex[:8]}"
    sender = Sender(given.broker, {} if given.config is None else read_properties(given.config), topic)

    def watch(model: Path, *words: str) -> list[str]:
        settings = [part for text in NETWORKS for part in ("--set", text)]
        config = [] if given.config is None else ["--kafka-config", str(given.config)]
        how = ["--arrival-rows", str(ARRIVAL_ROWS), "--linger", "0.3", "-q", *config, *words]
        return ["watch", str(model), f"kafka://{sender.host}/{topic}", *settings, *how]

    started = perf_counter()
    with tempfile.TemporaryDirectory() as place:
        wrong = run(given.kills, given.seed, Path(place), sender, watch)
    print(f"{perf_counter() - started:.0f} s; lost, doubled or damaged: {len(wrong)}")
    for line in wrong[:20]:
        print("  " + line)
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
