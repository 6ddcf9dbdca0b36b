"""`dbull watch MODEL kafka://...` in processes of its own: killed, interrupted, told what was skipped."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest
from forked import forked_command

from broker import rows
from dbull.store import ModelFolder

SETTINGS = ("--set", "epochs=2", "--set", "joint_epochs=1", "--arrival-rows", 40, "-q")


def start(command, model, address, *words):
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "SOURCE_DATE_EPOCH": "1700000000"}
    return subprocess.Popen(
        [*command, "watch", *map(str, (model, address, *SETTINGS, *words))],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    )


def watch(model, address, *words):
    process = start(forked_command(), model, address, "--once", *words)
    out, err = process.communicate(timeout=600)
    lines = [line for line in err.splitlines() if not line.startswith("%")]  # those of librdkafka
    return process.returncode, out, lines


def contents(model):
    return {
        path.relative_to(model): path.read_bytes()
        for path in model.rglob("*")
        if path.is_file() and ".writing" not in path.parts
    }


@pytest.mark.slow
def test_killed_again_and_again_it_is_as_if_it_had_never_been(broker, topic, tmp_path):
    broker.send(topic, rows(240))
    address, model = broker.address(topic), tmp_path / "killed"
    command = [sys.executable, "-m", "dbull.cli"]  # whoever is killed must be the one that learns
    for n_lines, seconds in [(1, 0.05), (1, 0.0), (0, 0.0)]:
        process = start(command, model, address, "--once")
        for _ in range(n_lines):
            assert process.stdout.readline().startswith("generation")
        time.sleep(seconds)
        process.kill()
        process.communicate()
        assert process.returncode == -signal.SIGKILL
    assert ModelFolder(model).latest() >= 2, "what was told is there"
    assert watch(model, address)[0] == 0
    assert watch(tmp_path / "straight", address)[0] == 0
    names = [entry.manifest.note for entry in ModelFolder(model).history()]
    assert names == [f"{topic}:0:{first}-{first + 39}" for first in range(0, 240, 40)]
    assert contents(model) == contents(tmp_path / "straight")


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_watch_that_is_stopped_goes_on_where_it_was(broker, topic, tmp_path, number, code):
    broker.send(topic, rows(40))
    address = broker.address(topic)
    process = start(forked_command(), tmp_path / "model", address)
    assert process.stdout.readline().startswith(f"generation 1: {topic}:0:0-39, 40 rows")
    process.send_signal(number)
    assert process.wait(60) == code
    process.communicate()
    broker.send(topic, rows(10, seed=1))
    done, out, _ = watch(tmp_path / "model", address)
    assert done == 0
    assert out.startswith(f"generation 2: {topic}:0:40-49, 10 rows")


def test_a_watch_learns_what_comes_after_a_while(broker, topic, tmp_path):
    broker.send(topic, rows(40))
    process = start(forked_command(), tmp_path / "model", broker.address(topic), "--linger", 0.3)
    assert "40 rows" in process.stdout.readline()
    broker.send(topic, rows(10, 20.0, 1), partition=3)
    assert f"{topic}:3:0-9, 10 rows" in process.stdout.readline()
    process.terminate()
    process.communicate()


def test_new_clusters_are_told_and_end_it_if_asked(broker, topic, tmp_path):
    heard, address = tmp_path / "heard.jsonl", broker.address(topic)
    broker.send(topic, rows(40))
    assert watch(tmp_path / "model", address)[0] == 0
    broker.send(topic, rows(40, 30.0, 1))
    process = start(
        *(forked_command(), tmp_path / "model", address, "--fail-on", "new-cluster"),
        *("--on", "new-cluster", "--exec", f"cat >> {heard}"),
    )
    process.communicate(timeout=600)
    assert process.returncode == 6
    assert json.loads(heard.read_text())["name"] == f"{topic}:0:40-79"


def test_skipped_messages_are_named_and_told_by_the_code(broker, topic, tmp_path):
    broker.send(topic, [*rows(40), b"nonsense"])
    code, out, err = watch(tmp_path / "model", broker.address(topic))
    assert (code, out.count("\n")) == (3, 1)
    assert [line.partition(" (")[0] for line in err] == [f"skipped {topic}:0:40: it is not JSON"]


def test_settings_of_the_connection_come_from_a_file_and_stay_there(broker, topic, tmp_path, monkeypatch):
    broker.send(topic, rows(40))
    config = tmp_path / "client.properties"
    settings = {**broker.settings, "client.id": "much-secret"}
    config.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    monkeypatch.setenv("DBULL_KAFKA_CONFIG", str(config))
    assert watch(tmp_path / "model", broker.address(topic))[0] == 0
    assert not any(b"much-secret" in data for data in contents(tmp_path / "model").values())
    config.write_text("client.idd=much-secret\n")
    code, _, (line,) = watch(tmp_path / "model", broker.address(topic))
    assert code == 2
    assert "client.idd" in line
    assert "much-secret" not in line


def test_a_wrong_address_is_told_at_once(tmp_path):
    code, _, (line,) = watch(tmp_path / "model", "kafka://host")
    assert code == 2
    assert "kafka://host:port/topic" in line
