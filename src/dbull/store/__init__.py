"""The model folder: immutable generations, hashed, written whole or not at all.

Importing this room does not import torch; only reading and writing tensors does.
"""

from dbull.store.checking import CheckReport, Finding
from dbull.store.checkpoint import Checkpoint, LearnedInput
from dbull.store.comparison import Change, Difference, TensorChange
from dbull.store.folder import HistoryEntry, Loaded, ModelFolder
from dbull.store.layout import FORMAT_VERSION, hash_file
from dbull.store.manifest import Manifest

__all__ = [
    "FORMAT_VERSION",
    "Change",
    "CheckReport",
    "Checkpoint",
    "Difference",
    "Finding",
    "HistoryEntry",
    "LearnedInput",
    "Loaded",
    "Manifest",
    "ModelFolder",
    "TensorChange",
    "hash_file",
]
