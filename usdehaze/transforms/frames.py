"""Which frames an image holds: by digests in its metadata, frames that were picked or put in another order are noticed.

What MONAI or a slice does to the channel axis leaves no trace in the metadata, which go on to speak of all frames.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from hashlib import blake2b
from typing import Any

import numpy as np
from monai.data import MetaTensor

from usdehaze.errors import InputError

DIGESTS = "frame_digests"
LOADED, DEHAZED, ESTIMATED = "loaded", "dehazed", "estimate"


def digests_of(frames: np.ndarray) -> list[str]:
    """A digest of each frame ``(H, W)`` of ``(T, H, W)``."""
    return [blake2b(frame.tobytes(), digest_size=8).hexdigest() for frame in frames]


def digests_in(image: Any) -> dict[str, list[str]]:
    """Digests of the frames that were loaded, that were dehazed, and of the estimate, as far as the metadata say."""
    meta: Mapping[str, Any] = image.meta if isinstance(image, MetaTensor) else {}
    digests: dict[str, list[str]] = json.loads(meta.get(DIGESTS) or "{}")
    return digests


def check_order(name: str, found: list[str], known: list[str] | None) -> None:
    """Refuses frames of which it is not known which ones they are; a frame of other values may be the one it was.

    Args:
        name: what to call them.
        found: their digests.
        known: those that the frames had; None where nothing is known of them.

    Raises:
        InputError: another number of frames, or a frame that is where another one was.
    """
    if known is None:
        return
    what = ""
    if len(found) < len(known):
        what = f"{len(found)} frames have been picked of {len(known)}"
    elif len(found) > len(known):
        what = f"frames have been added, {len(found)} are there of {len(known)}"
    elif any(now != before and now in known for now, before in zip(found, known, strict=True)):
        what = "its frames have been put in another order"
    if what:
        raise InputError(name, what, advice="save all, in order, or pick them as the scan is loaded, with frames=")
