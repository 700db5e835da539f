"""Image files as one array of bytes."""

import io
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedmbo_ray.core.errors import ConfigError, first_line

if TYPE_CHECKING:
    from PIL.Image import Image

GREY = ("1", "L")  # other modes become red, green and blue
DEEP = ("I", "F", "I;16", "I;16B", "I;16L")  # more than a byte for a pixel


class ImageFile(NamedTuple):
    """An image: what errors call it, and its file or the bytes of its file."""

    name: str
    content: Path | bytes


def stacked(pictures: Sequence[ImageFile], size: tuple[int, int] | None, key: str) -> NDArray[np.uint8]:
    """All images as an array of shape (rows, channels, height, width); a ConfigError at the key names a wrong one.

    Args:
        pictures: one at least.
        size: height and width to give all of them; None if they are of one size.
        key: of the config, that named them.
    """
    shapes = [_shape(picture, key) for picture in pictures]
    height, width = size or shapes[0][:2]
    if size is None:
        other = next((i for i, shape in enumerate(shapes) if shape[:2] != (height, width)), None)
        if other is not None:
            raise ConfigError(
                f"images must be of one size, but {pictures[0].name} has {height}×{width} pixels and "
                f"{pictures[other].name} {shapes[other][0]}×{shapes[other][1]}; set data.size=[{height}, {width}] to "
                "resize all",
                key,
            )
    mode = "RGB" if any(colour for _, _, colour in shapes) else "L"
    made = np.empty((len(pictures), 3 if mode == "RGB" else 1, height, width), dtype=np.uint8)
    for row, picture in enumerate(pictures):
        made[row] = _pixels(picture, mode, (height, width), key)
    return made


def _shape(picture: ImageFile, key: str) -> tuple[int, int, bool]:
    """Height, width and whether it has colours, from the head of the file."""
    image = _opened(picture, key)
    with image:
        if image.mode in DEEP:
            raise ConfigError(f"images must have 8 bits for each colour, but {picture.name} has more; convert it", key)
        return image.height, image.width, image.mode not in GREY


def _pixels(picture: ImageFile, mode: str, size: tuple[int, int], key: str) -> NDArray[np.uint8]:
    """Of shape (channels, height, width)."""
    with _opened(picture, key) as image:
        try:
            converted = image.convert(mode)
        except (OSError, ValueError, SyntaxError) as error:
            raise ConfigError(f"images must be whole, but {picture.name} is not: {first_line(error)}", key) from None
    height, width = size
    if converted.size != (width, height):
        converted = converted.resize((width, height))
    return np.atleast_3d(np.asarray(converted, dtype=np.uint8)).transpose(2, 0, 1)


def _opened(picture: ImageFile, key: str) -> "Image":
    from PIL import Image  # takes a moment

    content = picture.content
    try:
        return Image.open(io.BytesIO(content) if isinstance(content, bytes) else content)
    except (OSError, ValueError, Image.DecompressionBombError) as error:
        raise ConfigError(f"images must be readable, but {picture.name} is not: {first_line(error)}", key) from None
