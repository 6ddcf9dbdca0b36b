"""Files into arrivals, each once: what `dbull learn` and `dbull watch` do, for Python.

A `Learner` is a model folder and the model in it. What it learns are files (tables, in any format that the
readers know) or folders of images. A long file becomes several arrivals; each is one generation of the model
folder, safe on disk when it is told. What was learned is remembered by what it holds and not by its name: the
same content again is refused, and of a file that grew only the new rows are learned. So the same call goes on
where it was after a stop.

::

    from dbull.ingest import Learner

    learner = Learner("model", {"key": "id", "arrival_rows": 5000, "epochs": 20})
    for arrival in learner.learn_folder("inbox"):
        print(arrival, arrival.report.born)

Settings are the parameters of `DBULL` and those of `Reading`, how files are read. `Learner.learn` takes one
file, and raises AlreadyLearnedError if there is nothing new in it; `Learner.learn_log` a `KafkaLog`.
docs/ingest.md tells more.
"""

from dbull.data.readers.kafka_log import KafkaLog
from dbull.ingest.inputs import Inbox, Input
from dbull.ingest.learner import Learned, Learner, open_model, rows_for, telling_notices
from dbull.ingest.settings import Reading, setting_names

__all__ = [
    "Inbox",
    "Input",
    "KafkaLog",
    "Learned",
    "Learner",
    "Reading",
    "open_model",
    "rows_for",
    "setting_names",
    "telling_notices",
]
