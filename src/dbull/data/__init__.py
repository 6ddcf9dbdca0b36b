"""Data sets, readers for files of one's own, and scenarios that turn a data set into a stream."""

from dbull.data.dataset import Dataset
from dbull.data.readers import Chunk, ReadSettings, read_chunks, read_table
from dbull.data.registry import CatalogueEntry, catalogue, dataset_names, fetch, load, verify
from dbull.data.scenarios import Arrival, HeldOut, Scenario, scenario, scenario_names

__all__ = [
    "Arrival",
    "CatalogueEntry",
    "Chunk",
    "Dataset",
    "HeldOut",
    "ReadSettings",
    "Scenario",
    "catalogue",
    "dataset_names",
    "fetch",
    "load",
    "read_chunks",
    "read_table",
    "scenario",
    "scenario_names",
    "verify",
]
