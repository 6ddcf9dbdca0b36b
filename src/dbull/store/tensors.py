"""Groups of tensors as safetensors files. torch is imported only when tensors are made or written.

safetensors refuses a damaged header but not a flipped byte in the data, so the hash is checked before. The
header is checked here first, because a reader may allocate what a header claims.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dbull.documents import Reader, check_fields, list_of, parse_document, whole
from dbull.errors import SettingsError
from dbull.store.layout import damaged, opened, read_bounded

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

HEADER_BYTES = 2 * 2**20
MAX_TENSORS = 10_000
MAX_SIDE = 2**40  # also of an empty tensor: beyond 2^63 a shape is no shape to torch
# Bytes per value, for the kinds that every supported torch can read.
_KINDS = {1: ("BOOL", "U8", "I8"), 2: ("I16", "F16", "BF16"), 4: ("I32", "F32"), 8: ("I64", "F64")}
ITEM_BYTES = {kind: n_bytes for n_bytes, kinds in _KINDS.items() for kind in kinds}


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


def read_header(path: Path) -> dict[str, tuple[str, tuple[int, ...]]]:
    """Return kind and shape of each tensor of a file; refuse a header that tells anything impossible."""
    with opened(path) as (file, size):
        length = int.from_bytes(file.read(8), "little")
        if size < 8 or length > min(size - 8, HEADER_BYTES):
            raise damaged(path, f"has a header of {length} bytes, which cannot be")
        text = file.read(length)
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
        found[name] = (dtype, shape)
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
    from safetensors.torch import load

    return _read(path, n_bytes, load)


def read_arrays(path: Path, n_bytes: int) -> dict[str, NDArray[Any]]:
    """Return the same as arrays, without importing torch."""
    from safetensors.numpy import load

    return _read(path, n_bytes, load)


def _read(path: Path, n_bytes: int, load: Callable[[bytes], dict[str, Any]]) -> dict[str, Any]:
    from safetensors import SafetensorError

    read_header(path)
    data = read_bounded(path, n_bytes)
    try:
        # From bytes and not from the path: tensors on a mapped file would change, or crash, with the file.
        return load(data)
    except (SafetensorError, ValueError, RuntimeError, KeyError, OverflowError) as error:
        raise damaged(path, f"is not a readable safetensors file ({error})") from error


_READERS: dict[str, Reader] = {
    "dtype": lambda value, _: value if isinstance(value, str) else "",
    "shape": list_of(whole),
    "data_offsets": list_of(whole),
}
