"""LoadUltrasound: a scan on disk becomes a MetaTensor of frames in dB."""

from __future__ import annotations

import os
from collections.abc import Hashable, Mapping, Sequence
from pathlib import Path
from typing import Any

from monai.config import KeysCollection
from monai.data import MetaTensor
from monai.transforms import MapTransform, Transform
from monai.utils import TransformBackends
from torch import Tensor

from usdehaze.choices import Layout, Units
from usdehaze.transforms.readers import UltrasoundReader


class LoadUltrasound(Transform):
    """Loads a scan: path -> ``(T, H, W)`` float32 in dB, 0 dB = full scale, floor = ``-dynamic_range_db``.

    Frames lie on the channel axis, so that every 2-D MONAI transform acts on each frame; with ``layout="1THW"`` the
    cine is one channel ``(1, T, H, W)``, see `usdehaze.transforms.layout`. The metadata carry geometry,
    dynamic range, frame times, provenance and an affine in mm: see `usdehaze.transforms.meta.meta_of`.

    Only usdehaze's own reader is tried, so that what it has to say about a file reaches the caller.

    Args:
        dataset, dynamic_range_db, frames, axes, units, layout, levels, rectangle, strict, force: see
            `usdehaze.transforms.UltrasoundReader`.

    Raises:
        TypeError, ValueError: options that cannot be, whatever the file.
        InputError: when called, for a file that is missing or cannot be used. `monai.transforms.Compose` wraps it in a
            RuntimeError whose ``__cause__`` it is.

    Example:
        >>> from usdehaze.transforms import LoadUltrasound
        >>> frames = LoadUltrasound(frames=slice(0, 30))("scan.h5")  # doctest: +SKIP
        >>> frames.shape, frames.meta["dynamic_range_db"]  # doctest: +SKIP
        (torch.Size([30, 480, 640]), 60.0)
    """

    backend = [TransformBackends.NUMPY]  # noqa: RUF012 (MONAI's convention)

    def __init__(
        self,
        dataset: str | None = None,
        dynamic_range_db: float | None = None,
        frames: slice | None = None,
        axes: str | None = None,
        units: Units | None = None,
        layout: Layout = "THW",
        levels: Sequence[float] | None = None,
        rectangle: bool = False,
        strict: bool = False,
        force: bool = False,
    ) -> None:
        self.reader = UltrasoundReader(
            dataset, dynamic_range_db, frames, axes, units, layout, levels, rectangle, strict, force
        )

    def __call__(self, filename: str | os.PathLike[str]) -> MetaTensor | Tensor:
        """Returns a MetaTensor, or a plain tensor under ``monai.data.set_track_meta(False)``."""
        frames, meta = self.reader.get_data(self.reader.read(Path(filename).expanduser()))
        image: MetaTensor | Tensor = MetaTensor.ensure_torch_and_prune_meta(frames, meta)
        return image


class LoadUltrasoundd(MapTransform):
    """Dictionary version of `LoadUltrasound`.

    Args:
        keys: keys whose values are paths; frames replace them.
        dataset, dynamic_range_db, frames, axes, units, layout, levels, rectangle, strict, force: see
            `usdehaze.transforms.UltrasoundReader`.
        allow_missing_keys: skip keys that are missing instead of raising.

    Raises:
        TypeError, ValueError: options that cannot be, whatever the file.
        InputError: when called, see `LoadUltrasound`.
        KeyError: when called, for a missing key.

    Example:
        >>> from usdehaze.transforms import LoadUltrasoundd
        >>> LoadUltrasoundd("image")({"image": "scan.h5"})["image"].shape  # doctest: +SKIP
        torch.Size([60, 480, 640])
    """

    backend = LoadUltrasound.backend

    def __init__(
        self,
        keys: KeysCollection,
        dataset: str | None = None,
        dynamic_range_db: float | None = None,
        frames: slice | None = None,
        axes: str | None = None,
        units: Units | None = None,
        allow_missing_keys: bool = False,
        layout: Layout = "THW",
        levels: Sequence[float] | None = None,
        rectangle: bool = False,
        strict: bool = False,
        force: bool = False,
    ) -> None:
        super().__init__(keys, allow_missing_keys)
        self.loader = LoadUltrasound(
            dataset, dynamic_range_db, frames, axes, units, layout, levels, rectangle, strict, force
        )

    def __call__(self, data: Mapping[Hashable, Any]) -> dict[Hashable, Any]:
        d = dict(data)
        for key in self.key_iterator(d):
            d[key] = self.loader(d[key])
        return d


LoadUltrasoundD = LoadUltrasoundDict = LoadUltrasoundd
