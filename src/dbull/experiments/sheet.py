"""A table of texts, and how it looks in Markdown and in LaTeX."""

from collections.abc import Sequence
from dataclasses import dataclass

_LATEX = {
    **{sign: rf"\{sign}" for sign in "_%&#$"},
    "—": "---",
    "–": "--",
    "×": r"$\times$",
    "†": r"$\dagger$",
}


SPANNED = ""  # a cell into which the text of the one before it goes on


@dataclass(frozen=True)
class Sheet:
    """Cells under their headings. The first `n_text` columns are words, the others numbers."""

    head: Sequence[str]
    body: Sequence[Sequence[str]]
    n_text: int = 2
    centred: bool = False  # instead of to the right, for what is neither


def markdown(sheet: Sheet) -> str:
    """Return the table as Markdown."""
    mark = ":---:" if sheet.centred else "---:"
    rule = ["---"] * sheet.n_text + [mark] * (len(sheet.head) - sheet.n_text)
    lines = [sheet.head, rule, *sheet.body]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)


def spans(row: Sequence[str]) -> list[tuple[str, int]]:
    """Return each text of a row with the number of columns that it has."""
    found: list[tuple[str, int]] = []
    for i, cell in enumerate(row):
        if cell == SPANNED and i:
            text, n_columns = found[-1]
            found[-1] = text, n_columns + 1
        else:
            found.append((cell, 1))
    return found


def latex(sheet: Sheet) -> str:
    """Return the table as a LaTeX tabular."""
    names, *lines = [
        " & ".join(_latex_cell(*cell) for cell in spans(cells)) + r" \\"
        for cells in [sheet.head, *sheet.body]
    ]
    align = "l" * sheet.n_text + ("c" if sheet.centred else "r") * (len(sheet.head) - sheet.n_text)
    begin = rf"\begin{{tabular}}{{{align}}}"
    return "\n".join([begin, r"\hline", names, r"\hline", *lines, r"\hline", r"\end{tabular}"])


def _latex_cell(cell: str, n_columns: int) -> str:
    text = "".join(_LATEX.get(sign, sign) for sign in cell.replace("`", ""))
    return text if n_columns == 1 else rf"\multicolumn{{{n_columns}}}{{l}}{{{text}}}"
