"""Results on standard output: plain tables for people, JSON for programs."""

import json
import os
import select
import shutil
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import typer

__all__ = ["drop_output", "printable", "reader_is_gone", "show_json", "show_table", "terminal_width"]

LEAST_TEXT = 12  # characters to which a text may be shortened on a narrow terminal


def show_json(value: Any, *, line: bool = False) -> None:
    """Print a value as JSON, on one line if it is one of many."""
    typer.echo(json.dumps(value, indent=None if line else 2, ensure_ascii=False))


def show_table(rows: Iterable[Mapping[str, Any]], columns: Sequence[str]) -> None:
    """Print the columns of rows, aligned; numbers to the right. On a terminal long texts are shortened."""
    rows = list(rows)
    cells = [[_text(row.get(column)) for column in columns] for row in rows]
    numeric = [all(isinstance(row.get(c), int | float | None) for row in rows) for c in columns]
    widths = [max([len(c), *(len(line[i]) for line in cells)]) for i, c in enumerate(columns)]
    limit = terminal_width()
    if limit is not None:
        _narrow(widths, numeric, limit)
    for line in [list(columns), *cells]:
        parts = [
            part.rjust(width) if number else _shortened(part, width).ljust(width)
            for part, width, number in zip(line, widths, numeric, strict=True)
        ]
        typer.echo("  ".join(parts).rstrip())


def terminal_width() -> int | None:
    """Return the width of the terminal that standard output is, None if it is none."""
    return shutil.get_terminal_size().columns if sys.stdout is not None and sys.stdout.isatty() else None


def _text(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, list | tuple):
        return " ".join(map(str, value)) or "-"
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return printable(str(value))


def reader_is_gone(stream: Any) -> bool:
    """Tell whether a stream is a pipe that nobody reads any more."""
    try:
        poll = select.poll()
        poll.register(stream.fileno(), 0)
        return any(event & select.POLLERR for _, event in poll.poll(0))
    except (AttributeError, OSError, ValueError):  # closed, no file, or a system without poll
        return False


def drop_output() -> None:
    """Let standard output go nowhere from now on, so that Python's own flush at the end succeeds."""
    with open(os.devnull, "w") as nowhere:
        os.dup2(nowhere.fileno(), sys.stdout.fileno())


def printable(text: str) -> str:
    """Return a text in which nothing commands the terminal: names and files are other people's."""
    flat = " ".join(text.splitlines()) if "\n" in text or "\r" in text else text
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in flat)


def _narrow(widths: list[int], numeric: Sequence[bool], limit: int) -> None:
    """Take from the widest texts what a line has too much."""
    while sum(widths) + 2 * (len(widths) - 1) > limit:
        texts = [i for i, number in enumerate(numeric) if not number and widths[i] > LEAST_TEXT]
        if not texts:
            return
        widths[max(texts, key=lambda i: widths[i])] -= 1


def _shortened(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 1] + "…"
