"""Dehazing as one step among MONAI's: load, dehaze, scale, resize, segment, measure.

The segmentation is a threshold on what is dark inside the image: put your own network in its place.

    python pipelines/dehaze_then_segment.py scan.h5
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import torch
from monai.transforms import AsDiscreted, Compose, CopyItemsd, Resized, ScaleIntensityRanged

from usdehaze.transforms import DehazeUltrasoundd, LoadUltrasoundd

SIZE = (128, 128)
DARK_DB = -45.0


def pipeline(dynamic_range_db: float = 60.0, **options: Any) -> Compose:
    """From ``{"image": path}`` to ``image``, ``(T, *SIZE)`` in [0, 1], and ``bright``, ``(T, *SIZE)`` of 0 and 1.

    Dehazing comes before everything that changes values or moves pixels: it needs dB, and the geometry of the scan.

    Args:
        dynamic_range_db: dB between full scale and the floor.
        options: of `DehazeUltrasoundd`.
    """
    return Compose(
        [
            LoadUltrasoundd("image", dynamic_range_db=dynamic_range_db),
            DehazeUltrasoundd("image", haze_key="haze", **options),
            ScaleIntensityRanged("image", a_min=-dynamic_range_db, a_max=0.0, b_min=0.0, b_max=1.0, clip=True),
            Resized("image", spatial_size=SIZE, mode="area"),
            CopyItemsd("image", names="bright"),
            AsDiscreted("bright", threshold=1 + DARK_DB / dynamic_range_db),
        ]
    )


def dark_share(bright: torch.Tensor) -> list[float]:
    """Share of the pixels of each frame that are dark, given ``(T, H, W)`` of 1 (bright) and 0 (dark)."""
    return (1 - torch.as_tensor(bright)).mean(dim=(1, 2)).tolist()


def main(scans: Sequence[str]) -> None:
    steps = pipeline()
    for scan in scans:
        item = steps({"image": scan})
        shares = " ".join(f"{share:.3f}" for share in dark_share(item["bright"]))
        print(f"{scan}: share of dark pixels in each frame {shares}")


if __name__ == "__main__":
    main(sys.argv[1:])
