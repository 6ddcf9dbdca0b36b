"""What happened before a ledger was read from a file: how much, and, once it is asked for, what."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from dbull.lifelong.records import Event, fail

__all__ = ["Past"]


class Past:
    """The events before those of a ledger itself: how many there were, and the latest of them, read late."""

    def __init__(
        self,
        n_events: int = 0,
        events: Sequence[Event] | Callable[[], Sequence[Event]] = (),
        where: str = "clusters.json",
    ):
        self.n_events, self._events, self._where = n_events, events, where

    def events(self) -> tuple[Event, ...]:
        """Return the events, and keep them for all ledgers that share them."""
        if not isinstance(self._events, tuple):
            self._events = tuple(self._events() if callable(self._events) else self._events)
        if len(self._events) > self.n_events:
            fail(f"{self._where}.n_earlier_events", f"{self.n_events} expected, {len(self._events)} found")
        return self._events
