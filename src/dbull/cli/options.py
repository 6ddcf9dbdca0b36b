"""Arguments and options that several commands share."""

from pathlib import Path
from typing import Annotated

import typer

Model = Annotated[Path, typer.Argument(metavar="MODEL", help="Folder of the model.", show_default=False)]
Data = Annotated[
    list[Path],
    typer.Argument(
        metavar="DATA...",
        help=".parquet .arrow .feather .csv .csv.gz .npy .npz, or a folder of images.",
        show_default=False,
    ),
]
ConfigFile = Annotated[
    Path | None, typer.Option("--config", help="Settings as TOML; `dbull init` writes one.")
]
Assignments = Annotated[
    list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="A setting, typed as in TOML.")
]
Key = Annotated[str | None, typer.Option("--key", help="Column that names the rows; it is not learned.")]
Columns = Annotated[
    str | None, typer.Option("--columns", help="Columns to use, with commas between; else all.")
]
ArrivalRows = Annotated[
    int | None,
    typer.Option(help="Rows learned at once; longer files are several arrivals.  [default: 10000]"),
]
Generation = Annotated[
    int | None, typer.Option("--generation", "-g", help="An older generation instead of the newest.")
]
AsJson = Annotated[bool, typer.Option("--json", help="As JSON.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress.")]
