"""Arguments and options that several commands share."""

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

Model = Annotated[Path, Argument(metavar="MODEL", help="Folder of the model.")]
Data = Annotated[
    list[Path],
    Argument(
        metavar="DATA...", help=".parquet .arrow .feather .csv .csv.gz .npy .npz, or a folder of images."
    ),
]
ConfigFile = Annotated[Path | None, Option("--config", help="Settings as TOML; `dbull init` writes one.")]
Assignments = Annotated[
    list[str] | None, Option("--set", metavar="KEY=VALUE", help="A setting, typed as in TOML.")
]
Key = Annotated[str | None, Option("--key", help="Column that names the rows; it is not learned.")]
Columns = Annotated[str | None, Option("--columns", help="Columns to use, with commas between; else all.")]
ArrivalRows = Annotated[
    int | None, Option(help="Rows learned at once; longer files are several arrivals.  [default: 10000]")
]
Generation = Annotated[
    int | None, Option("--generation", "-g", help="An older generation instead of the newest.")
]
AsJson = Annotated[bool, Option("--json", help="As JSON.")]
Quiet = Annotated[bool, Option("--quiet", "-q", help="No progress.")]
