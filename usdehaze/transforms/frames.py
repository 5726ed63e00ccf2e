"""Which frames an image holds: by digests in its metadata, frames that were picked or put in another order are noticed.

What MONAI or a slice does to the channel axis leaves no trace in the metadata, which go on to speak of all frames; nor
do ``Transpose`` and what a function of one's own does to rows and columns.
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
LOADED, SUMS, DEHAZED = "loaded", "sums", "input"


def digests_of(frames: np.ndarray) -> list[str]:
    """A digest of each frame ``(H, W)`` of ``(T, H, W)``."""
    return [blake2b(frame.tobytes(), digest_size=8).hexdigest() for frame in frames]


def sums_of(frames: np.ndarray) -> list[str]:
    """A checksum of each float32 frame ``(H, W)`` of ``(T, H, W)`` that is the same wherever its pixels lie."""
    return [str(np.ascontiguousarray(frame).view(np.uint32).sum(dtype=np.uint64)) for frame in frames]


def are_shuffled(frames: np.ndarray, digests: Mapping[str, list[str]]) -> bool:
    """Whether a frame float32 ``(H, W)`` of ``(T, H, W)`` has the pixels of one that was loaded in other places."""
    sums, loaded = digests.get(SUMS, []), digests.get(LOADED, [])
    moved = [i for i, total in enumerate(sums_of(frames) if sums else ()) if total in sums]
    return any(digest not in loaded for digest in digests_of(frames[moved]))


def digests_in(image: Any) -> dict[str, list[str]]:
    """Digests of the frames that were loaded and dehazed, and of each estimate, as far as the metadata say."""
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


def check_same(name: str, what: str, frames: np.ndarray, known: list[str] | None) -> None:
    """Refuses an image of a result that is not what it was as it was made, bit for bit.

    Args:
        name: what to call the result.
        what: the image: "input", "tissue", "haze" or "tissue_std".
        frames: it, ``(T, H, W)`` float32.
        known: digests that its frames had; None where nothing is known of them.

    Raises:
        InputError: it is another.
    """
    found = digests_of(frames)
    check_order(name, found, known)
    if known is not None and found != known:
        made = "was dehazed" if what == DEHAZED else "came out of it"
        advice = "save before transforms that move pixels or change values, and name keys of one scan"
        raise InputError(name, f"the {what} is not what {made}", advice=advice)
