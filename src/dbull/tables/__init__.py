"""Tables as people have them, as rows of numbers: numbers, flags, categories, dates, texts and vectors.

::

    from dbull.tables import ColumnEncoder, propose_roles

    roles = propose_roles(frame, {"carrier": "category"})  # what each column is, and what it will become
    encoder = ColumnEncoder.fit(frame, roles)  # fixed by the first data
    rows = encoder.encode(frame)  # (N, d) float32; later tables may lack columns, or bring new values
    encoder.features[0].restored(rows[:, 0])  # back in the user's units

A frame is one of pandas, polars or pyarrow, a dict of lists or arrays, or a list of dicts. docs/tables.md has
the rules.
"""

from dbull.tables.encoder import ColumnEncoder
from dbull.tables.frames import columns_of
from dbull.tables.roles import ROLES, ColumnRole, propose_roles, proposed_keys
from dbull.tables.scales import Feature
from dbull.tables.sparse import SparseProjection
from dbull.tables.word_counts import WordCounts
from dbull.tables.words import WordHasher

__all__ = [
    "ROLES",
    "ColumnEncoder",
    "ColumnRole",
    "Feature",
    "SparseProjection",
    "WordCounts",
    "WordHasher",
    "columns_of",
    "propose_roles",
    "proposed_keys",
]
