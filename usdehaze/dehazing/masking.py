"""What a cine shows besides grey tissue comes out of the dehazer as it went in."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from usdehaze.geometry import image_mask

if TYPE_CHECKING:
    from usdehaze.cine import Cine
    from usdehaze.result import Result


def joined(cine: Cine, parts: list[Result]) -> Result:
    """Results on each image of a screen as one: every pixel is of the first image that it lies in."""
    whole = parts[0]
    height, width = cine.frames.shape[1:]
    taken = image_mask(whole.cine.geometry, (height, width))
    for part in parts[1:]:
        mask = image_mask(part.cine.geometry, (height, width)) & ~taken
        taken |= mask
        std, interval = whole.std, whole.interval
        whole = replace(
            whole,
            tissue=np.where(mask, part.tissue, whole.tissue),
            haze=np.where(mask, part.haze, whole.haze),
            std=None if std is None or part.std is None else np.where(mask, part.std, std),
            interval=None if interval is None or part.interval is None else np.where(mask, part.interval, interval),
        )
    return replace(whole, cine=cine)


def keep_what_is_no_tissue(result: Result) -> Result:
    """The result with the input's own values where the cine's ``tissue_mask`` is False.

    There tissue is the input bit for bit, haze is the floor, and the deviation is 0. Without a mask, the very result.
    """
    cine, mask = result.cine, result.cine.tissue_mask
    if mask is None:
        return result
    floor = np.float32(-cine.dynamic_range_db)
    return replace(
        result,
        tissue=np.where(mask, result.tissue, cine.frames),
        haze=np.where(mask, result.haze, floor),
        std=None if result.std is None else np.where(mask, result.std, np.float32(0)),
        interval=None if result.interval is None else np.where(mask, result.interval, cine.frames),
    )
