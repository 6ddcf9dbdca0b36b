"""``dbull data``: which data sets there are, where they are looked for, and fetching them when asked."""

import typer

app = typer.Typer(help="Data sets: list them, fetch them.", no_args_is_help=True)
