"""Groups of tensors as safetensors files. torch is imported only when tensors are made or written.

safetensors refuses a damaged header but not a flipped byte in the data, so the hash is checked before. The
header is checked here first, because a reader may allocate what a header claims.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING

from dbull.documents import Reader, check_fields, list_of, parse_document, whole
from dbull.errors import SettingsError
from dbull.store.layout import damaged, open_regular, read_bounded

if TYPE_CHECKING:
    from torch import Tensor

HEADER_BYTES = 2 * 2**20
MAX_TENSORS = 10_000
MAX_SIDE = 2**40  # also of an empty tensor: beyond 2^63 a shape is no shape to torch
# Bytes per value, for the kinds that every supported torch can read.
ITEM_BYTES = {
    "BOOL": 1,
    "U8": 1,
    "I8": 1,
    "I16": 2,
    "F16": 2,
    "BF16": 2,
    "I32": 4,
    "F32": 4,
    "I64": 8,
    "F64": 8,
}


@dataclass(frozen=True)
class TensorInfo:
    """Kind and shape of a stored tensor."""

    dtype: str
    shape: tuple[int, ...]


def pack_tensors(group: Mapping[str, Tensor], where: str) -> bytes:
    """Return the safetensors file of a group of tensors; the same tensors give the same bytes."""
    import torch
    from safetensors.torch import save

    known = {
        *(torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64),
        *(torch.float16, torch.bfloat16, torch.float32, torch.float64),
    }
    if len(group) > MAX_TENSORS:
        raise SettingsError(f"{where}: {len(group)} tensors, at most {MAX_TENSORS} are allowed; stack them")
    copies = {}
    for name, tensor in group.items():
        if (
            not isinstance(tensor, torch.Tensor)
            or tensor.dtype not in known
            or tensor.layout != torch.strided
            or tensor.is_meta
        ):
            kind = getattr(tensor, "dtype", type(tensor).__name__)
            raise SettingsError(
                f"{where}: {name!r} is {kind}, which cannot be stored; give a dense real tensor"
            )
        if not isinstance(name, str) or name.startswith("__"):
            raise SettingsError(f"{where}: {name!r} cannot name a tensor")
        # A clone, because safetensors refuses tensors that share memory, as tied weights do.
        copies[name] = tensor.detach().to("cpu").clone(memory_format=torch.contiguous_format)
    data: bytes = save(dict(sorted(copies.items())))
    return data


def read_header(path: Path) -> dict[str, TensorInfo]:
    """Return what a safetensors file holds after checking that its header tells nothing impossible."""
    try:
        with os.fdopen(open_regular(path), "rb") as handle:
            size = os.fstat(handle.fileno()).st_size
            length = int.from_bytes(handle.read(8), "little")
            if size < 8 or length > min(size - 8, HEADER_BYTES):
                raise damaged(path, f"has a header of {length} bytes, which cannot be")
            text = handle.read(length)
    except OSError as error:
        raise damaged(path, f"cannot be read ({error.strerror})") from error
    where = f"{path}.header"
    header = parse_document(text, where)
    if not isinstance(header, dict) or len(header) > MAX_TENSORS:
        raise damaged(path, f"has a header that is no list of at most {MAX_TENSORS} tensors")
    spans, found = [], {}
    for name, entry in header.items():
        fields = check_fields(entry, f"{where}.{name}", _READERS)
        dtype, shape, span = fields["dtype"], tuple(fields["shape"]), fields["data_offsets"]
        if dtype not in ITEM_BYTES or len(span) != 2 or len(shape) > 64 or max(shape, default=0) > MAX_SIDE:
            raise damaged(path, f"tensor {name!r:.80} has a kind or shape that dbull does not write")
        if span[1] - span[0] != prod(shape) * ITEM_BYTES[dtype]:
            raise damaged(path, f"tensor {name!r:.80} has a size that is not that of its shape")
        spans.append(tuple(span))
        found[name] = TensorInfo(dtype, shape)
    end = 0
    for start, stop in sorted(spans):
        if start != end:
            raise damaged(path, "has tensors that overlap or leave holes")
        end = stop
    if end != size - 8 - length:
        raise damaged(path, "has more or less data than its header tells")
    return found


def read_tensors(path: Path, n_bytes: int) -> dict[str, Tensor]:
    """Return the tensors of a file whose size and hash have been checked."""
    from safetensors import SafetensorError
    from safetensors.torch import load

    read_header(path)
    data = read_bounded(path, n_bytes)
    try:
        # From bytes and not from the path: tensors on a mapped file would change, or crash, with the file.
        tensors: dict[str, Tensor] = load(data)
    except (SafetensorError, ValueError, RuntimeError, KeyError, OverflowError) as error:
        raise damaged(path, f"is not a readable safetensors file ({error})") from error
    return tensors


def _kind(value: object, where: str) -> str:
    return value if isinstance(value, str) else ""


_READERS: dict[str, Reader] = {"dtype": _kind, "shape": list_of(whole), "data_offsets": list_of(whole)}
