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
Key = Annotated[str | None, Option("--key", help="Column that names the rows; it is not learned.")]
Generation = Annotated[
    int | None, Option("--generation", "-g", help="An older generation instead of the newest.")
]
AsJson = Annotated[bool, Option("--json", help="As JSON.")]
Quiet = Annotated[bool, Option("--quiet", "-q", help="No progress.")]
