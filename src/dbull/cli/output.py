"""Results on standard output: plain tables for people, JSON for programs."""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import typer

__all__ = ["show_json", "show_table"]


def show_json(value: Any, *, line: bool = False) -> None:
    """Print a value as JSON, on one line if it is one of many."""
    typer.echo(json.dumps(value, indent=None if line else 2, ensure_ascii=False))


def show_table(rows: Iterable[Mapping[str, Any]], columns: Sequence[str]) -> None:
    """Print the columns of rows, aligned; numbers to the right."""
    rows = list(rows)
    cells = [[_text(row.get(column)) for column in columns] for row in rows]
    numeric = [all(isinstance(row.get(c), int | float | None) for row in rows) for c in columns]
    widths = [max([len(c), *(len(line[i]) for line in cells)]) for i, c in enumerate(columns)]
    for line in [list(columns), *cells]:
        parts = [
            part.rjust(width) if number else part.ljust(width)
            for part, width, number in zip(line, widths, numeric, strict=True)
        ]
        typer.echo("  ".join(parts).rstrip())


def _text(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, list | tuple):
        return " ".join(map(str, value)) or "-"
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return str(value)
