"""Which positions of a chat model's input show an image, and which patch of it.

Models of text and images (Llava, Qwen-VL, Gemma 3, SmolVLM, PaliGemma) read one id where an image
stands, once for each patch, and put the vectors of the image there. Rows and columns follow from
the config, or from the grid that comes with the images; where neither fits they stay unknown.
"""

import math
from collections.abc import Iterator
from itertools import groupby, repeat
from typing import Any

import torch
from torch import Tensor


def image_places(config: Any, ids: Tensor, grids: Any = None) -> Tensor | None:
    """Return the image, row and column of each position: (batch, length, 3), -1 at text and where a
    row or column is unknown; None without an image.

    Args:
        config: of the model, or None.
        ids: (batch, length).
        grids: (image, 3), the `image_grid_thw` of Qwen-VL: frames, rows and columns of patches,
            before they are merged; or None.
    """
    token = getattr(config, "image_token_id", None)
    if not isinstance(token, int) or not bool((ids == token).any()):
        return None
    places = torch.full((*ids.shape, 3), -1)
    merged = iter(()) if grids is None else iter(_merged(config, grids))
    for row, is_image in enumerate((ids == token).tolist()):
        image = start = 0
        for is_run, run in groupby(is_image):
            length = len(list(run))
            sizes = _usual(config, length) if grids is None else merged
            for size, width in _images(length, sizes) if is_run else ():
                places[row, start : start + size, 0] = image
                if width:
                    patches = torch.arange(size)
                    places[row, start : start + size, 1] = patches // width
                    places[row, start : start + size, 2] = patches % width
                image, start, length = image + 1, start + size, length - size
            start += length
    return places


def _images(length: int, sizes: Iterator[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Divide so many positions into images: the patches of each, and how many stand in a row, 0 if
    that is unknown."""
    while length:
        height, width = next(sizes, (0, 0))
        size = height * width
        if not 0 < size <= length:
            size, width = length, 0
        yield size, width
        length -= size


def _merged(config: Any, grids: Tensor) -> list[tuple[int, int]]:
    """Return rows and columns of each image, frames one below the other."""
    merge = getattr(config.vision_config, "spatial_merge_size", 1)
    return [(frames * (high // merge), wide // merge) for frames, high, wide in grids.tolist()]


def _usual(config: Any, length: int) -> Iterator[tuple[int, int]]:
    """Return the rows and columns of every image that the config states, if they fit."""
    per_image = getattr(config, "mm_tokens_per_image", None)
    vision = getattr(config, "vision_config", None)
    size, patch = getattr(vision, "image_size", None), getattr(vision, "patch_size", None)
    if isinstance(per_image, int):
        sides = (math.isqrt(per_image),) * 2
    elif size and patch:
        shrink = getattr(config, "scale_factor", round(1 / getattr(config, "downsample_ratio", 1)))
        pairs = zip(_pair(size), _pair(patch), strict=True)
        height, width = (side // cell // shrink for side, cell in pairs)
        sides = height, width
    else:
        return iter(())
    return repeat(sides) if sides[0] * sides[1] and not length % (sides[0] * sides[1]) else iter(())


def _pair(size: Any) -> tuple[int, int]:
    return (size, size) if isinstance(size, int) else (size[0], size[1])


def place_name(place: list[int], images: int) -> str:
    """Name a position of an image, one of so many in its input.

    >>> place_name([0, 2, 3], 1), place_name([1, 2, 3], 2), place_name([0, -1, -1], 1)
    ('image 2,3', 'image 1: 2,3', 'image')
    """
    image, row, column = place
    name = "image" if images == 1 else f"image {image}:"
    if row < 0:
        return name.rstrip(":")
    return f"{name} {row},{column}"
