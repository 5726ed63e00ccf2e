"""DbToGrey: dB become the 8-bit picture that ``SaveImage(d)`` writes as a PNG."""

from __future__ import annotations

import operator
from collections.abc import Hashable, Mapping
from typing import Any, Literal

import numpy as np
import torch
from monai.config import KeysCollection, NdarrayOrTensor
from monai.data import MetaTensor
from monai.transforms import MapTransform, Transform
from monai.utils import MetaKeys, TransformBackends, convert_to_dst_type

from usdehaze.decibels import db_to_grey
from usdehaze.errors import InputError
from usdehaze.transforms.dehaze import check_dynamic_range
from usdehaze.transforms.layout import array_of
from usdehaze.transforms.meta import check_cine, dynamic_range_of, name_of


class DbToGrey(Transform):
    """One frame as a picture: ``(T, H, W)`` or ``(1, T, H, W)`` dB -> ``(1, W, H)`` uint8, floor 0, full scale 255.

    Columns come before rows, as MONAI's PNG reader and writer have them: ``SaveImage(output_ext=".png")`` then writes
    the picture the right way up, and ``LoadImage`` reads the same array back. ``columns_first=False`` gives
    ``(1, H, W)``, and ``frame="all"`` keeps ``(T, W, H)``, for what is not written as a PNG, such as NIfTI.

    Metadata stay, but for the affine, which goes with the axes, and ``spatial_shape``.

    Args:
        frame: index of the frame, from the end where negative; by default the middle one, as in previews; or "all".
        dynamic_range_db: dB between black and white; by default what the metadata say, else 60.
        columns_first: ``(1, W, H)``; False for ``(1, H, W)``.

    Raises:
        TypeError, ValueError: a frame or dynamic range that is none.
        InputError: when called, for frames that are not 3-D or 4-D, lie outside ``[-dynamic_range_db, 0]``, or do not
            hold that frame, or for a collated batch.

    Example:
        >>> import numpy as np
        >>> from usdehaze.transforms import DbToGrey
        >>> DbToGrey(columns_first=False)(np.array([[[-60.0, -30.0, 0.0]]]))
        array([[[  0, 128, 255]]], dtype=uint8)
    """

    backend = [TransformBackends.NUMPY]  # noqa: RUF012 (MONAI's convention)

    def __init__(
        self,
        frame: int | Literal["all"] | None = None,
        dynamic_range_db: float | None = None,
        columns_first: bool = True,
    ) -> None:
        self.frame = frame if frame is None or frame == "all" else operator.index(frame)
        check_dynamic_range(dynamic_range_db)
        self.dynamic_range_db, self.columns_first = dynamic_range_db, columns_first

    def __call__(self, img: NdarrayOrTensor) -> NdarrayOrTensor:
        """
        Args:
            img: ``(T, H, W)`` or ``(1, T, H, W)`` dB; MetaTensor, Tensor or ndarray.
        """
        check_cine(img, "dB frames (T, H, W) or (1, T, H, W)")
        frames, span = array_of(img), dynamic_range_of(img, self.dynamic_range_db)
        low, high = float(frames.min()), float(frames.max())
        if not (low >= -span - 1e-3 and high <= 1e-3):  # also for NaN
            found = f"values from {low:g} to {high:g}"
            raise InputError(name_of(img), found, f"dB from {-span:g} to 0", "draw before values are changed")
        grey = db_to_grey(self._picked(img, frames), span)
        if self.columns_first:
            grey = grey.swapaxes(1, 2)
        drawn: NdarrayOrTensor = convert_to_dst_type(np.ascontiguousarray(grey), img, dtype=torch.uint8)[0]
        if isinstance(img, np.ndarray):
            drawn = np.asarray(drawn, np.uint8)
        if isinstance(drawn, MetaTensor):
            drawn.affine = torch.as_tensor(self._affine(np.asarray(img.affine)))  # type: ignore[union-attr]
            drawn.meta[MetaKeys.SPATIAL_SHAPE] = torch.tensor(grey.shape[1:])
        return drawn

    def _picked(self, img: Any, frames: np.ndarray) -> np.ndarray:
        if self.frame == "all":
            return frames
        n_frames = len(frames)
        frame = n_frames // 2 if self.frame is None else int(self.frame)
        if not -n_frames <= frame < n_frames:
            raise InputError(name_of(img), f"no frame {frame} among {n_frames}", "frame= of one that there is")
        picked: np.ndarray = frames[frame % n_frames][None]
        return picked

    def _affine(self, affine: np.ndarray) -> np.ndarray:
        """``(3, 3)`` of the picture: time left out, rows and columns exchanged where the picture has them so."""
        plane = affine[1:, 1:] if affine.shape == (4, 4) else affine
        return plane[[1, 0, 2]][:, [1, 0, 2]] if self.columns_first and plane.shape == (3, 3) else plane


class DbToGreyd(MapTransform):
    """Dictionary version of `DbToGrey`.

    Args:
        keys: keys of dB frames ``(T, H, W)`` or ``(1, T, H, W)``; the picture takes their place.
        frame, dynamic_range_db, columns_first: see `DbToGrey`.
        allow_missing_keys: skip keys that are missing instead of raising.

    Raises:
        TypeError, ValueError, InputError: see `DbToGrey`.
        KeyError: when called, for a missing key.

    Example:
        >>> from monai.transforms import Compose, SaveImaged
        >>> from usdehaze.transforms import DbToGreyd, DehazeUltrasoundd, LoadUltrasoundd
        >>> steps = Compose(
        ...     [
        ...         LoadUltrasoundd("image"),
        ...         DehazeUltrasoundd("image"),
        ...         DbToGreyd("image"),
        ...         SaveImaged("image", output_dir="out", output_ext=".png"),
        ...     ]
        ... )
    """

    backend = DbToGrey.backend

    def __init__(
        self,
        keys: KeysCollection,
        frame: int | Literal["all"] | None = None,
        dynamic_range_db: float | None = None,
        columns_first: bool = True,
        allow_missing_keys: bool = False,
    ) -> None:
        super().__init__(keys, allow_missing_keys)
        self.to_grey = DbToGrey(frame, dynamic_range_db, columns_first)

    def __call__(self, data: Mapping[Hashable, Any]) -> dict[Hashable, Any]:
        d = dict(data)
        for key in self.key_iterator(d):
            d[key] = self.to_grey(d[key])
        return d


DbToGreyD = DbToGreyDict = DbToGreyd
