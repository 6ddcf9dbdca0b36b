"""Folders of images, through Pillow (the `vision` extra)."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from dbull.data.readers.chunk import Chunk, ReadSettings, Selection, make_chunk
from dbull.data.readers.extras import need_pillow
from dbull.errors import DataError

__all__ = ["SUFFIXES", "read_images"]

SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".tif", ".tiff", ".webp")


def read_images(folder: Path, settings: ReadSettings) -> Iterator[Chunk]:
    """Yield the images below a folder, sorted by path, which is also their key.

    Pixels lie in [0, 1]; a row is (height, width) or, in colour, (3, height, width) flattened.
    """
    pillow = need_pillow(str(folder))
    paths = sorted(path for path in folder.rglob("*") if path.suffix.lower() in SUFFIXES and path.is_file())
    if not paths:
        raise DataError(
            f"{folder}: no images in this folder; known are {', '.join(SUFFIXES)}. "
            "Tables in a folder are learned by naming them one by one, or by watching the folder"
        )
    if settings.columns is not None or (settings.key is not None and not settings.key_optional):
        raise DataError(
            f"{folder}: a folder of images has no columns to choose; its key is the path of the image"
        )
    shape = None
    for start in range(0, len(paths), settings.chunk_rows):
        pixels = []
        for path in paths[start : start + settings.chunk_rows]:
            image = _read(pillow, path, settings)
            shape = shape or image.shape
            if image.shape != shape:
                raise DataError(
                    f"{path}: shape {image.shape}, the images before have {shape}; give image_size=(h, w)"
                )
            pixels.append(image.ravel())
        assert shape is not None
        n_values = int(np.prod(shape))
        selection = Selection(tuple(range(n_values)), tuple(map(str, range(n_values))), None, ())
        keys = np.array([path.relative_to(folder).as_posix() for path in paths[start : start + len(pixels)]])
        yield make_chunk(np.stack(pixels), keys, start, selection, str(folder), shape)


def _read(pillow: Any, path: Path, settings: ReadSettings) -> np.ndarray:
    try:
        with pillow.open(path) as image:
            converted = image.convert("L" if settings.grey else "RGB")
            if settings.image_size is not None:
                height, width = settings.image_size
                converted = converted.resize((width, height), pillow.Resampling.BICUBIC)
            pixels = np.asarray(converted, dtype=np.float32) / np.float32(255)
    except (OSError, ValueError, SyntaxError, pillow.DecompressionBombError) as error:
        raise DataError(f"{path}: not a readable image ({error})") from error
    return pixels if settings.grey else np.moveaxis(pixels, 2, 0)
