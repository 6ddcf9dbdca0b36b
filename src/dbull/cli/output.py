"""All that is printed goes through here: plain text and tables for people, JSON for programs.

Names, notes, keys and file names are other people's text. Nothing in them may command a terminal, turn the
direction of writing, or fail to be written because it is no Unicode.
"""

import json
import os
import select
import shutil
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dbull.documents import as_text
from dbull.errors import SettingsError

if TYPE_CHECKING:
    from dbull.ledger import ArrivalReport

LEAST_TEXT = 12  # characters to which a text may be shortened on a narrow terminal


def say(text: object, *, err: bool = False, lines: bool = False) -> None:
    """Print a text on standard output or standard error: one line, unless it is made of `lines`."""
    stream = sys.stderr if err else sys.stdout
    if stream is None:  # closed before we began
        return
    shown = "\n".join(map(printable, str(text).split("\n"))) if lines else printable(str(text))
    encoding = getattr(stream, "encoding", None) or "utf-8"
    print(shown.encode(encoding, "backslashreplace").decode(encoding), file=stream, flush=err)


def show_json(value: Any, *, line: bool = False) -> None:
    """Print a value as JSON, on one line if it is one of many; whatever is not plain ASCII is escaped."""
    text = json.dumps(tidy(value), indent=None if line else 2, default=str)
    say(text.replace("\x7f", "\\u007f"), lines=True)


def tidy(value: Any) -> Any:
    """Return a value in which every text is Unicode: names of files may have bytes that are none."""
    if isinstance(value, str):
        return as_text(value)
    if isinstance(value, Mapping):
        return {as_text(str(key)): tidy(part) for key, part in value.items()}
    return [tidy(part) for part in value] if isinstance(value, list | tuple) else value


def rows_per_cluster(report: "ArrivalReport") -> dict[int, int]:
    """Return how many rows each cluster got, those with none left out."""
    return {cluster: n for cluster, n in report.rows.items() if n}


def split(names: str) -> tuple[str, ...]:
    """Return what stands between commas."""
    return tuple(part.strip() for part in names.split(",") if part.strip())


def check_text(what: str, text: str) -> str:
    """Return a text that was given on the command line; refuse bytes that are no UTF-8."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise SettingsError(f"{what}: is not UTF-8 text, got {as_text(text)!r:.80}") from error
    return text


def show_rows(rows: Sequence[Mapping[str, Any]], columns: Sequence[str], as_json: bool) -> None:
    """Print rows, all of them as JSON or some of their columns as a table."""
    if as_json:
        show_json(rows)
    else:
        show_table(rows, columns)


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
        say("  ".join(parts).rstrip())


def terminal_width() -> int | None:
    """Return the width of the terminal that standard output is, None if it is none."""
    return shutil.get_terminal_size().columns if sys.stdout is not None and sys.stdout.isatty() else None


def _text(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, list | tuple):
        return printable(" ".join(map(str, value))) or "-"
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
    """Return a text on one line in which nothing commands the terminal or turns the direction of writing."""
    if text.isprintable():
        return text
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
