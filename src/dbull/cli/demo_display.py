"""How the demo looks: pictures and sentences on standard output, progress on standard error.

Pictures are half blocks in shades of grey, or shaded characters where there is no colour.
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table
from rich.text import Text

from dbull.cli.demo import Outcome, Step
from dbull.cli.output import printable, say
from dbull.report.images import as_picture

if TYPE_CHECKING:
    from dbull.methods.dbull import DBULL

PICTURE_WIDTH, GAP, INDENT = 16, 3, 3
PIXEL_RANGE = (0.0, 16.0)  # of scikit-learn's digits
SHADES, ASCII_SHADES = " ░▒▓█", " .:+#"
BIRTH, KNOWN, FAINT = "bold green", "cyan", "dim"


class Show:
    """Says what happens, in colour on a terminal and as plain text elsewhere."""

    def __init__(self, n_arrivals: int, *, talks: bool, watches: bool):
        self._n_arrivals = n_arrivals
        self._talks = talks
        self._watches = watches
        self._console = Console(highlight=False, soft_wrap=True)

    def begin(self, n_rows: int) -> None:
        """Say what is about to happen."""
        self._say(
            ("dbull demo", "bold"),
            f"  {n_rows:,} images of handwritten digits come in {self._n_arrivals} arrivals. "
            "The learner is\nnot told which digits they are or how many kinds there are, "
            "and each arrival is\ngone once it was learned.",
        )

    @contextmanager
    def learning(self, number: int, what: str) -> Iterator[Callable[[Any], None] | None]:
        """Show how learning goes, on standard error."""
        if not self._watches:
            yield None
        elif sys.stderr.isatty():
            console = Console(stderr=True)
            with console.status(f"arrival {number}: {what}") as status:
                yield lambda progress: status.update(
                    f"arrival {number}: {what}  {progress.stage} {progress.epoch}/{progress.n_epochs}"
                )
        else:
            if not self._talks:
                say(f"arrival {number} of {self._n_arrivals}: {what}", err=True)
            yield None

    def step(self, step: Step, learner: "DBULL") -> None:
        """Announce new clusters by their pictures, and name the old ones that were recognised."""
        novel = f"\n{' ' * INDENT}{step.novel_share:.0%} of them look like nothing seen before."
        self._say(
            "\n",
            (f"Arrival {step.arrival}", "bold"),
            f"  {step.what}, {step.rows} rows",
            (f"  {step.seconds:.1f} s", FAINT),
            novel if step.arrival > 1 else "",
        )
        if step.born:
            word = "cluster" if len(step.born) == 1 else "clusters"
            self._say((f"{' ' * INDENT}{len(step.born)} new {word}:", BIRTH))
            per_line = max(1, (min(self._console.width, 100) - INDENT) // (PICTURE_WIDTH + GAP))
            for start in range(0, len(step.born), per_line):
                self._pictures(step.born[start : start + per_line], step, learner)
        known = {c: n for c, n in step.rows_per_cluster.items() if c not in step.born}
        if known:
            what, style = "No new cluster. Recognised by their old ids", KNOWN
            if step.born:
                what, style = "Other rows went to known clusters", FAINT
            told = ", ".join(f"{c} ({n} row{'' if n == 1 else 's'})" for c, n in sorted(known.items()))
            self._say((f"{' ' * INDENT}{what}: {told}", style))

    def end(self, outcome: Outcome, path: Path, model: Path | None) -> None:
        """Sum up, and say where the report is."""
        self._say(
            "\n",
            ("At the end", "bold"),
            f"  All {outcome.n_rows:,} rows were asked again, though none was kept: ",
            (f"{outcome.same_id_share:.1%} get the id\nthat they got when they came.", BIRTH),
            " Only now the labels are looked at:",
        )
        if self._talks:
            self._console.print(self._table(outcome))
        self._say(
            f"\nAgreement of {outcome.n_clusters} clusters with {outcome.n_digits} digits: ",
            f"NMI {outcome.nmi:.3f} ",
            (f"({outcome.seconds:.0f} s of learning)\n\n", FAINT),
            ("Report  ", "bold"),
            f"{printable(str(path))}  one file, open it in a browser",
        )
        if model is not None:
            shown = printable(str(model))
            self._say(("Model   ", "bold"), f"{shown}  go on with `dbull clusters {shown}`")

    def _pictures(self, clusters: list[int], step: Step, learner: "DBULL") -> None:
        """Print prototypes side by side, ids above and rows below."""
        margin, gap = " " * INDENT, " " * GAP
        names = gap.join(f"{f'id {cluster}':<{PICTURE_WIDTH}}" for cluster in clusters)
        sizes = gap.join(
            f"{f'{step.rows_per_cluster.get(cluster, 0)} rows':<{PICTURE_WIDTH}}" for cluster in clusters
        )
        pictures = [self._lines(learner.prototype(cluster)) for cluster in clusters]
        self._say((margin + names.rstrip(), BIRTH))
        for parts in zip(*pictures, strict=True):
            self._say(margin, Text(gap).join(parts))
        self._say((margin + sizes.rstrip(), FAINT))

    def _lines(self, row: Any) -> list[Text]:
        pixels = as_picture(row, (8, 8), *PIXEL_RANGE)
        if self._console.color_system in ("256", "truecolor") and not self._console.no_color:
            return picture_lines(pixels)
        ascii_only = not self._console.encoding.lower().startswith("utf")
        return [Text(line) for line in plain_lines(pixels, ascii_only=ascii_only)]

    def _table(self, outcome: Outcome) -> Table:
        table = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0), header_style=FAINT)
        table.add_column(" " * INDENT + "id", justify="right")
        for column in ("rows", "first seen", "last seen", "digit", "pure"):
            table.add_column(column, justify="right")
        for cluster in outcome.clusters:
            seen = (f"arrival {cluster[name]}" for name in ("first_seen", "last_seen"))
            counts = str(cluster["id"]), str(cluster["rows"])
            table.add_row(*counts, *seen, str(cluster["digit"]), f"{cluster['share']:.0%}")
        return table

    def _say(self, *parts: str | Text | tuple[str, str]) -> None:
        if self._talks:
            self._console.print(Text.assemble(*parts))


def picture_lines(pixels: NDArray[np.uint8]) -> list[Text]:
    """Return an image (height, width) twice as fine, two pixels above each other in a character."""
    exact = torch.from_numpy(pixels).double()[None, None]
    fine = torch.nn.functional.interpolate(exact, scale_factor=2, mode="bilinear")[0, 0].round().byte()
    lines = []
    for upper, lower in zip(fine[::2].tolist(), fine[1::2].tolist(), strict=True):
        line = Text()
        for above, below in zip(upper, lower, strict=True):
            line.append("▀", style=f"rgb({above},{above},{above}) on rgb({below},{below},{below})")
        lines.append(line)
    return lines


def plain_lines(pixels: NDArray[np.uint8], *, ascii_only: bool = False) -> list[str]:
    """Return an image (height, width) as text, two characters for a pixel since they are narrow."""
    shades = ASCII_SHADES if ascii_only else SHADES
    levels = np.rint(pixels / 255 * (len(shades) - 1)).astype(int)
    return ["".join(shades[level] * 2 for level in row) for row in levels.tolist()]
