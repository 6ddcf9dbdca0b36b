"""The map of a model as it is stored, so that all generations show a row in the same place."""

from collections.abc import Mapping
from typing import Any

import torch

from dbull.codec.networks import refusing_damage
from dbull.documents import check_fields, fail, list_of, number, object_of, value_that, whole
from dbull.lifelong.plane import Plane
from dbull.lifelong.state import LearnerState

DOCUMENT = "map"  # name of what is stored


def pack_map(model: Any) -> tuple[dict[str, dict[str, torch.Tensor]], dict[str, Any]]:
    """Return the map of a model as a document; nothing if it has none."""
    plane: Plane | None = getattr(model, "map_", None)
    if plane is None:
        return {}, {}
    places = [{"component": i, "x": x, "y": y} for i, (x, y) in plane.places.items()]
    return {}, {DOCUMENT: {"axes": plane.axes.tolist(), "unit": plane.unit, "places": places}}


def unpack_map(documents: Mapping[str, Any], state: LearnerState, where: str) -> Plane | None:
    """Return what `pack_map` was given; None of models that have no map."""
    if DOCUMENT not in documents:
        return None
    with refusing_damage(where):
        values = check_fields(documents[DOCUMENT], where, _DOCUMENT)
        axes = torch.tensor(values["axes"], dtype=torch.float64)
        if axes.shape != (2, state.vae.shape.latent_dim):
            fail(where, f"axes of shape {tuple(axes.shape)} for {state.vae.shape.latent_dim} dimensions")
        places = {place["component"]: (place["x"], place["y"]) for place in values["places"]}
        if not places.keys() >= set(state.memory.ids):
            fail(where, "components without a place")
    return Plane(axes, values["unit"], places)


_DOCUMENT = {
    "axes": list_of(list_of(number)),
    "unit": value_that(lambda value: isinstance(value, float) and 0 < value < 1e100, "a length"),
    "places": list_of(object_of({"component": whole, "x": number, "y": number})),
}
