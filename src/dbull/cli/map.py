"""``dbull map``: where rows lie on the map of a model, as a table or as a page."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Option

from dbull.cli.options import Data, Generation, Key, Model, Quiet, check_files, check_folder
from dbull.cli.output import say
from dbull.cli.table_files import Columns, table_writer
from dbull.documents import as_text
from dbull.errors import SettingsError
from dbull.writing import check_place

if TYPE_CHECKING:
    from dbull.data.readers import Chunk
    from dbull.methods.dbull import DBULL


def map_rows(
    model: Model,
    data: Data,
    out: Annotated[Path, Option("--out", "-o", help="A .html, .csv or .parquet file.")],
    key: Key = None,
    generation: Generation = None,
    quiet: Quiet = False,
) -> None:
    """Write where each row lies on the map of the model: x, y and its cluster; or a page that shows it.

    A row lies in the same place whichever generation is asked, as far as codes stay where they are: clusters
    keep their places when more is learned, and new ones are put among them. A page shows 6,000 rows at most,
    with their keys.

    Example: `dbull map model today.csv -o map.html`
    """
    suffix = out.suffix.lower()
    if suffix not in (".html", ".csv", ".parquet"):
        raise SettingsError(f"{out}: the name must end in .html, .csv or .parquet")
    check_place(out)
    check_folder(out)
    data = check_files(model, data)
    from dbull.ingest import Input, open_model, rows_for, telling_notices

    learner, reading = open_model(model, generation)
    if key is not None:
        reading = replace(reading, key=key)
    pieces = (
        _points(learner, replace(chunk, x=rows_for(chunk.x, reading)), path if len(data) > 1 else None)
        for path in data
        for chunk in Input(path, learner, reading, key is None).chunks()
    )
    notices: dict[str, None] = {}
    with telling_notices(notices.setdefault):
        if suffix == ".html":
            _write_page(learner, as_text(model.resolve().name), list(pieces), out)
        else:
            with table_writer(out, safe=False) as write:
                for piece in pieces:
                    write(piece)
    for notice in notices:
        say(f"note: {notice}", err=True)
    if not quiet:
        say(out)


def _points(learner: "DBULL", chunk: "Chunk", path: Path | None) -> Columns:
    rows = learner.encoded(chunk.x)
    points, ids = learner.map_points(rows), learner.predict(rows).tolist()
    return {
        **({} if path is None else {"file": [as_text(path)] * len(ids)}),
        **({} if chunk.keys is None else {"key": [as_text(one) for one in chunk.keys.tolist()]}),
        "row": list(range(chunk.first_row + 1, chunk.first_row + len(ids) + 1)),
        "cluster": ids,
        "x": points[:, 0].tolist(),
        "y": points[:, 1].tolist(),
    }


def _write_page(learner: "DBULL", title: str, pieces: list[Columns], out: Path) -> None:
    import numpy as np

    from dbull.methods.explanation import Explainer
    from dbull.report.map_page import MappedRows, write_map

    columns = {name: [cell for piece in pieces for cell in piece[name]] for name in pieces[0]}
    keys = columns.get("key") or [f"row {row}" for row in columns["row"]]
    explain = Explainer(learner)
    known = {row["id"]: row["name"] or f"Cluster {row['id']}" for row in learner.clusters_}
    rows = MappedRows(
        points=np.column_stack([columns["x"], columns["y"]]),
        clusters=np.array(columns["cluster"], dtype=np.int64),
        keys=np.array(keys, dtype=object),
        labels=known,
        reasons={cluster: explain(cluster).sentence for cluster in set(columns["cluster"])},
    )
    write_map(rows, title, out)
