"""Networks and the view of rows that feeds them, as named tensors and plain values, and back, to the bit.

No class is named in either. Sizes are compared with those of the tensors at hand before anything is
allocated.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, fields
from typing import Any

import torch
from torch import Tensor

from dbull.documents import Reader, fail, list_of, number, object_of, or_none, text, truth, whole
from dbull.errors import DbullError, ModelFileError
from dbull.nets.frontend import FrontEnd
from dbull.nets.inputs import InputView
from dbull.nets.vae import VAE, NetworkShape

Tensors = Mapping[str, Mapping[str, Tensor]]
MOST_VALUES = 10_000_000  # of a row, of a code: what a forged number may cost before tensors disagree with it


def pack_networks(view: InputView, vae: VAE) -> tuple[dict[str, dict[str, Tensor]], dict[str, Any]]:
    """Return two groups of tensors and the fields of a document, both `networks` and `view`."""
    tensors = {
        "networks": dict(vae.state_dict()),
        "view": {
            **{"shift": view.shift, "scale": view.scale, "input_shift": view.input_shift},
            **({"centre": view.centre, "unit": view.unit} if len(view.unit) else {}),
        },
    }
    fields_of_document = {
        "networks": asdict(vae.shape),
        "view": {
            "kind": view.kind,
            "input_scale": view.input_scale,
            "front_end": None if view.front_end is None else asdict(view.front_end),
        },
    }
    return tensors, fields_of_document


def unpack_networks(
    tensors: Tensors, values: Mapping[str, Any], where: str, device: str
) -> tuple[InputView, VAE]:
    """Return what `pack_networks` was given; `values` as `NETWORKS` read them; within `refusing_damage`."""
    check_kind(tensors, "networks", torch.float32, where)
    return _view(tensors["view"], values["view"], values["networks"]), _vae(
        tensors["networks"], values["networks"], device
    )


def check_kind(tensors: Tensors, group: str, kind: torch.dtype, where: str) -> None:
    """Refuse a group of tensors of another type."""
    for name, tensor in tensors[group].items():
        if tensor.dtype != kind:
            fail(where, f"{group} has {name!r:.60} as {tensor.dtype} instead of {kind}")


@contextmanager
def refusing_damage(where: str) -> Iterator[None]:
    """Turn whatever goes wrong while tensors and document are put together into the error of a bad file."""
    try:
        yield
    except ModelFileError:
        raise
    except (DbullError, KeyError, ValueError, TypeError, RuntimeError, IndexError, OverflowError) as error:
        what = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise ModelFileError(
            f"{where}: does not fit the tensors beside it ({what:.200}); go back to a sound generation"
        ) from error


def _vae(tensors: Mapping[str, Tensor], values: dict[str, Any], device: str) -> VAE:
    image_shape = values["image_shape"]
    shape = NetworkShape(
        **{
            **values,
            "hidden_dims": tuple(values["hidden_dims"]),
            "image_shape": None if image_shape is None else tuple(image_shape),
        }
    )
    if shape.encoder != "identity" and 4 * len(shape.hidden_dims) > len(tensors):
        raise ValueError(f"{len(tensors)} tensors for {len(shape.hidden_dims)} hidden layers")
    # Without memory of their own: the tensors at hand become the weights, if they have the right shapes.
    with torch.device("meta"):
        vae = VAE(shape)
    for name, part in vae.state_dict().items():
        if name in tensors and tensors[name].shape != part.shape:  # torch takes (1,) for ()
            raise ValueError(f"{name} has shape {tuple(tensors[name].shape)} instead of {tuple(part.shape)}")
    vae.load_state_dict(dict(tensors), strict=True, assign=True)
    return vae.to(device)


def _view(tensors: Mapping[str, Tensor], values: dict[str, Any], networks: dict[str, Any]) -> InputView:
    front_end = None if values["front_end"] is None else FrontEnd(**values["front_end"])
    view = InputView(
        values["kind"],
        tensors["shift"],
        tensors["scale"],
        front_end,
        tensors["input_shift"],
        values["input_scale"],
        *(tensors.get(name, tensors["shift"][:0]) for name in ("centre", "unit")),
    )
    parts = view.shift, view.scale, view.input_shift, view.centre, view.unit
    if not all(part.is_floating_point() for part in parts):
        raise ValueError("the view of the rows has numbers of another kind")
    allowed = {(1,), (networks["n_values"],)}
    if tuple(view.shift.shape) not in allowed or view.shift.shape != view.scale.shape:
        raise ValueError(f"shift and scale of shapes {tuple(view.shift.shape)}, {tuple(view.scale.shape)}")
    if view.unit.shape not in {(0,), view.shift.shape} or view.centre.shape != view.unit.shape:
        raise ValueError(f"curves of shapes {tuple(view.centre.shape)}, {tuple(view.unit.shape)}")
    if view.input_shift.shape != (networks["n_inputs"],):
        raise ValueError(f"{len(view.input_shift)} inputs for networks of {networks['n_inputs']}")
    if front_end is not None:
        if front_end.n_features != view.n_inputs:
            raise ValueError(f"{front_end.n_features} features for networks of {view.n_inputs} inputs")
        if front_end.height * front_end.width * front_end.n_channels != networks["n_values"]:
            raise ValueError("the images of the front end are not the rows of the networks")
    return view


def _size(value: object, where: str) -> int:
    size: int = whole(value, where)
    if size > MOST_VALUES:
        fail(where, f"{size} is more than {MOST_VALUES}")
    return size


_FRONT_END: dict[str, Reader] = {
    field.name: truth if field.name == "straighten" else _size for field in fields(FrontEnd)
}
NETWORKS: dict[str, Reader] = {
    "networks": object_of(
        {
            "n_inputs": _size,
            "n_values": _size,
            "latent_dim": _size,
            "encoder": text,
            "hidden_dims": list_of(_size),
            "likelihood": text,
            "image_shape": or_none(list_of(_size)),
        }
    ),
    "view": object_of({"kind": text, "input_scale": number, "front_end": or_none(object_of(_FRONT_END))}),
}
