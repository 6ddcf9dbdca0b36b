"""What ``dbull predict`` says of rows; of many, as a folder of parts that any number of workers write."""

import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dbull.cli.table_files import Columns, table_writer
from dbull.documents import as_text, dump_document, parse_document
from dbull.errors import SettingsError
from dbull.writing import make_parent, replacing

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from dbull.data.readers import Chunk
    from dbull.methods.dbull import DBULL

OUTLIER = {"cluster": -1, "name": "", "status": "outlier"}
PLAN = "_plan.json"  # what the parts are of; readers of Parquet leave out names that begin so


@dataclass(frozen=True)
class Asked:
    """What is to be answered."""

    scores: bool
    flag_outliers: bool
    key: str | None = None


@dataclass(frozen=True)
class Answering:
    """Answers about chunks of rows, by whoever has them."""

    model: "DBULL"
    known: "Mapping[int, Mapping[str, Any]]"  # name and status of each cluster
    asked: Asked

    def __call__(self, chunk: "Chunk", path: object = None) -> Columns:
        """Return a column for each answer; the file is named if a path is given."""
        told, model = Columns(), self.model
        if self.asked.scores:
            proba = model.predict_proba(chunk.x)
            best = proba.argmax(1)
            ids = model.cluster_ids_[best].tolist()
            told = {
                "probability": proba[range(len(ids)), best].tolist(),
                "log_density": model.score_samples(chunk.x).tolist(),
                **({"novelty": model.novelty_scores(chunk.x).tolist()} if model.tells_novelty else {}),
            }
        else:
            ids = model.predict(chunk.x).tolist()
        answers = {
            **({} if path is None else {"file": [as_text(path)] * len(ids)}),
            **({} if chunk.keys is None else {"key": [as_text(key) for key in chunk.keys.tolist()]}),
            "row": list(range(chunk.first_row + 1, chunk.first_row + len(ids) + 1)),
            "cluster": ids,
            "name": [self.known[i]["name"] or "" for i in ids],
            "status": [self.known[i]["status"] for i in ids],
            **told,
        }
        if self.asked.flag_outliers:
            is_outlier = model.predict(chunk.x, outliers="flag") < 0
            for name, flag in OUTLIER.items():
                cells = zip(answers[name], is_outlier, strict=True)
                answers[name] = [flag if outlier else cell for cell, outlier in cells]
        return answers


@dataclass(frozen=True)
class Parts:
    """A folder of answers, a Parquet file for each block; each is whole or not there."""

    answering: Answering
    out: str
    name_files: bool
    numbers: tuple[int, ...] = ()  # which blocks are meant, if not all

    def __call__(self, place: int, block: Any, _: None) -> int:
        """Write the part of a block; return how many rows it has."""
        from dbull.data.readers import Chunk

        n_rows = 0
        with table_writer(self._path(self.numbers[place]), safe=False) as write:
            for piece in block.pieces():
                rows = self.answering.model.encoded(piece.rows)
                chunk = Chunk(rows, (), _array(piece.keys), piece.first_row, ())
                write(self.answering(chunk, block.shown if self.name_files else None))
                n_rows += len(rows)
        return n_rows

    def write(self, blocks: "Sequence[Any]", model: str) -> Iterator[int]:
        """Write the parts that are missing, and yield the rows of each; `model` tells whose answers they are.

        A folder that has parts of anything else is refused.
        """
        from dbull.methods.engine import over_blocks

        asked = asdict(self.answering.asked)
        plan = {"model": model, "blocks": [block.identity for block in blocks], "asked": asked}
        out, found = Path(self.out), Path(self.out, PLAN)
        make_parent(found)
        if found.exists():
            if parse_document(found.read_bytes(), str(found)) != plan:
                raise SettingsError(
                    f"{out}: has answers of another model, of other files, or with other options; name "
                    "another folder"
                )
        elif any(out.iterdir()):
            raise SettingsError(f"{out}: is no empty folder; name one for the answers")
        else:
            with replacing(found) as handle:
                handle.write(dump_document(plan, str(found)))
        missing = tuple(i for i in range(len(blocks)) if not os.path.exists(self._path(i)))
        work = Parts(self.answering, self.out, self.name_files, missing)
        yield from over_blocks(work, [blocks[i] for i in missing])

    def _path(self, number: int) -> Path:
        return Path(self.out, f"part-{number:06}.parquet")


def _array(keys: Any) -> Any:
    import numpy as np

    return None if keys is None else np.array(keys, dtype=object)
