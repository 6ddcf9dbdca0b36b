"""Folders of images, through Pillow (the `vision` extra)."""

import hashlib
import io
import math
import os
import warnings
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from dbull.data.readers.chunk import Chunk, ReadSettings, Selection, check_width, need_pillow
from dbull.errors import DataError

SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".tif", ".tiff", ".webp")
MAX_PIXELS = 1 << 26  # of one image; a small file may unpack to far more
MAX_FILE_BYTES = 1 << 29  # eight for each pixel


def read_images(folder: Path, settings: ReadSettings) -> Iterator[Chunk]:
    """Yield the images below a folder, sorted by path, which is also their key.

    Pixels lie in [0, 1]; a row is (height, width) or, in colour, (3, height, width) flattened.
    """
    pillow = need_pillow(str(folder))
    if settings.columns is not None or (settings.key is not None and not settings.key_optional):
        raise DataError(
            f"{folder}: a folder of images has no columns to choose; its key is the path of the image"
        )
    files = image_files(folder)
    if settings.only is not None:
        files = {key: folder / key for key in settings.only}
    shape: tuple[int, ...] = ()

    def read(key: str) -> np.ndarray:
        image = _read(pillow, files[key], settings, key)
        if shape and image.shape != shape:
            raise DataError(
                f"{files[key]}: shape {image.shape}, the images before have {shape}; give image_size=(h, w)"
            )
        return image

    keys = list(files)
    shape = read(keys[0]).shape
    n_values = math.prod(shape)
    selection = Selection(str(folder), n_values, tuple(range(n_values)), tuple(map(str, range(n_values))))
    step = settings.rows_at_once(n_values)
    for start in range(0, len(keys), step):
        some = keys[start : start + step]
        rows = np.stack([read(key).ravel() for key in some])
        yield selection.chunk(rows, np.array(some), start, shape)


def channels_last(chunk: Chunk, path: Path) -> Chunk:
    """Return pixels in the order of `DBULL`: readers of colour images have the channels first."""
    if not path.is_dir() or len(chunk.sample_shape) != 3:
        return chunk
    n_channels, height, width = chunk.sample_shape
    pixels = chunk.x.reshape(-1, n_channels, height, width).transpose(0, 2, 3, 1)
    return replace(chunk, x=pixels.reshape(len(chunk.x), -1), sample_shape=(height, width, n_channels))


def is_picture_folder(folder: Path) -> bool:
    """Tell whether there is an image below a folder."""
    return any(name.lower().endswith(SUFFIXES) for _, _, names in os.walk(folder) for name in names)


def image_files(folder: Path) -> dict[str, Path]:
    """Return the images below a folder by their keys, in order; refuse a folder without any."""
    found = sorted(
        Path(place, name)
        for place, _, names in os.walk(folder)
        for name in names
        if name.lower().endswith(SUFFIXES)
    )
    files = {path.relative_to(folder).as_posix(): path for path in found if path.is_file()}
    if not files:
        raise DataError(
            f"{folder}: no tables and no images in this folder; known images are {', '.join(SUFFIXES)}"
        )
    return files


def _read(pillow: Any, path: Path, settings: ReadSettings, key: str) -> np.ndarray:
    try:
        if path.stat().st_size > MAX_FILE_BYTES:
            raise DataError(
                f"{path}: the file has more than the {MAX_FILE_BYTES:,} bytes that an image may have"
            )
        data = path.read_bytes()
        if settings.only is not None and hashlib.sha256(data).hexdigest() != settings.only[key]:
            raise DataError(f"{path}: has changed while the folder was read; run the same again")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", pillow.DecompressionBombWarning)  # there is a limit of our own
            with pillow.open(io.BytesIO(data)) as image:
                if image.width * image.height > MAX_PIXELS:
                    raise DataError(
                        f"{path}: {image.width:,} x {image.height:,} pixels are more than the {MAX_PIXELS:,} "
                        "that an image may have; make it smaller first"
                    )
                if settings.image_size is None:
                    n_values = image.width * image.height * (1 if settings.grey else 3)
                    check_width(n_values, f"{path}: without image_size=(h, w)")
                pixels = _pixels(pillow, image, settings)
    except DataError:
        raise
    except pillow.UnidentifiedImageError as error:  # whose text has the place in memory
        raise DataError(f"{path}: not a readable image (of no known kind)") from error
    except (OSError, ValueError, SyntaxError, MemoryError, pillow.DecompressionBombError) as error:
        raise DataError(f"{path}: not a readable image ({error})") from error
    return pixels if settings.grey else np.moveaxis(pixels, 2, 0)


def _pixels(pillow: Any, image: Any, settings: ReadSettings) -> np.ndarray:
    converted = image.convert("L" if settings.grey else "RGB")
    if settings.image_size is not None:
        height, width = settings.image_size
        converted = converted.resize((width, height), pillow.Resampling.BICUBIC)
    pixels: np.ndarray = np.asarray(converted, dtype=np.float32) / np.float32(255)
    return pixels
