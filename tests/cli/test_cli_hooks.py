"""`watch --on new-cluster`: commands and servers are told, again if they fail, and never waited for."""

import json
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest
from typer.testing import CliRunner

from dbull.cli import app, hooks
from dbull.cli.hooks import Hooks
from dbull.errors import SettingsError


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch):
    monkeypatch.setenv("no_proxy", "*")
    monkeypatch.setattr(hooks, "PAUSES", (0.0, 0.0, 0.0))


@contextmanager
def server(codes=(200,), hold=None):
    """Yield the address of a server, and what it got; it answers with these codes, the last for ever."""
    got = []

    class Answer(BaseHTTPRequestHandler):
        def do_POST(self):
            body = self.rfile.read(int(self.headers["Content-Length"]))
            got.append((self.path, self.headers["Content-Type"], json.loads(body)))
            if hold is not None:
                hold.wait(60)
            self.send_response(codes[min(len(got), len(codes)) - 1])
            self.send_header("Location", "/elsewhere")
            self.end_headers()

        def log_message(self, *_):
            pass

    listening = ThreadingHTTPServer(("127.0.0.1", 0), Answer)
    threading.Thread(target=listening.serve_forever, args=(0.01,), daemon=True).start()
    try:
        yield f"http://127.0.0.1:{listening.server_port}", got
    finally:
        listening.shutdown()
        listening.server_close()


@pytest.fixture
def inbox(tmp_path):
    folder = tmp_path / "inbox"
    folder.mkdir()
    random = np.random.default_rng(0)
    for day, centres in enumerate([(0, 30), (30, 60), (0, 30)]):
        np.save(folder / f"{day}.npy", np.concatenate([random.normal(size=(40, 2)) + c for c in centres]))
    return folder


def watch(inbox, *words, code=0):
    done = CliRunner().invoke(
        app, ["watch", str(inbox.parent / "model"), str(inbox), "--once", "-q", *map(str, words)]
    )
    assert done.exit_code == code, (done.output, done.exception)
    return done


def test_a_new_cluster_is_told_to_both(inbox):
    heard = inbox.parent / "heard.json"
    with server() as (address, got):
        watch(inbox, "--on", "new-cluster", "--exec", f"cat >> {heard}", "--webhook", f"{address}/hook?key=x")
    listed = CliRunner().invoke(app, ["events", str(inbox.parent / "model"), "--kind", "birth", "--json"])
    born = [event for event in json.loads(listed.stdout) if event["generation"] > 1]
    assert [event["clusters"] for event in born] == [[2]], "only what came after the first data set"
    expected = {"model": str(inbox.parent / "model"), "name": "1.npy", **born[0]}
    assert got == [("/hook?key=x", "application/json", expected)]
    assert json.loads(heard.read_text()) == expected


def test_a_server_that_fails_is_asked_again_and_one_that_refuses_is_not(capsys):
    for codes, n_tries, complaint in (
        ((503, 429, 200), 3, ""),
        ((500,), 4, "HTTP Error 500"),
        ((404,), 1, "HTTP 404"),
        ((302,), 1, "HTTP 302"),
    ):
        with server(codes) as (address, got):
            with Hooks(addresses=[f"{address}/secret"]) as told:
                told.tell({"clusters": [1], "name": "caf\udce9"})
            assert [event for _, _, event in got] == [{"clusters": [1], "name": "caf\\xe9"}] * n_tries
        said = capsys.readouterr().err
        assert complaint in said
        assert bool(complaint) == ("not told" in said)
        assert "secret" not in said, "an address may hold what nobody else should see"


def test_nobody_there_and_a_command_that_fails_do_not_keep_others_from_being_told(tmp_path, capsys):
    heard, tries = tmp_path / "heard", tmp_path / "tries"
    commands = [f"echo >> {tries}; exit 3", f"cat >> {heard}"]
    with Hooks(commands, ["http://127.0.0.1:9/"]) as told:
        told.tell({"a": 1})
        told.tell({"a": 2})
    assert heard.read_text() == '{"a": 1}\n{"a": 2}\n'
    assert len(tries.read_text().splitlines()) == 5, "who was down is not waited for again"
    said = capsys.readouterr().err
    assert said.count("ended with code 3") == said.count("127.0.0.1:9/...") == 2


def test_learning_waits_for_nobody_and_an_interrupt_names_what_is_left(inbox, monkeypatch, capsys):
    monkeypatch.setattr(hooks, "LAST_SECONDS", 0.0)
    hold = threading.Event()
    with server(hold=hold) as (address, _):
        told = Hooks(addresses=[address])
        for number in range(5):
            told.tell({"number": number})  # returns, although the server has answered nothing yet
        with pytest.raises(KeyboardInterrupt), told:
            raise KeyboardInterrupt
        assert "not told: 5 events" in capsys.readouterr().err
        hold.set()


def test_too_many_that_wait_are_named(monkeypatch, capsys):
    monkeypatch.setattr(hooks, "MOST_WAITING", 1)
    hold = threading.Event()
    with server(hold=hold) as (address, _), Hooks(addresses=[address]) as told:
        for number in range(4):
            told.tell({"number": number})
        assert '{"number": 3}' in capsys.readouterr().err
        hold.set()


@pytest.mark.parametrize(
    "words",
    [
        ("--on", "new-cluster"),
        ("--exec", "cat"),
        ("--on", "full-moon", "--exec", "cat"),
        ("--on", "new-cluster", "--webhook", "file:///etc/passwd"),
        ("--on", "new-cluster", "--webhook", "https://"),
    ],
)
def test_what_makes_no_sense_is_refused(inbox, words):
    assert "error" in watch(inbox, *words, code=2).stderr


def test_an_address_is_checked():
    with pytest.raises(SettingsError, match="is no address"):
        Hooks(addresses=["localhost:8000"])
