"""Telling others of an event, as JSON: commands on their standard input, web servers by POST.

A thread of its own tells, one event after the other, so that learning never waits for anybody. Whoever fails
is asked again a few times; so whoever is told may be told twice. What comes from data is on standard input
or in the body, never on a command line or in an address.
"""

import json
import subprocess
import threading
from collections.abc import Callable, Sequence
from functools import partial
from queue import Full, Queue
from typing import Any
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener

from dbull.cli.output import say, tidy
from dbull.errors import SettingsError

PAUSES = (1.0, 5.0, 30.0)  # seconds before each further try
COMMAND_SECONDS, WEB_SECONDS = 60.0, 10.0  # that one try may take
LAST_SECONDS = 5.0  # to tell what is left after an interrupt
MOST_WAITING = 1000  # events that were not told yet; further ones are named and left out
BUSY = (408, 425, 429)  # answers of a server that may be otherwise later, as are those from 500 on


class Refused(Exception):
    """Trying again would not help."""


class Hooks:
    """Commands and web addresses that are told of events."""

    def __init__(self, commands: Sequence[str] = (), addresses: Sequence[str] = ()):
        for address in addresses:
            parts = urlsplit(address)
            if parts.scheme not in ("http", "https") or not parts.hostname:
                raise SettingsError(f"--webhook: {address!r:.200} is no address; begin it with https://")
        self._targets: list[tuple[str, Callable[[bytes], None]]] = [
            *((f"--exec {command}", partial(_run, command)) for command in commands),
            *((f"--webhook {_shown(address)}", partial(_post, address)) for address in addresses),
        ]
        self._waiting: Queue[bytes] = Queue(MOST_WAITING)
        self._hurry = threading.Event()
        self._down: set[str] = set()  # who failed at every try; asked once for each event until it answers
        if self._targets:
            threading.Thread(target=self._work, daemon=True, name="dbull-hooks").start()

    def __bool__(self) -> bool:
        return bool(self._targets)

    def tell(self, event: dict[str, Any]) -> None:
        """Hand an event over; returns at once."""
        body = f"{json.dumps(tidy(event))}\n".encode()
        try:
            self._waiting.put_nowait(body)
        except Full:
            say(f"not told, since {MOST_WAITING} wait before it: {body.decode().strip()}", err=True)

    def __enter__(self) -> "Hooks":
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Wait until all is told; after an interrupt or a failure not for long, and name what is left."""
        done = threading.Thread(target=self._waiting.join, daemon=True)
        done.start()
        try:
            done.join(None if kind is None else LAST_SECONDS)
        finally:  # also where the wait is interrupted
            if done.is_alive():
                self._hurry.set()
                say(f"not told: {self._waiting.unfinished_tasks} events; `dbull events` lists them", err=True)

    def _work(self) -> None:
        while not self._hurry.is_set():
            body = self._waiting.get()
            for name, send in self._targets:
                self._send(name, send, body)
            self._waiting.task_done()

    def _send(self, name: str, send: Callable[[bytes], None], body: bytes) -> None:
        for pause in (*(() if name in self._down else PAUSES), None):
            try:
                send(body)
                self._down.discard(name)
                return
            except Exception as error:  # whatever it is, the next event is to be told
                if self._hurry.is_set():  # that it was not told is said already
                    return
                if pause is None or isinstance(error, Refused) or self._hurry.wait(pause):
                    say(f"not told: {name} ({error}): {body.decode().strip()}", err=True)
                    self._down.add(name)
                    return


def _run(command: str, body: bytes) -> None:
    """Give a command of the user's own to the shell, and the event to its standard input."""
    done = subprocess.run(
        command, shell=True, input=body, stdout=subprocess.DEVNULL, timeout=COMMAND_SECONDS, check=False
    )
    if done.returncode:
        raise RuntimeError(f"ended with code {done.returncode}")


def _post(address: str, body: bytes) -> None:
    request = Request(address, body, {"Content-Type": "application/json", "User-Agent": "dbull"})
    try:
        build_opener(_NoRedirect).open(request, timeout=WEB_SECONDS).close()
    except HTTPError as error:
        if error.code < 500 and error.code not in BUSY:
            raise Refused(f"HTTP {error.code}") from error
        raise


class _NoRedirect(HTTPRedirectHandler):
    """The event goes where it was told to go, or it is said that it did not."""

    def redirect_request(self, *_: Any) -> None:
        return None


def _shown(address: str) -> str:
    """Return an address without what may be secret in it."""
    parts = urlsplit(address)
    return f"{parts.scheme}://{parts.hostname}{f':{parts.port}' if parts.port else ''}/..."
