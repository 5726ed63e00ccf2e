"""What a cine shows besides grey tissue comes out of the dehazer as it went in."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from usdehaze.result import Result


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
