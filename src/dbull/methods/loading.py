"""`load`: a model folder becomes the estimator that was saved there, whichever it is."""

from __future__ import annotations

import importlib
import os
from typing import Any

from dbull.errors import ModelFileError
from dbull.methods import dbull_storage
from dbull.methods.storing import restore
from dbull.nets.augment import Augmentation
from dbull.store import ModelFolder

# The name that a folder has for a method -> module and class, imported when one is met.
STORED = {
    "curl": ("competitors.curl", "CURL"),
    "dec": ("competitors.dec", "DEC"),
    "dp-mixture": ("dp_mixture", "DPMixture"),
    "vade": ("competitors.vade", "VaDE"),
    "vae-dp": ("competitors.vae_dp", "VAEDP"),
}


def load(
    path: str | os.PathLike[str],
    generation: int | None = None,
    *,
    events: bool = True,
    augment: Augmentation | None = None,
    device: str | None = None,
) -> Any:
    """Return the model of a folder, to predict with or to go on learning, as if it had never been stored.

    A `DBULL`, or whatever else was saved there. `labels_`, `history_` and `chosen_`, which are about one fit,
    and what `set_output` said are not kept; `callback` and a `random_state` that is no whole number are None.

    Parameters
    ----------
    path
        Folder that `save` or ``dbull learn`` wrote.
    generation
        The newest unless named. A model loaded from an older one can be saved elsewhere only.
    events
        Whether `events_` of a `DBULL` holds everything that ever happened, or only what happens from now on.
    augment
        The function that the model was given as `augment`, if it was one of your own.
    device
        Where the networks go, if not where they were; on the CPU, with a warning, if that is not here.

    Raises
    ------
    ModelFileError
        if a file is damaged, missing, foreign or of a newer format; never half a model
    """
    folder = ModelFolder(path)
    loaded = folder.load(generation)
    method = loaded.checkpoint.settings.get("method", dbull_storage.METHOD)
    if method == dbull_storage.METHOD:
        return dbull_storage.load_generation(folder, loaded, events=events, augment=augment, device=device)
    if not isinstance(method, str) or method not in STORED:
        place = folder.folder(loaded.generation)
        raise ModelFileError(f"{place}: is a model of {method!r:.40}, which this dbull does not know")
    module, name = STORED[method]
    kind = getattr(importlib.import_module(f"dbull.methods.{module}"), name)
    return restore(kind, folder, loaded, augment, device)
