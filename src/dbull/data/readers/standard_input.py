"""Standard input: its format, told by its first bytes; and as a file, for what has to be read twice."""

import io
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any, BinaryIO

from dbull.data.readers.opening import DAMAGE, packed_as, unpacked
from dbull.data.readers.remote import place
from dbull.errors import DataError

WHERE = "standard input"
NAME = "standard-input"


def recognised(stream: BinaryIO) -> tuple[Any, str]:
    """Return a stream, unpacked and at its beginning, and how the name of a file like it would end."""
    buffered = stream if isinstance(stream, io.BufferedReader) else io.BufferedReader(stream)  # type: ignore[type-var]
    head = buffered.peek(8)
    if not head:
        raise DataError(f"{WHERE}: nothing came")
    if packed := packed_as(head):
        buffered = io.BufferedReader(unpacked(buffered, packed, WHERE))
        try:
            head = buffered.peek(8)
        except DAMAGE as error:
            raise DataError(f"{WHERE}: truncated or damaged ({error})") from error
    if head.startswith((b"ARROW1", b"PAR1")):
        raise DataError(
            f"{WHERE}: this format must be read from a file, not from a stream; send an Arrow IPC stream"
        )
    if head.startswith(b"\x93NUMPY"):
        return buffered, ".npy"
    if head.startswith(b"\xff\xff\xff\xff"):
        return buffered, ".arrow"
    return buffered, ".jsonl" if head.lstrip().startswith(b"{") else ".csv"


def saved_input(stream: BinaryIO | None = None) -> Path:
    """Write standard input to a file that is removed at the end, and return where it is."""
    buffered, suffix = recognised(sys.stdin.buffer if stream is None else stream)
    target = Path(tempfile.mkdtemp(dir=place())) / (NAME + suffix)
    try:
        with target.open("wb") as file:
            shutil.copyfileobj(buffered, file)
    except DAMAGE as error:
        raise DataError(f"{WHERE}: truncated or damaged ({error})") from error
    return target
