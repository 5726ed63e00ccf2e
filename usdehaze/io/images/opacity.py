"""Images with opacity (alpha): what is fully transparent is black, else opacity is left out."""

from __future__ import annotations

import numpy as np
from PIL import Image

from usdehaze.errors import InputError


def rgb_of(image: Image.Image, path: object) -> np.ndarray:
    """``(H, W, 3)`` uint8 red, green and blue, without the colours that lie hidden under no opacity.

    Raises:
        InputError: there is but one colour, and the picture lies in the opacity.
    """
    if not image.has_transparency_data:
        return np.asarray(image.convert("RGB"))
    rgba = np.asarray(image.convert("RGBA"))
    rgb, opacity = rgba[..., :3], rgba[..., 3]
    shown = opacity > 0
    if len(np.unique(opacity[shown])) > 1 and (rgb[shown] == rgb[shown][0]).all():
        advice = "lay it over black and save it without opacity"
        raise InputError(path, "its picture lies in its opacity (alpha) alone", "grey levels or colours", advice)
    return np.where(shown[..., None], rgb, np.uint8(0))
